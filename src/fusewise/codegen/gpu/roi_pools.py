"""MaxRoiPool: a lane for each element of the result, whose loops over its cell go as far as the largest cell of its block.

Cells are known by their box alone (`lower.roi_pool`), and kept within the image; neighbouring lanes are cells of one box, which are
nearly alike.
"""

from __future__ import annotations

import math

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import GpuKernel, NoKernel
from fusewise.codegen.gpu.nests import finished, warps_for
from fusewise.codegen.gpu.source import Scope, TritonWriter, decoded, is_int32
from fusewise.codegen.gpu.words import TritonTerm
from fusewise.lower.task import Task
from fusewise.ops.expr import Expr

__all__ = ["roi_pool"]

_BLOCK = 128


def roi_pool(task: Task, device: Device, precision: str) -> GpuKernel:
    """A kernel for MaxRoiPool; `NoKernel` for others."""
    if task.anchor is None or task.anchor.family != "roi_pool":
        raise NoKernel("no pooling of boxes")
    if not task.is_fixed:
        raise NoKernel("a kernel for a GPU is written for known sizes")
    count = math.prod(task.extents)
    if not is_int32(0, count + _BLOCK):  # lanes behind the last are numbered, too
        raise NoKernel(f"{task.anchor.op} to {count} elements")
    writer = TritonWriter(task)
    _write(writer, count)
    return finished(writer, f"roi_{task.digest}", -(-count // _BLOCK), warps_for(_BLOCK, 1), "a lane for each cell")


def _write(writer: TritonWriter, count: int) -> None:
    task, words = writer.task, writer.words
    shape = (_BLOCK,)
    number = TritonTerm(writer.name(f"tl.program_id(0) * {_BLOCK} + tl.arange(0, {_BLOCK})"), "int32", shape)
    bounds = (words.term(f"{number.text} < {count}", "int1", number),)
    scope = Scope(writer, decoded(writer, number, list(task.ranges.items())), bounds)
    element, *found = task.anchored.prologue
    assert element is not None

    def place(root: Expr | None) -> TritonTerm:
        assert root is not None
        return TritonTerm(writer.name(words.spread(words.to(scope.value(root), "int32"), shape)), "int32", shape)

    image, top, bottom, left, right = map(place, found)
    store = task.stores[0]
    kind = writer.kind(store.value)
    computed = "float32" if kind in ("float16", "bfloat16") else kind
    largest, depth = writer.name(f'tl.full({list(shape)}, float("-inf"), tl.{computed})'), writer.depth
    steps = []
    for begin, end in ((top, bottom), (left, right)):
        step = writer.fresh()
        writer.put(f"for {step} in range(0, tl.max({end.text} - {begin.text}, 0)):", 1)
        steps.append(words.term(f"{begin.text} + {step}", "int32", begin))
    row, column = steps
    inside = words.term(f"({row.text} < {bottom.text}) & ({column.text} < {right.text})", "int1", row)
    at = {"p0": image, "p1": scope.indices["i1"], "p2": row, "p3": column}
    value = words.to(scope.inside(at).under(inside).value(element), computed)
    larger = f"tl.maximum({largest}, {words.spread(value, shape)}, propagate_nan=tl.PropagateNan.ALL)"
    writer.put(f"{largest} = tl.where({inside.text}, {larger}, {largest})")
    writer.depth = depth
    some = f"({top.text} < {bottom.text}) & ({left.text} < {right.text})"
    scope.known[store.value] = words.to(words.term(f"tl.where({some}, {largest}, 0.0)", computed, number), kind)
    scope.store(store)
