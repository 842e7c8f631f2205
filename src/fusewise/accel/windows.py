"""Windows: which pixels of its input an operator reads along one axis.

Takes attributes of convolutions, pools and Resize; gives an `AxisWindow`. The planner's equations stand on these, the simulator
does not: it works out for itself what an operator reads, so that it can contradict them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

__all__ = ["PIXEL", "AxisWindow", "centred", "resized", "spread"]

Position = int | Fraction


@dataclass(frozen=True, slots=True)
class AxisWindow:
    """Output pixel y is centred at input pixel y * `stride`, and reads `back` before that to `ahead` after it.

    `stride` is (numerator, denominator), below one when the map grows; there `back` and `ahead` are fractions, the most of
    all output pixels. Where a pixel reads literally is up to `begin`, the padding before the image, or, for a map that grows,
    `ranges`, the first and last input pixel of every output pixel.
    """

    back: Position = 0
    ahead: Position = 0
    stride: tuple[int, int] = (1, 1)
    begin: int = 0
    ranges: tuple[tuple[int, int], ...] = ()

    @property
    def size(self) -> int:
        """The most input pixels that one output pixel reads."""
        return math.floor(self.back + self.ahead) + 1

    @property
    def reads_two(self) -> int:
        """1 where a map is stretched by mixing neighbours, else 0."""
        return int(any(first < last for first, last in self.ranges))

    def read(self, first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and last input pixel that output pixels `first` to `last` read, int64 alike; padding is outside the input."""
        if self.ranges:
            low, high = _ends(self.ranges)
            return low[first], high[last]
        step = self.stride[0]
        return first * step - self.begin, last * step - self.begin + self.size - 1

    def edges(self, before: int, after: int) -> tuple[tuple[int, int], ...]:
        """Where few windows fit a small map of `before` pixels: pairs (oldest, begin), the first pixel inside the map of a window
        that begins at `begin`. Between them these hold the most; () when a window that begins at pixel 0 does, as usual."""
        step = self.stride[0]
        inner = max(0, -(-self.begin // step))
        offset = inner * step - self.begin
        if self.ranges or before == after == 1 or (offset <= 0 and inner < after):
            return ()
        found = [(offset, offset)] if inner < after else []
        last = min(inner, after) - 1
        return (*found, (0, last * step - self.begin)) if last >= 0 else tuple(found)


@cache
def _ends(ranges: tuple[tuple[int, int], ...]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(ranges)
    return table[:, 0], table[:, 1]


PIXEL = AxisWindow()
"""One pixel for one pixel."""


def centred(kernel: int, dilation: int, stride: int, begin: int) -> AxisWindow:
    """The window of a convolution or a pool, aligned at its centre whatever the padding says: what is kept between two
    operators depends on distances alone."""
    reach = (kernel - 1) * dilation
    return AxisWindow(reach // 2, reach - reach // 2, (stride, 1), begin)


def spread(kernel: int, dilation: int, stride: int, begin: int, before: int, after: int) -> AxisWindow:
    """The window of a ConvTranspose from `before` to `after` pixels: output y gathers the inputs i for which y + begin - i *
    stride lies in the kernel."""
    reach = (kernel - 1) * dilation
    found = [(-((reach - y - begin) // stride), (y + begin) // stride) for y in range(after)]
    return _growing([(first, max(first, last)) for first, last in found], before, after)


def resized(linear: bool, rounding: str, positions: Sequence[float], before: int) -> AxisWindow:
    """The window of a Resize that reads at `positions`, one for each output pixel: the pixels on either side (`linear`), or the
    nearest one by ONNX's `nearest_mode`."""
    ranges = []
    for position in positions:
        # positions are ratios of small numbers; what float32 scales add lies below the sixth digit
        at = round(min(max(position, 0.0), before - 1.0), 6)
        low, high = math.floor(at), math.ceil(at)
        if not linear:
            half = round(at - low, 6)
            up = {"floor": False, "ceil": True, "round_prefer_ceil": half >= 0.5}.get(rounding, half > 0.5)
            low = high = high if up else low
        ranges.append((low, high))
    return _growing(ranges, before, len(positions))


def _growing(ranges: Sequence[tuple[int, int]], before: int, after: int) -> AxisWindow:
    stride = Fraction(before, after)
    back = max(y * stride - first for y, (first, _) in enumerate(ranges))
    ahead = max(last - y * stride for y, (_, last) in enumerate(ranges))
    return AxisWindow(_whole(back), _whole(ahead), (before, after), 0, tuple(ranges))


def _whole(number: Fraction) -> Position:
    return number.numerator if number.denominator == 1 else number
