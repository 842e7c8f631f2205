"""Fourier transforms as products with constant matrices.

A short transform is one product. A longer one, of a * b elements, is two shorter ones with factors between them (Cooley and Tukey,
1965): with t = b t1 + t2, k = k1 + a k2 and w = exp(-2 pi i / n),

    X[k]  =  sum over t2 of  w^(a t2 k2)  w^(t2 k1)  sum over t1 of  w^(b t1 k1) x[t]

A long one of a prime length is a convolution, by two transforms of a length that has factors (Bluestein, 1970). Complex numbers are
pairs: along the last axis, or between others where that keeps neighbours side by side. Factors are computed in float64, from
exponents that are reduced as whole numbers first. A transform of a moving window is a convolution by the rows of the matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fusewise.ir.dtypes import FLOAT32
from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue
from fusewise.records import record

__all__ = ["TRANSFORMS"]

RADIX = 32
"""Largest length of a part of a transform where there is a choice; measured."""

SHORT = 64
"""Longest transforms that are one product where there is a choice; measured."""

PLAIN = 512
"""Longest prime length whose transform is one product."""

WINDOW = 128
"""Longest transforms of moving windows that are one convolution; measured."""

LONGEST_ROWS = 2048
"""The same of windows that move by so little that their frames would take too much memory otherwise."""

MOST_PIECES = 128
"""Steps to a window's length up to which frames are put together from pieces of the signal."""

MOST_PLACES = 1 << 20
"""Elements of frames that are read through a table of their places, where there are more pieces."""


@record(frozen=True)
class _Transform:
    """Sums over t of exp(sign 2 pi i k t / length) x[t] * scale, for k below `bins`."""

    length: int
    bins: int
    sign: int = -1
    scale: float = 1.0


def _roots(length: int, exponents: np.ndarray, sign: int) -> np.ndarray:
    """exp(sign 2 pi i e / length), complex128."""
    return np.exp(sign * 2j * math.pi * (exponents % length) / length)


def _matrix(f: _Transform, taken: int, channels: int) -> np.ndarray:
    """[taken, channels, bins, 2], float64: real or complex numbers to complex ones."""
    w = _roots(f.length, np.outer(np.arange(taken), np.arange(f.bins)), f.sign) * f.scale
    rows = [np.stack([w.real, w.imag], -1), np.stack([-w.imag, w.real], -1)]
    return np.stack(rows[:channels], 1)


def _number(x: TensorValue, array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, x.dtype.numpy)


def _product(g: Notation, x: TensorValue, f: _Transform) -> TensorValue:
    """[rows, t, channels] -> [rows, bins, 2], in one product."""
    rows, taken, channels = x.dims
    matrix = _matrix(f, taken, channels).reshape(taken * channels, f.bins * 2)
    return g.reshape(g.MatMul(g.reshape(x, [rows, taken * channels]), _number(x, matrix)), [rows, f.bins, 2])


def _planes(g: Notation, x: TensorValue, f: _Transform) -> TensorValue:
    """[rows, t, channels] -> [rows, 2, bins]: real and imaginary parts apart."""
    if not _is_short(f.length):
        return g.permute(_transformed(g, x, f), (0, 2, 1))
    rows, taken, channels = x.dims
    matrix = _matrix(f, taken, channels).swapaxes(2, 3).reshape(taken * channels, 2 * f.bins)
    return g.reshape(g.MatMul(g.reshape(x, [rows, taken * channels]), _number(x, matrix)), [rows, 2, f.bins])


def _times(g: Notation, x: TensorValue, w: np.ndarray, axis: int) -> TensorValue:
    """A complex product with constants of as many axes, without `axis`, along which the parts of `x` are."""
    if x.dims[axis] == 1:
        return x * _number(x, np.stack([w.real, w.imag], axis))
    turned = g.Slice(x, [1], [-(2**31)], [axis], [-1])
    return x * _number(x, np.expand_dims(w.real, axis)) + turned * _number(x, np.stack([-w.imag, w.imag], axis))


def _is_short(length: int) -> bool:
    return length <= SHORT or (length <= PLAIN and _factor(length) == length)


def _factor(length: int) -> int:
    """The largest divisor up to `RADIX`, else the least; 1 of 1, and the length of primes."""
    small = [a for a in range(2, min(RADIX, math.isqrt(length)) + 1) if length % a == 0]
    if small:
        return small[-1]
    return next((a for a in range(2, math.isqrt(length) + 1) if length % a == 0), length)


