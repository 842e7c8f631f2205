"""The native part of plans, as LLVM IR text: every size of a program from the dimensions of its inputs.

`void symbol(ptr dims, ptr values)` reads the dimensions of all inputs, int64, one behind the other, and writes the numbers of a
plan (`runtime.plan_tables` says which) where they are not the same in all plans. Equal parts of sizes are computed once. The first
number becomes 0 if all is well, and another where inputs contradict each other, a check fails, a size is below 0 or 64 bits do
not hold it: what it was is found out again, with words. A quotient by 0 is 0: whoever divides has a check that says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusewise.ir.deciding import Condition
from fusewise.ir.monomial import Atom, Symbol
from fusewise.ir.size import Size
from fusewise.lower.memory import ALIGNMENT

__all__ = ["FILL", "FILL_SPEC", "IDLE", "LAYOUT", "PLAN", "PlanWriter"]

PLAN, FILL, IDLE, LAYOUT = "plan_sizes", "plan_tables", "plan_idle", "plan_layout"
"""The function; one that fills the tables of a plan; a kernel that does nothing, for steps that have nothing to do; and
`i64 LAYOUT()`, which tells for which layout of numbers they are."""

FILL_SPEC = (
    "steps",
    "own",
    "chosen",
    "words",
    "table",
    "*bases",
    "*spans",
    "*calls",
    "*slots",
    "*arguments",
    "*patches",
)
"""What `i64 FILL(ptr spec, ptr values)` reads, int64 each: the number of native steps, and that of the buffer which stands for
a plan's numbers; where among the words at `values`, where a plan's numbers lie, those of the steps' slots begin, and behind all of
them the arguments of kernels and the calls; and addresses (with a star) of tables for all plans (`runtime.plan_maker`):

    bases      i64     of each buffer: where it lies, from where the arena begins for one in it, 0 for one of the caller's
    spans      2 i32   of each buffer: which numbers say where it begins, counted from that, and how many bytes it has
    calls      2 i32   of each native step: its call, -1 if that is the same whatever the sizes, and its first argument
    slots      4 i64   of each slot, and of doing nothing: function, flags, and where its arguments begin and end
    arguments  2 i32   of each argument of all slots: buffer, and which number is its offset
    patches    3 i64   where it writes of each argument that lies in a buffer of the caller's: buffer, word and offset

