"""Convolutions of 8-bit integers as they are: the direct convolution over lanes of four channels, summed exactly in 32 bits.

Takes a task whose anchor is a ConvInteger; gives LLVM IR for machines that multiply unsigned by signed bytes
(`instructions.table`). Unsigned inputs that lie with their channels side by side are read in place where no tap leaves them;
others are copied into a strip, signed ones with 128 added, and padded with the zero point. A panel of weights lists the steps of
the reduction (`product.bytes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from fusewise.codegen.families.convolution.integer import Rows, in_lanes, line_of, rows_of
from fusewise.codegen.families.convolution.loops import (
    OpenFunction,
    RowFill,
    direct_arguments,
    emit_direct,
    matrices,
    padded_rows,
)
from fusewise.codegen.families.convolution.plan import Direct, DirectSchedule, directs_of, favourite, within_cache
from fusewise.codegen.families.convolution.shape import Convolution, integer_convolution_of
from fusewise.codegen.families.product.bytes import (
    LEAST_LANES,
    by_bytes,
    byte_panels,
    byte_tiles,
    unsigned,
    unsigned_zero,
)
from fusewise.codegen.families.product.loops import Parts
from fusewise.codegen.families.product.plan import plan_product, prefetched
from fusewise.codegen.families.product.tile import ReductionLoop
from fusewise.codegen.families.product.tiles import lanes_for
from fusewise.codegen.instructions.table import Instruction, for_bytes
from fusewise.codegen.kernel import Argument, Kernel
from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.llvm.entry import enter
from fusewise.codegen.llvm.stores import finisher
from fusewise.codegen.target import InstructionSet, Target
from fusewise.codegen.view import OperandView
from fusewise.ir.dtypes import INT8, INT16, UINT8
from fusewise.lower.task import RefusalReason, Task

__all__ = ["QUAD_CONV"]


def convolution(task: Task, instruction: Instruction) -> Convolution | RefusalReason:
    """The task's ConvInteger as a convolution of quads: a quarter of the input channels, of INT32."""
    given = integer_convolution_of(task)
    if isinstance(given, RefusalReason):
        return given
    if given.groups > 1 and given.inputs % 4:
        return RefusalReason("groups whose channels do not fill lanes of four")
    if len(given.spatial) > 2:
        return RefusalReason("more than two spatial axes")
    if given.weight.operand.dtype not in (INT8, INT16):
        return RefusalReason("weights are not signed", given.weight.operand.dtype.name)
    if _is_in_place(given):
        return _in_place(given, instruction)
    anchor = task.anchor
    assert anchor is not None and anchor.prologue[0] is not None
    return in_lanes(given, unsigned(anchor.prologue[0]), instruction)


def _is_in_place(given: Convolution) -> bool:
    """Are four channels one aligned element of the input, and are there no others to be read?"""
    data = given.data
    steps = (*data.strides[:1], *data.strides[2:], data.offset)
    return (
        given.computed is None
        and data.operand.dtype == UINT8
        and given.inputs % 4 == 0
        and data.strides[1] == 1
        and all(step % 4 == 0 for step in steps)
        and all(axis.is_inside for axis in given.spatial)
    )


def _in_place(given: Convolution, instruction: Instruction) -> Convolution:
    data, inputs = given.data, given.inputs // 4
    batch, _, *strides = (step // 4 for step in data.strides)
    shape = (data.shape[0], data.shape[1] // 4, *data.shape[2:])
    view = OperandView(replace(data.operand, dtype=instruction.lane), shape, (batch, 1, *strides), data.offset // 4)
    return replace(given, inputs=inputs, data=view, instruction=instruction)


def _understand(task: Task, instructions: InstructionSet) -> Rows | RefusalReason:
    instruction = for_bytes(instructions)
    if instruction is None:
        return RefusalReason("the machine has no products of unsigned and signed bytes")
    shape = convolution(task, instruction)
    if isinstance(shape, RefusalReason):
        return shape
    if shape.computed is None:
        rows = Rows(directs_of(shape, task, instructions), shape.channels * 4, (), ())
    else:
        rows = rows_of(shape, task, instructions)
    if lanes_for(instructions, rows.shape.outputs) < LEAST_LANES:
        return RefusalReason("too few output channels for a vector")
    return rows


def _declines(found: Rows, task: Task, target: Target) -> RefusalReason | None:
    beside = favourite(found.directs, target).side_by_side > 1
    return RefusalReason("groups are narrow enough to share a vector") if beside else None


def _schedules(found: Rows, task: Task, target: Target) -> Iterable[DirectSchedule]:
    d = found.directs[0]
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
    if d.strip is None:
        strides = d.shape.data.strides[2:]
        taps = [
            ReductionLoop(axis.kernel, axis.dilation * step)
            for axis, step in zip(d.shape.spatial, strides, strict=True)
        ]
        levels: Sequence[ReductionLoop] = (*taps, ReductionLoop(d.shape.inputs, 1))
    else:
        levels = d.strip.levels(d.shape.inputs, 0)
    found = np.zeros(1, np.int32)
    for level in levels:
        found = np.add.outer(found, np.arange(level.extent, dtype=np.int32) * np.int32(level.stride)).reshape(-1)
    return found


def _arguments(found: Rows, task: Task, schedule: DirectSchedule) -> tuple[Argument, ...]:
    d, tile = found.directs[0], schedule.product.tile
    what = f"of channels groups {d.shape.groups}"
    packing = byte_panels(d.shape.weight, what, lambda w: matrices(_joined(w, d.shape), d.shape, 1), _places(d), tile)
    return direct_arguments(d, task, schedule, packing)


def _joined(weight: np.ndarray, shape: Convolution) -> np.ndarray:
    """Signed bytes with four input channels as one int32 each."""
    joined = shape.instruction.pack(weight, 1)
    return joined.reshape(*joined.shape[:2], *(axis.kernel for axis in shape.spatial))


def _build(found: Rows, task: Task, instructions: InstructionSet, schedule: DirectSchedule, symbol: str) -> str:
    d, arguments = found.directs[0], _arguments(found, task, schedule)
    module, f, pointers, share = enter(symbol, arguments)
    elements, tile = Elements(f, task, instructions, pointers), schedule.product.tile
    anchor, fill, pad = task.anchor, None, None
    assert anchor is not None
    zero = elements.at({}).value(unsigned_zero(anchor))
    if d.strip is not None:
        pad = f.convert("trunc", zero, "i8")
        fill = padded_rows(f, d.shape, d.strip, line_of(f, found, elements), pad)
    weights = pointers[d.shape.weight.operand.name]

    def adapt(parts: Parts) -> Parts:
        return by_bytes(elements, d.product, tile, weights, zero, parts)

    finish = finisher(f, task, instructions, pointers)
    emit_direct(
        OpenFunction(f, task, instructions, arguments, pointers, share), d, schedule, finish, RowFill(fill, pad), adapt
    )
    f.give_back()
    return module.text()


QUAD_CONV = Kernel("byte-convolution", _understand, _schedules, _arguments, _build, _declines)
