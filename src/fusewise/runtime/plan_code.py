"""The native part of plans, as LLVM IR text: every size of a program from the dimensions of its inputs.

`void symbol(ptr dims, ptr values)` reads the dimensions of all inputs, int64, one behind the other, and writes the numbers of a
plan (`runtime.plan_tables` says which) where they are not the same in all plans. Equal parts of sizes are computed once. The first
number is 0 if all is well; it is another where inputs contradict each other, a check fails, a size is below 0 or 64 bits do not
hold it: what it was is found out again, with words. A quotient by 0 is 0: whoever divides has a check that says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusewise.ir.deciding import Condition
from fusewise.ir.monomial import Atom, Symbol
from fusewise.ir.size import Size
from fusewise.lower.memory import ALIGNMENT

__all__ = ["FILL", "FILL_SPEC", "IDLE", "PLAN", "PlanWriter"]

PLAN, FILL, IDLE = "plan_sizes", "plan_fill", "plan_idle"
"""The function; one that fills the tables of a plan; and a kernel that does nothing, for steps that have nothing to do."""

FILL_SPEC = (
    *("slots", "steps", "buffers", "arenas", "arguments", "rows"),
    *("chosen", "arena_offsets", "offsets", "nbytes"),
    *("*run", "*bases", "*arena_buffers", "*argument_buffers", "*owners"),
    *("*row_steps", "*row_words", "*versioned", "*functions", "*starts", "*flags"),
)
"""What `i64 FILL(ptr spec, ptr values, ptr words, ptr table, ptr patches, i64 arena)` reads, int64 each: counts; where parts begin
among the numbers of a plan; and addresses (with a star) of tables that are the same in all plans (`runtime.plan_maker`), of `run`,
bytes that it uses, and of `bases`, where buffers lie, of which it writes those that depend on the plan.

