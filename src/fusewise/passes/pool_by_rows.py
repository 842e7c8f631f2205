"""Average a map row by row first. Numeric class reassociating: a mean of means is the mean, but for rounding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from fusewise.ir.deciding import hint
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.passes.runner import Pass
from fusewise.trace import Trace

__all__ = ["pooled_by_rows"]

Pays = Callable[[TensorType], bool]
"""Is a map [batch, channels, height, width] of float32 averaged faster in two steps?"""


def pooled_by_rows(pays: Pays) -> Pass:
    """A pass: the average of a whole map becomes an average of its columns, of which that of the rows is taken, where that `pays`.

    y = GlobalAveragePool(x: [1, 96, 56, 56])   ->   y = ReduceMean(ReduceMean(x, [3]), [2, 3])

    Workers share the rows of a map out, so each averages what it has computed itself; by channels, which is how one step is
    shared out, half of the map would come from other cores.
    """
    rules = (LocalRule("pool_by_rows", ("GlobalAveragePool", "ReduceMean"), partial(_split, pays=pays)),)

    def pool_by_rows(graph: Graph, trace: Trace) -> Graph:
        return sweep(graph, trace, rules)

    return pool_by_rows


def _split(edit: Edit, node: Node, pays: Pays) -> Change | None:
    image = edit.static(node.inputs[0])
    if image is None or image.rank != 4 or image.dtype != FLOAT32 or not _covers_map(edit, node):
        return None
    batch, channels, height, width = image.dims
    if min(hint(height), hint(width)) < 2 or not pays(image):
        return None
    stem = node.outputs[0]
    columns, every = (edit.constant(np.array(axes, np.int64), f"{stem}_axes") for axes in ([3], [2, 3]))
    rows = edit.value(f"{stem}_rows", TensorType(FLOAT32, (batch, channels, height, 1)))
    first = Node("ReduceMean", (node.inputs[0], columns), (rows,), attributes_of(keepdims=1), name=rows)
    kept = attributes_of(keepdims=node.attribute("keepdims", 1))
    return Change((node,), "rows first", (first, Node("ReduceMean", (rows, every), node.outputs, kept, name=node.name)))


def _covers_map(edit: Edit, node: Node) -> bool:
    """Does the node average all of a map, and nothing else?"""
    if node.op == "GlobalAveragePool":
        return True
    axes = node.attribute("axes") if len(node.inputs) < 2 else edit.operand(node, 1)
    return axes is not None and sorted(int(axis) % 4 for axis in axes) == [2, 3]
