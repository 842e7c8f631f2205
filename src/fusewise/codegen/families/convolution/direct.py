"""The direct convolution kernels, for tasks whose anchor is Conv: any rank, stride, dilation, padding and number of groups.

By an instruction of several terms, that many neighbouring channels are reduced at a time: it is the convolution with fewer
channels, each element several, of bfloat16 two. Where they do not lie side by side, or are computed on the way in, they are copied
so. What it refuses is widened by the general one, as it is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from fusewise.codegen.families.convolution.lanes import flattened, in_lanes
from fusewise.codegen.families.convolution.loops import (
    Adapt,
    RowFill,
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
from fusewise.codegen.families.convolution.shape import convolution_of, nowhere
from fusewise.codegen.families.product.plan import cycles_of, product_pieces
from fusewise.codegen.families.product.tiles import too_few_rows
from fusewise.codegen.instructions.table import BFMMLA, DPBF16
from fusewise.codegen.kernel import Argument, Kernel
from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.llvm.entry import OpenFunction, written
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.target import InstructionSet, Target
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32
from fusewise.ir.types import TensorType
from fusewise.lower.program import Packing
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.expr import cast

__all__ = ["DIRECT", "DIRECT_PAIRS", "OUTER_CONVOLUTION", "arguments_by", "direct_by", "lanes_of_weights", "write_by"]


def _direct(task: Task, instructions: InstructionSet) -> Directs | RefusalReason:
    """The convolution as a product; of narrow floats the one of rows that are copied as float32."""
    shape = convolution_of(task, (FLOAT32, FLOAT16, BFLOAT16))
    if isinstance(shape, RefusalReason):
        return shape
    if shape.dtype in (FLOAT16, BFLOAT16) and not shape.is_sparse:
        data = nowhere(TensorType(FLOAT32, shape.data.shape))
        shape = replace(shape, data=data, computed=cast(task.anchored.element(0), FLOAT32))
    return directs_of(shape, task, instructions)


OfTerms = Callable[[Instruction, Task, InstructionSet], Directs | RefusalReason]
"""`of(instruction, task, instructions)`: the task as products by an instruction."""


def of_terms(instruction: Instruction, task: Task, instructions: InstructionSet) -> Directs | RefusalReason:
    """The convolution by an instruction, whose terms are channels, as a product, or why it is none."""
    shape = convolution_of(task, (instruction.left,))
    if isinstance(shape, RefusalReason):
        return shape
    if instruction.terms > 1:
        taken = in_lanes(shape, task, instruction, instructions)
        if not isinstance(taken, RefusalReason) and taken.computed is not None:
            taken = flattened(taken, task)
    elif shape.weight.operand.dtype != instruction.left:
        taken = RefusalReason(f"not a product of {instruction.left.name}", shape.weight.operand.dtype.name)
    else:
        taken = replace(shape, instruction=instruction)
    if isinstance(taken, RefusalReason):
        return taken
    return directs_of(taken, task, instructions)


Pack = Callable[[Direct, Tile], Packing]
"""`pack(d, tile)`: how weights are packed."""

Around = Callable[[Direct, Tile, Elements], tuple[RowFill, Adapt]]
"""`around(d, tile, elements)`: what is in the strip, and what is done otherwise than by the usual loops."""


def packing(d: Direct, tile: Tile) -> Packing:
    """Weights in panels; for an instruction of several terms, as many channels in one element."""
    instruction = d.shape.instruction
    if instruction.terms > 1:
        return weight_packing(d, tile, lambda weight: lanes_of_weights(weight, d), f"{instruction.layout} of channels")
    axes = matrix_axes(d.shape, d.side_by_side)
    return weight_packing(d, tile, lambda weight: matrices(weight, d.shape, d.side_by_side), "convolution", axes)


def lanes_of_weights(weight: np.ndarray, d: Direct) -> np.ndarray:
    """Weights with as many input channels in one element as there are terms, as matrices."""
    joined = d.shape.instruction.pack(weight, 1)
    joined = joined.reshape(*joined.shape[:2], *(axis.kernel for axis in d.shape.spatial))
    return matrices(joined, d.shape, d.side_by_side)


def arguments_by(pack: Pack, directs: Directs, task: Task, schedule: DirectSchedule) -> tuple[Argument, ...]:
    """Operands, packed weights and scratch."""
    d = scheduled(directs, schedule)
    return direct_arguments(d, task, schedule, pack(d, schedule.product.tile))


def _as_usual(d: Direct, tile: Tile, elements: Elements) -> tuple[RowFill, Adapt]:
    return RowFill(), lambda parts: parts


def write_by(around: Around, o: OpenFunction, directs: Directs, schedule: DirectSchedule) -> None:
    """The body of a convolution."""
    d = scheduled(directs, schedule)
    emit_direct(o, d, schedule, o.finish, *around(d, schedule.product.tile, o.elements))


def _cycles(directs: Directs, target: Target, schedule: DirectSchedule) -> int:
    d = scheduled(directs, schedule)
    return 0 if d.by_tap or schedule.product.chunk else cycles_of(d.product, target, schedule.product.tile)


def _writes_once(directs: Directs, schedule: DirectSchedule) -> bool:
    return schedule.side_by_side == 1 and directs[0].product.is_written_once(schedule.product.tile)


DIRECT = Kernel(
    "direct-convolution",
    _direct,
    direct_schedules,
    partial(arguments_by, packing),
    written(partial(arguments_by, packing), partial(write_by, _as_usual), overwrites=True),
    cycles=_cycles,
    fetching=DirectSchedule.with_prefetch,
    sharing=direct_sharing,
    pieces=lambda directs, target, by: product_pieces(scheduled(directs, by).product, target, by.product),
    writes_once=_writes_once,
    level=lambda schedule: "tidy",
    every=partial(direct_schedules, most=None),
)


def direct_by(name: str, instruction: Instruction, of: OfTerms = of_terms) -> Kernel[Directs, DirectSchedule]:
    """The same of operands that an instruction takes, as `of` understands them."""
    return replace(DIRECT, name=name, understand=partial(_by, of, instruction))


def _by(of: OfTerms, instruction: Instruction, task: Task, instructions: InstructionSet) -> Directs | RefusalReason:
    directs = of(instruction, task, instructions)
    if isinstance(directs, RefusalReason):
        return directs
    return too_few_rows(instruction, directs[0].product.height) or directs


def _where_it_is(instruction: Instruction, task: Task, instructions: InstructionSet) -> Directs | RefusalReason:
    """The convolution on machines that have the instruction."""
    if not instruction.is_native(instructions):
        return RefusalReason(f"the machine has no {instruction!r}")
    return of_terms(instruction, task, instructions)


OUTER_CONVOLUTION = direct_by("bfloat16-outer-convolution", BFMMLA, _where_it_is)
"""By an instruction that takes two rows at a time."""

DIRECT_PAIRS = direct_by("bfloat16-convolution", DPBF16)
