"""Transposed convolutions: one product whose columns are (phase, output channel).

An output position modulo the stride is its phase. Outputs of one phase form an ordinary convolution of unit stride with every
stride-th tap; all phases read the same input rows, so they are computed together and each stores to its own places:

    2x2, stride 2:   out[2q + f, m] = sum over c of data[q, c] * weight[c, m, f]      four phases of one tap each
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fusewise.codegen.families.convolution.lanes import in_lanes
from fusewise.codegen.families.convolution.loops import direct_arguments, emit_direct, weight_packing
from fusewise.codegen.families.convolution.plan import (
    Direct,
    Directs,
    DirectSchedule,
    direct_schedules,
    directs_of,
    scheduled,
)
from fusewise.codegen.families.convolution.shape import Transposed, transposed_of
from fusewise.codegen.families.product.places import unravel
from fusewise.codegen.instructions.table import DPBF16
from fusewise.codegen.kernel import Argument, Kernel
from fusewise.codegen.llvm.entry import OpenFunction, written
from fusewise.codegen.llvm.stores import Finish
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.target import InstructionSet
from fusewise.ir.deciding import known_below
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.task import RefusalReason, Task

__all__ = ["CONV_TRANSPOSE"]

MAX_PHASES = 64
"""Beyond this most of the product would be zeros or tiny."""


Understood = tuple[Transposed, Directs]


def _understand(
    instruction: Instruction | None, task: Task, instructions: InstructionSet
) -> Understood | RefusalReason:
    """The phases of a transposed convolution, by an instruction of several terms or by the multiply-add of its type."""
    found = transposed_of(task, (FLOAT32,) if instruction is None else (instruction.left,))
    if isinstance(found, RefusalReason):
        return found
    if found.phases > MAX_PHASES:
        return RefusalReason("transposed convolution with a very long stride")
    if instruction is not None:
        shape = in_lanes(found.shape, task, instruction, instructions)
        if isinstance(shape, RefusalReason):
            return shape
        found = replace(found, shape=shape)
    return found, directs_of(found.shape, task, instructions, found.phases)


def _arguments(u: Understood, task: Task, schedule: DirectSchedule) -> tuple[Argument, ...]:
    t, d = u[0], scheduled(u[1], schedule)

    instruction = d.shape.instruction

    def arrange(weight: np.ndarray) -> np.ndarray:
        return phase_matrices(instruction.pack(weight, 0), t, d.side_by_side)

    layout = f"{instruction.layout} " if instruction.terms > 1 else ""
    packing = weight_packing(d, schedule.product.tile, arrange, f"{layout}transposed by {t.strides}")
    return direct_arguments(d, task, schedule, packing)


def phase_matrices(weight: np.ndarray, t: Transposed, together: int) -> np.ndarray:
    """Weights [inputs of all groups, outputs, taps...], whose inputs may be lanes of several, as [phase and group, depth, columns].

    Axis by axis, taps are padded with zeros to whole strides and split into (tap of the phase, phase); a phase's taps run
    backwards, because input moves backwards under a transposed kernel.
    """
    shape, rank = t.shape, len(t.strides)
    padding = [(0, 0), (0, 0)]
    split: list[int] = []
    for axis, stride, extent in zip(shape.spatial, t.strides, weight.shape[2:], strict=True):
        padding.append((0, axis.kernel * stride - extent))
        split += [axis.kernel, stride]
    turns = shape.groups // together
    whole = np.pad(weight, padding).reshape(turns, together, shape.inputs, shape.outputs, *split)
    taps = [4 + 2 * k for k in range(rank)]
    phases = [5 + 2 * k for k in range(rank)]
    backwards: np.ndarray = np.flip(whole, tuple(taps))
    depth = [*taps[:-1], 2, taps[-1]] if shape.planar else [*taps, 2]
    ordered: np.ndarray = backwards.transpose(*phases, 0, *depth, 1, 3)
    result: np.ndarray = ordered.reshape(t.phases * turns, shape.taps * shape.inputs, together * shape.outputs)
    return result


def _write(o: OpenFunction, u: Understood, schedule: DirectSchedule) -> None:
    t, d = u[0], scheduled(u[1], schedule)
    emit_direct(o, d, schedule, _placed(o.f, t, d, o.finish))


def _placed(f: Function, t: Transposed, d: Direct, finish: Finish) -> Finish:
    """Stores at the output that a phase and a position make, when there is one."""

    def placed(indices: Mapping[str, Int], lane: str, value: Value, count: int) -> None:
        phases = unravel(f, f.udiv(indices["group"], d.turns), t.strides)
        at = dict(indices)
        conditions: list[Value] = []
        for name, axis, phase, stride, shift, extent in zip(
            t.shape.out_axes, t.shape.spatial, phases, t.strides, t.shifts, t.extents, strict=True
        ):
            at[name] = f.sub(f.add(f.mul(indices[name], stride), phase), shift)
            if shift > 0 or not known_below(axis.out * stride - shift, extent + 1):
                conditions.append(f.compare("icmp ult", at[name], extent))
        _guarded(f, conditions, lambda: finish(at, lane, value, count))

    return placed


def _guarded(f: Function, conditions: Sequence[Value], body: Callable[[], None]) -> None:
    """Run `body` where all conditions hold."""
    if not conditions:
        body()
        return
    all_hold = conditions[0]
    for condition in conditions[1:]:
        all_hold = f.binary("and", all_hold, condition)
    f.when(all_hold, body)


TRANSPOSED = Kernel(
    "transposed-convolution",
    partial(_understand, None),
    lambda u, task, target: direct_schedules(u[1], task, target),
    _arguments,
    written(_arguments, _write),
    every=lambda u, task, target: direct_schedules(u[1], task, target, None),
)

TRANSPOSED_PAIRS = replace(TRANSPOSED, name="bfloat16-transposed-convolution", understand=partial(_understand, DPBF16))

CONV_TRANSPOSE: tuple[Kernel[Any, Any], ...] = (TRANSPOSED_PAIRS, TRANSPOSED)
