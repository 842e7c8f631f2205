"""The geometry of a convolution, read off a task: batch, groups, channels, and one `Spatial` per spatial axis.

Batch and extents may be in terms of symbols, all else is a number; attributes with defaults (`auto_pad` among them) are resolved
once. A transposed convolution is brought to the same form (`Transposed`): each residue of the output position modulo the stride is
a convolution of its own with every stride-th tap, and all of them read the same inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace

from fusewise.codegen.llvm.stores import reads
from fusewise.codegen.nest.instruction import FUSED, Instruction, fused_of
from fusewise.codegen.view import OperandView, view_of
from fusewise.ir.deciding import hint, known_below, known_one, known_zero
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT8, UINT8, DType
from fusewise.ir.graph import Node
from fusewise.ir.size import Size, greatest
from fusewise.ir.types import TensorType
from fusewise.lower.task import Anchor, Operand, RefusalReason, Task
from fusewise.ops.expr import Expr
from fusewise.ops.spec import Call
from fusewise.ops.window import Window, transposed_window_of, window_of
from fusewise.records import record

__all__ = [
    "ABSENT",
    "Convolution",
    "Spatial",
    "Transposed",
    "convolution_of",
    "geometry_of",
    "integer_convolution_of",
    "nowhere",
    "transposed_of",
]

FLOATS = (FLOAT32, FLOAT64, FLOAT16, BFLOAT16)


@record(frozen=True)
class Spatial:
    """One spatial axis: output position o and tap k read input position o * stride + k * dilation - before."""

    extent: int
    out: int
    kernel: int
    stride: int
    dilation: int
    before: int

    @property
    def step(self) -> int:
        """Input positions from what one output or tap reads to what the next does, where stride or dilation is 1."""
        return self.stride * self.dilation

    @property
    def present(self) -> float:
        """The share of taps, of all outputs, that lie in the input."""
        inside = 0
        for tap in range(self.kernel):
            low, high = (-(-(place + self.before - tap * self.dilation) // self.stride) for place in (0, self.extent))
            inside += max(0, min(high, self.out) - max(low, 0))
        return inside / max(1, self.out * self.kernel)

    @property
    def reach(self) -> int:
        """Input positions that one output position spans."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def covered(self) -> int:
        """Input positions, padding included, that all outputs span."""
        return (self.out - 1) * self.stride + self.reach

    @property
    def is_inside(self) -> bool:
        """Do all taps of all outputs lie in the input?"""
        return known_zero(self.before) and known_below(self.covered, self.extent + 1)


ABSENT = Spatial(1, 1, 1, 1, 1, 0)
"""An axis that is not there."""


@record(frozen=True)
class Convolution:
    """out[n, g * outputs + m] = bias + sum over taps and c of data[n, g * inputs + c] * weight[g * outputs + m, c, taps].

    When something was fused in front of the data, `computed` is its element as an expression in p0, p1, ..., and the
    strides of `data` mean nothing. `names` are the output indices of the spatial axes where they are not i2, i3, ...;
    `fixed` are output indices that are always 0. Of an `instruction` of several terms, as many channels are one element; where it
    is computed, `pixels` has for each axis of the input how many positions are used, and the step from one to the next.
    """

    batch: int
    groups: int
    inputs: int
    outputs: int
    spatial: tuple[Spatial, ...]
    data: OperandView
    weight: OperandView
    bias: OperandView | None
    computed: Expr | None = None
    names: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    instruction: Instruction = FUSED
    pixels: tuple[tuple[int, int], ...] = ()

    @property
    def dtype(self) -> DType:
        return self.data.operand.dtype

    @property
    def channels(self) -> int:
        """Input channels of all groups."""
        return self.groups * self.inputs

    @property
    def taps(self) -> int:
        return math.prod(axis.kernel for axis in self.spatial)

    @property
    def out_pixels(self) -> int:
        """Output positions of a sample."""
        return math.prod(axis.out for axis in self.spatial)

    @property
    def is_sparse(self) -> bool:
        """Do padding and dilation blow the input up so far that reading it tap by tap is better than copying it padded?"""
        padded = math.prod(hint(axis.covered) for axis in self.spatial)
        present = math.prod(min(hint(axis.extent), hint(axis.covered)) for axis in self.spatial)
        return self.computed is None and not self.planar and self.inputs >= 16 and padded > 2 * present

    @property
    def planar(self) -> bool:
        """Are the channels stored one after the other, rather than side by side?"""
        return self.computed is None and not known_one(self.data.strides[1]) and self.channels > 1

    @property
    def is_free(self) -> bool:
        """Is its batch or an extent not known?"""
        axes = [number for axis in self.spatial for number in (axis.extent, axis.out)]
        return any(isinstance(number, Size) for number in (self.batch, *axes))

    @property
    def out_axes(self) -> tuple[str, ...]:
        """Names of the spatial output indices."""
        return self.names or tuple(f"i{k + 2}" for k in range(len(self.spatial)))


