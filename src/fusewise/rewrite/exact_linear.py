"""Products, convolutions and movement without rounding, for `exact`: plain loops over small arrays of fractions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.ir.graph import Node
from fusewise.rewrite.undefined import UNDEFINED

__all__ = ["LINEAR"]

Array = np.ndarray
Operator = Callable[..., list[Array]]


def _windows(x: Array, node: Node, kernel: tuple[int, ...]) -> tuple[Array, Array]:
    """The taps of every window [N, C, *output, *kernel] and whether each lies inside the image."""
    rank = len(kernel)
    strides = node.attribute("strides", (1,) * rank)
    dilations = node.attribute("dilations", (1,) * rank)
    pads = node.attribute("pads", (0,) * 2 * rank)
    sides = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    padded = np.pad(x, sides, constant_values=0)
    inside = np.pad(np.ones(x.shape, bool), sides)
    output = tuple(
        (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(padded.shape[2:], kernel, strides, dilations, strict=True)
    )
    taps = np.empty((*x.shape[:2], *output, *kernel), dtype=x.dtype)
    there = np.empty(taps.shape, bool)
    for tap in itertools.product(*map(range, kernel)):
        window = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilations, output, strides, strict=True)
        )
        place: Any = (Ellipsis, *tap)
        source: Any = (Ellipsis, *window)
        taps[place] = padded[source]
        there[place] = inside[source]
    return taps, there


def _conv(node: Node, x: Array, w: Array, b: Array | None = None) -> list[Array]:
    groups = node.attribute("group", 1)
    rank = x.ndim - 2
    taps, _ = _windows(x, node, w.shape[2:])
    parts = []
    for image, weights in zip(np.split(taps, groups, axis=1), np.split(w, groups, axis=0), strict=True):
        last = tuple(range(2 + rank, 2 + 2 * rank))
        product = np.tensordot(image, weights, axes=((1, *last), (1, *range(2, 2 + rank))))
        parts.append(np.moveaxis(product, -1, 1))
    result = np.concatenate(parts, axis=1)
    return [result if b is None else result + b.reshape((-1,) + (1,) * rank)]


def _average_pool(node: Node, x: Array) -> list[Array]:
    kernel = node.attribute("kernel_shape")
    taps, there = _windows(x, node, kernel)
    last = tuple(range(-len(kernel), 0))
    whole = node.attribute("count_include_pad", 0)
    count = np.full(taps.shape[: -len(kernel)], int(np.prod(kernel))) if whole else there.sum(axis=last)
    return [taps.sum(axis=last) / count.astype(object)]


def _max_pool(node: Node, x: Array) -> list[Array]:
    kernel = node.attribute("kernel_shape")
    taps, there = _windows(x, node, kernel)
    places = (-1, int(np.prod(kernel)))
    rows = zip(taps.reshape(places), there.reshape(places), strict=True)
    largest = [_largest([element for element, inside in zip(*row, strict=True) if inside]) for row in rows]
    return [np.array([*largest, None], dtype=object)[:-1].reshape(taps.shape[: -len(kernel)])]


def _largest(elements: list[Any]) -> Any:
    """The maximum; undefined where an element is, or where there is none."""
    return UNDEFINED if not elements or any(x is UNDEFINED for x in elements) else max(elements)


def _global_average(node: Node, x: Array) -> list[Array]:
    axes = tuple(range(2, x.ndim))
    return [x.sum(axis=axes, keepdims=True) / Fraction(int(np.prod(x.shape[2:])))]


def _gemm(node: Node, a: Array, b: Array, c: Array | None = None) -> list[Array]:
    left, right = (a.T if node.attribute("transA", 0) else a), (b.T if node.attribute("transB", 0) else b)
    product = np.matmul(left, right) * Fraction(node.attribute("alpha", 1.0))
    return [product if c is None else product + c * Fraction(node.attribute("beta", 1.0))]


def _split(node: Node, x: Array, sizes: Array | None = None) -> list[Array]:
    axis = node.attribute("axis", 0)
    if sizes is None:
        return np.array_split(x, len(node.outputs), axis=axis)
    return np.split(x, np.cumsum(sizes)[:-1], axis=axis)


def _pad(node: Node, x: Array, pads: Array) -> list[Array]:
    sides = list(zip(pads[: x.ndim], pads[x.ndim :], strict=True))
    return [np.pad(x, sides, constant_values=0)]


LINEAR: Mapping[str, Operator] = MappingProxyType(
    {
        "MatMul": lambda node, a, b: [np.matmul(a, b)],
        "Gemm": _gemm,
        "Conv": _conv,
        "AveragePool": _average_pool,
        "GlobalAveragePool": _global_average,
        "MaxPool": _max_pool,
        "Concat": lambda node, *x: [np.concatenate(x, axis=node.attribute("axis"))],
        "Split": _split,
        "Pad": _pad,
        "Transpose": lambda node, x: [np.transpose(x, node.attribute("perm"))],
    }
)
"""Operator to a function of the node and its operands (None where absent) that gives its outputs."""
