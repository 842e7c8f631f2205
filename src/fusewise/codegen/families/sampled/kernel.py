"""Elements read at places that come from data, by vectors of channels: GridSample and its kind (`ops.sampled`).

Where to read, and with what share, is the same for all channels. It is found once for a block of positions, and kept as tables;
then every position is a sum of a few vectors, the channels of the elements it reads:

    taken[j][c] = image[offset[t][j]][c] * share[t][j]  + ...  over the taps t

Where the channels of the image do not lie side by side, each worker copies those that it is at, with those of an element in a row;
but for few positions of a large image it reads them one by one. What was taken is turned in registers where the result does not lie
channels last, and written by the generic nest, with whatever was fused behind. An element of share zero is not read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from fusewise.codegen.families.generic.any_nest import emit_nest, nest_schedules, run_of, unsupported
from fusewise.codegen.families.sampled.channels import (
    LEAST_CHANNELS,
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
from fusewise.codegen.llvm.loops import free_axes, offset_of
from fusewise.codegen.llvm.plain import anchor_call, over_operands
from fusewise.codegen.llvm.square import turn
from fusewise.codegen.nest.instruction import multiply_add
from fusewise.codegen.nest.tails import fitted
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.target import InstructionSet, Target, whole_lines
from fusewise.codegen.view import OperandView, view_of
from fusewise.ir.dtypes import FLOAT32, INT64
from fusewise.lower.index import Simplifier
from fusewise.lower.task import Operand, RefusalReason, Store, Task
from fusewise.ops.expr import Expr, cast, const, index, substitute_indices
from fusewise.ops.indexing import compute_type, unlinear
from fusewise.ops.sampled import TAPS
from fusewise.ops.spec import NotDefined
from fusewise.ops.taps import Tap
from fusewise.records import record

__all__ = ["SAMPLED"]

_BLOCK = 64
"""Positions whose taps are found at once."""

_MOST_CHANNELS = 64
"""Channels taken at once: their sums stay in registers."""

_UNROLLED = 16
"""Taps that are written out; more are a loop."""

_OUTER, _FIRST, _CHANNEL = "outer", "first", "channel"
"""Loop variables outside a block: the index along axis 0 of the result, the first position and the first channel."""


@record(frozen=True)
class _Sampled(SampledImage):
    """Channels of one sample are taken for `block` positions of `positions`, which are axes 2 and on of the result."""

    taps: tuple[Tap, ...]
    block: int

    @property
    def positions(self) -> int:
        return math.prod(self.task.extents[2:])

    @property
    def is_straight(self) -> bool:
        """Is each sample of the result read from the same one of the image?"""
        return all(tap.sample == index("i0") for tap in self.taps)

    @property
    def blocks(self) -> int:
        return -(-self.positions // self.block)

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of each table in a worker's memory."""
        return {
            "offsets": 8 * len(self.taps) * self.block,
            "shares": 4 * len(self.taps) * self.block,
            "taken": 4 * self.channels * self.block,
            "turned": 4 * self.channels * self.block,
            "copied": 0 if self.view is not None else 4 * self.strides[0],
        }


def _understand(task: Task, instructions: InstructionSet) -> _Sampled | RefusalReason:
    if task.anchor is None or task.anchor.op not in TAPS:
        return RefusalReason("the anchor reads no places from data", "" if task.anchor is None else task.anchor.op)
    if (reason := unsupported(task)) is not None:
        return reason
    if compute_type(task.anchor.output.dtype) != FLOAT32 or not task.is_fixed or 0 in task.extents:
        return RefusalReason("only floats of 32 bits and less are read by vectors")
    at = (index("i0"), const(0), *(index(f"i{k}") for k in range(2, len(task.extents))))
    try:
        taps = tuple(_bound(task, tap) for tap in TAPS[task.anchor.op](anchor_call(task.anchor), at))
    except NotDefined as uncovered:
        return RefusalReason("the operator's definition does not cover the case", str(uncovered))
    block = min(math.prod(task.extents[2:]), _BLOCK)
    found = _Sampled(task, None, min(task.extents[1], _MOST_CHANNELS), taps, block)
    if 0 in found.image:
        return RefusalReason("nothing is read")
    view = _in_place(task)
    if view is not None and (view.strides[1] == 1 or view.shape[1] == 1):
        return replace(found, view=view)
    reason = _not_copied(found)
    if reason is not None:
        return reason if view is None else replace(found, view=view)
    return found


def _in_place(task: Task) -> OperandView | None:
    view = view_of(task, 0)
    return None if isinstance(view, RefusalReason) or view.operand.dtype != FLOAT32 else view