@record(frozen=True)
class Transposed:
    """A transposed convolution as convolutions `shape` of unit stride, one per phase, over positions q of each axis.

    On each axis, phase f of position q is the output q * stride + f - shift; outputs outside 0 .. extent - 1 do not exist.
    Tap t of a phase is the kernel's tap f + (taps - 1 - t) * stride, zero when there is none.
    """

    shape: Convolution
    strides: tuple[int, ...]
    shifts: tuple[int, ...]
    extents: tuple[int, ...]

    @property
    def phases(self) -> int:
        return math.prod(self.strides)


def _without_axes(task: Task, op: str, computed_as: Collection[DType] = (FLOAT32,)) -> Convolution | RefusalReason:
    """A convolution-like anchor with everything but its spatial axes, as Conv has inputs and outputs; or why its kernels cannot
    take it, which take data of some types where they are computed."""
    anchor = task.anchor
    if anchor is None or anchor.op != op:
        return RefusalReason(f"no {op} at the anchor")
    data, computed = view_of(task, 0), None
    if isinstance(data, RefusalReason):
        kind, computed = anchor.inputs[0], anchor.prologue[0]
        if not isinstance(kind, TensorType) or computed is None or computed.dtype not in computed_as:
            return data
        data = nowhere(kind)
    weight = view_of(task, 1)
    if isinstance(weight, RefusalReason):
        return weight
    bias = view_of(task, 2) if len(anchor.inputs) > 2 and anchor.inputs[2] is not None else None
    if isinstance(bias, RefusalReason):
        return bias
    if not weight.operand.constant:
        return RefusalReason("weights are not constant", weight.operand.name)
    if reads(task, weight.operand.name) or weight.operand.name == data.operand.name:
        return RefusalReason("the packed operand is also read otherwise", weight.operand.name)
    if data.operand.dtype not in FLOATS or weight.operand.dtype != data.operand.dtype:
        return RefusalReason("element type has no convolution kernel", data.operand.dtype.name)
    groups, (outputs, inputs) = int(anchor.attribute("group", 1)), weight.shape[:2]
    instruction = fused_of(weight.operand.dtype)
    return Convolution(
        anchor.output.dims[0],
        groups,
        inputs,
        outputs // groups,
        (),
        data,
        weight,
        bias,
        computed,
        instruction=instruction,
    )


def nowhere(kind: TensorType) -> OperandView:
    """What stands for data that are computed on the way in."""
    return OperandView(Operand("computed", kind.dtype, kind.dims, (0,) * kind.rank), kind.dims, (0,) * kind.rank, 0)


def convolution_of(task: Task, computed_as: Collection[DType] = (FLOAT32,)) -> Convolution | RefusalReason:
    """The geometry of the task's Conv, or why its kernels cannot take it, see `_without_axes`."""
    found = _without_axes(task, "Conv", computed_as)
    if isinstance(found, RefusalReason):
        return found
    spatial = geometry_of(task.anchored)
    return spatial if isinstance(spatial, RefusalReason) else replace(found, spatial=spatial)


