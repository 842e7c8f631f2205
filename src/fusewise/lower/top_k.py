"""TopK as a task of its own, of which both results are written by one kernel.

The index space is that of the results, k elements along the axis. The anchor's prologue is the element of the data at
(i0, i1, ...), where the loop variable along the axis runs over all of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fusewise.ir.deciding import known_below
from fusewise.ir.graph import Graph, Node
from fusewise.ir.size import Size
from fusewise.lower.compose import BoundTask, BufferView
from fusewise.lower.named import Named
from fusewise.lower.task import ACC, Anchor, Store, Task
from fusewise.ops.definition import call_of
from fusewise.ops.expr import index, load
from fusewise.ops.indexing import is_static, known_integers
from fusewise.ops.selection import top

__all__ = ["interpret_top_k", "top_k_reason", "top_k_task"]

MOST_ELEMENTS = 2**24
"""Of a line: every worker has room for the keys of one."""


def top_k_reason(graph: Graph, node: Node) -> str:
    """Why a TopK cannot run natively; empty when it can."""
    call = call_of(graph, node)
    if not is_static(call):
        return "shape depends on data"
    if not call.is_known(1):
        return "k is not constant"
    if call.without_arithmetic:
        return f"{node.op} on {call.without_arithmetic}"
    data, count = call.input(0), known_integers(call, 1, "k")[0]
    if not data.rank or not all(isinstance(n, Size) or n <= MOST_ELEMENTS for n in data.dims):
        return f"{node.op} of a line of too many elements"
    axis = call.attribute("axis", -1) % data.rank
    wanted = (*data.dims[:axis], count, *data.dims[axis + 1 :])
    fits = known_below(-1, count) and not known_below(data.dims[axis], count)  # of sizes the graph has a check
    fits = fits and all(kind is None or kind.dims == wanted for kind in map(call.output, _present(node)))
    return "" if fits else f"{node.op} with operands that do not fit each other"


def _present(node: Node) -> list[int]:
    return [place for place, value in enumerate(node.outputs) if value]


def top_k_task(graph: Graph, node: Node, views: Mapping[str, BufferView], exact: bool) -> BoundTask:
    """The task of a node that `top_k_reason` has nothing against."""
    named, kind = Named(graph, node, views), graph.tensor(node.inputs[0])
    at = tuple(index(f"i{d}") for d in range(kind.rank))
    element = named.read(0, at)
    results = [(place, graph.tensor(node.outputs[place])) for place in _present(node)]
    stores = []
    for place, result in results:
        if node.outputs[place] in views:
            named.result(place)
            stores.append(Store(f"out{place}", at, load(ACC, result.dtype, at)))
    anchor = Anchor(node.op, "top_k", node.attributes, (kind,), (element,), results[0][1])
    return named.bind(Task(results[0][1].dims, tuple(named.operands.values()), tuple(stores), anchor, exact))


def interpret_top_k(task: Task, views: Mapping[str, np.ndarray]) -> None:
    """The largest or smallest elements, in order, and where they are."""
    anchor = task.anchor
    assert anchor is not None and anchor.prologue[0] is not None
    axis = anchor.attribute("axis", -1) % len(task.extents)
    found = top(views[anchor.prologue[0].value], task.extents[axis], axis, bool(anchor.attribute("largest", 1)))
    for store in task.stores:
        views[store.operand][...] = found[int(store.operand[-1])]
