"""TopK: the largest or smallest elements of every line, and where they are; of equal ones those that come first.

Elements become unsigned integers, keys, of which smaller ones are better, so that every dtype and either order is one code. Of a
line that is longer than a few k, keys are looked at a vector at a time, and only those better than the worst of the k best known
so far go on. For a few they are put in their places among those; for more they are gathered until there are several k, sorted, and
all but k forgotten. What is sorted is sorted by digits of eight bits from the last on, each pass keeping the order that it finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from fusewise.codegen.families.generic.any_nest import is_below, run_of, unsupported
from fusewise.codegen.families.product.places import unravel
from fusewise.codegen.kernel import Argument, Kernel, Unscheduled, unscheduled, working_memory
from fusewise.codegen.llvm.entry import OpenFunction, operand_arguments, written
from fusewise.codegen.llvm.radix_sort import LEAST_BITS, digit_bytes, key_of, sort_keys
from fusewise.codegen.llvm.share import SERIAL_WORK
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import InstructionSet, whole_lines
from fusewise.ir.deciding import known_below, known_zero
from fusewise.ir.dtypes import DType
from fusewise.ir.size import Size, least
from fusewise.lower.task import Operand, Task
from fusewise.records import record

__all__ = ["TOP_K"]

FEW = 24
"""Elements wanted up to which each is put in its place when it is found."""

GATHERED = 4
"""How many times k are gathered before they are sorted."""

LEAST_GATHERED = 256

SAMPLED = 512
"""Elements of a line that are looked at first, where it has `LONG` times as many, and k times as many: how good must those be that
are gathered? Without, 50 of 50,257 took 41 us and not 23 on a Zen 4, 300 of 8,400 took 36 and not 21."""

LONG = 8

_SAMPLE, _BETTER, _WINDOW, _DONE = range(4)
"""What is to be done next where many are wanted."""


@record(frozen=True)
class _Plan:
    """A line has `extent` elements, of which `count` are wanted; `bits` are those of a key. `room` is how many are sorted at once,
    0 where each is put in its place; `rank` that of the element of a sample which those gathered are better than, 0 without one."""

    axis: int
    extent: int
    count: int
    largest: bool
    dtype: DType
    bits: int
    lanes: int
    room: int
    rank: int

    @property
    def key(self) -> str:
        return f"i{self.bits}"

    @property
    def padded(self) -> int:
        """Keys of a line in whole vectors."""
        return -(-self.extent // self.lanes) * self.lanes

    @property
    def parts(self) -> Mapping[str, int]:
        """Bytes of each part of the scratch memory."""
        held = max(self.room, SAMPLED * self.sampled) + self.lanes if self.gathers else self.count
        parts = {"line": self.padded * self.bits // 8, "keys": held * self.bits // 8, "places": held * 4}
        if self.gathers:
            parts |= {"other keys": parts["keys"], "other places": parts["places"], "digits": digit_bytes(self.bits)}
        return {name: whole_lines(nbytes) for name, nbytes in parts.items()}

    @property
    def gathers(self) -> bool:
        return not known_zero(self.room)

    @property
    def sampled(self) -> bool:
        return self.rank > 0


def _plan(task: Task, instructions: InstructionSet) -> _Plan:
    anchor, given = task.anchored, task.anchored.operand_type(0)
    axis = anchor.attribute("axis", -1) % len(task.extents)
    extent, count, dtype = given.dims[axis], task.extents[axis], given.dtype
    bits = max(LEAST_BITS, dtype.bits)
    lanes = instructions.vector_bits // bits
    largest = bool(anchor.attribute("largest", 1))
    if isinstance(extent, Size) or isinstance(count, Size):  # a whole line is sorted, unless surely few are wanted
        return _Plan(axis, extent, count, largest, dtype, bits, lanes, 0 if known_below(count, FEW + 1) else extent, 0)
    rank = 0
    if count > FEW and extent >= LONG * max(count, SAMPLED):  # so that one time in a thousand there are too few
        expected = count * SAMPLED / extent
        rank = math.ceil(expected + 3 * math.sqrt(expected)) + 2
    room = 0 if count <= FEW else min(extent, max(GATHERED * count, LEAST_GATHERED, 2 * rank * extent // SAMPLED))
    return _Plan(axis, extent, count, largest, dtype, bits, lanes, room, rank)


def _arguments(plan: _Plan, task: Task, schedule: Unscheduled) -> tuple[Argument, ...]:
    return operand_arguments(task, (working_memory(sum(plan.parts.values())),))


@record
class _Selection:
    """The code for one line. `parts` has the pointers to the parts of the scratch memory, `state` two numbers in memory: how many
    elements are kept, and how far the line is looked at; `worst` has the key that others must be better than."""

    function: Function
    plan: _Plan
    parts: Mapping[str, Value]
    kept: Value
    seen: Value
    worst: Value

    # --- memory -----------------------------------------------------------------------------------------------------

    def key_at(self, part: str, at: Int) -> Value:
        return self.function.at(self.parts[part], at, self.plan.key)

    def place_at(self, part: str, at: Int) -> Value:
        return self.function.at(self.parts[part], at, "i32")

    def number(self, where: Value) -> Value:
        return self.function.load("i64", where)

    # --- keys -------------------------------------------------------------------------------------------------------

    def keys_of(self, raw: Value) -> Value:
        return key_of(self.function, raw, self.plan.dtype, self.plan.largest, self.plan.bits)

    def stage(self, source: Value, stride: int) -> None:
        """The keys of a line side by side, behind them some that are worse than any."""
        f, plan = self.function, self.plan
        element = f"i{max(8, plan.dtype.bits)}"
        whole = plan.extent // plan.lanes * plan.lanes if not isinstance(stride, Size) and stride == 1 else 0

        def many(i: Value, _: object) -> None:
            raw = f.load(vector(element, plan.lanes), f.at(source, i, element))
            f.store(self.keys_of(raw), self.key_at("line", i))

        def one(i: Value, _: object) -> None:
            raw = f.load(element, f.at(source, f.mul(i, stride), element))
            f.store(self.keys_of(raw), self.key_at("line", i))

        f.loop(0, whole, plan.lanes, many, rolled=True)
        f.loop(whole, plan.extent, 1, one, rolled=True)

        def none(i: Int, _: object = None) -> None:
            f.store(f.constant(-1, plan.key), self.key_at("line", i))

        if isinstance(plan.extent, Size):
            f.loop(plan.extent, plan.padded, 1, none, rolled=True)
        else:
            for i in range(plan.extent, plan.padded):
                none(i)

    # --- better ones ------------------------------------------------------------------------------------------------

    def look(self, low: Int, room: Int | None, found: Callable[[Value, Value], object]) -> None:
        """`found(key, place)` for the keys from `low` on, a multiple of the lanes, that are better than the worst kept; no further
        than `room` elements are kept. Says how far it came."""
        f, plan = self.function, self.plan
        kind, mask = vector(plan.key, plan.lanes), f"i{plan.lanes}"

        def goes_on() -> Value:
            more = f.compare("icmp slt", self.number(self.seen), plan.padded)
            if room is None:
                return more
            return f.binary("and", more, f.compare("icmp sle", self.number(self.kept), room))

        def block() -> None:
            at = self.number(self.seen)
            keys = f.load(kind, self.key_at("line", at))
            better = f.compare("icmp ult", keys, f.splat(f.load(plan.key, self.worst), plan.lanes))
            bits = f.bitcast(better, mask)
            f.when(f.compare("icmp ne", bits, f.constant(0, mask)), lambda: each(at, bits), rarely=True)
            f.store(f.i64(f.add(at, plan.lanes)), self.seen)

        def each(at: Value, bits: Value) -> None:
            f.store(bits, left, align=8)
            f.repeat(lambda: f.compare("icmp ne", f.load(mask, left, align=8), f.constant(0, mask)), lambda: one(at))

        def one(at: Value) -> None:
            bits = f.load(mask, left, align=8)
            lane = f.convert("zext", f.intrinsic("cttz", bits), "i64") if plan.lanes < 64 else f.intrinsic("cttz", bits)
            f.store(f.binary("and", bits, f.binary("sub", bits, f.constant(1, mask))), left, align=8)
            place = f.i64(f.add(at, lane))
            found(f.load(plan.key, self.key_at("line", place)), place)

        left = f.alloca(mask)
        f.store(f.i64(low), self.seen)
        f.repeat(goes_on, block)

    # --- a few ------------------------------------------------------------------------------------------------------

    def insert(self, key: Value, place: Value, kept: Value) -> None:
        """Among `kept` others in order, behind those that are as good."""
        f, plan = self.function, self.plan

        def before() -> Value:
            at = self.number(hole)
            inside = f.compare("icmp sgt", at, 0)
            other = f.load(plan.key, self.key_at("keys", f.maximum(f.sub(at, 1), 0)))
            return f.binary("and", inside, f.compare("icmp ugt", other, key))

        def shift() -> None:
            at = self.number(hole)
            above = f.sub(at, 1)
            f.store(f.load(plan.key, self.key_at("keys", above)), self.key_at("keys", at))
            f.store(f.load("i32", self.place_at("places", above)), self.place_at("places", at))
            f.store(f.i64(above), hole)

        hole = f.alloca("i64")
        f.store(kept, hole)
        f.repeat(before, shift)
        f.store(key, self.key_at("keys", self.number(hole)))
        f.store(f.convert("trunc", place, "i32"), self.place_at("places", self.number(hole)))

    def a_few(self) -> None:
        """The first as many as are wanted, then whatever is better than the worst of them, which is forgotten."""
        f, plan, last = self.function, self.plan, self.plan.count - 1
        begun = least(plan.padded, -(-plan.count // plan.lanes) * plan.lanes)

        def better(key: Value, place: Value) -> None:
            worst = self.key_at("keys", last)

            def put() -> None:
                self.insert(key, place, f.i64(last))
                f.store(f.load(plan.key, worst), self.worst)

            f.when(f.compare("icmp ult", key, f.load(plan.key, worst)), put)

        def first(i: Value, _: object) -> None:
            self.insert(f.load(plan.key, self.key_at("line", i)), i, i)

        f.loop(0, plan.count, 1, first, rolled=True)
        f.loop(
            plan.count,
            least(begun, plan.extent),
            1,
            lambda i, _: better(f.load(plan.key, self.key_at("line", i)), i),
            rolled=True,
        )
        f.store(f.load(plan.key, self.key_at("keys", last)), self.worst)
        self.look(begun, None, better)

    # --- more -------------------------------------------------------------------------------------------------------

    def many(self) -> None:
        """Those better than one of a sample are gathered, in the hope that they are enough, or else as many as there is room for.
        When these are sorted all but the wanted ones are forgotten, and others must be better than the worst of them."""
        f, plan = self.function, self.plan
        mode = f.alloca("i64")
        if plan.sampled:
            f.loop(0, SAMPLED, 1, self._sampled, rolled=True)
            f.store(f.i64(SAMPLED), self.kept)
        f.store(f.i64(_SAMPLE if plan.sampled else _WINDOW), mode)

        def is_in(wanted: int) -> Value:
            return f.compare("icmp eq", self.number(mode), wanted)

        def go_on(kept: Int, seen: Int, worst: Int) -> None:
            f.store(f.i64(kept), self.kept)
            f.store(f.i64(seen), self.seen)
            f.store(f.load(plan.key, self.key_at("keys", worst)), self.worst)
            f.store(f.i64(_BETTER), mode)

        def behind() -> None:
            """What is to be done next, or nothing if enough of the line was kept."""
            more = f.compare("icmp slt", self.number(self.seen), plan.padded)
            too_few = f.compare("icmp slt", self.number(self.kept), plan.count)

            def ended() -> None:
                f.store(f.select(too_few, f.i64(_WINDOW), f.i64(_DONE)), mode)

            f.when(more, lambda: go_on(plan.count, self.number(self.seen), plan.count - 1), ended)

        def round_() -> None:
            f.when(is_in(_BETTER), lambda: self.look(self.number(self.seen), plan.room, self._gathered))
            f.when(is_in(_WINDOW), self._window)
            self.sort()
            f.when(is_in(_SAMPLE), lambda: go_on(0, 0, plan.rank), behind)

        f.repeat(lambda: f.compare("icmp ne", self.number(mode), _DONE), round_)

    def _sampled(self, i: Value, _: object) -> None:
        """A key of the sample, from all over the line."""
        place = self.function.mul(i, self.plan.extent // SAMPLED)
        self.function.store(self.function.load(self.plan.key, self.key_at("line", place)), self.key_at("keys", i))
        self.function.store(self.function.convert("trunc", i, "i32"), self.place_at("places", i))

    def _gathered(self, key: Value, place: Value) -> None:
        f, kept = self.function, self.number(self.kept)
        f.store(key, self.key_at("keys", kept))
        f.store(f.convert("trunc", place, "i32"), self.place_at("places", kept))
        f.store(f.i64(f.add(kept, 1)), self.kept)

    def _window(self) -> None:
        """The first of the line, as many as there is room for."""
        f, plan = self.function, self.plan
        is_part = known_below(plan.room, plan.extent)
        begun = plan.room // plan.lanes * plan.lanes if is_part else plan.extent
        iota = f.constants(range(plan.lanes), "i32")

        def copied(i: Value, _: object) -> None:
            f.store(f.load(vector(plan.key, plan.lanes), self.key_at("line", i)), self.key_at("keys", i))
            here = f.splat(f.convert("trunc", i, "i32"), plan.lanes)
            f.store(f.binary("add", here, iota), self.place_at("places", i))

        f.loop(0, begun, plan.lanes, copied, rolled=True)
        f.store(f.i64(begun), self.kept)
        f.store(f.i64(begun if is_part else plan.padded), self.seen)

    def sort(self) -> None:
        """Those kept, best first; equal ones stay as they are."""
        first, second = (
            (self.parts["keys"], self.parts["places"]),
            (self.parts["other keys"], self.parts["other places"]),
        )
        sort_keys(self.function, self.plan.bits, (first, second), self.parts["digits"], self.number(self.kept))


def _write(o: OpenFunction, plan: _Plan, schedule: Unscheduled) -> None:
    f, task, pointers, at, parts = o.f, o.task, o.pointers, o.scratch(), dict[str, Value]()
    for name, nbytes in plan.parts.items():
        parts[name] = at
        at = f.at(at, nbytes, "i8")
    selection = _Selection(f, plan, parts, f.alloca("i64"), f.alloca("i64"), f.alloca(plan.key))
    others = [d for d in range(len(task.extents)) if d != plan.axis]
    count = math.prod(task.extents[d] for d in others)

    def line(number: Value, _: Sequence[Value]) -> None:
        places = dict(zip(others, unravel(f, number, [task.extents[d] for d in others]), strict=True))
        starts = {one.name: _start(f, pointers[one.name], one, places) for one in task.operands}
        source = task.operands[0]
        selection.stage(starts[source.name], source.strides[plan.axis])
        selection.many() if plan.gathers else selection.a_few()

        def put(j: Value, _: object) -> None:
            place = f.convert("zext", f.load("i32", selection.place_at("places", j)), "i64")
            for store in task.stores:
                out = task.operand(store.operand)
                kind, value = memory_type(out.dtype), place
                if store.operand == "out0":
                    value = f.load(kind, f.at(starts[source.name], f.mul(place, source.strides[plan.axis]), kind))
                f.store(value, f.at(starts[out.name], f.mul(j, out.strides[plan.axis]), kind))

        f.loop(0, plan.count, 1, put, rolled=True)

    serial = is_below(f, 4 * count * plan.extent, SERIAL_WORK + 1)
    f.loop(*run_of(f, count, o.share, serial), 1, line, rolled=True)


def _start(f: Function, pointer: Value, operand: Operand, places: Mapping[int, Int]) -> Value:
    """Where a line begins."""
    offset: Int = operand.offset
    for d, place in places.items():
        offset = f.add(offset, f.mul(place, operand.strides[d]))
    return f.at(pointer, offset, memory_type(operand.dtype))


TOP_K = Kernel(
    "top_k",
    lambda task, instructions: unsupported(task) or _plan(task, instructions),
    unscheduled,
    _arguments,
    written(_arguments, _write),
)