It writes the arguments of all slots, the calls, and at `patches` the buffer, number and offset of each argument that is run and
lies in a buffer without an address. It gives the number of words of the last, or -1 - k if slot k has an argument outside its
buffer."""


class PlanWriter:
    """Writes the function. `places` has the position of each symbol among the dimensions of inputs."""

    def __init__(self, places: Mapping[str, int]) -> None:
        self._places = places
        self._lines: list[str] = []
        self._known: dict[str, str] = {}
        self._count = 0

    def text(self) -> str:
        """The module."""
        return _HELPERS.replace("$BODY", "\n".join(f"  {line}" for line in self._lines))

    # --- numbers ------------------------------------------------------------------------------------------------------

    def number(self, size: int) -> str:
        """A size as an operand of the instructions that follow."""
        if not isinstance(size, Size):
            return str(size)
        found: list[str] = []
        for monomial, coefficient in size.terms:
            factors = [self._atom(atom) for atom, power in monomial for _ in range(power)]
            if coefficient != 1:
                factors.append(str(coefficient))
            product = factors[0]
            for factor in factors[1:]:
                product = self.call("mul", product, factor)
            found.append(product)
        total = found[0]
        for term in [*found[1:], *([str(size.constant)] if size.constant else [])]:
            total = self.call("add", total, term)
        return total

    def call(self, name: str, *operands: str) -> str:
        """One of the operations below, done once for equal operands."""
        return self._once(f"call i64 @plan_{name}({', '.join(f'i64 {one}' for one in operands)}, ptr %values)")

    def dimension(self, position: int) -> str:
        """A dimension of an input."""
        at = self._once(f"getelementptr i64, ptr %dims, i64 {position}")
        return self._once(f"load i64, ptr {at}")

    # --- what is done with them -----------------------------------------------------------------------------------------

    def store(self, position: int, number: str) -> None:
        """Write a number into the plan."""
        at = self._named(f"getelementptr i64, ptr %values, i64 {position}")
        self._lines.append(f"store i64 {number}, ptr {at}")

    def require(self, condition: Condition) -> None:
        """Tell if a condition does not hold."""
        self._lines.append(f"call void @plan_require(i1 {self._holds(condition)}, ptr %values)")

    def require_equal(self, a: str, b: str) -> None:
        """Tell if two numbers differ."""
        self._lines.append(f"call void @plan_require(i1 {self._once(f'icmp eq i64 {a}, {b}')}, ptr %values)")

    def choose(
        self, position: int, extent: int, versions: Sequence[tuple[Sequence[Condition], int]], idle: int
    ) -> None:
        """Write the number of the first version whose conditions hold, `idle` where the extent is 0."""
        *others, (_, last) = versions
        chosen = str(last)
        for conditions, number in reversed(others):
            holds = "1"
            for condition in conditions:
                holds = self._once(f"and i1 {holds}, {self._holds(condition)}")
            chosen = self._once(f"select i1 {holds}, i64 {number}, i64 {chosen}")
        if isinstance(extent, Size) or extent == 0:
            empty = self._once(f"icmp eq i64 {self.number(extent)}, 0")
            chosen = self._once(f"select i1 {empty}, i64 {idle}, i64 {chosen}")
        self.store(position, chosen)

    def lay_out(self, offsets: Sequence[int], total: int, buffers: Sequence[tuple[str, int]]) -> None:
        """Write where buffers, of so many bytes and a place each, begin, and what all take (`lower.fixed.place_offsets`)."""
        lines = [self.call("lines", nbytes) for nbytes, _ in buffers]
        largest: dict[int, str] = {}
        for line, (_, place) in zip(lines, buffers, strict=True):
            largest[place] = line if place not in largest else self.call("max", largest[place], line)
        start, starts = "0", {}
        for place in sorted(largest):
            starts[place] = start
            start = self.call("add", start, largest[place])
        for position, line, (_, place) in zip(offsets, lines, buffers, strict=True):
            self.store(position, self.call("middle", starts[place], largest[place], line))
        self.store(total, start)

    def _holds(self, condition: Condition) -> str:
        comparison = {"zero": "eq", "nonzero": "ne", "nonnegative": "sge"}[condition.relation]
        return self._once(f"icmp {comparison} i64 {self.number(condition.size)}, 0")

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return self.dimension(self._places[atom.name])
        found, *others = [self.number(argument) for argument in atom.args]
        for other in others:
            found = self.call(atom.op, found, other)
        return found

    def _once(self, instruction: str) -> str:
        name = self._known.get(instruction)
        if name is None:
            name = self._known[instruction] = self._named(instruction)
        return name

    def _named(self, instruction: str) -> str:
        self._count += 1
        self._lines.append(f"%v{self._count} = {instruction}")
        return f"%v{self._count}"


def _loads(names: Sequence[str]) -> str:
    """Load the words of a spec by name; those that are called addresses are pointers."""
    lines = []
    for k, name in enumerate(names):
        plain = name.removeprefix("*")
        lines.append(f"%{plain}.spec = getelementptr i64, ptr %spec, i64 {k}")
        lines.append(f"%{plain} = load {'ptr' if name != plain else 'i64'}, ptr %{plain}.spec")
    return "\n  ".join(lines)


def _checked(name: str) -> str:
    """The operation that tells where 64 bits do not hold its result."""
    return f"""define internal i64 @plan_{name}(i64 %a, i64 %b, ptr %values) noinline {{
  %both = call {{i64, i1}} @llvm.s{name}.with.overflow.i64(i64 %a, i64 %b)
  %over = extractvalue {{i64, i1}} %both, 1
  %fits = xor i1 %over, 1
  call void @plan_require(i1 %fits, ptr %values)
  %found = extractvalue {{i64, i1}} %both, 0
  ret i64 %found
}}
"""


_HELPERS = f"""
declare {{i64, i1}} @llvm.sadd.with.overflow.i64(i64, i64)
declare {{i64, i1}} @llvm.smul.with.overflow.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)

define internal void @plan_require(i1 %holds, ptr %values) noinline {{
  br i1 %holds, label %done, label %tell
tell:
  store i64 1, ptr %values
  br label %done
done:
  ret void
}}

{_checked("add")}
{_checked("mul")}
define internal i64 @plan_floordiv(i64 %a, i64 %b, ptr %values) noinline {{
  %some = icmp sgt i64 %b, 0
  %by = select i1 %some, i64 %b, i64 1
  %quotient = sdiv i64 %a, %by
  %back = mul i64 %quotient, %by
  %above = icmp sgt i64 %back, %a
  %one = zext i1 %above to i64
  %floor = sub i64 %quotient, %one
  %found = select i1 %some, i64 %floor, i64 0
  ret i64 %found
}}