def integer_convolution_of(task: Task) -> Convolution | RefusalReason:
    """The geometry of the task's ConvInteger, or why its kernels cannot take it.

    When its data are not read directly, `computed` is their element, as for other convolutions.
    """
    anchor = task.anchor
    if anchor is None or anchor.op != "ConvInteger":
        return RefusalReason("no ConvInteger at the anchor")
    kind, element, weight, data = anchor.inputs[0], anchor.prologue[0], view_of(task, 1), view_of(task, 0)
    if isinstance(weight, RefusalReason):
        return weight
    if not isinstance(kind, TensorType) or element is None or kind.dtype not in (INT8, UINT8):
        return RefusalReason("element type has no integer convolution kernel", str(kind))
    if len(anchor.inputs) > 3 and anchor.inputs[3] is not None:
        return RefusalReason("weights have a zero point")
    if not weight.operand.constant:
        return RefusalReason("weights are not constant", weight.operand.name)
    if reads(task, weight.operand.name):
        return RefusalReason("the packed operand is also read otherwise", weight.operand.name)
    spatial = geometry_of(anchor)
    if isinstance(spatial, RefusalReason):
        return spatial
    computed = None
    if isinstance(data, RefusalReason):
        computed = element
        data = nowhere(kind)
    groups = int(anchor.attribute("group", 1))
    outputs = weight.shape[0] // groups
    return Convolution(anchor.output.dims[0], groups, weight.shape[1], outputs, spatial, data, weight, None, computed)


def geometry_of(anchor: Anchor) -> tuple[Spatial, ...] | RefusalReason:
    """The spatial axes of a convolution."""
    window = _window(anchor, window_of)
    if any(begin < 0 for begin in window.begins):
        return RefusalReason("negative padding")
    extents, out = window.extents, anchor.output.dims[2:]
    axes = zip(extents, out, window.kernel, window.strides, window.dilations, window.begins, strict=True)
    return tuple(Spatial(*axis) for axis in axes)


def _window(anchor: Anchor, find: Callable[[Call, tuple[int, ...]], Window]) -> Window:
    """The geometry that the operator's definition uses, so that there is one reading of the attributes."""
    node = Node(anchor.op, tuple(f"x{k}" for k in range(len(anchor.inputs))), ("y",), anchor.attributes)
    return find(Call(node, anchor.inputs, (anchor.output,)), anchor.operand_type(1).dims[2:])


def transposed_of(task: Task, computed_as: Collection[DType] = (FLOAT32,)) -> Transposed | RefusalReason:
    """The geometry of the task's ConvTranspose, or why its kernels cannot take it, see `_without_axes`."""
    found = _without_axes(task, "ConvTranspose", computed_as)
    if isinstance(found, RefusalReason):
        return found
    anchor, (inputs, outputs) = task.anchored, found.weight.shape[:2]
    window = _window(anchor, transposed_window_of)
    strides, out = window.strides, anchor.output.dims[2:]
    if any(s > 1 and d > 1 and k > 1 for s, d, k in zip(strides, window.dilations, window.kernel, strict=True)):
        return RefusalReason("transposed convolution with both stride and dilation")
    spatial, shifts = [], []
    for extent, k, s, d, o, b in zip(
        window.extents, window.kernel, strides, window.dilations, out, window.begins, strict=True
    ):
        taps = -(-k // s)
        first, last = b // s, (b + o - 1) // s
        padding = (taps - 1) * d - first
        if padding < 0 or b < 0:
            return RefusalReason("transposed convolution with more padding than kernel")
        spatial.append(Spatial(extent, greatest(0, last - first + 1), taps, 1, d, padding))
        shifts.append(b - first * s)
    shape = replace(found, inputs=inputs // found.groups, outputs=outputs, spatial=tuple(spatial))
    return Transposed(shape, strides, tuple(shifts), out)
