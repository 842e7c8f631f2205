"""DRAM that counts, and line buffers that forget: the two kinds of memory of a simulated accelerator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Dram", "LineBuffer"]


@dataclass
class Dram:
    """Whole maps outside the chip, float64[C, H, W] by tensor, and how many elements crossed the boundary."""

    maps: dict[int, np.ndarray]
    read: int = 0
    written: int = 0

    def load(self, tensor: int, row: int, column: int) -> np.ndarray:
        """One pixel; every load counts, a second one too."""
        self.read += self.maps[tensor].shape[0]
        pixel: np.ndarray = self.maps[tensor][:, row, column]
        return pixel

    def store(self, tensor: int, row: int, column: int, pixel: np.ndarray) -> None:
        """One pixel of a map that was made ready by `expect`."""
        self.written += pixel.size
        self.maps[tensor][:, row, column] = pixel

    def expect(self, tensor: int, shape: tuple[int, int, int]) -> None:
        """Room for a map that will be written; what is not written stays NaN."""
        self.maps[tensor] = np.full(shape, np.nan)


class LineBuffer:
    """The newest pixels of one tensor, in the order they come; each new one takes the place of the oldest.

    Reading a pixel that was overwritten, or that has not come yet, is an error: it means that the buffer is too small, or the
    schedule wrong.
    """

    __slots__ = ("_pixels", "_width", "newest", "size")

    def __init__(self, channels: int, width: int, size: int) -> None:
        self._pixels = np.full((size, channels), np.nan)
        self._width, self.size, self.newest = width, size, -1

    @property
    def elements(self) -> int:
        return int(self._pixels.size)

    def push(self, row: int, column: int, pixel: np.ndarray) -> None:
        """The next pixel; they come row by row."""
        number = row * self._width + column
        if number != self.newest + 1:
            raise AssertionError(f"pixel {number} came after {self.newest}")
        self._pixels[number % self.size] = pixel
        self.newest = number

    def __call__(self, row: int, column: int) -> np.ndarray:
        """A pixel that is still there."""
        number = row * self._width + column
        if not self.newest - self.size < number <= self.newest:
            raise AssertionError(f"pixel {number} is not held: {self.size} up to {self.newest} are")
        pixel: np.ndarray = self._pixels[number % self.size]
        return pixel
