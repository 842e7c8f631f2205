"""Linear attention with the loop over time at run time, so that a sequence of any length takes no longer to compile.

Takes a task whose anchor is LinearAttention (`lower.linear`); gives LLVM IR. A worker takes whole heads. A head's state lies in
scratch memory, a row for each number of a key, whole vectors of the numbers of a value, and every step goes through it once, or
twice where what is added depends on what is there:

    for head:  state = past or zeros
      for step:  key, decays and queries as float32, side by side
        for vectors of the value:  there = sum of decay * key * state;  added = rate * (value - there)
                                   state = decay * state + key * added;  output = sum of query * state
      states after the last step
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.codegen.kernel import Argument, Kernel, Unscheduled, unscheduled, working_memory
from fusewise.codegen.llvm.entry import OpenFunction, Writer, operand_arguments, widened, written
from fusewise.codegen.llvm.math import functions as mathfn
from fusewise.codegen.llvm.registers import narrow
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import multiply_add
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import InstructionSet
from fusewise.lower.linear import LINEAR, linear_operand, linear_sizes
from fusewise.lower.task import Operand, RefusalReason, Task
from fusewise.ops.linear_attention import LinearAttention
from fusewise.records import record

__all__ = ["LINEAR_ATTENTION"]

TOGETHER = 4
"""Vectors of a value that a pass over the state takes at once: with as many of what is added and of outputs, they fit in 16."""


@record(frozen=True)
class _Room:
    """Where scratch memory is cut, in floats: the state, then key, decays, decayed key and query of a step."""

    s: LinearAttention
    lanes: int

    @property
    def pitch(self) -> int:
        """From one row of the state to the next."""
        return -(-self.s.values // self.lanes) * self.lanes

    @property
    def row(self) -> int:
        """Of a key, in whole vectors."""
        return -(-self.s.keys // self.lanes) * self.lanes

    def place(self, number: int) -> int:
        return self.s.keys * self.pitch + number * self.row

    @property
    def size(self) -> int:
        return self.place(4)


def _understand(task: Task, instructions: InstructionSet) -> _Room | RefusalReason:
    if task.anchor is None or task.anchor.family != LINEAR:
        return RefusalReason("no linear attention")
    return _Room(linear_sizes(task), instructions.lanes)


def _arguments(room: _Room, task: Task, schedule: Unscheduled) -> tuple[Argument, ...]:
    return operand_arguments(task, [working_memory(4 * room.size)])


@record(frozen=True)
class _Head(Writer):
    """One head of one sample. `state` and the four rows behind it are in scratch memory."""

    room: _Room
    scratch: Value
    sample: Int
    head: Int

    @property
    def task(self) -> Task:
        return self.o.task

    @property
    def s(self) -> LinearAttention:
        return self.room.s

    @property
    def kind(self) -> str:
        return vector("float", self.room.lanes)

    def row(self, number: int) -> Value:
        return self.f.at(self.scratch, self.room.place(number))

    def place(self, operand: Operand, at: Sequence[Int]) -> Value:
        """Where an element of an operand lies."""
        f = self.f
        offset: Int = operand.offset
        for place, stride in zip(at, operand.strides, strict=True):
            offset = f.add(offset, f.mul(place, stride))
        return f.at(self.pointers[operand.name], offset, memory_type(operand.dtype))

    def loaded(self, operand: Operand, at: Sequence[Int], count: int) -> Value:
        """A vector of `count` numbers along the last axis from an index on, as float, zeros behind them."""
        start, stride, lanes = self.place(operand, at), operand.strides[-1], self.room.lanes
        return widened(self.f, self.instructions, start, stride, operand.dtype, lanes, count)

    def stored(self, operand: Operand, at: Sequence[Int], count: int, value: Value) -> None:
        """The first `count` numbers of a vector, along the last axis from an index on."""
        f, stride, start = self.f, operand.strides[-1], self.place(operand, at)
        found = narrow(f, self.instructions, value, operand.dtype)
        if stride == 1 and count == self.room.lanes:
            f.store(found, start)
            return
        for lane in range(count):
            one = found if found.lanes == 1 else f.extract(found, lane)
            f.store(one, f.at(start, lane * stride, memory_type(operand.dtype)))

    def mad(self, a: Value, b: Value, c: Value) -> Value:
        return multiply_add(self.f, self.instructions, a, b, c)

    def first(self, operand: Operand, at: Sequence[Int]) -> Value:
        """A number in every lane."""
        value = self.loaded(operand, at, 1)
        return self.f.splat(value if value.lanes == 1 else self.f.extract(value, 0), self.room.lanes)

    def spread(self, pointer: Value, i: Int) -> Value:
        """Number `i` of a row in every lane."""
        return self.f.splat(self.f.load("float", self.f.at(pointer, i)), self.room.lanes)


def _write(o: OpenFunction, room: _Room, schedule: Unscheduled) -> None:
    f, s, scratch = o.f, room.s, o.scratch()

    def unit(number: Value, _: Sequence[Value]) -> None:
        sample, head = f.udiv(number, s.shared), f.urem(number, s.shared)
        one = _Head(o, room, scratch, sample, head)
        _begin(one)
        f.loop(0, s.steps, 1, lambda step, _: _step(one, step), rolled=True)
        _end(one)

    f.loop(*o.share.run(f, s.samples * s.shared), 1, unit, rolled=True)


def _vectors(size: int, lanes: int, f: Function, body: Callable[[Int, int], None]) -> None:
    """`body(first, count)` for every vector of so many numbers; the last may have fewer."""
    full, rest = divmod(size, lanes)
    f.loop(0, full, 1, lambda k, _: body(f.mul(k, lanes), lanes), rolled=True)
    if rest:
        body(full * lanes, rest)


def _rows(e: _Head, body: Callable[[Value], None]) -> None:
    e.f.loop(0, e.s.keys, 1, lambda i, _: body(i), rolled=True)


def _begin(e: _Head) -> None:
    """The state before the first step."""
    f, room = e.f, e.room
    past = linear_operand(e.task, 3)
    if past is None:
        f.clear(e.scratch, 4 * e.s.keys * room.pitch)
        return

    def row(i: Value) -> None:
        def some(first: Int, count: int) -> None:
            found = e.loaded(past, (e.sample, e.head, i, first), count)
            f.store(found, f.at(e.scratch, f.add(f.mul(i, room.pitch), first)))

        _vectors(e.s.values, room.lanes, f, some)

    _rows(e, row)


def _end(e: _Head) -> None:
    """The state after the last step, if it is asked for."""
    f, room = e.f, e.room
    if all(store.operand != "out1" for store in e.task.stores):
        return
    last = e.task.operand("out1")

    def row(i: Value) -> None:
        def some(first: Int, count: int) -> None:
            found = f.load(e.kind, f.at(e.scratch, f.add(f.mul(i, room.pitch), first)))
            e.stored(last, (e.sample, e.head, i, first), count, found)

        _vectors(e.s.values, room.lanes, f, some)

    _rows(e, row)


def _step(e: _Head, step: Value) -> None:
    """One step of time."""
    f, s = e.f, e.s
    _numbers(e, step)
    rate = None
    if s.corrects:
        beta = linear_operand(e.task, 5)
        assert beta is not None
        at = (e.sample, step, e.head if s.rates > 1 else 0)
        rate = e.first(beta, at)
    group = s.heads // s.shared
    full, rest = divmod(s.values, e.room.lanes)
    query = e.row(3)
    if group == 1:
        _query(e, step, e.head)

    def vectors(first: Int, counts: Sequence[int]) -> None:
        added = _added(e, step, rate, first, counts)
        if group > 1:
            _query(e, step, f.mul(e.head, group))
        found = _written(e, query, first, added)
        _given(e, step, f.mul(e.head, group), first, counts, found)

        def other(number: Value, _: Sequence[Value]) -> None:
            own = f.add(f.mul(e.head, group), number)
            _query(e, step, own)
            _given(e, step, own, first, counts, _read(e, query, first, len(counts)))

        f.loop(1, group, 1, other, rolled=True)

    lanes = e.room.lanes
    f.loop(0, full // TOGETHER, 1, lambda k, _: vectors(f.mul(k, TOGETHER * lanes), [lanes] * TOGETHER), rolled=True)
    last = [lanes] * (full % TOGETHER) + [rest] * bool(rest)
    if last:
        vectors(full // TOGETHER * TOGETHER * lanes, last)


def _numbers(e: _Head, step: Value) -> None:
    """Key, decays and decayed key of a step, side by side as float32."""
    f, s = e.f, e.s
    key, decay = linear_operand(e.task, 1), linear_operand(e.task, 4)
    assert key is not None
    each = decay is not None and s.decays == s.shared * s.keys
    whole: Value | None = None
    if decay is not None and not each:
        at = (e.sample, step, e.head)
        whole = mathfn.call(f, e.instructions, "exp", e.first(decay, at))

    def some(first: Int, count: int) -> None:
        at = (e.sample, step, f.add(f.mul(e.head, s.keys), first))
        found = e.loaded(key, at, count)
        f.store(found, f.at(e.row(0), first))
        if decay is None:
            return
        kept = whole if whole is not None else mathfn.call(f, e.instructions, "exp", e.loaded(decay, at, count))
        f.store(kept, f.at(e.row(1), first))
        f.store(f.fmul(kept, found), f.at(e.row(2), first))

    _vectors(s.keys, e.room.lanes, f, some)


def _query(e: _Head, step: Value, head: Int) -> None:
    """The query of a head, scaled, as float32."""
    f, s = e.f, e.s
    query = linear_operand(e.task, 0)
    assert query is not None

    def some(first: Int, count: int) -> None:
        found = e.loaded(query, (e.sample, step, f.add(f.mul(head, s.keys), first)), count)
        f.store(f.fmul(found, f.constant(s.scale, e.kind)), f.at(e.row(3), first))

    _vectors(s.keys, e.room.lanes, f, some)


def _places(e: _Head, i: Value, first: Int, count: int) -> list[Value]:
    """Where vectors of row `i` of the state lie."""
    f = e.f
    start = f.at(e.scratch, f.add(f.mul(i, e.room.pitch), first))
    return [f.at(start, v * e.room.lanes) for v in range(count)]


def _added(e: _Head, step: Value, rate: Value | None, first: Int, counts: Sequence[int]) -> list[Value]:
    """What the rule adds along a key: the value, or what is missing of it, times the rate."""
    f, s = e.f, e.s
    operand = linear_operand(e.task, 2)
    assert operand is not None
    values = []
    for v, count in enumerate(counts):
        place = f.add(f.mul(e.head, s.values), f.add(first, v * e.room.lanes))
        values.append(e.loaded(operand, (e.sample, step, place), count))
    if rate is None:
        return values
    there = _read(e, e.row(2 if s.gated else 0), first, len(counts))
    return [f.fmul(rate, f.fsub(value, old)) for value, old in zip(values, there, strict=True)]


def _read(e: _Head, row: Value, first: Int, count: int) -> list[Value]:
    """The sum of the state's rows, times the numbers of `row`."""
    f = e.f

    def one(i: Value, sums: Sequence[Value]) -> list[Value]:
        factor = e.spread(row, i)
        return [
            e.mad(factor, f.load(e.kind, place), total)
            for place, total in zip(_places(e, i, first, count), sums, strict=True)
        ]

    return list(f.loop(0, e.s.keys, 1, one, [f.constant(0.0, e.kind)] * count, rolled=True))


