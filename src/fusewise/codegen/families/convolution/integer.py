"""Convolutions of 8-bit integers: the direct convolution over pairs of 16-bit channels, summed exactly in 32 bits.

Takes a task whose anchor is a ConvInteger; gives LLVM IR. Rows of the input are copied into the strip with the zero point
subtracted, as 16-bit numbers, so that padding is zero; two channels are one 32-bit element of the strip, and of the packed
weights. What follows is the direct convolution with half as many channels, by an instruction that takes two at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fusewise.codegen.families.convolution.loops import (
    Line,
    OpenFunction,
    RowFill,
    direct_arguments,
    emit_direct,
    matrices,
    padded_rows,
)
from fusewise.codegen.families.convolution.plan import Directs, DirectSchedule, direct_schedules, directs_of, scheduled
from fusewise.codegen.families.convolution.shape import Convolution, Spatial, geometry_of, integer_convolution_of
from fusewise.codegen.families.product.bytes import centred
from fusewise.codegen.families.product.loops import unravel
from fusewise.codegen.instructions.table import PMADDWD, Instruction
from fusewise.codegen.kernel import Argument, Kernel
from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.llvm.entry import enter
from fusewise.codegen.llvm.plain import zero_point
from fusewise.codegen.llvm.registers import memory_type
from fusewise.codegen.llvm.stores import finisher, joined_axis
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.packing import packed, panels
from fusewise.codegen.target import InstructionSet, Target
from fusewise.codegen.view import OperandView
from fusewise.lower.task import Operand, RefusalReason, Task
from fusewise.ops.expr import Expr
from fusewise.records import record

__all__ = ["INTEGER_CONV", "Rows", "in_lanes", "line_of", "rows_of"]


def convolution(task: Task) -> Convolution | RefusalReason:
    """The task's ConvInteger as a convolution of pairs: half as many input channels, of INT32."""
    given = integer_convolution_of(task)
    if isinstance(given, RefusalReason):
        return given
    if given.groups > 1 and given.inputs % 2:
        return RefusalReason("groups of an odd number of channels")
    anchor = task.anchor
    assert anchor is not None and anchor.prologue[0] is not None
    return in_lanes(given, centred(anchor.prologue[0], zero_point(anchor)), PMADDWD)


