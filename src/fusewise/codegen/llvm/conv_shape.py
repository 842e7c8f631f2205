"""The geometry of a convolution, read off a task: batch, groups, channels, and one `Spatial` per spatial axis.

Everything is a number here; attributes with defaults (`auto_pad` among them) are resolved once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fusewise.codegen.view import View, view_of
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, DType
from fusewise.lower.task import Reason, Task

__all__ = ["Convolution", "Spatial", "convolution_of"]

FLOATS = (FLOAT32, FLOAT64, FLOAT16, BFLOAT16)


@dataclass(frozen=True)
class Spatial:
    """One spatial axis: output position o and tap k read input position o * stride + k * dilation - before."""

    extent: int
    out: int
    kernel: int
    stride: int
    dilation: int
    before: int

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
        return self.before == 0 and self.covered <= self.extent


@dataclass(frozen=True)
class Convolution:
    """out[n, g * outputs + m] = bias + sum over taps and c of data[n, g * inputs + c] * weight[g * outputs + m, c, taps]."""

    batch: int
    groups: int
    inputs: int
    outputs: int
    spatial: tuple[Spatial, ...]
    data: View
    weight: View
    bias: View | None

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
    def out_axes(self) -> tuple[str, ...]:
        """Names of the spatial output indices."""
        return tuple(f"i{k + 2}" for k in range(len(self.spatial)))


def convolution_of(task: Task) -> Convolution | Reason:
    """The geometry of the task's Conv, or why its kernels cannot take it."""
    anchor = task.anchor
    if anchor is None or anchor.op != "Conv":
        return Reason("no convolution at the anchor")
    data, weight = view_of(task, 0), view_of(task, 1)
    if isinstance(data, Reason):
        return data
    if isinstance(weight, Reason):
        return weight
    bias = view_of(task, 2) if len(anchor.inputs) > 2 and anchor.inputs[2] is not None else None
    if isinstance(bias, Reason):
        return bias
    if not weight.operand.constant:
        return Reason("weights are not constant", weight.operand.name)
    if any(weight.operand.name in repr(store.value) for store in task.stores):
        return Reason("the packed operand is also read by the stores", weight.operand.name)
    if data.operand.dtype not in FLOATS or weight.operand.dtype != data.operand.dtype:
        return Reason("element type has no convolution kernel", data.operand.dtype.name)
    groups = int(anchor.attribute("group", 1))
    out = anchor.output.dims
    return Convolution(
        batch=out[0],
        groups=groups,
        inputs=weight.shape[1],
        outputs=weight.shape[0] // groups,
        spatial=_spatial(task, data.shape[2:], weight.shape[2:], out[2:]),
        data=data,
        weight=weight,
        bias=bias,
    )


def _spatial(
    task: Task, extents: tuple[int, ...], kernel: tuple[int, ...], out: tuple[int, ...]
) -> tuple[Spatial, ...]:
    anchor = task.anchor
    assert anchor is not None
    rank = len(extents)
    strides = tuple(anchor.attribute("strides", (1,) * rank))
    dilations = tuple(anchor.attribute("dilations", (1,) * rank))
    automatic = anchor.attribute("auto_pad", "NOTSET")
    automatic = automatic.decode() if isinstance(automatic, bytes) else automatic
    before = tuple(anchor.attribute("pads", (0,) * (2 * rank)))[:rank]
    if automatic == "VALID":
        before = (0,) * rank
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        total = [
            max((o - 1) * s + (k - 1) * d + 1 - e, 0)
            for o, s, k, d, e in zip(out, strides, kernel, dilations, extents, strict=True)
        ]
        before = tuple(t // 2 if automatic == "SAME_UPPER" else t - t // 2 for t in total)
    return tuple(
        Spatial(e, o, k, s, d, b)
        for e, o, k, s, d, b in zip(extents, out, kernel, strides, dilations, before, strict=True)
    )
