"""What one pixel of a result is, given the pixels its operator reads: plain NumPy, operator by operator.

Operands arrive through a `Reader`, which hands out pixels by position and knows nothing of whole maps, so an operator cannot see
more than the buffer holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusewise.accel.operators import image_of
from fusewise.accel.simulate.reach import AxisReach, Reach, transposed_begins
from fusewise.ir.graph import Graph, Node
from fusewise.ops.evaluate import evaluator

__all__ = ["Accumulator", "Fire", "Reader", "accumulator_of", "fire_of"]

Reader = Callable[[int, int], np.ndarray]
"""The channels of one pixel, float64[C], by row and column; only pixels that are in the buffer."""

Fire = Callable[[Mapping[str, Reader], int, int], tuple[np.ndarray, ...]]
"""The pixel at (row, column) of each result, from readers by operand."""


@dataclass(frozen=True)
class Accumulator:
    """What is summed up, how one more pixel is taken, and what the sum is multiplied by in the end."""

    total: np.ndarray
    take: Callable[[np.ndarray, np.ndarray], None]
    share: float


def fire_of(graph: Graph, node: Node, reaches: Mapping[str, Reach]) -> Fire:
    """How to compute one pixel of the results of `node`; `reaches` has the geometry of its operands."""
    if node.op in ("Conv", "ConvTranspose"):
        return _convolution(graph, node, reaches[node.inputs[0]])
    if node.op in ("MaxPool", "AveragePool"):
        return _pool(graph, node, reaches[node.inputs[0]])
    if node.op == "Resize":
        return _resize(graph, node, reaches[node.inputs[0]])
    if node.op == "Concat":
        return lambda readers, y, x: (np.concatenate([readers[v](y, x) for v in node.inputs]),)
    if node.op in ("Pad", "Slice", "Reshape", "Flatten", "Squeeze", "Unsqueeze"):
        return _moved(graph, node, reaches[node.inputs[0]])
    return _pointwise(graph, node, reaches)


def _taps(axis: AxisReach, at: int) -> list[tuple[int, int]]:
    """(number of the tap, position) of the taps of a window that lie inside the input."""
    positions = range(int(axis.first[at]), int(axis.last[at]) + 1, axis.step)
    return [(k, position) for k, position in enumerate(positions) if 0 <= position < axis.extent]


def _convolution(graph: Graph, node: Node, reach: Reach) -> Fire:
    weights = np.asarray(graph.array(node.inputs[1]), np.float64)
    bias = graph.array(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    groups = node.attribute("group", 1)
    if node.op == "Conv":  # [outputs, inputs / groups, rows, columns] as [rows, columns, groups, outputs, inputs]
        outputs = weights.shape[0] // groups
        kernel = weights.reshape(groups, outputs, *weights.shape[1:]).transpose(3, 4, 0, 1, 2)
    else:  # [inputs, outputs / groups, rows, columns], taps counted from the last
        inputs = weights.shape[0] // groups
        kernel = weights.reshape(groups, inputs, *weights.shape[1:]).transpose(3, 4, 0, 2, 1)
    kernel = np.ascontiguousarray(kernel)
    offset = None if bias is None else np.asarray(bias, np.float64)
    name, transposed = node.inputs[0], node.op == "ConvTranspose"
    steps, dilations = node.attribute("strides", (1, 1)), node.attribute("dilations", (1, 1))
    begins = transposed_begins(graph, node) if transposed else (0, 0)

    def fire(readers: Mapping[str, Reader], y: int, x: int) -> tuple[np.ndarray, ...]:
        total = np.zeros(kernel.shape[2:4])
        rows, columns = _taps(reach.rows, y), _taps(reach.columns, x)
        for i, row in rows:
            if transposed:
                i, rest = divmod(y + begins[0] - row * steps[0], dilations[0])
                if rest or not 0 <= i < kernel.shape[0]:
                    continue
            for j, column in columns:
                if transposed:
                    j, rest = divmod(x + begins[1] - column * steps[1], dilations[1])
                    if rest or not 0 <= j < kernel.shape[1]:
                        continue
                pixel = readers[name](row, column).reshape(groups, -1, 1)
                total += (kernel[i, j] @ pixel)[..., 0]
        flat = total.reshape(-1)
        return (flat if offset is None else flat + offset,)

    return fire


def _pool(graph: Graph, node: Node, reach: Reach) -> Fire:
    name, is_max = node.inputs[0], node.op == "MaxPool"
    pads = node.attribute("pads", (0, 0, 0, 0))
    counted = bool(node.attribute("count_include_pad", 0))

    def padded(axis: AxisReach, at: int, begin: int, end: int) -> int:
        """Taps that lie inside the input with its padding."""
        positions = range(int(axis.first[at]), int(axis.last[at]) + 1, axis.step)
        return sum(-begin <= position < axis.extent + end for position in positions)

    def fire(readers: Mapping[str, Reader], y: int, x: int) -> tuple[np.ndarray, ...]:
        rows, columns = _taps(reach.rows, y), _taps(reach.columns, x)
        pixels = [readers[name](row, column) for _, row in rows for _, column in columns]
        if is_max:
            return (np.max(pixels, axis=0),)
        count = len(pixels)
        if counted:
            count = padded(reach.rows, y, pads[0], pads[2]) * padded(reach.columns, x, pads[1], pads[3])
        return (np.sum(pixels, axis=0) / count,)

    return fire


def _resize(graph: Graph, node: Node, reach: Reach) -> Fire:
    name = node.inputs[0]

    def fire(readers: Mapping[str, Reader], y: int, x: int) -> tuple[np.ndarray, ...]:
        (top, bottom, down), (left, right, across) = reach.rows.between(y), reach.columns.between(x)
        read = readers[name]
        upper = read(top, left) * (1 - across) + (read(top, right) * across if across else 0.0)
        if not down:
            return (upper,)
        lower = read(bottom, left) * (1 - across) + (read(bottom, right) * across if across else 0.0)
        return (upper * (1 - down) + lower * down,)

    return fire


def _moved(graph: Graph, node: Node, reach: Reach) -> Fire:
    name = node.inputs[0]
    channels = (image_of(graph.types[node.writes[0]]) or (0, 0, 0))[0]

    def fire(readers: Mapping[str, Reader], y: int, x: int) -> tuple[np.ndarray, ...]:
        row, column = int(reach.rows.first[y]), int(reach.columns.first[x])
        if not (0 <= row < reach.rows.extent and 0 <= column < reach.columns.extent):
            return (np.zeros(channels),)
        return (readers[name](row, column),)

    return fire


_DIRECT: dict[str, Callable[..., Any]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Clip": lambda x, low=-np.inf, high=np.inf: np.minimum(np.maximum(x, low), high),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Identity": lambda x: x,
}
"""Operators that are asked for so often that the reference evaluator would take minutes."""


def _pointwise(graph: Graph, node: Node, reaches: Mapping[str, Reach]) -> Fire:
    """Elementwise operators, and whatever works within one pixel."""
    kind = graph.tensor(node.writes[0])
    shape = {4: (1, -1, 1, 1), 3: (1, 1, -1), 2: (1, -1)}[kind.rank]
    constants = {v: np.asarray(graph.array(v), np.float64) for v in node.reads if v in graph.constants}
    direct = _DIRECT.get(node.op)
    if direct is not None and all(
        array.size == 1 or array.ndim == 1 or array.shape[-2:] == (1, 1) for array in constants.values()
    ):
        flat = {v: array.reshape(-1) if array.size > 1 else array.reshape(()) for v, array in constants.items()}
        given = [v for v in node.inputs if v]

        def fire(readers: Mapping[str, Reader], y: int, x: int) -> tuple[np.ndarray, ...]:
            return (direct(*(flat[v] if v in flat else _at(readers, reaches, v, y, x) for v in given)),)

        return fire
    run = evaluator(node, graph.opset, graph.opsets)
    exact = {v: graph.array(v) for v in node.reads if v in graph.constants}

    def fire_any(readers: Mapping[str, Reader], y: int, x: int) -> tuple[np.ndarray, ...]:
        operands = [
            exact[v] if v in exact else _at(readers, reaches, v, y, x).astype(np.float32).reshape(shape)
            for v in node.reads
        ]
        return tuple(np.asarray(found, np.float64).reshape(-1) for found in run(*operands) if found is not None)

    return fire_any


def _at(readers: Mapping[str, Reader], reaches: Mapping[str, Reach], value: str, y: int, x: int) -> np.ndarray:
    reach = reaches[value]
    return readers[value](int(reach.rows.first[y]), int(reach.columns.first[x]))


def accumulator_of(node: Node, channels: int, pixels: int) -> Accumulator:
    """How an operator takes a map pixel by pixel."""

    def take_sum(total: np.ndarray, pixel: np.ndarray) -> None:
        total += pixel

    def take_most(total: np.ndarray, pixel: np.ndarray) -> None:
        np.maximum(total, pixel, out=total)

    if node.op in ("GlobalMaxPool", "ReduceMax", "MaxPool"):
        return Accumulator(np.full(channels, -np.inf), take_most, 1.0)
    return Accumulator(np.zeros(channels), take_sum, 1.0 if node.op == "ReduceSum" else 1.0 / pixels)