def _written(e: _Head, query: Value, first: Int, added: Sequence[Value]) -> list[Value]:
    """The state with what is added, and the sum of its rows times the query's numbers."""
    f, s = e.f, e.s

    def one(i: Value, sums: Sequence[Value]) -> list[Value]:
        key, own = e.spread(e.row(0), i), e.spread(query, i)
        kept = e.spread(e.row(1), i) if s.gated else None
        found = []
        for place, more, total in zip(_places(e, i, first, len(added)), added, sums, strict=True):
            old = f.load(e.kind, place)
            state = e.mad(key, more, old if kept is None else f.fmul(kept, old))
            f.store(state, place)
            found.append(e.mad(own, state, total))
        return found

    return list(f.loop(0, s.keys, 1, one, [f.constant(0.0, e.kind)] * len(added), rolled=True))


def _given(e: _Head, step: Value, head: Int, first: Int, counts: Sequence[int], found: Sequence[Value]) -> None:
    """The outputs of a head in a step, if they are asked for."""
    f = e.f
    if all(store.operand != "out0" for store in e.task.stores):
        return
    for v, (count, value) in enumerate(zip(counts, found, strict=True)):
        place = f.add(f.mul(head, e.s.values), f.add(first, v * e.room.lanes))
        e.stored(e.task.operand("out0"), (e.sample, step, place), count, value)


LINEAR_ATTENTION = (
    Kernel(
        "linear-attention",
        _understand,
        unscheduled,
        _arguments,
        written(_arguments, _write),
        level=lambda schedule: "tidy",
    ),
)
"""The one way; it accepts what `lower.linear` makes."""