def _transformed(g: Notation, x: TensorValue, f: _Transform) -> TensorValue:
    """[rows, t, channels] -> [rows, bins, 2]; what is beyond the length is left out, and what is missing is zero."""
    x = g.slice(x, 1, 0, f.length)
    if _is_short(f.length):
        return _product(g, x, f)
    a = _factor(f.length)
    return _convolved(g, x, f) if a == f.length else _in_parts(g, x, f, a)


def _in_parts(g: Notation, x: TensorValue, f: _Transform, a: int) -> TensorValue:
    x = g.pad(x, 1, 0, f.length - x.dims[1])
    (rows, _, channels), b = x.dims, f.length // a
    first = g.reshape(g.permute(g.reshape(x, [rows, a, b, channels]), (0, 2, 1, 3)), [rows * b, a, channels])
    parts = g.reshape(_planes(g, first, _Transform(a, a, f.sign)), [rows, b, 2, a])
    turned = _times(g, parts, _roots(f.length, np.outer(np.arange(b), np.arange(a)), f.sign)[None], 2)
    second = g.reshape(g.permute(turned, (0, 3, 1, 2)), [rows * a, b, 2])
    bins = -(-f.bins // a)
    found = _transformed(g, second, _Transform(b, bins, f.sign, f.scale))
    every = g.reshape(g.permute(g.reshape(found, [rows, a, bins, 2]), (0, 2, 1, 3)), [rows, bins * a, 2])
    return g.slice(every, 1, 0, f.bins)


def _convolved(g: Notation, x: TensorValue, f: _Transform) -> TensorValue:
    """Bluestein's: t k = (t^2 + k^2 - (k - t)^2) / 2."""
    n, taken = f.length, x.dims[1]
    longest = max(taken, f.bins)
    chirp = _roots(2 * n, np.arange(longest) ** 2, f.sign)
    whole = _smooth(taken + f.bins - 1)
    kernel = np.zeros(whole, np.complex128)
    kernel[: f.bins] = chirp[: f.bins].conj()
    kernel[whole - taken + 1 :] = chirp[1:taken].conj()[::-1]
    spectrum = np.fft.fft(kernel)
    y = _transformed(g, _times(g, x, chirp[None, :taken], 2), _Transform(whole, whole))
    y = _transformed(g, _times(g, y, spectrum[None] / whole, 2), _Transform(whole, f.bins, 1))
    return _times(g, y, chirp[None, : f.bins] * f.scale, 2)


def _smooth(least: int) -> int:
    """The smallest number from `least` on that is 1, 3, 5 or 9 times a power of two."""
    return min(m << max(0, math.ceil(math.log2(least / m))) for m in (1, 3, 5, 9))


def _real(g: Notation, x: TensorValue, f: _Transform) -> TensorValue:
    """[rows, bins, 2] -> [rows, length, 1], the real signal whose first `bins` numbers these are."""
    bins, n = f.length // 2 + 1, f.length
    x = g.slice(x, 1, 0, bins)
    rows, taken, _ = x.dims
    if _is_short(f.length):
        w = _roots(n, np.outer(np.arange(taken), np.arange(n)), f.sign) * f.scale
        twice = np.array([1.0 if k == 0 or 2 * k == n else 2.0 for k in range(taken)])[:, None]
        matrix = np.stack([w.real * twice, -w.imag * np.where(twice == 1, 0, twice)], 1).reshape(2 * taken, n)
        return g.reshape(g.MatMul(g.reshape(x, [rows, 2 * taken]), _number(x, matrix)), [rows, n, 1])
    x = g.pad(x, 1, 0, bins - taken)
    only_real = np.ones((bins, 2))
    only_real[0, 1] = 0
    if n % 2 == 0:
        only_real[-1, 1] = 0
    x = x * _number(x, only_real)
    mirrored = g.Slice(x, [(n - 1) // 2], [0], [1], [-1]) * _number(x, np.array([1.0, -1.0]))
    return g.slice(_transformed(g, g.Concat(x, mirrored, axis=1), f), 2, 0, 1)


# --- the operators -------------------------------------------------------------------------------------------------------


def _whole(call: Call, operand: int, otherwise: int) -> int:
    """A constant operand of one element, or what it is where it is left out."""
    return int(call.known(operand).reshape(-1)[0]) if call.has(operand) else otherwise


def _narrow(write: Callable[..., TensorValue | None]) -> Callable[..., TensorValue | None]:
    """Floats of 16 bits are transformed in 32."""

    def wide(g: Notation, call: Call, x: TensorValue, *operands: TensorValue | None) -> TensorValue | None:
        kind = x.dtype
        if 0 in x.dims:
            return None
        found = write(g, call, g.cast(x, FLOAT32) if kind.bits < 32 else x, *operands)
        return None if found is None else g.cast(found, kind)

    return wide


def _dft(g: Notation, call: Call, x: TensorValue, *operands: TensorValue | None) -> TensorValue | None:
    axis = _whole(call, 2, -2) % x.rank
    real, inverse = bool(call.attribute("onesided", 0)), bool(call.attribute("inverse", 0))
    extent = x.dims[axis]
    length = _whole(call, 1, 2 * (extent - 1) if real and inverse else extent)
    if length < 1:
        return None
    order = [*(d for d in range(x.rank - 1) if d != axis), axis, x.rank - 1]
    rows = g.permute(x, order)
    lead = rows.dims[:-2]
    flat = g.reshape(rows, [math.prod(lead), *rows.dims[-2:]])
    f = _Transform(length, length, 1, 1 / length) if inverse else _Transform(length, length)
    if real and inverse:
        y = _real(g, flat, f)
    else:
        y = _transformed(g, flat, _Transform(length, length // 2 + 1) if real else f)
    return g.permute(g.reshape(y, [*lead, *y.dims[1:]]), [order.index(d) for d in range(x.rank)])


def _stft(
    g: Notation, call: Call, x: TensorValue, step: TensorValue, *operands: TensorValue | None
) -> TensorValue | None:
    window = operands[0] if operands else None
    hop, length = _whole(call, 1, 0), _whole(call, 3, x.dims[1] if window is None else window.dims[0])
    samples, extent, channels = x.dims
    if not 0 < length <= extent or hop < 1:
        return None
    count = (extent - length) // hop + 1
    f = _Transform(length, length // 2 + 1 if call.attribute("onesided", 1) else length)
    factors = np.ones(length) if window is None else call.constant(2)
    is_table = length > MOST_PIECES * hop
    if is_table and length * count > MOST_PLACES and (factors is None or length > LONGEST_ROWS):
        return None
    if factors is not None and (length <= WINDOW or _is_short(length) or (is_table and length * count > MOST_PLACES)):
        matrix = _matrix(f, length, channels) * factors.astype(np.float64)[:, None, None, None]
        weights = _number(x, matrix.transpose(2, 3, 1, 0).reshape(2 * f.bins, channels, length))
        y = g.Conv(g.permute(x, (0, 2, 1)), weights, strides=(hop,), kernel_shape=(length,))
        return g.reshape(g.permute(y, (0, 2, 1)), [samples, count, f.bins, 2])
    frames = _frames(g, x, count, hop, length)
    if window is not None:
        frames = frames * g.reshape(g.cast(window, x.dtype), [length, 1])
    y = _transformed(g, g.reshape(frames, [samples * count, length, channels]), f)
    return g.reshape(y, [samples, count, f.bins, 2])


def _frames(g: Notation, x: TensorValue, count: int, hop: int, length: int) -> TensorValue:
    """[samples, extent, channels] -> [samples, frames, length, channels]"""
    samples, extent, channels = x.dims
    pieces = -(-length // hop)
    if length > MOST_PIECES * hop:
        return g.Gather(x, hop * np.arange(count)[:, None] + np.arange(length), axis=1)
    x = g.pad(x, 1, 0, (count + pieces - 1) * hop - extent)
    parts: list[TensorValue] = []
    for k in range(pieces):
        part = g.reshape(g.slice(x, 1, k * hop, (k + count) * hop), [samples, count, hop, channels])
        parts.append(g.slice(part, 2, 0, length - k * hop))
    return parts[0] if len(parts) == 1 else g.Concat(*parts, axis=2)


TRANSFORMS: tuple[Decomposition, ...] = (row("DFT", _narrow(_dft)), row("STFT", _narrow(_stft)))
