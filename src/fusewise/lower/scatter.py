"""ScatterElements, ScatterND, TensorScatter and MaxUnpool as tasks of their own, which change their result in place.

The result is first a copy of what is changed (or zeros), for which another task sees, where it does not lie there already. The
index space is that of the updates; where one goes, and what it makes of what lies there, is the task's one store:

    ScatterElements, axis 1:   out[i0, in1[i0, i1], i2] = f(out[i0, in1[i0, i1], i2], in2[i0, i1, i2])
    ScatterND:                 out[in1[i0, 0], in1[i0, 1], i1] = f(out[...], in2[i0, i1])

Updates that may meet in one element are carried out in the order of their indices: these differ along the axes that the anchor
calls `ordered`. Its prologue is the position along which the result can be dealt out instead, of `positions` in all.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fusewise.ir.deciding import known_below
from fusewise.ir.dtypes import BOOL, INT64
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.lower.compose import BoundTask, BufferView
from fusewise.lower.layout import row_major
from fusewise.lower.named import Named
from fusewise.lower.places import hub_index
from fusewise.lower.task import Anchor, Store, Task
from fusewise.ops.definition import call_of
from fusewise.ops.expr import Expr, binary, cast, const, index, load, substitute
from fusewise.ops.indexing import is_static, wrapped
from fusewise.ops.interpret import evaluate_expression
from fusewise.ops.spec import Call

__all__ = ["interpret_scatter", "scatter_base", "scatter_reason", "scatter_task"]

_LOGICAL: Mapping[str, str] = {"add": "or", "max": "or", "mul": "and", "min": "and"}


def scatter_reason(graph: Graph, node: Node) -> str:
    """Why a scatter cannot run natively; empty when it can."""
    call = call_of(graph, node)
    if not is_static(call):
        return "shape depends on data"
    if call.without_arithmetic:
        return f"{node.op} on {call.without_arithmetic}"
    if call.narrow and node.attribute("reduction", "none") != "none":
        return f"{node.op} with {node.attribute('reduction')} of {call.narrow}"
    if not call.output().size and call.input(1).size:
        return f"{node.op} into nothing"
    return "" if _FIT[node.op](call) else f"{node.op} with operands that do not fit each other"


def scatter_base(node: Node) -> str:
    """The value that the result is before it is changed; empty for zeros."""
    return "" if node.op == "MaxUnpool" else node.inputs[0]


def scatter_task(graph: Graph, node: Node, views: Mapping[str, BufferView], exact: bool) -> BoundTask:
    """The task of a node that `scatter_reason` has nothing against."""
    return _TASKS[node.op](Named(graph, node, views), exact)


def _bound(
    named: Named,
    extents: tuple[int, ...],
    ordered: Sequence[int],
    store: Store,
    owner: tuple[Expr, int],
    exact: bool,
) -> BoundTask:
    out, (position, positions) = named.operands["out0"], owner
    attributes = (("ordered", tuple(ordered)), ("positions", positions))
    result = TensorType(out.dtype, named.graph.tensor(named.values["out0"]).dims)
    anchor = Anchor(named.node.op, "scatter", attributes, (None,), (position,), result)
    return named.bind(Task(extents, tuple(named.operands.values()), (store,), anchor, exact))


def _store(named: Named, where: tuple[Expr, ...], update: Expr) -> Store:
    """An update, combined with what lies there as the node's `reduction` says."""
    kind, dtype = named.node.attribute("reduction", "none"), named.operands["out0"].dtype
    if kind != "none":
        update = binary(_LOGICAL[kind] if dtype == BOOL else kind, load("out0", dtype, where), update)
    return Store("out0", where, update)


# --- ScatterElements ----------------------------------------------------------------------------------------------


def _elements_fit(call: Call) -> bool:
    data, places, updates = (call.input(k) for k in range(3))
    if not data.rank or places.rank != data.rank or updates.dims != places.dims or call.output().dims != data.dims:
        return False
    axis = call.attribute("axis", 0) % data.rank
    return all(
        d == axis or known_below(n, most + 1) for d, (n, most) in enumerate(zip(places.dims, data.dims, strict=True))
    )


def _elements(named: Named, exact: bool) -> BoundTask:
    out, at = named.result(0), hub_index(len(named.graph.tensor(named.node.inputs[0]).dims))
    axis = named.node.attribute("axis", 0) % len(at)
    extent = out.shape[axis]
    position = named.bounded(wrapped(named.read(1, at), extent), 1, 0, extent - 1, wraps=True)
    where = (*at[:axis], position, *at[axis + 1 :])
    store = _store(named, where, named.read(2, at))
    extents = named.graph.tensor(named.node.inputs[1]).dims
    return _bound(named, extents, (axis,), store, (position, extent), exact)


# --- ScatterND ----------------------------------------------------------------------------------------------------


def _nd_fit(call: Call) -> bool:
    data, places, updates = (call.input(k) for k in range(3))
    if not places.rank or not 0 < places.dims[-1] <= data.rank or call.output().dims != data.dims:
        return False
    return updates.dims == (*places.dims[:-1], *data.dims[places.dims[-1] :])