define internal i64 @plan_mod(i64 %a, i64 %b, ptr %values) noinline {{
  %quotient = call i64 @plan_floordiv(i64 %a, i64 %b, ptr %values)
  %back = mul i64 %quotient, %b
  %rest = sub i64 %a, %back
  %some = icmp sgt i64 %b, 0
  %found = select i1 %some, i64 %rest, i64 0
  ret i64 %found
}}

define internal i64 @plan_min(i64 %a, i64 %b, ptr %values) noinline {{
  %found = call i64 @llvm.smin.i64(i64 %a, i64 %b)
  ret i64 %found
}}

define internal i64 @plan_max(i64 %a, i64 %b, ptr %values) noinline {{
  %found = call i64 @llvm.smax.i64(i64 %a, i64 %b)
  ret i64 %found
}}

define internal i64 @plan_nonnegative(i64 %a, ptr %values) noinline {{
  %fits = icmp sge i64 %a, 0
  call void @plan_require(i1 %fits, ptr %values)
  ret i64 %a
}}

define internal i64 @plan_lines(i64 %nbytes, ptr %values) noinline {{
  %least = call i64 @llvm.smax.i64(i64 %nbytes, i64 1)
  %more = call i64 @plan_add(i64 %least, i64 {ALIGNMENT - 1}, ptr %values)
  %lines = and i64 %more, -{ALIGNMENT}
  ret i64 %lines
}}

define internal i64 @plan_middle(i64 %start, i64 %place, i64 %lines, ptr %values) noinline {{
  %rest = sub i64 %place, %lines
  %half = lshr i64 %rest, 1
  %before = and i64 %half, -{ALIGNMENT}
  %found = add i64 %start, %before
  ret i64 %found
}}

