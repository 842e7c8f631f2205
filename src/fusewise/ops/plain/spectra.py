"""Fourier transforms by NumPy, for signals whose length is known only while a model runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from fusewise.ir.graph import Node
from fusewise.ops.plain.row import Other, Plain, PlainFunction

__all__ = ["SPECTRA"]


def _numbers(signal: Any) -> np.ndarray:
    """What the last axis has the parts of, in double precision."""
    wide = signal.astype(np.float64)
    if wide.shape[-1] not in (1, 2):
        raise Other
    return np.asarray(wide[..., 0] if wide.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1])


def _parts(found: np.ndarray, like: Any) -> np.ndarray:
    return np.stack([found.real, found.imag], -1).astype(like.dtype)


def _whole(operand: Any) -> int | None:
    return None if operand is None else int(operand.reshape(-1)[0])


def _dft(node: Node) -> PlainFunction:
    inverse, onesided = (bool(node.attribute(name, 0)) for name in ("inverse", "onesided"))

    def run(signal: Any, length: Any = None, axis: Any = None) -> Any:
        along, asked = _whole(axis), _whole(length)
        if signal.ndim < 2 or (asked is not None and asked < 1):
            raise Other
        place = -2 if along is None else along
        if not -signal.ndim <= place < signal.ndim - 1 or place == -1:
            raise Other
        place %= signal.ndim
        if onesided and inverse:
            found = np.fft.irfft(_numbers(signal), asked, place)
            return found[..., None].astype(signal.dtype)
        if onesided and signal.shape[-1] != 1:
            raise Other
        transform = np.fft.rfft if onesided else np.fft.ifft if inverse else np.fft.fft
        return _parts(transform(_numbers(signal), asked, place), signal)

    return run


def _stft(node: Node) -> PlainFunction:
    onesided = bool(node.attribute("onesided", 1))

    def run(signal: Any, step: Any, window: Any = None, length: Any = None) -> Any:
        numbers, hop = _numbers(signal), _whole(step)
        asked = _whole(length)
        size = asked if asked is not None else numbers.shape[1] if window is None else len(window)
        if not hop or hop < 1 or size < 1 or (window is not None and window.shape != (size,)) or numbers.ndim != 2:
            raise Other
        frames = np.lib.stride_tricks.sliding_window_view(numbers, size, axis=1)[:, ::hop]
        if window is not None:
            frames = frames * window.astype(np.float64)
        return _parts(np.fft.rfft(frames) if onesided and signal.shape[-1] == 1 else np.fft.fft(frames), signal)

    return run


SPECTRA: tuple[Plain, ...] = (Plain("DFT", 20, _dft), Plain("STFT", 17, _stft))
