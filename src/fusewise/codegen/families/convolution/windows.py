"""Windows of a convolution as rows for a matrix unit, which takes rows at equal distances, each step of them side by side.

Apart, every window is copied: [tap][channel], each tap in whole blocks of the instruction. Or windows share what is copied, a strip
of the padded input: a position has the pixels that a stride goes past, [pixel][channel], and lies one position behind the one
before, line after line. A window is what the taps find from its own position on; so that all are at equal distances a line has as
many positions as its windows reach, and a sample as many lines, of which the last are no results.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fusewise.codegen.families.convolution.shape import Convolution
from fusewise.codegen.families.product.lanes import STEP, ComputedOperands, SharedRows, WindowAxis
from fusewise.codegen.families.product.matrix_unit import copied_rows
from fusewise.codegen.families.product.plan import Product, RowAxis
from fusewise.codegen.families.product.shape import MatrixProduct
from fusewise.codegen.families.product.tile_copy import pitch_of, stored_lanes
from fusewise.codegen.llvm.plain import read_operand, zero_point
from fusewise.codegen.llvm.stores import joined_axis
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.tile import ReductionLoop
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.expr import cast, index

__all__ = ["product_of", "windows_apart", "windows_shared"]


def product_of(shape: Convolution, task: Task) -> MatrixProduct:
    """Its rows as the windows' first taps lie; the right operand is the weights as they are."""
    strides = shape.data.strides
    spatial = zip(shape.out_axes, shape.spatial, strides[2:], strict=True)
    rows = [
        RowAxis("i0", shape.batch, strides[0]),
        *(RowAxis(name, axis.out, axis.stride * by) for name, axis, by in spatial),
    ]
    product = Product(
        outer=(),
        rows=tuple(rows),
        column="i1",
        columns=shape.outputs,
        depth=shape.inputs,
        groups=shape.groups,
        joined=joined_axis(task, [(axis.name, axis.extent) for axis in rows]),
        dtype=shape.dtype,
    )
    outputs, inputs = shape.weight.strides[:2]
    return MatrixProduct(product, shape.data, (), strides[1], shape.weight, (), inputs, outputs, shape.bias)


def windows_apart(
    m: MatrixProduct, shape: Convolution, task: Task, instruction: Instruction, summed: bool = False
) -> MatrixProduct:
    """Every window copied, with the sum of its numbers where that is asked for."""
    of = replace(_copied(shape, task), summed=summed)
    if shape.groups > 1:
        pixel = stored_lanes(shape.channels, instruction)
        levels = ReductionLoop(shape.taps, pixel), ReductionLoop(pixel // shape.groups, 1)
        of = replace(of, shared=SharedRows(levels, tuple(axis.extent for axis in m.product.rows), 0))
    return copied_rows(m, of, instruction)


def windows_shared(
    m: MatrixProduct, shape: Convolution, task: Task, instruction: Instruction
) -> MatrixProduct | RefusalReason:
    """Windows of what is copied once, or why they share nothing."""
    if shape.is_free:
        return RefusalReason("how many windows a line has is not known")
    if any(axis.stride > 1 and axis.dilation > 1 for axis in shape.spatial):
        return RefusalReason("both strides and dilations")
    shifts = [(axis.kernel - 1) * axis.dilation // axis.stride for axis in shape.spatial]
    extents = (shape.batch, *(axis.out + shift for axis, shift in zip(shape.spatial, shifts, strict=True)))
    pixel = stored_lanes(shape.channels, instruction)
    pitch = pitch_of(pixel * math.prod(axis.stride for axis in shape.spatial), instruction)
    levels, behind = [], 0
    for k, (axis, shift) in enumerate(zip(shape.spatial, shifts, strict=True)):
        line, phase = math.prod(extents[k + 2 :]), pixel * math.prod(later.stride for later in shape.spatial[k + 1 :])
        behind += shift * line
        levels.append(ReductionLoop(axis.kernel, axis.dilation * line * pitch, phases=axis.stride, phase_stride=phase))
    levels.append(ReductionLoop(pixel // shape.groups, 1))
    of = _copied(shape, task)
    window = tuple(replace(axis, taps=axis.stride, dilation=1) for axis in of.window)
    of = replace(of, window=window, shared=SharedRows(tuple(levels), extents, behind))
    product = replace(m.product, rows=_with_gaps(m.product.rows, extents), joined=None)
    return copied_rows(replace(m, product=product), of, instruction)


def _with_gaps(axes: tuple[RowAxis, ...], extents: tuple[int, ...]) -> tuple[RowAxis, ...]:
    """Row axes with so many positions, but the first that has more than one row: nothing follows the last of that."""
    found, is_first = list[RowAxis](), True
    for axis, extent in zip(axes, extents, strict=True):
        found.append(axis if is_first or axis.extent == extent else replace(axis, extent=extent, results=axis.extent))
        is_first = is_first and axis.extent == 1
    return tuple(found)


def _copied(shape: Convolution, task: Task) -> ComputedOperands:
    """The numbers of a window, in its places."""
    places = [f"p{k + 2}" for k in range(len(shape.spatial))]
    at = (index("i0"), index(STEP), *(index(name) for name in places))
    window = tuple(
        WindowAxis(row, place, axis.extent, axis.kernel, axis.stride, axis.dilation, axis.before)
        for row, place, axis in zip(shape.out_axes, places, shape.spatial, strict=True)
    )
    zero = zero_point(task.anchored) if shape.dtype.is_integer else None
    outside = None if zero is None else cast(zero, shape.dtype)
    return ComputedOperands(read_operand(task.anchored, 0, at), None, shape.channels, window, outside)