def _not_copied(found: _Sampled) -> RefusalReason | None:
    """Why the image is not copied, where to read elements of it one by one is less work, or all there is."""
    if not found.is_straight and found.image[0] > 1:
        return RefusalReason("which sample is read comes from data")
    reads = found.positions * (1 if found.is_straight else found.task.extents[0])
    if math.prod(found.image[2:]) > _COPIED_PER_POSITION * reads:
        return RefusalReason("few positions are read of a large image")
    least = min(found.task.extents[1], LEAST_CHANNELS)
    is_large = 4 * math.prod(found.image[2:]) * least > _MOST_COPIED
    return RefusalReason("the image is too large to copy") if is_large else None


_COPIED_PER_POSITION = 8
"""Elements copied for each position that is read, at most."""

_MOST_COPIED = 1 << 25
"""Bytes of a worker's copy."""


def _bound(task: Task, tap: Tap) -> Tap:
    """A tap over loads of the task's operands."""
    sample, share, *places = (over_operands(task.anchored, e) for e in (tap.sample, tap.share, *tap.places))
    return Tap(sample, tuple(places), share)


def _schedules(found: _Sampled, task: Task, target: Target) -> Iterable[ChannelSchedule]:
    """As many channels at once as leave a copy in the second-level cache."""
    channels = found.channels
    if found.view is None:
        channels = copied_channels(target, channels, math.prod(found.image[2:]))
    yield from (ChannelSchedule(channels, nest) for nest in nest_schedules(found, task, target))


def _arguments(found: _Sampled, task: Task, schedule: ChannelSchedule) -> tuple[Argument, ...]:
    sizes = replace(found, channels=schedule.channels).memory.values()
    return operand_arguments(task, (working_memory(sum(map(whole_lines, sizes))),))


# --- the tasks of a block ------------------------------------------------------------------------------------------------


def _place(found: _Sampled, position: str) -> dict[str, Expr]:
    """The result's loop variables at `position` of a block."""
    extents = found.task.extents[2:]
    at = unlinear(index(_FIRST) + index(position), extents)
    return {"i0": index(_OUTER)} | {f"i{2 + k}": place for k, place in enumerate(at)}


def _tables(found: _Sampled) -> Task:
    """Where each tap of a block reads, in elements, and its share."""
    places, simplifier = _place(found, "i0"), Simplifier({"i0": found.block})
    shape = (len(found.taps), found.block)
    stores = []
    for t, tap in enumerate(found.taps):
        offset: Expr = const(0)
        sample = const(0) if found.view is None and found.is_straight else tap.sample
        for place, stride in zip((sample, *tap.places), found.strides, strict=True):
            offset = offset + place * stride
        for name, value in (("offsets", offset), ("shares", cast(tap.share, FLOAT32))):
            placed = simplifier.simplify(substitute_indices(value, places))
            stores.append(Store(name, (const(t), index("i0")), placed))
    offsets = Operand("offsets", INT64, shape, (found.block, 1))
    shares = Operand("shares", FLOAT32, shape, (found.block, 1))
    task = found.task
    return Task((found.block,), (*task.operands, offsets, shares), tuple(stores), exact=task.exact)


def _results(found: _Sampled, turned: bool) -> Task:
    """The stores of a block, over (channel, position)."""
    strides = (found.block, 1) if turned else (1, found.channels)
    taken = Operand("sums", FLOAT32, (found.channels, found.block), strides)
    return written_from(found.task, taken, {**_place(found, "i1"), "i1": index(_CHANNEL) + index("i0")})


def _is_turned(found: _Sampled) -> bool:
    """Does the first result lie otherwise than with the channels side by side?"""
    task = found.task
    simplifier, store = Simplifier(task.ranges), task.stores[0]
    form = offset_of(simplifier, task.operand(store.operand), store.index)
    moving = [step if atom.op == "index" else 0 for atom, step in form.terms if "i1" in free_axes(atom)]
    return task.extents[1] > 1 and moving != [1]


# --- the code ------------------------------------------------------------------------------------------------------------


