"""A fusion group as numbers: what the classifier reads of each operator, and the edges between them.

Takes a network, gives a table with a row per operator; a group is some rows of it and the edges inside. What depends on the buffer
is added when the capacity is known. Sizes are in bytes of 16-bit elements; with another width of `b` bits the same group fits a
buffer of 16/b times the bytes exactly when it did before, so the capacity is scaled instead.

The list follows Mills et al., "Applying Graph Explanation to Operator Fusion" (operator type, shapes, weights, buffer), with
windows, strides and ratios to the buffer beside: the need is nearly a sum over operators, and the classifier pools by sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fusewise.accel.bits import bits_of
from fusewise.accel.explain.explainer import Edge, edges_inside
from fusewise.accel.network import Network, Operator
from fusewise.accel.problem import Problem

__all__ = [
    "BUFFER_COLUMNS",
    "COLUMNS",
    "FLAGS",
    "OPERATORS",
    "PUBLISHED",
    "Batch",
    "batch_of",
    "node_table",
    "spans",
    "with_buffer",
]

OPERATORS = tuple(
    "Add AveragePool Clip Concat Conv Flatten Gemm GlobalAveragePool HardSigmoid HardSwish MaxPool Mul Relu Resize Sigmoid".split()
)
"""Operators with a column of their own. All columns of another operator are zero, and so is what the classifier reads of one that
it was not trained on (`model.standard`): nothing was learned about it."""

KINDS = ("conv", "depthwise", "pool", "global_pool", "pointwise", "resize", "flatten")

FLAGS = len(OPERATORS) + len(KINDS)
"""The first so many columns are 0 or 1, and are left as they are; the others are brought to zero mean and unit spread."""

SHAPE_COLUMNS = (
    *("log channels in", "log height in", "log width in", "log channels out", "log height out", "log width out"),
    *("log weight bytes", "log filter bytes", "log window rows", "log window columns"),
    *("log stride rows", "log stride columns", "inputs"),
)
BUFFER_COLUMNS = ("log buffer", "weights / buffer", "window / buffer", "filter / buffer", "row / buffer")

COLUMNS = len(OPERATORS) + len(KINDS) + len(SHAPE_COLUMNS) + len(BUFFER_COLUMNS)

PUBLISHED = np.isin(
    np.array([*OPERATORS, *KINDS, *SHAPE_COLUMNS, *BUFFER_COLUMNS]),
    [*OPERATORS, *SHAPE_COLUMNS[:7], "log buffer"],
)
"""Which columns the paper names, bool [COLUMNS]: operator type, shapes in and out, size of the weights, buffer."""

_MOST = 4.0
"""Ratios to the buffer are cut here: what is four times too large is too large."""


class Batch(NamedTuple):
    """Many graphs as one of unconnected parts.

    `x`: float32 [nodes, COLUMNS]; `edges`: int64 [2, edges], from producer to consumer, as rows of `x`; `graph`: int64 [nodes],
    which graph a node is of, ascending; `edge_graph`: int64 [edges], likewise; `graphs`: how many.
    """

    x: np.ndarray
    edges: np.ndarray
    graph: np.ndarray
    edge_graph: np.ndarray
    graphs: int


def node_table(network: Network) -> tuple[np.ndarray, np.ndarray]:
    """Per operator: float32 [operators, COLUMNS - len(BUFFER_COLUMNS)], and float64 [operators, 4], the bytes of its weights,
    of its windows where no result waits for another, of one filter, and of one row of its result."""
    rows, sizes = [], []
    for operator in network.operators:
        flags = [float(operator.op == name) for name in OPERATORS] + [
            float(operator.form.kind == kind) for kind in KINDS
        ]
        rows.append(flags + _shape(network, operator))
        form, out = operator.form, network.tensors[operator.writes[0]]
        sizes.append(
            [2.0 * n for n in (form.weights, _window(network, operator), form.filter_weights, out.channels * out.width)]
        )
    return np.array(rows, np.float32), np.array(sizes)


def with_buffer(table: np.ndarray, sizes: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """All columns: rows of `node_table`, each for a buffer of so many bytes (float64 [rows])."""
    ratios = np.minimum(sizes / capacity[:, None], _MOST)
    return np.concatenate([table, np.log2(capacity)[:, None], ratios], axis=1, dtype=np.float32)


def batch_of(
    problem: Problem, groups: Sequence[int], table: tuple[np.ndarray, np.ndarray]
) -> tuple[Batch, list[tuple[Edge, ...]]]:
    """Groups of one problem, and the edges inside each in the order of `Batch.edges`; `table` is the network's `node_table`."""
    members = [list(bits_of(group)) for group in groups]
    inside = [edges_inside(problem.network, group) for group in groups]
    nodes = np.array([v for some in members for v in some], np.int64)
    counts = np.array([len(some) for some in members], np.int64)
    edge_counts = np.array([len(some) for some in inside], np.int64)
    ends: list[Edge] = []
    start = 0
    for some, edges in zip(members, inside, strict=True):
        place = {v: start + i for i, v in enumerate(some)}
        ends += [(place[u], place[v]) for u, v in edges]
        start += len(some)
    capacity = np.full(len(nodes), problem.capacity * 16 / problem.scheme.bits)
    batch = Batch(
        with_buffer(table[0][nodes], table[1][nodes], capacity),
        np.array(ends, np.int64).reshape(-1, 2).T.copy(),
        np.repeat(np.arange(len(groups)), counts),
        np.repeat(np.arange(len(groups)), edge_counts),
        len(groups),
    )
    return batch, inside


def spans(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The ranges start, start + 1, ... of so many numbers each, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def _shape(network: Network, operator: Operator) -> list[float]:
    form, out = operator.form, network.tensors[operator.writes[0]]
    first = network.tensors[operator.reads[0].tensor] if operator.reads else out
    counts = (first.channels, first.height, first.width, out.channels, out.height, out.width)
    logs = [float(np.log2(1 + n)) for n in (*counts, 2 * form.weights, 2 * form.filter_weights)]
    windows = [float(np.log2(window.size)) for window in (form.rows, form.columns)]
    strides = [float(np.log2(window.stride[0] / window.stride[1])) for window in (form.rows, form.columns)]
    return [*logs, *windows, *strides, float(len(operator.reads))]


def _window(network: Network, operator: Operator) -> int:
    """Elements of all that the operator reads which its line buffers hold when it runs alone."""
    held = 0
    for read in operator.reads:
        tensor = network.tensors[read.tensor]
        if read.whole:
            pixels = 1
        else:
            down, right = operator.form.rows.size - 1, operator.form.columns.size - 1
            pixels = min(tensor.pixels, down * tensor.width + min(right, tensor.width - 1) + 1)
        held += pixels * tensor.channels
    if operator.form.kind == "global_pool":
        held += network.tensors[operator.writes[0]].channels
    return held