def in_lanes(given: Convolution, element: Expr, instruction: Instruction) -> Convolution:
    """The convolution by an instruction, over lanes of as many channels, each computed as `element`, as it has terms."""
    inputs = -(-given.inputs // instruction.terms)
    dims = (given.batch, given.groups * inputs, *given.data.shape[2:])
    data = OperandView(Operand("computed", instruction.lane, dims, (0,) * len(dims)), dims, (0,) * len(dims), 0)
    return replace(
        given, inputs=inputs, spatial=_taken(given.spatial), data=data, computed=element, instruction=instruction
    )


def _flattened(shape: Convolution, task: Task) -> Convolution:
    """A convolution of single pixels as one along a single axis, so that blocks end anywhere and not only with a row."""
    single = all(axis.kernel == axis.stride == 1 and axis.is_inside for axis in shape.spatial)
    axes = [(name, axis.out) for name, axis in zip(shape.out_axes, shape.spatial, strict=True)]
    joined = joined_axis(task, axes)
    if not single or joined is None or joined != axes[-1][0]:
        return shape
    pixels = math.prod(axis.out for axis in shape.spatial)
    data = replace(shape.data, shape=(*shape.data.shape[:2], pixels), strides=(0, 0, 0))
    spatial = (Spatial(pixels, pixels, 1, 1, 1, 0),)
    return replace(shape, spatial=spatial, data=data, names=(joined,), fixed=shape.out_axes[:-1])


def _taken(spatial: tuple[Spatial, ...]) -> tuple[Spatial, ...]:
    """Only the pixels that are used: a kernel of one pixel with a stride reads every so many and nothing between."""
    single = all(axis.kernel == 1 and axis.is_inside for axis in spatial)
    return tuple(Spatial(axis.out, axis.out, 1, 1, 1, 0) for axis in spatial) if single else spatial


@record(frozen=True)
class Rows:
    """The product over lanes of several channels; the input's channels, and the extents and steps of its pixels."""

    directs: Directs
    channels: int
    extents: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def shape(self) -> Convolution:
        """Of all products."""
        return self.directs[0].shape


def rows_of(shape: Convolution, task: Task, instructions: InstructionSet) -> Rows:
    """The product that a convolution `in_lanes` is."""
    anchor = task.anchor
    assert anchor is not None
    given = geometry_of(anchor)
    assert not isinstance(given, RefusalReason), given
    steps = tuple(axis.stride // taken.stride for axis, taken in zip(given, shape.spatial, strict=True))
    directs = directs_of(_flattened(shape, task), task, instructions)
    extents = tuple(axis.extent for axis in shape.spatial)
    return Rows(directs, shape.weight.shape[1] * shape.groups, extents, steps)


def _understand(task: Task, instructions: InstructionSet) -> Rows | RefusalReason:
    shape = convolution(task)
    return shape if isinstance(shape, RefusalReason) else rows_of(shape, task, instructions)


def _schedules(found: Rows, task: Task, target: Target) -> Iterable[DirectSchedule]:
    return direct_schedules(found.directs, task, target)


def _arguments(found: Rows, task: Task, schedule: DirectSchedule) -> tuple[Argument, ...]:
    d, tile = scheduled(found.directs, schedule), schedule.product.tile

    def pack(weight: np.ndarray) -> np.ndarray:
        joined = d.shape.instruction.pack(weight.astype(np.int16), 1)
        joined = joined.reshape(*joined.shape[:2], *(axis.kernel for axis in d.shape.spatial))
        return panels(matrices(joined, d.shape, d.side_by_side), tile.lanes, tile.vectors)

    name = f"pairs of channels in panels {tile.vectors}x{tile.lanes} groups {d.shape.groups}/{d.side_by_side}"
    return direct_arguments(d, task, schedule, packed(d.shape.weight, name, pack))


def _build(found: Rows, task: Task, instructions: InstructionSet, schedule: DirectSchedule, symbol: str) -> str:
    d, arguments = scheduled(found.directs, schedule), _arguments(found, task, schedule)
    module, f, pointers, share = enter(symbol, arguments)
    assert d.strip is not None
    fill = padded_rows(f, d.shape, d.strip, line_of(f, found, Elements(f, task, instructions, pointers)))
    finish = finisher(f, task, instructions, pointers)
    emit_direct(OpenFunction(f, task, instructions, arguments, pointers, share), d, schedule, finish, RowFill(fill))
    f.give_back()
    return module.text()


def line_of(f: Function, found: Rows, elements: Elements) -> Line:
    """Writes the channels of pixels as the narrow integers that `computed` gives, with zeros where a lane is not full."""
    element, rank = found.shape.computed, len(found.shape.spatial)
    assert element is not None
    narrow, bits = memory_type(element.dtype), element.dtype.bits
    names = [f"p{k + 2}" for k in range(len(found.extents))]
    pitch = 32 // bits * found.shape.channels

    def placed(indices: Mapping[str, Int]) -> dict[str, Int]:
        """The indices of the input, from those of the pixels that are used."""
        at = [indices[f"p{k + 2}"] for k in range(rank)]
        if rank < len(names):
            at = unravel(f, at[0], found.extents)
        steps = zip(names, at, found.steps, strict=True)
        return {"p0": indices["p0"], **{name: f.mul(place, step) for name, place, step in steps}}

    def pixel(indices: Mapping[str, Int], at: Value) -> None:
        where, channels = placed(indices), found.channels
        lanes = _lanes(elements.instructions, channels, bits)
        for absent in range(channels, pitch):
            f.store(f.constant(0, narrow), f.at(at, absent, narrow))

        def some(c: Value | int, _: Sequence[Value]) -> None:
            channel = c if channels % lanes == 0 else f.minimum(c, channels - lanes)
            value = elements.at({**where, "p1": channel}, "p1", lanes).value(element)
            f.store(value, f.at(at, channel, narrow))

        f.loop(0, channels, lanes, some, rolled=True)

    def across(indices: Mapping[str, Int], at: Value, width: int) -> None:
        """Few channels: many pixels at once, whose channels are then laid side by side."""
        lanes = _lanes(elements.instructions, width, bits)
        along = names[-1]

        def some(w: Value | int, _: Sequence[Value]) -> None:
            first = w if width % lanes == 0 else f.minimum(w, width - lanes)
            where = placed({along: first, **indices})
            zero = f.constant(0, vector(narrow, lanes))
            each = [elements.at({**where, "p1": c}, along, lanes).value(element) for c in range(found.channels)]
            each += [zero] * (pitch - found.channels)
            f.store(_interleaved(f, each), f.at(at, f.mul(first, pitch), narrow))

        f.loop(0, width, lanes, some, rolled=True)

    def line(indices: Mapping[str, Int], at: Value, width: int) -> None:
        if pitch in (2, 4, 8) and found.steps[-1] == 1 and rank == len(names) and width > 1:
            across(indices, at, width)
            return
        along = f"p{rank + 1}"
        f.loop(0, width, 1, lambda w, _: pixel({along: w, **indices}, f.at(at, f.mul(w, pitch), narrow)), rolled=True)

    return line


def _lanes(instructions: InstructionSet, count: int, bits: int) -> int:
    """Lanes that suit a run of so many numbers."""
    lanes = max(1, instructions.vector_bits // bits)
    while lanes > count:
        lanes //= 2
    return lanes


def _interleaved(f: Function, parts: Sequence[Value]) -> Value:
    """The first lanes of all parts, then the second ones, ...; as many parts as a power of two."""
    if len(parts) == 1:
        return parts[0]
    even, odd = _interleaved(f, parts[::2]), _interleaved(f, parts[1::2])
    lanes = even.lanes
    return f.shuffle(even, odd, [k // 2 + lanes * (k % 2) for k in range(2 * lanes)])


INTEGER_CONV = Kernel("integer-convolution", _understand, _schedules, _arguments, _build)
