"""Convolutions over lanes: several neighbouring channels in one element, as they lie in memory or copied there."""

from __future__ import annotations

import math
from dataclasses import replace

from fusewise.codegen.families.convolution.shape import Convolution, Spatial, nowhere
from fusewise.codegen.instructions.table import lanes_of
from fusewise.codegen.llvm.stores import joined_axis
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.target import InstructionSet
from fusewise.ir.types import TensorType
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.expr import Expr

__all__ = ["copied_in_lanes", "flattened", "in_lanes"]


def in_lanes(
    shape: Convolution, task: Task, instruction: Instruction, instructions: InstructionSet
) -> Convolution | RefusalReason:
    """A convolution by an instruction, over lanes of as many channels as it has terms: as the input has them, or copied so where
    they do not lie side by side or are computed on the way in; or why there are none."""
    if shape.weight.operand.dtype != instruction.left:
        return RefusalReason(f"not a product of {instruction.left.name}", shape.weight.operand.dtype.name)
    if shape.groups > 1 and shape.inputs % instruction.terms:
        return RefusalReason(f"channels of a group do not come in {instruction.layout}")
    if shape.groups > 1 and shape.outputs < instructions.lanes:
        return RefusalReason("groups of few channels")
    if shape.computed is not None:
        return copied_in_lanes(shape, shape.computed, instruction)
    data = lanes_of(shape.data, 1, instruction)
    if isinstance(data, RefusalReason):
        # to widen numbers one by one is no slower than to take pairs apart
        return (
            copied_in_lanes(shape, task.anchored.element(0), instruction)
            if instruction.is_native(instructions)
            else data
        )
    return replace(shape, inputs=shape.inputs // instruction.terms, data=data, instruction=instruction)


def copied_in_lanes(given: Convolution, element: Expr, instruction: Instruction) -> Convolution:
    """The convolution by an instruction, over lanes of as many channels, each computed as `element`, as it has terms; the last lane
    has zeros where it is not full."""
    inputs = -(-given.inputs // instruction.terms)
    dims = (given.batch, given.groups * inputs, *given.data.shape[2:])
    spatial = _taken(given.spatial)
    pixels = tuple((used.extent, axis.stride // used.stride) for axis, used in zip(given.spatial, spatial, strict=True))
    return replace(
        given,
        inputs=inputs,
        spatial=spatial,
        data=nowhere(TensorType(instruction.lane, dims)),
        computed=element,
        instruction=instruction,
        pixels=pixels,
    )


def _taken(spatial: tuple[Spatial, ...]) -> tuple[Spatial, ...]:
    """Only the pixels that are used: a kernel of one pixel with a stride reads every so many and nothing between."""
    single = all(axis.kernel == 1 and axis.is_inside for axis in spatial)
    return tuple(Spatial(axis.out, axis.out, 1, 1, 1, 0) for axis in spatial) if single else spatial


def flattened(shape: Convolution, task: Task) -> Convolution:
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
