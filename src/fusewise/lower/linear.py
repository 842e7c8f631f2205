"""LinearAttention as a task of its own: all steps by one kernel that has the loop over time in it.

The task's index space is (sample, step, query head, number of a value). Operands are named by their places in ONNX: `in0` or
`const0` are the queries, `out1` the states after the last step.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.lower.compose import BoundTask, BufferView
from fusewise.lower.named import Named
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.definition import call_of
from fusewise.ops.expr import Expr, cast, index, load
from fusewise.ops.indexing import is_static
from fusewise.ops.linear_attention import LinearAttention, linear_attention, sizes_of

__all__ = ["interpret_linear", "linear_operand", "linear_reason", "linear_sizes", "linear_task"]

LINEAR = "linear_attention"


def linear_reason(graph: Graph, node: Node) -> str:
    """Why a LinearAttention cannot run natively; empty when it can."""
    call = call_of(graph, node)
    if not is_static(call):
        return "shape depends on data"
    kinds = [call.input(k) if call.has(k) else None for k in range(len(call.inputs))]
    if any(kind is not None and kind.dtype not in (FLOAT32, FLOAT16, BFLOAT16) for kind in kinds):
        return f"{node.op} on another type than float32, float16 or bfloat16"
    if any(kind is not None and 0 in kind.dims for kind in kinds):
        return f"{node.op} of nothing"
    try:
        sizes_of(dict(node.attributes), tuple(None if kind is None else kind.dims for kind in kinds))
    except ValueError as error:
        return str(error)
    return ""


def linear_task(graph: Graph, node: Node, views: Mapping[str, BufferView], exact: bool) -> BoundTask:
    """The task of a node that `linear_reason` has nothing against; `views` has all that it reads, and what it is to write."""
    named = Named(graph, node, views)
    given = [named.given(place) if value else None for place, value in enumerate(node.inputs)]
    kinds = tuple(None if one is None else TensorType(one.dtype, one.shape) for one in given)
    prologue = tuple(None if one is None else _whole(one) for one in given)
    s = sizes_of(dict(node.attributes), tuple(None if kind is None else kind.dims for kind in kinds))
    extents = (s.samples, s.steps, s.heads, s.values)
    at = tuple(index(f"i{d}") for d in range(4))
    number = load(ACC, FLOAT32, at)
    stores = []
    for place, value in enumerate(node.outputs):
        if value and value in views:
            one = named.result(place)
            where = (at[0], at[1], at[2] * s.values + at[3]) if place == 0 else at
            stores.append(Store(one.name, where, cast(number, one.dtype)))
    anchor = Anchor(node.op, LINEAR, node.attributes, kinds, prologue, TensorType(FLOAT32, extents))
    return named.bind(Task(extents, tuple(named.operands.values()), tuple(stores), anchor, exact))


def _whole(operand: Operand) -> Expr:
    """The element of an operand at the index that a prologue is asked for."""
    return load(operand.name, operand.dtype, tuple(index(f"p{d}") for d in range(len(operand.shape))))


def linear_operand(task: Task, place: int) -> Operand | None:
    """The operand at a place of the node, if it is there."""
    anchor = task.anchor
    assert anchor is not None
    element = anchor.prologue[place] if place < len(anchor.prologue) else None
    return None if element is None else task.operand(element.value)


def linear_sizes(task: Task) -> LinearAttention:
    """The sizes of such a task."""
    anchor = task.anchor
    assert anchor is not None
    return sizes_of(dict(anchor.attributes), tuple(None if kind is None else kind.dims for kind in anchor.inputs))


def interpret_linear(task: Task, views: Mapping[str, np.ndarray]) -> None:
    """Perform the stores of such a task on its operands."""
    operands = (linear_operand(task, place) for place in range(6))
    q, k, v, past, decay, beta = (None if one is None else views[one.name] for one in operands)
    assert q is not None and k is not None and v is not None
    results = linear_attention(linear_sizes(task), q, k, v, past, decay, beta)
    for store in task.stores:
        views[store.operand][...] = results[int(store.operand[-1])]