It writes the arguments of the slots that are run, the calls of steps with versions, and into `bases` where numbers lie. It gives
the number of patches, or -1 - k if slot k has an argument outside its buffer."""


class PlanWriter:
    """Writes the function. `places` has the position of each symbol among the dimensions of inputs."""

    def __init__(self, places: Mapping[str, int]) -> None:
        self._places = places
        self._lines: list[str] = []
        self._known: dict[str, str] = {}
        self._count = 0

    def text(self, layout: int) -> str:
        """The module, with what tells the layout of numbers."""
        body = "\n".join(f"  {line}" for line in self._lines)
        return _HELPERS.replace("$BODY", body).replace("$LAYOUT", str(layout))

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

define i64 @{FILL}(ptr %spec, ptr %values) {{
entry:
  {_loads(FILL_SPEC)}
  %own.at = getelementptr i64, ptr %bases, i64 %own
  %first = ptrtoint ptr %values to i64
  store i64 %first, ptr %own.at
  br label %steps.check
steps.check:
  %s = phi i64 [ 0, %entry ], [ %s.next, %steps.done ]
  %s.patches = phi i64 [ 0, %entry ], [ %a.patches, %steps.done ]
  %s.more = icmp slt i64 %s, %steps
  br i1 %s.more, label %steps.body, label %done
steps.body:
  %s.place = add i64 %chosen, %s
  %s.value = getelementptr i64, ptr %values, i64 %s.place
  %s.slot = load i64, ptr %s.value
  %s.record = getelementptr [4 x i64], ptr %slots, i64 %s.slot
  %s.from.at = getelementptr i64, ptr %s.record, i64 2
  %s.from = load i64, ptr %s.from.at
  %s.to.at = getelementptr i64, ptr %s.record, i64 3
  %s.to = load i64, ptr %s.to.at
  %s.call.at = getelementptr [2 x i32], ptr %calls, i64 %s
  %s.call = load i32, ptr %s.call.at
  %s.word.at = getelementptr i32, ptr %s.call.at, i64 1
  %s.word.short = load i32, ptr %s.word.at
  %s.word = sext i32 %s.word.short to i64
  %s.shift = sub i64 %s.word, %s.from
  %s.changes = icmp sge i32 %s.call, 0
  br i1 %s.changes, label %steps.call, label %arguments.check
steps.call:
  %s.function = load i64, ptr %s.record
  %s.flags.at = getelementptr i64, ptr %s.record, i64 1
  %s.flags = load i64, ptr %s.flags.at
  %s.row = sext i32 %s.call to i64
  %s.row.word = mul i64 %s.row, 4
  %s.row.place = add i64 %s.row.word, %table
  %s.row.at = getelementptr i64, ptr %values, i64 %s.row.place
  store i64 %s.function, ptr %s.row.at
  %s.row.flags = getelementptr i64, ptr %s.row.at, i64 2
  store i64 %s.flags, ptr %s.row.flags
  br label %arguments.check
arguments.check:
  %a = phi i64 [ %s.from, %steps.body ], [ %s.from, %steps.call ], [ %a.next, %arguments.done ]
  %a.patches = phi i64 [ %s.patches, %steps.body ], [ %s.patches, %steps.call ], [ %a.patches.next, %arguments.done ]
  %a.more = icmp slt i64 %a, %s.to
  br i1 %a.more, label %arguments.body, label %steps.done
arguments.body:
  %a.record = getelementptr [2 x i32], ptr %arguments, i64 %a
  %a.buffer.short = load i32, ptr %a.record
  %a.buffer = sext i32 %a.buffer.short to i64
  %a.offset.place.at = getelementptr i32, ptr %a.record, i64 1
  %a.offset.place = load i32, ptr %a.offset.place.at
  %a.offset.at = getelementptr i64, ptr %values, i32 %a.offset.place
  %a.offset = load i64, ptr %a.offset.at
  %a.span = getelementptr [2 x i32], ptr %spans, i64 %a.buffer
  %a.start.place = load i32, ptr %a.span
  %a.start.at = getelementptr i64, ptr %values, i32 %a.start.place
  %a.start = load i64, ptr %a.start.at
  %a.end.place.at = getelementptr i32, ptr %a.span, i64 1
  %a.end.place = load i32, ptr %a.end.place.at
  %a.end.at = getelementptr i64, ptr %values, i32 %a.end.place
  %a.end = load i64, ptr %a.end.at
  %a.outside = icmp ugt i64 %a.offset, %a.end
  br i1 %a.outside, label %outside, label %arguments.inside
arguments.inside:
  %a.base.at = getelementptr i64, ptr %bases, i64 %a.buffer
  %a.base = load i64, ptr %a.base.at
  %a.begin = add i64 %a.base, %a.start
  %a.address = add i64 %a.begin, %a.offset
  %a.word = add i64 %a, %s.shift
  %a.word.place = add i64 %a.word, %words
  %a.word.at = getelementptr i64, ptr %values, i64 %a.word.place
  store i64 %a.address, ptr %a.word.at
  %a.given = icmp eq i64 %a.base, 0
  br i1 %a.given, label %arguments.patch, label %arguments.done
arguments.patch:
  %p.at = getelementptr [3 x i64], ptr %patches, i64 %a.patches
  store i64 %a.buffer, ptr %p.at
  %p.word = getelementptr i64, ptr %p.at, i64 1
  store i64 %a.word, ptr %p.word
  %p.offset = getelementptr i64, ptr %p.at, i64 2
  store i64 %a.offset, ptr %p.offset
  %p.more = add i64 %a.patches, 1
  br label %arguments.done
arguments.done:
  %a.patches.next = phi i64 [ %a.patches, %arguments.inside ], [ %p.more, %arguments.patch ]
  %a.next = add i64 %a, 1
  br label %arguments.check
steps.done:
  %s.next = add i64 %s, 1
  br label %steps.check
outside:
  %outside.found = sub i64 -1, %s.slot
  ret i64 %outside.found
done:
  ret i64 %s.patches
}}

define void @{IDLE}(ptr %arguments, i64 %low, i64 %high, i64 %of, i64 %worker, i64 %again) {{
  ret void
}}

define i64 @{LAYOUT}() {{
  ret i64 $LAYOUT
}}

define void @{PLAN}(ptr %dims, ptr %values) {{
  store i64 0, ptr %values
$BODY
  ret void
}}
"""
