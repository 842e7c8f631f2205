"""The largest elements of an image in cells of boxes, by vectors of channels: tasks as `lower.roi_pool` makes them.

Workers share out boxes, for so many channels at once, which each copies side by side unless they lie so. How many rows and columns
a cell has is known at run time alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from fusewise.codegen.families.generic.any_nest import emit_nest, nest_schedules, run_of, unsupported
from fusewise.codegen.families.sampled.channels import (
    ChannelSchedule,
    SampledImage,
    copied_channels,
    copy_channels,
    parts_of,
    written_from,
)
from fusewise.codegen.kernel import Argument, Kernel, working_memory
from fusewise.codegen.llvm.arithmetic import apply_binary
from fusewise.codegen.llvm.entry import OpenFunction, Writer, areas, operand_arguments, written
from fusewise.codegen.llvm.square import turn
from fusewise.codegen.nest.tails import fitted
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.target import InstructionSet, Target, whole_lines
from fusewise.codegen.view import OperandView, view_of
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.task import Operand, RefusalReason, Task
from fusewise.ops.expr import index
from fusewise.records import record

__all__ = ["ROI_POOL"]

_MOST_CHANNELS = 64
"""Taken at once: their largest elements stay in registers."""


@record(frozen=True)
class _Pool(SampledImage):
    """Channels of all images [n, channels, height, width]."""

    @property
    def cells(self) -> int:
        return math.prod(self.task.extents[2:])

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of the copy, of a box's results, and of these turned."""
        copied = 0 if self.view is not None else 4 * self.image[0] * self.strides[0]
        results = 4 * self.cells * self.channels
        return {"copied": copied, "taken": results, "turned": results}


def _understand(task: Task, instructions: InstructionSet) -> _Pool | RefusalReason:
    if (reason := unsupported(task)) is not None:
        return reason
    image, view = task.anchored.operand_type(0).dims, view_of(task, 0)
    channels = min(image[1], _MOST_CHANNELS)
    if isinstance(view, OperandView) and view.operand.dtype == FLOAT32 and (view.strides[1] == 1 or image[1] == 1):
        return _Pool(task, view, channels)
    return _Pool(task, None, channels)


def _schedules(pool: _Pool, task: Task, target: Target) -> Iterable[ChannelSchedule]:
    channels = pool.channels
    if pool.view is None:
        channels = copied_channels(target, channels, max(1, pool.image[0] * math.prod(pool.image[2:])))
    yield from (ChannelSchedule(channels, nest) for nest in nest_schedules(pool, task, target))


def _arguments(pool: _Pool, task: Task, schedule: ChannelSchedule) -> tuple[Argument, ...]:
    sizes = replace(pool, channels=schedule.channels).memory.values()
    return operand_arguments(task, (working_memory(sum(map(whole_lines, sizes))),))


def _write(o: OpenFunction, found: _Pool, schedule: ChannelSchedule) -> None:
    pool = replace(found, channels=schedule.channels)
    if 0 not in pool.task.extents:
        own, tag = o.scratch(), o.tag()
        _Emitter(replace(o, pointers={**o.pointers, **areas(o.f, own, pool.memory)}), pool, schedule, tag).run()


@record(frozen=True)
class _Emitter(Writer):
    pool: _Pool
    schedule: ChannelSchedule
    tag: Value

    def run(self) -> None:
        f, pool, pointers = self.f, self.pool, self.pointers
        boxes, channels = pool.task.extents[:2]
        serial = math.prod(pool.task.extents) < 1 << 12

        def unit(u: Value, _: object) -> None:
            chunk, box = f.udiv(u, boxes), f.urem(u, boxes)
            first = fitted(f, f.mul(chunk, pool.channels), pool.channels, channels)
            if pool.view is None:
                f.stage(self.tag, chunk, lambda: self._copy(first))
                self._box(box, pointers["copied"])
            else:
                self._box(box, f.at(pointers[pool.view.operand.name], f.add(first, pool.view.offset)))
            self._write(box, first)

        f.loop(*run_of(f, pool.chunks * boxes, self.o.share, serial), 1, unit, rolled=True)

    def _copy(self, first: Int) -> None:
        f, pool = self.f, self.pool

        def sample(n: Value, _: object) -> None:
            there = f.at(self.pointers["copied"], f.mul(n, pool.strides[0]))
            copy_channels(self.o, self.schedule, (n, first), there)

        f.loop(0, pool.image[0], 1, sample, rolled=True)

    def _bound(self, place: int, given: Mapping[str, Int]) -> Int:
        point = self.o.elements.at({f"i{k}": given.get(f"i{k}", 0) for k in range(4)})
        return point.integer(self.pool.task.anchored.element(place))

    def _box(self, box: Int, image: Value) -> None:
        """The largest elements of each cell, [cell][channel]."""
        f, pool = self.f, self.pool
        _, _, rows, columns = pool.task.extents
        per_sample, per_row, per_column = pool.strides
        here = f.at(image, f.mul(self._bound(1, {"i0": box}), per_sample))
        parts = parts_of(pool.channels, self.instructions.lanes)

        def row(y: Value, _: object) -> None:
            top, bottom = (self._bound(place, {"i0": box, "i2": y}) for place in (2, 3))

            def column(x: Value, _: object) -> None:
                left, right = (self._bound(place, {"i0": box, "i3": x}) for place in (4, 5))

                def one(v: Value, u: Value, found: tuple[Value, ...]) -> list[Value]:
                    at = f.at(here, f.add(f.mul(v, per_row), f.mul(u, per_column)))
                    return [
                        apply_binary(f, self.instructions, "max", most, f.load(most.type, f.at(at, start)), FLOAT32)
                        for (start, _), most in zip(parts, found, strict=True)
                    ]

                def line(v: Value, found: tuple[Value, ...]) -> tuple[Value, ...]:
                    return f.loop(left, right, 1, lambda u, inner: one(v, u, inner), found, rolled=True)

                least = [f.constant(-math.inf, vector("float", width)) for _, width in parts]
                found = f.loop(top, bottom, 1, line, least, rolled=True)
                some = f.binary("and", f.compare("icmp slt", top, bottom), f.compare("icmp slt", left, right))
                there = f.at(self.pointers["taken"], f.mul(f.add(f.mul(y, columns), x), pool.channels))
                for (start, _), most in zip(parts, found, strict=True):
                    f.store(f.select(some, most, f.constant(0.0, most.type)), f.at(there, start))

            f.loop(0, columns, 1, column, rolled=True)

        f.loop(0, rows, 1, row, rolled=True)

    def _write(self, box: Int, first: Int) -> None:
        o, pool, task, shape = self.o, self.pool, self.pool.task, (self.pool.cells, self.pool.channels)
        turn(o.f, o.pointers["taken"], shape[1], o.pointers["turned"], shape[0], shape, o.instructions.lanes)
        found = Operand("turned", FLOAT32, (pool.channels, *task.extents[2:]), (pool.cells, task.extents[3], 1))
        places = {"i0": index("box"), "i1": index("first") + index("i0"), "i2": index("i1"), "i3": index("i2")}
        results = written_from(task, found, places)
        emit_nest(o.alone(), results, self.schedule.nest, {"box": box, "first": first})


ROI_POOL = Kernel("roi-pool", _understand, _schedules, _arguments, written(_arguments, _write))
