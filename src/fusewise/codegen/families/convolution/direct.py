"""The direct convolution kernels, for tasks whose anchor is Conv: any rank, stride, dilation, padding and number of groups.

That of bfloat16 reduces two neighbouring channels at a time (`pairs`), where they lie side by side: it is the convolution with
half as many channels, each element a pair. What it refuses is widened element by element by the general one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from fusewise.codegen.families.convolution.loops import direct_arguments, emit_direct, matrices, matrix_axes
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
from fusewise.codegen.instructions.pair_products import BFLOAT_PAIR, paired_view, with_room_for_pairs
from fusewise.codegen.kernel import Argument, Kernel
from fusewise.codegen.llvm.entry import enter
from fusewise.codegen.llvm.stores import finisher
from fusewise.codegen.packing import paired
from fusewise.codegen.steps.overwrite import shared_pointers
from fusewise.codegen.target import InstructionSet, Target
from fusewise.lower.task import RefusalReason, Task

__all__ = ["DIRECT", "DIRECT_PAIRS"]


def _direct(task: Task, instructions: InstructionSet) -> Directs | RefusalReason:
    """The convolution as a product."""
    shape = convolution_of(task)
    return shape if isinstance(shape, RefusalReason) else directs_of(shape, task, instructions)


def _direct_of_pairs(task: Task, instructions: InstructionSet) -> Directs | RefusalReason:
    """The convolution over pairs of channels as a product, or why there are none."""
    shape = convolution_of(task)
    if isinstance(shape, RefusalReason):
        return shape
    if shape.computed is not None or shape.inputs % 2:
        return RefusalReason("channels do not come in pairs")
    if shape.groups > 1 and shape.outputs < instructions.lanes:
        return RefusalReason("groups of few channels")
    data = paired_view(shape.data, 1)
    if isinstance(data, RefusalReason):
        return data
    return directs_of(replace(shape, inputs=shape.inputs // 2, data=data), task, instructions)


def _schedules_of_pairs(directs: Directs, task: Task, target: Target) -> Iterable[DirectSchedule]:
    return direct_schedules(directs, task, with_room_for_pairs(target))


def _arguments(directs: Directs, task: Task, schedule: DirectSchedule) -> tuple[Argument, ...]:
    d = scheduled(directs, schedule)
    if d.shape.dtype == BFLOAT_PAIR:
        return direct_arguments(d, task, schedule, lambda w: _arranged(paired(w, 1), d), "pairs of channels")
    axes = matrix_axes(d.shape, d.side_by_side)
    return direct_arguments(d, task, schedule, lambda weight: _arranged(weight, d), "convolution", axes)


def _arranged(weight: np.ndarray, d: Direct) -> np.ndarray:
    return matrices(weight, d.shape, d.side_by_side)


def _build(directs: Directs, task: Task, instructions: InstructionSet, schedule: DirectSchedule, symbol: str) -> str:
    given = _arguments(directs, task, schedule)
    module, f, pointers, share = enter(symbol, given, shared=shared_pointers(task))
    finish = finisher(f, task, instructions, pointers)
    emit_direct(f, scheduled(directs, schedule), task, instructions, schedule, given, pointers, share, finish)
    f.give_back()
    return module.text()


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
    _build,
    cycles=_cycles,
    fetching=DirectSchedule.with_prefetch,
    sharing=direct_sharing,
    pieces=_pieces,
    writes_once=_writes_once,
    level=lambda schedule: "tidy",
)
DIRECT_PAIRS = replace(DIRECT, name="bfloat16-convolution", understand=_direct_of_pairs, schedules=_schedules_of_pairs)
