"""A forest of decision trees as a task of its own: sums of the weights of the leaves that a row ends at.

The index space is that of the result, in loop variables i0 (row), i1 (target). The anchor's prologue is the element (i0, p1) of the
data. Its attributes are the tables of the forest (`ops.forests`), and what tells them from others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Graph, Node
from fusewise.lower.compose import BoundTask, BufferView
from fusewise.lower.named import Named
from fusewise.lower.task import ACC, Anchor, Store, Task
from fusewise.ops.definition import call_of
from fusewise.ops.expr import index, load
from fusewise.ops.forests import ForestTables, scores_of, tables_of
from fusewise.ops.indexing import is_static

__all__ = ["forest_reason", "forest_tables", "forest_task", "interpret_forest"]


def forest_reason(graph: Graph, node: Node) -> str:
    """Why a forest cannot run natively; empty when it can."""
    call = call_of(graph, node)
    if not is_static(call):
        return "shape depends on data"
    data, out = call.input(0), call.output()
    if data.dtype != FLOAT32 or out.dtype != FLOAT32:
        return f"{node.op} on {data.dtype.name}"
    tables = tables_of(node)
    if tables is None:
        return f"{node.op} with a transform, an aggregate or branches of other kinds, or of too many nodes"
    fits = data.rank == 2 and out.dims == (data.dims[0], tables.weights.shape[1])
    return "" if fits and tables.features <= data.dims[1] else f"{node.op} with operands that do not fit each other"


def forest_task(graph: Graph, node: Node, views: Mapping[str, BufferView], exact: bool) -> BoundTask:
    """The task of a node that `forest_reason` has nothing against."""
    named, data, out = Named(graph, node, views), graph.tensor(node.inputs[0]), graph.tensor(node.outputs[0])
    tables = tables_of(node)
    assert tables is not None
    element = named.read(0, (index("i0"), index("p1")))
    named.result(0)
    at = (index("i0"), index("i1"))
    store = Store("out0", at, load(ACC, FLOAT32, at))
    anchor = Anchor(node.op, "forest", _attributes(tables), (data,), (element,), out)
    return named.bind(Task(out.dims, tuple(named.operands.values()), (store,), anchor, exact))


def _attributes(tables: ForestTables) -> tuple[tuple[str, object], ...]:
    arrays = {name: getattr(tables, name) for name in ("nodes", "roots", "weights", "base")}
    constants = {name: Constant(array) for name, array in arrays.items() if array is not None}
    digests = tuple(constant.digest for constant in constants.values())
    how = (("digests", digests), ("divisor", tables.divisor), ("modes", tables.modes), ("tracks", tables.tracks))
    return (*how, *constants.items())


def forest_tables(anchor: Anchor) -> ForestTables:
    """The tables of the task with this anchor."""
    found = dict(anchor.attributes)
    arrays: dict[str, Any] = {
        name: found[name].array if name in found else None for name in ("nodes", "roots", "weights", "base")
    }
    return ForestTables(**arrays, **{name: found[name] for name in ("divisor", "modes", "tracks")})


def interpret_forest(task: Task, views: Mapping[str, np.ndarray]) -> None:
    """Go down all trees, and add up."""
    assert task.anchor is not None and task.anchor.prologue[0] is not None
    views["out0"][...] = scores_of(forest_tables(task.anchor), views[task.anchor.prologue[0].value])
