"""1x1 convolutions of a map times one number for each channel, as squeeze-and-excite makes them: the weights are scaled instead.

The sum over c of w[m, c] (x[p, c] s[c]) is that of (w[m, c] s[c]) x[p, c]. Then the map is read in place, where its products would
have to be written out first, and each worker multiplies the weights into memory of its own, once in a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusewise.codegen.families.convolution.loops import (
    direct_arguments,
    emit_direct,
    matrices,
    matrix_axes,
    weight_packing,
)
from fusewise.codegen.families.convolution.plan import Direct, Directs, DirectSchedule, direct_schedules, directs_of
from fusewise.codegen.families.convolution.shape import convolution_of
from fusewise.codegen.families.product.plan import cycles_of
from fusewise.codegen.families.product.repack import repacked_elements
from fusewise.codegen.kernel import Argument, Kernel, working_memory
from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.llvm.entry import OpenFunction, written
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.target import InstructionSet, Target
from fusewise.codegen.view import OperandView, strides_along
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.expr import Expr, walk
from fusewise.records import record

__all__ = ["SCALED"]


@record(frozen=True)
class Scaled:
    """The convolution of the map alone, and the number of channel p1, a load."""

    directs: Directs
    scale: Expr

    @property
    def direct(self) -> Direct:
        """There is but one, of one group."""
        return self.directs[0]


def understand(task: Task, instructions: InstructionSet) -> Scaled | RefusalReason:
    """The convolution as one with scaled weights, or why it is none."""
    shape = convolution_of(task)
    if isinstance(shape, RefusalReason):
        return shape
    if shape.computed is None or shape.computed.op != "mul" or shape.computed.dtype != FLOAT32:
        return RefusalReason("no map times a number for each channel")
    if task.exact:
        return RefusalReason("scaling weights may change a rounding")
    if shape.batch > 1 or shape.groups > 1 or shape.taps > 1 or not all(axis.is_inside for axis in shape.spatial):
        return RefusalReason("not a 1x1 convolution of one sample")
    first, second = shape.computed.args
    for given, scale in ((first, second), (second, first)):
        data = _map(task, shape.data, given)
        if data is not None and _is_per_channel(scale):
            return Scaled(directs_of(replace(shape, data=data, computed=None), task, instructions), scale)
    return RefusalReason("no map times a number for each channel")


def _map(task: Task, like: OperandView, given: Expr) -> OperandView | None:
    """A map in memory, channels side by side, of the shape of `like`."""
    if given.op != "load":
        return None
    operand = task.operand(given.value)
    found = strides_along(operand, given.args)
    if found is None or found[0].get("p1", 0) != 1:
        return None
    return OperandView(operand, like.shape, tuple(found[0].get(f"p{k}", 0) for k in range(len(like.shape))), found[1])


def _is_per_channel(scale: Expr) -> bool:
    return scale.op == "load" and all(e.value in ("p0", "p1") for e in walk(scale) if e.op == "index")


def _arguments(found: Scaled, task: Task, schedule: DirectSchedule) -> tuple[Argument, ...]:
    d = found.direct
    axes = matrix_axes(d.shape, d.side_by_side)
    tile = schedule.product.tile
    packing = weight_packing(d, tile, lambda weight: matrices(weight, d.shape, d.side_by_side), "convolution", axes)
    nbytes = repacked_elements(d.product, tile) * 4
    return (*direct_arguments(d, task, schedule, packing), working_memory(nbytes))


def _write(o: OpenFunction, found: Scaled, schedule: DirectSchedule) -> None:
    own, tag, weight = o.scratch(), o.tag(), found.direct.shape.weight.operand.name
    o.f.stage(tag, 0, lambda: _scale(o.f, found, o.elements, schedule.product.tile, o.pointers[weight], own))
    emit_direct(replace(o, pointers={**o.pointers, weight: own}), found.direct, schedule, o.finish)


def _scale(f: Function, found: Scaled, elements: Elements, tile: Tile, packed: Value, own: Value) -> None:
    """Multiply the packed weights, [panel][channel][column], by the numbers of their channels."""
    product = found.direct.product
    rank = len(found.direct.shape.spatial)
    elsewhere: dict[str, Int] = {f"p{k}": 0 for k in (0, *range(2, rank + 2))}

    def channel(c: Value, _: Sequence[Value]) -> None:
        number = f.splat(elements.at({**elsewhere, "p1": c}).value(found.scale), tile.lanes)

        def panel(p: Value, _: Sequence[Value]) -> None:
            first = f.mul(f.add(f.mul(p, product.depth), c), tile.width)
            for v in range(tile.vectors):
                at = f.add(first, v * tile.lanes)
                f.store(f.fmul(f.load(tile.kind, f.at(packed, at)), number), f.at(own, at))

        f.loop(0, -(-product.columns // tile.width), 1, panel, rolled=True)

    f.loop(0, product.depth, 1, channel, rolled=True)


def _declines(found: Scaled, task: Task, target: Target) -> RefusalReason | None:
    shape = found.direct.shape
    is_small = shape.out_pixels < target.figures.ways.scaled_pixels * shape.outputs
    return RefusalReason("more weights than map") if is_small else None


SCALED = Kernel(
    "scaled-convolution",
    understand,
    lambda found, task, target: direct_schedules(found.directs, task, target),
    _arguments,
    written(_arguments, _write),
    _declines,
    cycles=lambda found, target, schedule: cycles_of(found.direct.product, target, schedule.product.tile),
    fetching=DirectSchedule.with_prefetch,
    level=lambda schedule: "tidy",
)
"""The 1x1 convolution with weights scaled at run time."""
