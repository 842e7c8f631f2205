"""CumSum and CumProd as tasks of their own: an element from the one before it.

The index space is that of the data, in loop variables i0, i1, ...; the anchor's prologue is the element that comes in, in the type
that is added up in, and the axis where it is not constant. The store is what becomes of the sum so far.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph, Node
from fusewise.lower.compose import BoundTask, BufferView
from fusewise.lower.named import Named
from fusewise.lower.task import ACC, Anchor, Store, Task
from fusewise.ops.definition import call_of, narrowed
from fusewise.ops.expr import cast, const, index, load
from fusewise.ops.indexing import is_static, wrapped
from fusewise.ops.interpret import evaluate_expression

__all__ = ["interpret_scan", "scan_reason", "scan_task"]


def scan_reason(graph: Graph, node: Node) -> str:
    """Why a running sum or product cannot run natively; empty when it can."""
    call = call_of(graph, node)
    if not is_static(call):
        return "shape depends on data"
    if call.without_arithmetic:
        return f"{node.op} on {call.without_arithmetic}"
    axis, rank = call.constant(1), call.input(0).rank
    if not rank or call.output().dims != call.input(0).dims or call.input(1).size != 1:
        return f"{node.op} with operands that do not fit each other"
    return (
        "" if axis is None or -rank <= int(axis.reshape(-1)[0]) < rank else f"{node.op} along an axis that is not there"
    )


def scan_task(graph: Graph, node: Node, views: Mapping[str, BufferView], exact: bool) -> BoundTask:
    """The task of a node that `scan_reason` has nothing against."""
    named, kind, axis = Named(graph, node, views), graph.tensor(node.inputs[0]), graph.constants.get(node.inputs[1])
    at = tuple(index(f"i{d}") for d in range(kind.rank))
    summed = FLOAT32 if kind.dtype.is_float and kind.dtype.bits < 32 else kind.dtype
    element = cast(named.read(0, at), summed)
    if axis is None:
        place = named.read(1, tuple(const(0) for _ in graph.tensor(node.inputs[1]).dims))
        along = named.bounded(wrapped(place, kind.rank), 1, 0, kind.rank - 1, wraps=True)
    else:
        along = const(int(axis.array.reshape(-1)[0]) % kind.rank)
    named.result(0)
    store = Store("out0", at, narrowed(load(ACC, summed, at), kind.dtype))
    anchor = Anchor(node.op, "scan", node.attributes, (kind, None), (element, along), kind)
    return named.bind(Task(kind.dims, tuple(named.operands.values()), (store,), anchor, exact))


def interpret_scan(task: Task, views: Mapping[str, np.ndarray]) -> None:
    """Add or multiply along the axis."""
    anchor = task.anchor
    assert anchor is not None
    element, along = anchor.prologue
    assert element is not None and along is not None
    axis = int(evaluate_expression(along, {}, views)[0])
    x = evaluate_expression(element, {f"i{d}": extent for d, extent in enumerate(task.extents)}, views)[0]
    x = np.flip(x, axis) if anchor.attribute("reverse", 0) else x
    product = anchor.op == "CumProd"
    found = (np.cumprod if product else np.cumsum)(x, axis, dtype=x.dtype)
    if anchor.attribute("exclusive", 0):
        found = np.roll(found, 1, axis)
        found[(*(slice(None),) * axis, slice(0, 1))] = int(product)
    found = np.flip(found, axis) if anchor.attribute("reverse", 0) else found
    views["out0"][...] = found.astype(views["out0"].dtype)