@record(frozen=True)
class _Emitter(Writer):
    found: _Sampled
    schedule: ChannelSchedule
    tag: Value

    def run(self) -> None:
        """Units are (sample, block), where channels are copied with their chunk: all that need the same copy follow one another."""
        f, found = self.f, self.found
        chunks = 1 if found.view is not None else found.chunks
        units = found.task.extents[0] * chunks * found.blocks
        work = math.prod(found.task.extents) * len(found.taps)

        def unit(u: Value, _: object) -> None:
            rest, block = f.udiv(u, found.blocks), f.urem(u, found.blocks)
            outer, chunk = f.udiv(rest, chunks), f.urem(rest, chunks)
            key: Int = rest
            if not found.is_straight:
                chunk, outer = f.udiv(rest, found.task.extents[0]), f.urem(rest, found.task.extents[0])
                key = chunk
            given = {_OUTER: outer, _FIRST: fitted(f, f.mul(block, found.block), found.block, found.positions)}
            if found.view is not None:
                self._tables(given)
                image = f.at(self.pointers[found.view.operand.name], found.view.offset)
                f.loop(0, found.chunks, 1, lambda k, _: self._chunk(given, k, image), rolled=True)
                return
            f.stage(self.tag, key, lambda: self._copy(outer, chunk))
            self._tables(given)
            self._chunk(given, chunk, self.pointers["copied"])

        f.loop(*run_of(f, units, self.o.share, work < 1 << 15), 1, unit, rolled=True)

    def _tables(self, given: Mapping[str, Int]) -> None:
        emit_nest(self.o.alone(), _tables(self.found), self.schedule.nest, given)

    def _copy(self, outer: Int, chunk: Int) -> None:
        place = (outer if self.found.image[0] > 1 else 0, self._channel(chunk))
        copy_channels(self.o, self.schedule, place, self.pointers["copied"])

    def _channel(self, chunk: Int) -> Int:
        return fitted(self.f, self.f.mul(chunk, self.found.channels), self.found.channels, self.found.task.extents[1])

    def _chunk(self, given: Mapping[str, Int], chunk: Int, image: Value) -> None:
        """Some channels of a block, from tables to results. `image` is the first channel of the first sample, or the copy."""
        f, found = self.f, self.found
        first = self._channel(chunk)
        self._take(image if found.view is None else f.at(image, f.mul(first, self._step)))
        taken, turned = self.pointers["taken"], _is_turned(found)
        sums = self.pointers["turned"] if turned else taken
        if turned:
            shape = (found.block, found.channels)
            turn(f, taken, found.channels, sums, found.block, shape, self.instructions.lanes)
        results = _results(found, turned)
        emit_nest(self.o.alone(sums=sums), results, self.schedule.nest, {**given, _CHANNEL: first})

    @property
    def _step(self) -> int:
        """Elements between two channels of the image as it is read."""
        view = self.found.view
        return 1 if view is None or view.shape[1] == 1 else view.strides[1]

    def _read(self, here: Value, width: int) -> Value:
        """So many channels of an element."""
        f = self.f
        if self._step == 1 or width == 1:
            return f.load(vector("float", width), here)
        value = f.constant(0.0, vector("float", width))
        for lane in range(width):
            value = f.insert(value, f.load("float", f.at(here, lane * self._step)), lane)
        return value

    @property
    def _largest(self) -> bool:
        """Is the result the largest of the taps, and not their sum?"""
        anchor = self.found.task.anchor
        return anchor is not None and anchor.attribute("mode") == "max"

    def _combined(self, read: Value, share: Value, total: Value) -> Value:
        f = self.f
        if self._largest:
            return apply_binary(f, self.instructions, "max", total, f.fmul(read, share), FLOAT32)
        return multiply_add(f, self.instructions, read, share, total)

    def _take(self, image: Value) -> None:
        f, found, pointers = self.f, self.found, self.pointers
        parts, apart = parts_of(found.channels, self.instructions.lanes), self._step != 1
        zeros = f.module.table("nothing", "i8", bytes(4 * found.channels))

        def tap(t: Int, j: Value, sums: tuple[Value, ...]) -> tuple[Value, ...]:
            number = f.add(f.mul(t, found.block), j)
            offset = f.load("i64", f.at(pointers["offsets"], number, "i64"))
            share = f.load("float", f.at(pointers["shares"], number))
            nothing = f.compare("fcmp oeq", share, f.constant(0.0, "float"))
            here = f.at(image, offset) if apart else f.select(nothing, zeros, f.at(image, offset))
            added = []
            for (start, width), total in zip(parts, sums, strict=True):
                read, times = self._read(f.at(here, start * self._step), width), f.splat(share, width)
                if apart:
                    read = f.select(nothing, f.constant(0.0, read.type), read)
                added.append(self._combined(read, times, total))
            return tuple(added)

        def position(j: Value, _: object) -> None:
            sums = tuple(f.constant(-math.inf if self._largest else 0.0, vector("float", width)) for _, width in parts)
            if len(found.taps) <= _UNROLLED:
                for t in range(len(found.taps)):
                    sums = tap(t, j, sums)
            else:
                sums = f.loop(0, len(found.taps), 1, lambda t, carried: tap(t, j, carried), sums, rolled=True)
            there = f.at(pointers["taken"], f.mul(j, found.channels))
            for (start, _), total in zip(parts, sums, strict=True):
                f.store(total, f.at(there, start))

        f.loop(0, found.block, 1, position, rolled=True)


def _write(o: OpenFunction, known: _Sampled, schedule: ChannelSchedule) -> None:
    found = replace(known, channels=schedule.channels)
    own, tag = o.scratch(), o.tag()
    _Emitter(replace(o, pointers={**o.pointers, **areas(o.f, own, found.memory)}), found, schedule, tag).run()


SAMPLED = Kernel("sampled", _understand, _schedules, _arguments, written(_arguments, _write))
