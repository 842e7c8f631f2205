"""LSTM, GRU and RNN as tasks of their own: all outputs of a node written by one kernel that has the loop over time in it.

They have no element definition, since a step's numbers come from the step before. The task's index space is Y's as ONNX's layout 0
has it, (step, direction, sample, hidden number), whatever the layout, which is only strides. Operands are named by their places
in ONNX: `in0` or `const0` is X, `out2` is Y_c. The lengths of sequences are bounded by the number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fusewise.ir.dtypes import FLOAT32, FLOAT64, INT32, INT64
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.lower.compose import BoundTask, BufferView
from fusewise.lower.named import Named
from fusewise.lower.task import ACC, Anchor, Store, Task
from fusewise.ops.definition import call_of
from fusewise.ops.expr import Expr, cast, index, load, walk
from fusewise.ops.indexing import is_static
from fusewise.ops.recurrence import recurrence, recurrence_of
from fusewise.ops.spec import Call

__all__ = ["interpret_recurrence", "recurrent_operand", "recurrent_reason", "recurrent_task"]

LENGTHS = 4
"""The place of the sequence lengths among the operands."""

SAMPLES_FIRST = frozenset((0, 5, 6))
"""Places of the operands that ONNX's layout 1 has the samples first in: X and the initial states."""


def recurrent_reason(graph: Graph, node: Node) -> str:
    """Why a recurrence cannot run natively; empty when it can."""
    call = call_of(graph, node)
    if not is_static(call):
        return "shape depends on data"
    kinds = [call.input(k) if call.has(k) else None for k in range(len(call.inputs))]
    if len(kinds) < 3 or any(kind is None for kind in kinds[:3]):
        return f"{node.op} without X, W or R"
    numbers = [kind for place, kind in enumerate(kinds) if kind is not None and place != LENGTHS]
    if any(kind.dtype not in (FLOAT32, FLOAT64) or kind.dtype != call.input(0).dtype for kind in numbers):
        return f"{node.op} on another type than float32 or float64"
    if any(kind is not None and 0 in kind.dims for kind in kinds):
        return f"{node.op} of nothing"
    try:
        directions = len(recurrence_of(node.op, dict(node.attributes)).backward)
    except ValueError as error:
        return str(error)
    return "" if _fits(call, directions) else f"{node.op} with operands that do not fit each other"


def _fits(call: Call, directions: int) -> bool:
    """Have all operands the sizes that ONNX's text wants?"""
    order = (1, 0, 2) if call.attribute("layout", 0) else (0, 1, 2)
    if any(call.input(k).rank != 3 for k in (0, 1, 2)):
        return False
    _, samples, inputs = (call.input(0).dims[axis] for axis in order)
    hidden = call.input(2).dims[2]
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[call.node.op] * hidden
    state = tuple((directions, samples, hidden)[axis] for axis in order)
    wanted = (None, (directions, gates, inputs), (directions, gates, hidden), (directions, 2 * gates), (samples,))
    every = (*wanted, state, state, (directions, 3 * hidden))
    sizes = all(not call.has(k) or call.input(k).dims == dims for k, dims in enumerate(every) if dims is not None)
    return sizes and (not call.has(LENGTHS) or call.input(LENGTHS).dtype == INT32)


def recurrent_task(graph: Graph, node: Node, views: Mapping[str, BufferView], exact: bool) -> BoundTask:
    """The task of a node that `recurrent_reason` has nothing against; `views` has all that it reads, and what it is to write."""
    turned, named = bool(node.attribute("layout", 0)), Named(graph, node, views)
    kinds: list[TensorType | None] = []
    prologue: list[Expr | None] = []
    for place, value in enumerate(node.inputs):
        if not value:
            kinds.append(None)
            prologue.append(None)
            continue
        rank = graph.tensor(value).rank
        x = named.given(place, (1, 0, 2) if turned and place in SAMPLES_FIRST else range(rank))
        kinds.append(TensorType(x.dtype, x.shape))
        element = load(x.name, x.dtype, tuple(index(f"p{k}") for k in range(rank)))
        if place == LENGTHS:
            steps = kinds[0].dims[0] if kinds[0] is not None else 0
            element = named.bounded(cast(element, INT64), place, 0, steps)
        prologue.append(element)
    extents = _extents(kinds)
    at = tuple(index(f"i{d}") for d in range(4))
    dtype = named.given(0).dtype
    stores = []
    for place, value in enumerate(node.outputs):
        if value and value in views:
            out = named.result(place, ((1, 2, 0, 3) if place == 0 else (1, 0, 2)) if turned else None)
            stores.append(Store(out.name, at if place == 0 else at[1:], load(ACC, dtype, at)))
    anchor = Anchor(node.op, "recurrence", node.attributes, tuple(kinds), tuple(prologue), TensorType(dtype, extents))
    return named.bind(Task(extents, tuple(named.operands.values()), tuple(stores), anchor, exact))


def recurrent_operand(element: Expr) -> Expr:
    """What a prologue of such a task loads, without the bounds of lengths."""
    return next(e for e in walk(element) if e.op == "load")


def _extents(kinds: list[TensorType | None]) -> tuple[int, ...]:
    """Of Y, from X and R."""
    x, _, r, *_ = kinds
    assert x is not None and r is not None
    return x.dims[0], r.dims[0], x.dims[1], r.dims[2]


def interpret_recurrence(task: Task, views: Mapping[str, np.ndarray]) -> None:
    """Perform the stores of such a task on its operands."""
    anchor = task.anchor
    assert anchor is not None
    given = [None if e is None else views[recurrent_operand(e).value] for e in anchor.prologue]
    attributes = {name: value for name, value in anchor.attributes if name != "layout"}  # strides say that
    results = recurrence(recurrence_of(anchor.op, attributes), *given)
    for store in task.stores:
        views[store.operand][...] = results[int(store.operand[-1])]