def _nd(named: Named, exact: bool) -> BoundTask:
    out, places = named.result(0), named.graph.tensor(named.node.inputs[1]).dims
    extents = named.graph.tensor(named.node.inputs[2]).dims
    at, depth, tuples = hub_index(len(extents)), places[-1], len(places) - 1
    where = []
    for k, extent in enumerate(out.shape[:depth]):
        given = named.read(1, (*at[:tuples], const(k)))
        where.append(named.bounded(wrapped(given, extent), 1, 0, extent - 1, wraps=True))
    store = _store(named, (*where, *at[tuples:]), named.read(2, at))
    owner = const(0)
    for position, extent in zip(where, out.shape, strict=False):
        owner = owner * extent + position
    return _bound(named, extents, range(tuples), store, (owner, math.prod(out.shape[:depth])), exact)


# --- TensorScatter ------------------------------------------------------------------------------------------------


def _tensor_fit(call: Call) -> bool:
    cache, update = call.input(0), call.input(1)
    if cache.rank < 2 or update.rank != cache.rank or call.output().dims != cache.dims:
        return False
    axis = call.attribute("axis", -2) % cache.rank
    same = all(
        n == most or (d == axis and (not known_below(most, n) if call.has(2) else known_below(n, most + 1)))
        for d, (n, most) in enumerate(zip(update.dims, cache.dims, strict=True))
    )
    return same and axis > 0 and (not call.has(2) or call.input(2).dims == cache.dims[:1])


def _tensor(named: Named, exact: bool) -> BoundTask:
    out, extents = named.result(0), named.graph.tensor(named.node.inputs[1]).dims
    at = hub_index(len(extents))
    axis = named.node.attribute("axis", -2) % len(at)
    position, extent = at[axis], out.shape[axis]
    if len(named.node.inputs) > 2 and named.node.inputs[2]:
        circular = named.node.attribute("mode", "linear") == "circular"
        least, most = (-(2**62), 2**62) if circular else (0, extent - extents[axis])
        first = named.bounded(cast(named.read(2, at[:1]), INT64), 2, least, most)
        position = binary("floormod", first + position, extent) if circular else first + position
    store = Store("out0", (*at[:axis], position, *at[axis + 1 :]), named.read(1, at))
    return _bound(named, extents, (), store, (const(0), 1), exact)


# --- MaxUnpool ----------------------------------------------------------------------------------------------------


def _unpool_fit(call: Call) -> bool:
    if call.input(0).dims != call.input(1).dims or call.input(0).rank < 3 or (call.has(2) and not call.is_known(2)):
        return False
    whole = _unpooled(call.node, call.input(0).dims)
    return len(whole) == call.output().rank and all(map(operator.le, whole, call.output().dims))


def _unpooled(node: Node, dims: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that positions are counted in: that of the result where no other is asked for."""
    kernel = node.attribute("kernel_shape", ())
    pads, strides = node.attribute("pads") or (0,) * 2 * len(kernel), node.attribute("strides") or (1,) * len(kernel)
    ends = map(operator.add, pads, pads[len(kernel) :])
    sized = zip(dims[2:], strides, ends, kernel, strict=False)
    return (*dims[:2], *((extent - 1) * stride - end + size for extent, stride, end, size in sized))


def _unpool(named: Named, exact: bool) -> BoundTask:
    """Positions count elements in ONNX's order; a larger result than they are counted in has zeros behind each axis."""
    out, extents = named.result(0), named.graph.tensor(named.node.inputs[0]).dims
    at, whole = hub_index(len(extents)), _unpooled(named.node, extents)
    size = math.prod(whole)
    position = named.bounded(named.read(1, at), 1, 0, size - 1)
    steps = zip(row_major(whole), whole, strict=True)
    where = tuple(binary("floormod", binary("floordiv", position, step), extent) for step, extent in steps)
    if whole == out.shape and out.strides == row_major(whole):
        named.operands["out0"], where = replace(out, shape=(size,), strides=(1,)), (position,)
    return _bound(named, extents, range(len(at)), _store(named, where, named.read(0, at)), (position, size), exact)


_FIT = {"ScatterElements": _elements_fit, "ScatterND": _nd_fit, "TensorScatter": _tensor_fit, "MaxUnpool": _unpool_fit}

_TASKS = {"ScatterElements": _elements, "ScatterND": _nd, "TensorScatter": _tensor, "MaxUnpool": _unpool}


def interpret_scatter(task: Task, views: Mapping[str, np.ndarray]) -> None:
    """Carry out the store, one after another along the ordered axes."""
    anchor, (store,) = task.anchor, task.stores
    assert anchor is not None
    ordered = anchor.attribute("ordered")
    free = {f"i{d}": extent for d, extent in enumerate(task.extents) if d not in ordered}
    names = {f"i{d}": index(f"i{k}") for k, d in enumerate(d for d in range(len(task.extents)) if d not in ordered)}
    extents = {names[name].value: extent for name, extent in free.items()}
    for at in itertools.product(*(range(task.extents[d]) for d in ordered)):
        known = names | {f"i{d}": const(k) for d, k in zip(ordered, at, strict=True)}

        def placed(expr: Expr, known: Mapping[str, Expr] = known) -> Expr:
            return substitute(expr, lambda e: known.get(e.value) if e.op == "index" else None)

        value = evaluate_expression(placed(store.value), extents, views)[0]
        where = tuple(evaluate_expression(placed(i), extents, views)[0] for i in store.index)
        views[store.operand][where] = value
