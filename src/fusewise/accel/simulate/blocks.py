"""What some channels and rows of a result are, given some channels and rows of the operands: plain NumPy, operator by operator.

Arrays are float64[channels, rows, columns]; a `MapPart` knows which row of the map its first one is. An operator that needs a row
which the part lacks is an error: the tile is too low.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fusewise.accel.simulate.reach import AxisReach, Reach, transposed_begins
from fusewise.ir.graph import Graph, Node
from fusewise.ops.evaluate import evaluator

__all__ = ["MapPart", "blank", "gathered", "moved", "pointwise", "pooled", "resized", "scattered"]


class MapPart(NamedTuple):
    """Some channels and rows of a map; row 0 is row `top` of the map."""

    pixels: np.ndarray
    top: int

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Where rows of the map are in the part."""
        found = positions - self.top
        if found.size and not (found.min() >= 0 and found.max() < self.pixels.shape[1]):
            raise AssertionError(
                f"rows {positions.min()} to {positions.max()} are needed, {self.pixels.shape[1]} from {self.top} are there"
            )
        return np.asarray(found)


def blank(part: MapPart, reach: Reach, first: int, last: int) -> np.ndarray:
    """Zeros in the shape of result rows `first` to `last`, once the rows that they need are known to be there."""
    rows, inside = _taps(reach.rows, first, last)
    part.rows(rows[inside])
    return np.zeros((len(part.pixels), last - first + 1, len(reach.columns.first)))


def gathered(part: MapPart, reach: Reach, first: int, last: int, outside: float = 0.0) -> np.ndarray:
    """The windows of result rows `first` to `last`: float64[channels, rows, row taps, columns, column taps]."""
    rows, row_inside = _taps(reach.rows, first, last)
    columns, column_inside = _taps(reach.columns, 0, len(reach.columns.first) - 1)
    held = np.where(row_inside, rows, rows[row_inside].min() if row_inside.any() else part.top)
    found = part.pixels[:, part.rows(held)][..., np.where(column_inside, columns, 0)]
    inside = row_inside[:, :, None, None] & column_inside
    return np.where(inside, found, outside)


def _taps(axis: AxisReach, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Input positions int64[results, taps], and which of them are inside."""
    taps = np.arange(int((axis.last - axis.first).max()) // axis.step + 1) * axis.step
    positions = axis.first[first : last + 1, None] + taps
    return positions, (positions >= 0) & (positions < axis.extent) & (positions <= axis.last[first : last + 1, None])


def scattered(
    graph: Graph, node: Node, part: MapPart, reach: Reach, first: int, last: int, weights: np.ndarray
) -> np.ndarray:
    """Rows of a ConvTranspose; `weights` float64[outputs, inputs, row taps, column taps]."""
    begins, strides = transposed_begins(graph, node), node.attribute("strides", (1, 1))
    dilations, spread = node.attribute("dilations", (1, 1)), []
    for d, (low, high, axis) in enumerate(
        ((first, last, reach.rows), (0, len(reach.columns.first) - 1, reach.columns))
    ):
        at, rest = np.divmod(
            np.arange(low, high + 1)[:, None] + begins[d] - np.arange(axis.extent) * strides[d], dilations[d]
        )
        spread.append((rest[..., None] == 0) & (at[..., None] == np.arange(weights.shape[2 + d])))
    used = np.flatnonzero(spread[0].any(axis=(0, 2)))
    rows = spread[0][:, used].astype(np.float64)
    pixels = part.pixels[:, part.rows(used)]
    return np.asarray(
        np.einsum("yrk,xsl,crs,ockl->oyx", rows, spread[1].astype(np.float64), pixels, weights, optimize=True)
    )


def pooled(node: Node, part: MapPart, reach: Reach, first: int, last: int) -> np.ndarray:
    """Rows of a MaxPool or AveragePool."""
    if node.op == "MaxPool":
        return np.asarray(gathered(part, reach, first, last, -np.inf).max(axis=(2, 4)))
    pads = node.attribute("pads", (0, 0, 0, 0))
    counted = bool(node.attribute("count_include_pad", 0))
    counts = []
    for axis, low, high, begin, end in (
        (reach.rows, first, last, pads[0], pads[2]),
        (reach.columns, 0, len(reach.columns.first) - 1, pads[1], pads[3]),
    ):
        positions, inside = _taps(axis, low, high)
        if counted:
            inside = (-begin <= positions) & (positions < axis.extent + end)
        counts.append(inside.sum(axis=1))
    total = gathered(part, reach, first, last).sum(axis=(2, 4))
    return np.asarray(total / (counts[0][:, None] * counts[1]))


def resized(part: MapPart, reach: Reach, first: int, last: int) -> np.ndarray:
    """Rows of a Resize."""

    def mixed(axis: AxisReach, low: int, high: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        before, after = axis.first[low : high + 1], axis.last[low : high + 1]
        share = np.zeros(len(before)) if axis.exact is None else axis.exact[low : high + 1] - before
        return before, after, share

    top, bottom, down = mixed(reach.rows, first, last)
    left, right, across = mixed(reach.columns, 0, len(reach.columns.first) - 1)
    rows = part.pixels[:, part.rows(top)] * (1 - down)[:, None] + part.pixels[:, part.rows(bottom)] * down[:, None]
    return np.asarray(rows[:, :, left] * (1 - across) + rows[:, :, right] * across)


def moved(part: MapPart, reach: Reach, first: int, last: int) -> np.ndarray:
    """Rows read one for one, shifted, or the only one again and again; zeros outside."""
    return gathered(part, reach, first, last)[:, :, 0, :, 0]


def pointwise(
    graph: Graph,
    node: Node,
    operands: dict[str, np.ndarray],
    low: int,
    high: int,
    channels: int,
    values: bool = True,
) -> tuple[tuple[np.ndarray, ...], int]:
    """Channels `low` to `high` of an operator within pixels, zeros without `values`, and how many elements of weights that took."""
    rank, feeds, used = graph.tensor(node.writes[0]).rank, [], 0
    for value in node.reads:
        if value not in graph.constants:
            if values:
                array = operands[value].astype(np.float32)
                feeds.append(array[None] if rank == 4 else array.reshape(1, -1))
            continue
        constant = graph.array(value)
        assert constant is not None
        axis = constant.ndim - (3 if rank == 4 else 1)
        if axis >= 0 and constant.ndim and constant.shape[axis] == channels > 1:
            constant = np.take(constant, np.arange(low, high), axis)
        if constant.ndim and constant.dtype.kind in "fV" and (low == 0 or constant.size > 1):
            used += constant.size
        feeds.append(constant)
    if not values:
        rows, columns = np.broadcast_shapes(*(array.shape[1:] for array in operands.values()))
        return tuple(np.zeros((high - low, rows, columns)) for _ in node.writes), used
    found = evaluator(node, graph.opset, graph.opsets)(*feeds)
    return tuple(np.asarray(one, np.float64).reshape(one.shape[1], *(one.shape[2:] or (1, 1))) for one in found), used
