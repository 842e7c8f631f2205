"""The direct convolution kernels, for tasks whose anchor is Conv: any rank, stride, dilation, padding and number of groups.

By an instruction of several terms, that many neighbouring channels are reduced at a time, where they lie side by side: it is the
convolution with fewer channels, each element several, of bfloat16 two. What it refuses is widened element by element by the
general one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from fusewise.codegen.families.convolution.loops import (
    direct_arguments,
    emit_direct,
    matrices,
    matrix_axes,
    weight_packing,
)
from fusewise.codegen.families.convolution.plan import (
    Direct,
    Directs,
    DirectSchedule,
    direct_schedules,
    direct_sharing,
    directs_of,
    scheduled,
)
from fusewise.codegen.families.convolution.shape import convolution_of
from fusewise.codegen.families.product.plan import cycles_of, product_pieces
from fusewise.codegen.instructions.table import DPBF16, Instruction, lanes_of
from fusewise.codegen.kernel import Argument, Kernel
from fusewise.codegen.llvm.entry import OpenFunction, written
from fusewise.codegen.target import InstructionSet, Target
from fusewise.lower.task import RefusalReason, Task

__all__ = ["DIRECT", "DIRECT_PAIRS", "direct_by"]


def _direct(task: Task, instructions: InstructionSet) -> Directs | RefusalReason:
    """The convolution as a product."""
    shape = convolution_of(task)
    return shape if isinstance(shape, RefusalReason) else directs_of(shape, task, instructions)


def _direct_of_terms(instruction: Instruction, task: Task, instructions: InstructionSet) -> Directs | RefusalReason:
    """The convolution by an instruction of several terms, which are channels, as a product, or why there are none."""
    shape = convolution_of(task)
    if isinstance(shape, RefusalReason):
        return shape
    if shape.computed is not None or shape.inputs % instruction.terms:
        return RefusalReason(f"channels do not come in {instruction.layout}")
    if shape.groups > 1 and shape.outputs < instructions.lanes:
        return RefusalReason("groups of few channels")
    data = lanes_of(shape.data, 1, instruction)
    if isinstance(data, RefusalReason):
        return data
    fewer = replace(shape, inputs=shape.inputs // instruction.terms, data=data, instruction=instruction)
    return directs_of(fewer, task, instructions)


def _arguments(directs: Directs, task: Task, schedule: DirectSchedule) -> tuple[Argument, ...]:
    d = scheduled(directs, schedule)
    instruction, tile = d.shape.instruction, schedule.product.tile
    if instruction.terms > 1:
        recipe = f"{instruction.layout} of channels"
        packing = weight_packing(d, tile, lambda w: _arranged(instruction.pack(w, 1), d), recipe)
    else:
        axes = matrix_axes(d.shape, d.side_by_side)
        packing = weight_packing(d, tile, lambda weight: _arranged(weight, d), "convolution", axes)
    return direct_arguments(d, task, schedule, packing)


def _arranged(weight: np.ndarray, d: Direct) -> np.ndarray:
    return matrices(weight, d.shape, d.side_by_side)


def _write(o: OpenFunction, directs: Directs, schedule: DirectSchedule) -> None:
    emit_direct(o, scheduled(directs, schedule), schedule, o.finish)


def _cycles(directs: Directs, target: Target, schedule: DirectSchedule) -> int:
    d = scheduled(directs, schedule)
    return 0 if d.by_tap or schedule.product.chunk else cycles_of(d.product, target, schedule.product.tile)


def _pieces(directs: Directs, target: Target, schedule: DirectSchedule) -> int:
    return product_pieces(scheduled(directs, schedule).product, target, schedule.product)


def _writes_once(directs: Directs, schedule: DirectSchedule) -> bool:
    return schedule.side_by_side == 1 and directs[0].product.is_written_once(schedule.product.tile)


DIRECT = Kernel(
    "direct-convolution",
    _direct,
    direct_schedules,
    _arguments,
    written(_arguments, _write, overwrites=True),
    cycles=_cycles,
    fetching=DirectSchedule.with_prefetch,
    sharing=direct_sharing,
    pieces=_pieces,
    writes_once=_writes_once,
    level=lambda schedule: "tidy",
)


def direct_by(name: str, instruction: Instruction) -> Kernel[Directs, DirectSchedule]:
    """The same of operands that an instruction of several terms takes."""
    return replace(DIRECT, name=name, understand=partial(_direct_of_terms, instruction))


DIRECT_PAIRS = direct_by("bfloat16-convolution", DPBF16)