define i64 @{FILL}(ptr %spec, ptr %values, ptr %words, ptr %table, ptr %patches, i64 %arena) {{
entry:
  %first = ptrtoint ptr %values to i64
  {_loads(FILL_SPEC)}
  br label %clear
clear:
  %c = phi i64 [ 0, %entry ], [ %c.next, %clear ]
  %c.at = getelementptr i8, ptr %run, i64 %c
  store i8 0, ptr %c.at
  %c.next = add i64 %c, 1
  %c.more = icmp sle i64 %c.next, %slots
  br i1 %c.more, label %clear, label %mark.first
mark.first:
  %m.any = icmp sgt i64 %steps, 0
  br i1 %m.any, label %mark, label %bases.first
mark:
  %m = phi i64 [ 0, %mark.first ], [ %m.next, %mark ]
  %m.place = add i64 %chosen, %m
  %m.value = getelementptr i64, ptr %values, i64 %m.place
  %m.slot = load i64, ptr %m.value
  %m.at = getelementptr i8, ptr %run, i64 %m.slot
  store i8 1, ptr %m.at
  %m.next = add i64 %m, 1
  %m.more = icmp slt i64 %m.next, %steps
  br i1 %m.more, label %mark, label %bases.first
bases.first:
  %own.at = getelementptr i64, ptr %bases, i64 %buffers
  store i64 %first, ptr %own.at
  br label %bases.check
bases.check:
  %b = phi i64 [ 0, %bases.first ], [ %b.next, %bases.body ]
  %b.more = icmp slt i64 %b, %arenas
  br i1 %b.more, label %bases.body, label %words.check
bases.body:
  %b.number = getelementptr i64, ptr %arena_buffers, i64 %b
  %b.buffer = load i64, ptr %b.number
  %b.place = add i64 %arena_offsets, %b
  %b.value = getelementptr i64, ptr %values, i64 %b.place
  %b.offset = load i64, ptr %b.value
  %b.base = add i64 %b.offset, %arena
  %b.at = getelementptr i64, ptr %bases, i64 %b.buffer
  store i64 %b.base, ptr %b.at
  %b.next = add i64 %b, 1
  br label %bases.check
words.check:
  %w = phi i64 [ 0, %bases.check ], [ %w.next, %words.done ]
  %p = phi i64 [ 0, %bases.check ], [ %p.next, %words.done ]
  %w.more = icmp slt i64 %w, %arguments
  br i1 %w.more, label %words.body, label %rows.check
words.body:
  %w.number = getelementptr i64, ptr %argument_buffers, i64 %w
  %w.buffer = load i64, ptr %w.number
  %w.base.at = getelementptr i64, ptr %bases, i64 %w.buffer
  %w.base = load i64, ptr %w.base.at
  %w.place = add i64 %offsets, %w
  %w.offset.at = getelementptr i64, ptr %values, i64 %w.place
  %w.offset = load i64, ptr %w.offset.at
  %w.word = add i64 %w.base, %w.offset
  %w.at = getelementptr i64, ptr %words, i64 %w
  store i64 %w.word, ptr %w.at
  %w.owner.at = getelementptr i64, ptr %owners, i64 %w
  %w.owner = load i64, ptr %w.owner.at
  %w.run.at = getelementptr i8, ptr %run, i64 %w.owner
  %w.run = load i8, ptr %w.run.at
  %w.runs = icmp ne i8 %w.run, 0
  br i1 %w.runs, label %words.bound, label %words.done
words.bound:
  %w.end.place = add i64 %nbytes, %w.buffer
  %w.end.at = getelementptr i64, ptr %values, i64 %w.end.place
  %w.end = load i64, ptr %w.end.at
  %w.outside = icmp ugt i64 %w.offset, %w.end
  br i1 %w.outside, label %outside, label %words.given
words.given:
  %w.given = icmp eq i64 %w.base, 0
  br i1 %w.given, label %words.patch, label %words.done
words.patch:
  %p.at = getelementptr i64, ptr %patches, i64 %p
  store i64 %w.buffer, ptr %p.at
  %p.word = getelementptr i64, ptr %p.at, i64 1
  store i64 %w, ptr %p.word
  %p.offset = getelementptr i64, ptr %p.at, i64 2
  store i64 %w.offset, ptr %p.offset
  %p.more = add i64 %p, 3
  br label %words.done
words.done:
  %p.next = phi i64 [ %p, %words.body ], [ %p, %words.given ], [ %p.more, %words.patch ]
  %w.next = add i64 %w, 1
  br label %words.check
outside:
  %outside.found = sub i64 -1, %w.owner
  ret i64 %outside.found
rows.check:
  %r = phi i64 [ 0, %words.check ], [ %r.next, %rows.body ]
  %r.more = icmp slt i64 %r, %rows
  br i1 %r.more, label %rows.body, label %done
rows.body:
  %r.native.at = getelementptr i64, ptr %row_steps, i64 %r
  %r.native = load i64, ptr %r.native.at
  %r.place = add i64 %chosen, %r.native
  %r.slot.at = getelementptr i64, ptr %values, i64 %r.place
  %r.slot = load i64, ptr %r.slot.at
  %r.word = mul i64 %r, 4
  %r.row = getelementptr i64, ptr %table, i64 %r.word
  %r.function.at = getelementptr i64, ptr %functions, i64 %r.slot
  %r.function = load i64, ptr %r.function.at
  store i64 %r.function, ptr %r.row
  %r.start.at = getelementptr i64, ptr %starts, i64 %r.slot
  %r.start = load i64, ptr %r.start.at
  %r.words = ptrtoint ptr %words to i64
  %r.arguments = add i64 %r.words, %r.start
  %r.arguments.at = getelementptr i64, ptr %r.row, i64 1
  store i64 %r.arguments, ptr %r.arguments.at
  %r.given.row = getelementptr i64, ptr %row_words, i64 %r.word
  %r.given.flags = getelementptr i64, ptr %r.given.row, i64 2
  %r.given = load i64, ptr %r.given.flags
  %r.own.at = getelementptr i64, ptr %flags, i64 %r.slot
  %r.own = load i64, ptr %r.own.at
  %r.versioned.at = getelementptr i64, ptr %versioned, i64 %r
  %r.versioned = load i64, ptr %r.versioned.at
  %r.is = icmp ne i64 %r.versioned, 0
  %r.flags = select i1 %r.is, i64 %r.own, i64 %r.given
  %r.flags.at = getelementptr i64, ptr %r.row, i64 2
  store i64 %r.flags, ptr %r.flags.at
  %r.part.from = getelementptr i64, ptr %r.given.row, i64 3
  %r.part = load i64, ptr %r.part.from
  %r.part.at = getelementptr i64, ptr %r.row, i64 3
  store i64 %r.part, ptr %r.part.at
  %r.next = add i64 %r, 1
  br label %rows.check
done:
  ret i64 %p
}}

define void @{IDLE}(ptr %arguments, i64 %low, i64 %high, i64 %of, i64 %worker, i64 %again) {{
  ret void
}}

define void @{PLAN}(ptr %dims, ptr %values) {{
$BODY
  ret void
}}
"""
