"""Channels of an image side by side in a worker's memory, for kernels that read elements here and there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from fusewise.codegen.families.generic.any_nest import NestSchedule, emit_nest
from fusewise.codegen.llvm.entry import OpenFunction
from fusewise.codegen.llvm.plain import read_operand
from fusewise.codegen.llvm.square import turn
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.target import Target
from fusewise.codegen.view import OperandView, view_of
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.index import Simplifier
from fusewise.lower.task import ACC, Operand, Store, Task
from fusewise.ops.expr import Expr, cast, index, load, substitute, substitute_indices
from fusewise.records import record

__all__ = [
    "LEAST_CHANNELS",
    "ChannelSchedule",
    "SampledImage",
    "copied_channels",
    "copy_channels",
    "parts_of",
    "written_from",
]

LEAST_CHANNELS = 16
"""That are copied at once, if there are so many: a cache line."""

_SAMPLE, _CHANNEL = "sample", "channel"


@record(frozen=True)
class SampledImage:
    """The image that is operand 0 of a task's anchor, of which `channels` are taken at once. It is `view` where it is read in
    place, else that is None, and each worker copies channels."""

    task: Task
    view: OperandView | None
    channels: int

    @property
    def image(self) -> tuple[int, ...]:
        """The shape of operand 0."""
        return self.task.anchored.operand_type(0).dims

    @property
    def strides(self) -> tuple[int, ...]:
        """Of the image as it is read, channels aside: along the samples, then the spatial axes."""
        if self.view is not None:
            return (self.view.strides[0], *self.view.strides[2:])
        extents = self.image[2:]
        return tuple(math.prod(extents[d:]) * self.channels for d in range(len(extents) + 1))

    @property
    def chunks(self) -> int:
        return -(-self.task.extents[1] // self.channels)


@record(frozen=True)
class ChannelSchedule:
    """How many `channels` are taken at once, and how the nests beside are written."""

    channels: int
    nest: NestSchedule


def copied_channels(target: Target, channels: int, elements: int) -> int:
    """How many of the channels to copy at once, so that the copy of `elements` of each takes half the second-level cache."""
    fitting = target.l2_bytes // (2 * 4 * elements)
    return min(channels, max(LEAST_CHANNELS, fitting // LEAST_CHANNELS * LEAST_CHANNELS))


def copy_channels(o: OpenFunction, schedule: ChannelSchedule, place: tuple[Int, Int], there: Value) -> None:
    """there[element][c], float32: the channels taken at once, from `place` (sample, channel) on, of the image that is operand 0 of
    the anchor."""
    f, task, channels = o.f, o.task, schedule.channels
    extents, view = task.anchored.operand_type(0).dims[2:], view_of(task, 0)
    if isinstance(view, OperandView) and view.operand.dtype == FLOAT32 and _is_row_major(view):
        start = f.add(f.mul(place[0], view.strides[0]), f.add(f.mul(place[1], view.strides[1]), view.offset))
        source = f.at(o.pointers[view.operand.name], start)
        turn(f, source, view.strides[1], there, channels, (channels, math.prod(extents)), o.instructions.lanes)
        return
    shape, at = (channels, *extents), tuple(index(f"i{k}") for k in range(1 + len(extents)))
    element = read_operand(task.anchored, 0, (index(_SAMPLE), index(_CHANNEL) + at[0], *at[1:]))
    steps = (1, *(math.prod(extents[d + 1 :]) * channels for d in range(len(extents))))
    copied = Operand("copied", FLOAT32, shape, steps)
    value = Simplifier({f"i{k}": extent for k, extent in enumerate(shape)}).simplify(cast(element, FLOAT32))
    copying = Task(shape, (*task.operands, copied), (Store("copied", at, value),), exact=task.exact)
    given = {_SAMPLE: place[0], _CHANNEL: place[1]}
    emit_nest(o.alone(copied=there), copying, schedule.nest, given)


def written_from(task: Task, results: Operand, places: Mapping[str, Expr]) -> Task:
    """The stores of a task over `results`, an operand of its own with what they store: its loop variables as `places` in those."""
    at = tuple(index(f"i{k}") for k in range(len(results.shape)))
    simplifier = Simplifier({f"i{k}": extent for k, extent in enumerate(results.shape)})

    def result(node: Expr) -> Expr | None:
        is_result = node.op == "load" and node.value == ACC
        return cast(load(results.name, results.dtype, at), node.dtype) if is_result else None

    def one(root: Expr) -> Expr:
        return simplifier.simplify(substitute(substitute_indices(root, places), result))

    return replace(task.mapped(one), extents=results.shape, operands=(*task.operands, results), anchor=None)


def _is_row_major(view: OperandView) -> bool:
    """Do the spatial axes of an image lie in ONNX's own order, without gaps?"""
    size = 1
    for extent, stride in zip(reversed(view.shape[2:]), reversed(view.strides[2:]), strict=True):
        if extent > 1 and stride != size:
            return False
        size *= extent
    return True


def parts_of(channels: int, lanes: int) -> list[tuple[int, int]]:
    """Start and length of vectors, powers of two, that cover the channels."""
    found, start = [], 0
    while start < channels:
        width = min(lanes, 1 << ((channels - start).bit_length() - 1))
        found.append((start, width))
        start += width
    return found
