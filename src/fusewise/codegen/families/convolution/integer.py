"""Convolutions of 8-bit integers, summed exactly in 32 bits: the direct convolution over lanes of several channels.

Takes a task whose anchor is a ConvInteger. Where the machine multiplies unsigned by signed bytes, four channels are a lane
(`product.bytes`): unsigned inputs that lie with their channels side by side are read in place where no tap leaves them; others are
copied into a strip, signed ones with 128 added, and padded with the zero point. Elsewhere, and where groups are narrow, two are:
rows of the input are copied with the zero point subtracted, as 16-bit numbers, so that padding is zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from fusewise.codegen.families.convolution.direct import arguments_by, direct_by, lanes_of_weights, write_by
from fusewise.codegen.families.convolution.lanes import copied_in_lanes, flattened
from fusewise.codegen.families.convolution.loops import Adapt, RowFill, levels_in_place
from fusewise.codegen.families.convolution.plan import (
    Direct,
    Directs,
    DirectSchedule,
    directs_of,
    favourite,
    within_cache,
)
from fusewise.codegen.families.convolution.shape import integer_convolution_of
from fusewise.codegen.families.product.bytes import (
    LEAST_LANES,
    by_bytes,
    byte_panels,
    byte_tiles,
    centred,
    unsigned,
    unsigned_zero,
)
from fusewise.codegen.families.product.plan import plan_product, prefetched
from fusewise.codegen.families.product.tiles import lanes_for
from fusewise.codegen.instructions.table import PMADDWD, for_bytes, lanes_of
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.llvm.entry import written
from fusewise.codegen.llvm.plain import zero_point
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.target import InstructionSet, Target
from fusewise.ir.dtypes import INT8, INT16
from fusewise.lower.program import Packing
from fusewise.lower.task import RefusalReason, Task

__all__ = ["INTEGER_CONV", "QUAD_CONV"]


def _pairs(instruction: Instruction, task: Task, instructions: InstructionSet) -> Directs | RefusalReason:
    """The convolution of numbers less the zero point: half as many input channels, of INT32."""
    given = integer_convolution_of(task)
    if isinstance(given, RefusalReason):
        return given
    if given.groups > 1 and given.inputs % instruction.terms:
        return RefusalReason("groups of an odd number of channels")
    shape = copied_in_lanes(given, centred(task.anchored.element(0), zero_point(task.anchored)), instruction)
    return directs_of(flattened(shape, task), task, instructions)


def _bytes(task: Task, instructions: InstructionSet) -> Directs | RefusalReason:
    """The convolution of unsigned bytes: a quarter of the input channels, of INT32."""
    instruction, given = for_bytes(instructions), integer_convolution_of(task)
    if instruction is None:
        return RefusalReason("the machine has no products of unsigned and signed bytes")
    if isinstance(given, RefusalReason):
        return given
    if given.groups > 1 and given.inputs % instruction.terms:
        return RefusalReason("groups whose channels do not fill lanes of four")
    if len(given.spatial) > 2:
        return RefusalReason("more than two spatial axes")
    if given.weight.operand.dtype not in (INT8, INT16):
        return RefusalReason("weights are not signed", given.weight.operand.dtype.name)
    if lanes_for(instructions, given.outputs) < LEAST_LANES:
        return RefusalReason("too few output channels for a vector")
    data = lanes_of(given.data, 1, instruction)
    if given.computed is None and not isinstance(data, RefusalReason) and all(a.is_inside for a in given.spatial):
        inputs = given.inputs // instruction.terms
        return directs_of(replace(given, inputs=inputs, data=data, instruction=instruction), task, instructions)
    shape = copied_in_lanes(given, unsigned(task.anchored.element(0)), instruction)
    return directs_of(flattened(shape, task), task, instructions)


def _declines(directs: Directs, task: Task, target: Target) -> RefusalReason | None:
    beside = favourite(directs, target).side_by_side > 1
    return RefusalReason("groups are narrow enough to share a vector") if beside else None


def _byte_schedules(directs: Directs, task: Task, target: Target) -> Iterable[DirectSchedule]:
    d = directs[0]
    right_bytes = d.product.groups * d.product.depth * d.product.columns * 6
    row_bytes = d.shape.channels * 4
    if d.strip is not None:
        row_bytes *= d.strip.rows.stride * d.strip.columns.stride
    for tile in byte_tiles(d.product, target)[:6]:
        schedule = plan_product(d.product, target, tile, row_bytes, right_bytes)
        schedule = schedule if d.strip is None else within_cache(d.strip, schedule, target)
        yield DirectSchedule(prefetched(schedule, d.product, task, target))


def _places(d: Direct) -> np.ndarray:
    """Where a row has the elements of each step of the reduction, from its first one."""
    levels = levels_in_place(d, 0, None) if d.strip is None else d.strip.levels(d.shape.inputs, 0)
    found = np.zeros(1, np.int32)
    for level in levels:
        found = np.add.outer(found, np.arange(level.extent, dtype=np.int32) * np.int32(level.stride)).reshape(-1)
    return found


def _byte_packing(d: Direct, tile: Tile) -> Packing:
    what = f"of channels groups {d.shape.groups}"
    return byte_panels(d.shape.weight, what, lambda weight: lanes_of_weights(weight, d), _places(d), tile)


def _around_zero(d: Direct, tile: Tile, elements: Elements) -> tuple[RowFill, Adapt]:
    """Padding is the zero point, which the sums are around."""
    zero = elements.at({}).value(unsigned_zero(elements.task.anchored))
    pad = None if d.strip is None else elements.function.convert("trunc", zero, "i8")
    weights = elements.pointers[d.shape.weight.operand.name]
    return RowFill(None, pad), partial(by_bytes, elements, d.product, tile, weights, zero)


QUAD_CONV = Kernel(
    "byte-convolution",
    _bytes,
    _byte_schedules,
    partial(arguments_by, _byte_packing),
    written(partial(arguments_by, _byte_packing), partial(write_by, _around_zero)),
    _declines,
)

INTEGER_CONV = replace(direct_by("integer-convolution", PMADDWD, _pairs), level=lambda schedule: "full")
"""Copying numbers less their zero point gains by all of LLVM's passes: up to 7 % of a convolution on SSE2."""
