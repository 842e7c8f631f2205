"""Sums, means and extremes of very many operands: so many at a time. Numeric class exact.

An operator's element is one expression, which grows with its operands, and so does the kernel that computes it.
"""

from __future__ import annotations

import numpy as np

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.passes.edit import Change, Edit, LocalRule, rebuilt, sweep
from fusewise.trace import Trace

__all__ = ["MOST_OPERANDS", "split_wide"]

MOST_OPERANDS = 32
"""As many as a group may read."""


def split_wide(graph: Graph, trace: Trace) -> Graph:
    """Give no Sum, Mean, Max or Min more than `MOST_OPERANDS` operands; they are taken from the left either way.

    y = Max(x0, ..., x39)   ->   a = Max(x0, ..., x31); y = Max(a, x32, ..., x39)
    """
    return sweep(graph, trace, (LocalRule("split_wide", ("Sum", "Mean", "Max", "Min"), _find),))


def _find(edit: Edit, node: Node) -> Change | None:
    kinds = [edit.static(value) for value in (*node.inputs, *node.outputs)]
    if len(node.inputs) <= MOST_OPERANDS or any(kind is None for kind in kinds):
        return None
    op, made, operands = "Sum" if node.op == "Mean" else node.op, list[Node](), list(node.inputs)
    kind = edit.static(node.outputs[0])
    assert kind is not None
    narrow = op == "Sum" and kind.dtype.is_float and kind.dtype.bits < 32
    if narrow:  # which a kernel adds as float32 and rounds once
        operands = [_cast(edit, value, made) for value in operands]
    dtype = FLOAT32 if narrow else kind.dtype
    while len(operands) > 1:
        some, operands = operands[:MOST_OPERANDS], operands[MOST_OPERANDS:]
        partial = edit.inferred(Node(op, tuple(some), ("part",)))["part"]
        value = edit.value(node.outputs[0], partial)
        made.append(Node(op, tuple(some), (value,)))
        operands.insert(0, value)
    if node.op == "Mean":
        count = edit.constant(np.array(len(node.inputs), dtype.numpy), f"{node.outputs[0]}.count")
        value = edit.value(node.outputs[0], TensorType(dtype, kind.dims))
        made.append(Node("Div", (operands[0], count), (value,)))
    if narrow:
        value = made[-1].outputs[0]
        made.append(Node("Cast", (value,), node.outputs, attributes_of(to=kind.dtype.onnx), name=node.name))
    else:
        made[-1] = rebuilt(node, made[-1].op, made[-1].inputs)
    return Change((node,), f"{len(node.inputs)} operands", nodes=tuple(made))


def _cast(edit: Edit, value: str, made: list[Node]) -> str:
    kind = edit.static(value)
    assert kind is not None
    wide = edit.value(value, TensorType(FLOAT32, kind.dims))
    made.append(Node("Cast", (value,), (wide,), attributes_of(to=FLOAT32.onnx)))
    return wide
