"""Average a map row by row first. Numeric class reassociating: a mean of means is the mean, but for rounding."""

from __future__ import annotations

import numpy as np

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.trace import Trace

__all__ = ["SHARED_BY_ROWS", "pool_by_rows"]

SHARED_BY_ROWS = 14
"""Most channels to a pixel of a map for its rows, not its channels, to be shared out among workers. Not measured but derived: a
1x1 convolution from C / 6 channels to C, the usual expansion, has twice as many weights as inputs and outputs together, so that its
columns are shared out (`codegen.llvm.gemm_product.COLUMNS_SHARE`), where C is 14 times the pixels."""

LEAST_BYTES = 1 << 16
"""Of a map, for two steps to be worth it; not measured."""


def pool_by_rows(graph: Graph, trace: Trace) -> Graph:
    """The average of a whole map becomes an average of its columns, of which that of the rows is taken.

    y = GlobalAveragePool(x: [1, 96, 56, 56])   ->   y = ReduceMean(ReduceMean(x, [3]), [2, 3])

    Workers share the rows of a map out, so each averages what it has computed itself; by channels, which is how one step is
    shared out, half of the map would come from other cores. Refused: small maps, and those of very many channels.
    """
    return sweep(graph, trace, (LocalRule("pool_by_rows", ("GlobalAveragePool", "ReduceMean"), _split),))


def _split(edit: Edit, node: Node) -> Change | None:
    image = edit.static(node.inputs[0])
    if image is None or image.rank != 4 or image.dtype != FLOAT32 or not _covers_map(edit, node):
        return None
    batch, channels, height, width = image.dims
    if min(height, width) < 2 or channels > SHARED_BY_ROWS * height * width or 4 * image.size < LEAST_BYTES:
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
