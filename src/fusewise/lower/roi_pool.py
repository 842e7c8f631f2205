"""MaxRoiPool as a task of its own: which elements a cell takes is known by its box alone, how many is not.

The index space is that of the result, in loop variables i0 (box), i1 (channel), i2 (row), i3 (column). The anchor's prologue is the
element (p0, p1, p2, p3) of the image; then, in the loop variables, which image it is, and the first row that a cell takes, the one
behind its last, and the same for columns. The store is what becomes of the largest element, zero where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fusewise.ir.dtypes import FLOAT32, FLOAT64, INT64
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.lower.compose import BoundTask, BufferView
from fusewise.lower.named import Named
from fusewise.lower.task import ACC, Anchor, Store, Task
from fusewise.ops.definition import call_of
from fusewise.ops.expr import Expr, binary, cast, compare, const, index, load, select, unary
from fusewise.ops.grids import FARTHEST
from fusewise.ops.indexing import compute_type, is_static
from fusewise.ops.interpret import evaluate_expression

__all__ = ["interpret_roi_pool", "roi_pool_reason", "roi_pool_task"]


def roi_pool_reason(graph: Graph, node: Node) -> str:
    """Why a MaxRoiPool cannot run natively; empty when it can."""
    call = call_of(graph, node)
    if not is_static(call):
        return "shape depends on data"
    image, boxes, size = call.input(0), call.input(1), call.attribute("pooled_shape", ())
    if compute_type(image.dtype) != FLOAT32 or not boxes.dtype.is_float:
        return f"{node.op} on {image.dtype.name}"
    wanted = (boxes.dims[0], image.dims[1], *size) if image.rank == 4 and boxes.rank == 2 else ()
    return "" if call.output().dims == wanted else f"{node.op} with operands that do not fit each other"


def roi_pool_task(graph: Graph, node: Node, views: Mapping[str, BufferView], exact: bool) -> BoundTask:
    """The task of a node that `roi_pool_reason` has nothing against."""
    named, image, out = Named(graph, node, views), graph.tensor(node.inputs[0]), graph.tensor(node.outputs[0])
    element = named.read(0, tuple(index(f"p{d}") for d in range(4)))

    def box(place: int) -> Expr:
        return cast(cast(named.read(1, (index("i0"), const(place))), FLOAT32), FLOAT64)

    which = box(0)
    sample = cast(select(compare("lt", unary("abs", which), float(FARTHEST)), which, -1), INT64)
    sample = named.bounded(sample, 1, 0, image.dims[0] - 1)
    scale = float(np.float32(node.attribute("spatial_scale", 1.0)))
    rows = _cell(box(2) * scale, box(4) * scale, index("i2"), out.dims[2], image.dims[2])
    columns = _cell(box(1) * scale, box(3) * scale, index("i3"), out.dims[3], image.dims[3])
    named.result(0)
    at = tuple(index(f"i{d}") for d in range(4))
    store = Store("out0", at, load(ACC, out.dtype, at))
    kinds: tuple[TensorType | None, ...] = (image, *(None,) * 5)
    anchor = Anchor(node.op, "roi_pool", node.attributes, kinds, (element, sample, *rows, *columns), out)
    return named.bind(Task(out.dims, tuple(named.operands.values()), (store,), anchor, exact))


def _cell(begin: Expr, end: Expr, cell: Expr, cells: int, extent: int) -> tuple[Expr, Expr]:
    """The first element of a cell along an axis, and the one behind its last."""
    first, last = _rounded(begin), _rounded(end)
    length = binary("max", last - first + 1, 1)
    bounds = (cell * length) // cells + first, -((-(cell + 1) * length) // cells) + first
    low, high = (binary("min", binary("max", bound, 0), extent) for bound in bounds)
    return low, high


def _rounded(corner: Expr) -> Expr:
    """To a whole number, halves away from zero; what is no number is zero."""
    away = unary("floor", unary("abs", corner) + 0.5)
    near = binary("min", away, float(FARTHEST))
    signed = select(compare("lt", corner, 0), -near, near)
    return cast(select(compare("eq", corner, corner), signed, 0), INT64)


def interpret_roi_pool(task: Task, views: Mapping[str, np.ndarray]) -> None:
    """The largest of each cell's elements."""
    assert task.anchor is not None
    image, *found = task.anchor.prologue
    assert image is not None
    extents = {f"i{d}": extent for d, extent in enumerate(task.extents)}
    sample, top, bottom, left, right = (evaluate_expression(e, extents, views)[0] for e in found if e is not None)
    for at in np.ndindex(*task.extents):
        cell = views[image.value][sample[at], at[1], top[at] : bottom[at], left[at] : right[at]]
        views["out0"][at] = cell.max() if cell.size else 0
