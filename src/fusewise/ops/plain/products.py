"""Products, convolutions and pooling by NumPy's matrix products: windows are laid side by side, with no loop over elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from fusewise.ir.graph import Node
from fusewise.ops.plain.row import Other, Plain, PlainFunction, plain
from fusewise.records import record

__all__ = ["PRODUCTS"]


_MOST_ELEMENTS = 1 << 26
"""Of windows laid side by side: more are taken tap by tap."""


@record(frozen=True, slots=True)
class _Window:
    """One entry per spatial axis, in elements; `begins` and `ends` are the padding."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def spans(self) -> tuple[int, ...]:
        """How far a window reaches along each axis."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))


def _per_axis(node: Node, name: str, rank: int, usual: int) -> tuple[int, ...]:
    found = node.attribute(name) or (usual,) * rank
    if len(found) != rank:
        raise Other
    return tuple(found)


def _window(node: Node, kernel: Sequence[int], extents: Sequence[int]) -> _Window:
    rank = len(extents)
    strides, dilations = (_per_axis(node, name, rank, 1) for name in ("strides", "dilations"))
    mode = node.attribute("auto_pad", "NOTSET")
    pads = _per_axis(node, "pads", 2 * rank, 0) if mode == "NOTSET" else (0,) * (2 * rank)
    begins, ends = pads[:rank], pads[rank:]
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        sizes = zip(extents, strides, kernel, dilations, strict=True)
        totals = [max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0) for n, s, k, d in sizes]
        small, large = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
        begins, ends = (small, large) if mode == "SAME_UPPER" else (large, small)
    if min((*begins, *ends), default=0) < 0:
        raise Other
    return _Window(tuple(kernel), strides, dilations, begins, ends)


def _padded(data: Any, window: _Window, filling: Any, more: Sequence[int] = ()) -> Any:
    ends = [end + extra for end, extra in zip(window.ends, more or (0,) * len(window.ends), strict=True)]
    if not any(window.begins) and not any(ends):
        return data
    around = [(0, 0), (0, 0), *zip(window.begins, ends, strict=True)]
    return np.pad(data, around, constant_values=filling)


def _windows(data: Any, window: _Window) -> Any:
    """A view [N, C, *outputs, *kernel] of padded data."""
    rank = len(window.kernel)
    if any(span > extent for span, extent in zip(window.spans, data.shape[2:], strict=True)):
        raise Other
    seen = np.lib.stride_tricks.sliding_window_view(data, window.spans, tuple(range(2, 2 + rank)))
    steps = (slice(None), slice(None), *(slice(None, None, s) for s in window.strides))
    return seen[(*steps, *(slice(None, None, d) for d in window.dilations))]


def _convolution(node: Node) -> PlainFunction:
    groups = node.attribute("group", 1)

    def run(data: Any, weights: Any, bias: Any = None) -> Any:
        if data.dtype.kind != "f" or data.dtype == np.float16 or data.ndim != weights.ndim or data.ndim < 3:
            raise Other
        if data.shape[1] != weights.shape[1] * groups or not data.size:
            raise Other
        window = _window(node, weights.shape[2:], data.shape[2:])
        seen = _windows(_padded(data, window, 0), window)
        rank, batch, filters = data.ndim - 2, data.shape[0], weights.shape[0]
        outputs = seen.shape[2 : 2 + rank]
        order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
        depth = math.prod(weights.shape[1:])
        if seen.size <= _MOST_ELEMENTS:
            columns = seen.transpose(order).reshape(batch, groups, depth, math.prod(outputs))
            found = np.matmul(weights.reshape(groups, filters // groups, depth), columns)
        else:
            found = np.zeros((batch, groups, filters // groups, math.prod(outputs)), data.dtype)
            for tap in _taps(weights.shape[2:]):
                part = seen[(..., *tap)].reshape(batch, groups, weights.shape[1], math.prod(outputs))
                found += np.matmul(weights[(..., *tap)].reshape(groups, filters // groups, weights.shape[1]), part)
        found = found.reshape(batch, filters, *outputs)
        return found if bias is None else found + bias.reshape(-1, *(1,) * rank)

    return run


def _taps(kernel: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return product(*map(range, kernel))


def _transposed(node: Node) -> PlainFunction:
    """Each input element times all of the kernel, added where the taps lie: a product for all taps, then one addition a tap."""
    groups = node.attribute("group", 1)

    def run(data: Any, weights: Any, bias: Any = None) -> Any:
        if data.dtype.kind != "f" or data.dtype == np.float16 or data.ndim != weights.ndim or data.ndim < 3:
            raise Other
        if node.attribute("auto_pad", "NOTSET") != "NOTSET" or node.attribute("output_shape") or not data.size:
            raise Other
        rank, kernel, extents = data.ndim - 2, weights.shape[2:], data.shape[2:]
        window = _window(node, kernel, extents)
        extra = _per_axis(node, "output_padding", rank, 0)
        batch, channels, filters = data.shape[0], data.shape[1] // groups, weights.shape[1]
        if channels * groups != weights.shape[0]:
            raise Other
        lines = data.reshape(batch, groups, channels, math.prod(extents))
        every = weights.reshape(groups, channels, filters, *kernel)
        parts = None
        if data.size // channels * filters * math.prod(kernel) <= _MOST_ELEMENTS:
            flat = every.reshape(groups, channels, -1).transpose(0, 2, 1)
            parts = np.matmul(flat, lines).reshape(batch, groups * filters, *kernel, *extents)
        spread = zip(extents, window.strides, window.spans, extra, strict=True)
        whole = np.zeros((batch, groups * filters, *((n - 1) * s + r + e for n, s, r, e in spread)), data.dtype)
        for tap in _taps(kernel):
            begins = [t * d for t, d in zip(tap, window.dilations, strict=True)]
            sizes = zip(begins, extents, window.strides, strict=True)
            there = tuple(slice(b, b + (n - 1) * s + 1, s) for b, n, s in sizes)
            if parts is not None:
                part = parts[(slice(None), slice(None), *tap)]
            else:
                part = np.matmul(every[(..., *tap)].transpose(0, 2, 1), lines)
            whole[(slice(None), slice(None), *there)] += part.reshape(batch, groups * filters, *extents)
        cuts = zip(window.begins, window.ends, whole.shape[2:], strict=True)
        found = whole[(slice(None), slice(None), *(slice(b, n - e) for b, e, n in cuts))]
        return found if bias is None else found + bias.reshape(-1, *(1,) * rank)

    return run


def _pooling(mean: bool) -> Callable[[Node], PlainFunction]:
    def make(node: Node) -> PlainFunction:
        counts_padding = bool(node.attribute("count_include_pad", 0))

        def run(data: Any) -> Any:
            if data.dtype not in (np.float32, np.float64) or len(node.writes) > 1 or node.attribute("ceil_mode", 0):
                raise Other
            window = _window(node, node.attribute("kernel_shape"), data.shape[2:])
            padded = any((*window.begins, *window.ends))
            over = tuple(range(data.ndim, 2 * data.ndim - 2))
            if not mean:
                return np.max(_windows(_padded(data, window, -np.inf), window), axis=over)
            if padded and not counts_padding:
                ones = np.ones((1, 1, *data.shape[2:]), data.dtype)
                number = np.sum(_windows(_padded(ones, window, 0), window), axis=over)
                return np.sum(_windows(_padded(data, window, 0), window), axis=over) / number
            return np.mean(_windows(_padded(data, window, 0), window), axis=over)

        return run

    return make


def _gemm(node: Node) -> PlainFunction:
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    turned = [bool(node.attribute(name, 0)) for name in ("transA", "transB")]

    def run(a: Any, b: Any, c: Any = None) -> Any:
        if a.dtype not in (np.float32, np.float64) or a.ndim != 2 or b.ndim != 2:
            raise Other
        left, right = (one.T if turn else one for one, turn in zip((a, b), turned, strict=True))
        found = left @ right
        if alpha != 1:
            found = found * a.dtype.type(alpha)
        if c is None:
            return found
        return found + (c if beta == 1 else c * a.dtype.type(beta))

    return run


def _product(a: Any, b: Any) -> Any:
    if a.dtype == np.float16:
        return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(np.float16)
    return np.matmul(a, b)


def _determinant(data: Any) -> Any:
    """In float64, whose range the products of pivots leave later."""
    return np.linalg.det(data.astype(np.float64)).astype(data.dtype)


def _global_mean(data: Any) -> Any:
    if data.dtype.kind != "f" or data.dtype == np.float16:
        raise Other
    return np.mean(data, axis=tuple(range(2, data.ndim)), keepdims=True)


def _einsum(node: Node) -> PlainFunction:
    rule = node.attribute("equation")

    def run(*operands: Any) -> Any:
        if operands[0].dtype not in (np.float32, np.float64):
            raise Other
        return np.einsum(rule.replace(" ", ""), *operands, optimize=len(operands) > 1)

    return run


PRODUCTS: tuple[Plain, ...] = (
    Plain("AveragePool", 19, _pooling(True)),
    Plain("Conv", 1, _convolution),
    Plain("ConvTranspose", 11, _transposed),
    plain("Det", 11, _determinant),
    Plain("Einsum", 12, _einsum),
    Plain("Gemm", 11, _gemm),
    plain("GlobalAveragePool", 1, _global_mean),
    plain("MatMul", 1, _product),
    Plain("MaxPool", 12, _pooling(False)),
)
