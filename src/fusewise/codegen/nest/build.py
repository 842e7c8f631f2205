"""Writes LLVM IR as text: a thin, fast layer that knows SSA names, loops with carried values, vectors, and nothing of kernels.

Text is several times faster to produce than an object tree, and knows every LLVM type. Integers that are Python `int` fold as
they go, so address arithmetic with constant strides disappears before LLVM sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.codegen.nest.spelling import bare, element_bytes, literal, overload
from fusewise.codegen.nest.tree import Int, Value, vector

__all__ = ["Function", "Module"]


class Module:
    """One LLVM module: functions, declarations and constant tables."""

    def __init__(self) -> None:
        self.functions: list[Function] = []
        self.declarations: dict[str, str] = {}
        self.globals: list[str] = []
        self.metadata: dict[str, str] = {}

    def function(
        self, name: str, arguments: Sequence[str], result: str = "void", attributes: str = "", linkage: str = ""
    ) -> Function:
        """Start a function; `arguments` are types, optionally with attributes (`"ptr noalias"`)."""
        function = Function(self, name, tuple(arguments), result, attributes, linkage)
        self.functions.append(function)
        return function

    def declare(self, name: str, result: str, arguments: Sequence[str]) -> None:
        """Make an external function or intrinsic known."""
        self.declarations.setdefault(name, f"declare {result} @{name}({', '.join(arguments)})")

    def table(self, name: str, element: str, values: Sequence[int | float]) -> Value:
        """A constant array; the value is its address."""
        items = ", ".join(f"{element} {literal(v, element)}" for v in values)
        self.globals.append(f"@{name} = private unnamed_addr constant [{len(values)} x {element}] [{items}], align 64")
        return Value(f"@{name}", "ptr")

    def contents(self, name: str, array: bytes) -> Value:
        """Constant bytes, which LLVM reads many times as fast as numbers; the value is their address."""
        text = "\\" + array.hex("\\")
        self.globals.append(f'@{name} = private unnamed_addr constant [{len(array)} x i8] c"{text}", align 64')
        return Value(f"@{name}", "ptr")

    def zeros(self, name: str, nbytes: int) -> Value:
        """Constant memory full of zeros; the value is its address."""
        self.globals.append(f"@{name} = private unnamed_addr constant [{nbytes} x i8] zeroinitializer, align 64")
        return Value(f"@{name}", "ptr")

    def rolled(self) -> str:
        """The suffix of a loop's branch that keeps LLVM from unrolling it; what should be unrolled is written out."""
        self.metadata.setdefault("!0", "!0 = distinct !{!0, !1}")
        self.metadata.setdefault("!1", '!1 = !{!"llvm.loop.unroll.disable"}')
        return ", !llvm.loop !0"

    def rare(self) -> str:
        """The suffix of a branch that is next to never taken: registers are kept for what runs otherwise."""
        self.metadata.setdefault("!2", '!2 = !{!"branch_weights", i32 1, i32 1000}')
        return ", !prof !2"

    def text(self) -> str:
        """The whole module as LLVM assembly."""
        parts = [
            *self.globals,
            *self.declarations.values(),
            *(f.text() for f in self.functions),
            *self.metadata.values(),
        ]
        return "\n".join(parts) + "\n"


class Function:
    """A function under construction, with a current block that instructions are appended to."""

    def __init__(
        self, module: Module, name: str, arguments: tuple[str, ...], result: str, attributes: str, linkage: str = ""
    ) -> None:
        self.module = module
        self.name = name
        self.result = result
        self.attributes = attributes
        self.linkage = f"{linkage} " if linkage else ""
        self._signature = ", ".join(f"{kind} %a{k}" for k, kind in enumerate(arguments))
        self.arguments = tuple(Value(f"%a{k}", bare(kind)) for k, kind in enumerate(arguments))
        self.hides_counters = False
        self.lines: list[str] = []
        self._entry: list[str] = []
        self._next = 0
        self.block = "entry"

    def text(self) -> str:
        body = "\n".join(("entry:", *self._entry, *self.lines))
        return f"define {self.linkage}{self.result} @{self.name}({self._signature}) {self.attributes} {{\n{body}\n}}"

    # --- plumbing -------------------------------------------------------------------------------------------------

    def emit(self, kind: str, instruction: str) -> Value:
        """Append an instruction whose result has type `kind`."""
        self._next += 1
        name = f"%v{self._next}"
        self.lines.append(f"  {name} = {instruction}")
        return Value(name, kind)

    def do(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def label(self, stem: str) -> str:
        self._next += 1
        return f"{stem}{self._next}"

    def start(self, label: str) -> None:
        """Begin a block; the previous one must have ended in a branch."""
        self.lines.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch_if(self, condition: Value, then: str, otherwise: str, rarely: bool = False) -> None:
        suffix = self.module.rare() if rarely else ""
        self.do(f"br i1 {condition.text}, label %{then}, label %{otherwise}{suffix}")

    def alloca(self, element: str, count: int = 1, align: int = 64) -> Value:
        """Stack memory, reserved once at function entry."""
        self._next += 1
        name = f"%v{self._next}"
        self._entry.append(f"  {name} = alloca {element}, i64 {count}, align {align}")
        return Value(name, "ptr")

    def phi(self, kind: str, incoming: Sequence[tuple[Value, str]]) -> Value:
        pairs = ", ".join(f"[ {value.text}, %{block} ]" for value, block in incoming)
        return self.emit(kind, f"phi {kind} {pairs}")

    # --- constants ------------------------------------------------------------------------------------------------

    def i64(self, value: Int) -> Value:
        return value if isinstance(value, Value) else Value(str(value), "i64")

    def constant(self, value: int | float | bool, kind: str) -> Value:
        """A number of scalar or vector type `kind`."""
        if not kind.startswith("<"):
            return Value(literal(value, kind), kind)
        element = kind.split(" x ", 1)[1][:-1]
        return Value(f"splat ({element} {literal(value, element)})", kind)

    def constants(self, values: Sequence[int | float | bool], element: str) -> Value:
        """A vector of these numbers."""
        lanes = ", ".join(f"{element} {literal(value, element)}" for value in values)
        return Value(f"<{lanes}>", vector(element, len(values)))

    def unset(self, kind: str) -> Value:
        """A value of which nothing is known, to insert into."""
        return Value("poison", kind)

    # --- i64 arithmetic with folding ------------------------------------------------------------------------------

    def add(self, a: Int, b: Int) -> Int:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 and isinstance(a, int):
            return b
        if b == 0 and isinstance(b, int):
            return a
        return self.emit("i64", f"add nsw i64 {self.i64(a).text}, {self.i64(b).text}")

    def sub(self, a: Int, b: Int) -> Int:
        if isinstance(b, int):
            return self.add(a, -b)
        return self.emit("i64", f"sub nsw i64 {self.i64(a).text}, {b.text}")

    def mul(self, a: Int, b: Int) -> Int:
        if isinstance(a, int):
            a, b = b, a
        if isinstance(b, int):
            if isinstance(a, int):
                return a * b
            if b == 0:
                return 0
            if b == 1:
                return a
        return self.emit("i64", f"mul nsw i64 {self.i64(a).text}, {self.i64(b).text}")

    def udiv(self, a: Int, b: Int) -> Int:
        """Division of numbers known to be non-negative."""
        if isinstance(a, int) and isinstance(b, int):
            return a // b
        if isinstance(b, int) and b == 1:
            return a
        return self.emit("i64", f"udiv i64 {self.i64(a).text}, {self.i64(b).text}")

    def urem(self, a: Int, b: Int) -> Int:
        """Remainder of numbers known to be non-negative."""
        if isinstance(a, int) and isinstance(b, int):
            return a % b
        if isinstance(b, int) and b == 1:
            return 0
        return self.emit("i64", f"urem i64 {self.i64(a).text}, {self.i64(b).text}")

    def minimum(self, a: Int, b: Int) -> Int:
        """The smaller of two signed i64."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.intrinsic("smin", self.i64(a), self.i64(b))

    def maximum(self, a: Int, b: Int) -> Int:
        """The larger of two signed i64."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.intrinsic("smax", self.i64(a), self.i64(b))

    # --- instructions on any type ---------------------------------------------------------------------------------

    def binary(self, op: str, a: Value, b: Value) -> Value:
        """`op` as LLVM spells it: `fadd`, `and`, `shl`, ..."""
        return self.emit(a.type, f"{op} {a.type} {a.text}, {b.text}")

    def fadd(self, a: Value, b: Value) -> Value:
        return self.binary("fadd", a, b)

    def fsub(self, a: Value, b: Value) -> Value:
        return self.binary("fsub", a, b)

    def fmul(self, a: Value, b: Value) -> Value:
        return self.binary("fmul", a, b)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c, rounded once."""
        return self.intrinsic("fma", a, b, c)

    def negated(self, a: Value) -> Value:
        """A float with its sign turned."""
        return self.emit(a.type, f"fneg {a}")

    def intrinsic(self, stem: str, *operands: Value, result: str | None = None) -> Value:
        """Call `llvm.<stem>.<type>`; the overload suffix comes from the first operand."""
        first = operands[0]
        kind = first.type if result is None else result
        extra = [Value("false", "i1")] if stem in ("ctlz", "cttz", "abs") else []
        return self.call_intrinsic(f"llvm.{stem}.{overload(first.type)}", kind, *operands, *extra)

    def call_intrinsic(self, name: str, result: str, *operands: Value) -> Value:
        """Call an intrinsic by its whole name; it is made known to the module."""
        self.module.declare(name, result, [operand.type for operand in operands])
        return self.call(name, result, *operands)

    def call(self, name: str, result: str, *operands: Value) -> Value:
        """Call a function of this module or of the process; what comes of `void` is no value."""
        call = f"call {result} @{name}({', '.join(str(o) for o in operands)})"
        if result == "void":
            self.do(call)
            return Value("", result)
        return self.emit(result, call)

    def compare(self, predicate: str, a: Int, b: Int) -> Value:
        """`predicate` with its family: `icmp slt`, `fcmp olt`, ..."""
        left, right = self.i64(a), self.i64(b)
        return self.emit(vector("i1", left.lanes), f"{predicate} {left.type} {left.text}, {right.text}")

    def select(self, condition: Value, then: Value, otherwise: Value) -> Value:
        return self.emit(then.type, f"select {condition.type} {condition.text}, {then}, {otherwise}")

    def convert(self, op: str, value: Value, element: str) -> Value:
        """`sitofp`, `fptosi`, `sext`, `bitcast`, ... to `element`, lane by lane."""
        kind = vector(element, value.lanes)
        return self.emit(kind, f"{op} {value} to {kind}")

    def bitcast(self, value: Value, kind: str) -> Value:
        """The same bits as another type of as many, whatever its lanes."""
        return self.emit(kind, f"bitcast {value} to {kind}")

    def any(self, mask: Value) -> Value:
        """Is any lane of a mask set?"""
        if mask.lanes == 1:
            return mask
        bits = self.bitcast(mask, f"i{mask.lanes}")
        return self.compare("icmp ne", bits, self.constant(0, bits.type))

    def splat(self, value: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if lanes == 1 or value.lanes > 1:
            return value
        kind = vector(value.type, lanes)
        first = self.emit(kind, f"insertelement {kind} poison, {value}, i64 0")
        return self.emit(kind, f"shufflevector {kind} {first.text}, {kind} poison, <{lanes} x i32> zeroinitializer")

    def extract(self, value: Value, lane: Int) -> Value:
        return self.emit(value.element, f"extractelement {value}, {self.i64(lane)}")

    def insert(self, into: Value, value: Value, lane: Int) -> Value:
        return self.emit(into.type, f"insertelement {into}, {value}, {self.i64(lane)}")

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        kind = vector(a.element, len(lanes))
        return self.emit(kind, f"shufflevector {a}, {b}, <{len(lanes)} x i32> <{mask}>")

    def joined(self, parts: Sequence[Value]) -> Value:
        """Equal vectors or scalars, two to a power of them, side by side in one vector."""
        while len(parts) > 1:
            lanes = range(2 * parts[0].lanes)
            parts = [self.shuffle(a, b, lanes) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    # --- memory ---------------------------------------------------------------------------------------------------

    def at(self, pointer: Value, offset: Int, element: str = "float", inside: bool = True) -> Value:
        """The address `offset` elements after `pointer`; if not `inside` what that points into, nobody may read there."""
        if isinstance(offset, int) and offset == 0:
            return pointer
        step = "getelementptr inbounds" if inside else "getelementptr"
        return self.emit("ptr", f"{step} {element}, ptr {pointer.text}, {self.i64(offset)}")

    def load(self, kind: str, pointer: Value, align: int | None = None) -> Value:
        """Load a scalar or vector; a vector is only assumed aligned to its element."""
        return self.emit(kind, f"load {kind}, ptr {pointer.text}, align {align or element_bytes(kind)}")

    def store(self, value: Value, pointer: Value, align: int | None = None) -> None:
        self.do(f"store {value}, ptr {pointer.text}, align {align or element_bytes(value.type)}")

    def copy(self, target: Value, source: Value, nbytes: Int, align: int = 4) -> None:
        """Copy memory that does not overlap."""
        self.module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
        where = f"ptr align {align} {target.text}, ptr align {align} {source.text}"
        self.do(f"call void @llvm.memcpy.p0.p0.i64({where}, {self.i64(nbytes)}, i1 false)")

    def clear(self, target: Value, nbytes: Int, align: int = 4, byte: Value | None = None) -> None:
        """Fill memory with zero bytes, or with `byte`."""
        filler = Value("0", "i8") if byte is None else byte
        self.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
        where = f"ptr align {align} {target.text}, {filler}"
        self.do(f"call void @llvm.memset.p0.i64({where}, {self.i64(nbytes)}, i1 false)")

    def mask(self, count: Int, lanes: int) -> Value:
        """A lane mask with the first `count` lanes set."""
        return self.compare("icmp slt", self.constants(range(lanes), "i64"), self.splat(self.i64(count), lanes))

    def masked_load(self, kind: str, pointer: Value, mask: Value, fill: Value | None = None) -> Value:
        """Load the lanes that `mask` sets; the others take `fill` (default zero) and memory there is not touched."""
        name, align = f"llvm.masked.load.{overload(kind)}.p0", self.constant(element_bytes(kind), "i32")
        other = Value("zeroinitializer", kind) if fill is None else fill
        return self.call_intrinsic(name, kind, pointer, align, mask, other)

    def masked_store(self, value: Value, pointer: Value, mask: Value) -> None:
        """Store the lanes that `mask` sets."""
        name, align = f"llvm.masked.store.{overload(value.type)}.p0", self.constant(element_bytes(value.type), "i32")
        self.call_intrinsic(name, "void", value, pointer, align, mask)

    def prefetch(self, pointer: Value, locality: int = 3) -> None:
        """Hint that memory will be read soon."""
        read, data = self.constant(0, "i32"), self.constant(1, "i32")
        self.call_intrinsic("llvm.prefetch.p0", "void", pointer, read, self.constant(locality, "i32"), data)

    # --- control flow ---------------------------------------------------------------------------------------------

    def loop(
        self,
        low: Int,
        high: Int,
        step: int,
        body: Callable[[Value, tuple[Value, ...]], Sequence[Value] | None],
        carried: Sequence[Value] = (),
        rolled: bool = False,
        tight: bool = False,
    ) -> tuple[Value, ...]:
        """`for (i = low; i < high; i += step)`; `body(i, carried)` returns the next carried values.

        The loop is bottom-tested; when it is not known to run at least once it is guarded. `rolled` forbids LLVM to unroll it.
        In a function that `hides_counters`, LLVM cannot see that the body is given one, unless the loop is `tight` or carries
        values.
        """
        if isinstance(low, int) and isinstance(high, int) and low >= high:
            return tuple(carried)
        known = isinstance(low, int) and isinstance(high, int)
        head, done = self.label("loop"), self.label("done")
        before = self.block
        if known:
            self.branch(head)
        else:
            self.branch_if(self.compare("icmp slt", low, high), head, done)
            before = self.block
        self.start(head)
        hole = len(self.lines)
        i, *inside = self._names((self.i64(low), *carried))
        seen = self.hidden(i) if self.hides_counters and not (tight or carried) else i
        after = tuple(body(seen, tuple(inside)) or ())
        following = self.i64(self.add(i, step))
        tail = self.block
        first, last = (self.i64(low), *carried), (following, *after)
        self.lines[hole:hole] = self._phis([i, *inside], (first, before), (last, tail))
        self.branch_if(self.compare("icmp slt", following, high), head, done)
        if rolled:
            self.lines[-1] += self.module.rolled()
        self.start(done)
        if known:
            return after
        return tuple(
            self.phi(first.type, [(first, before), (last, tail)]) for first, last in zip(carried, after, strict=True)
        )

    def repeat(
        self,
        goes_on: Callable[..., Value],
        body: Callable[..., Sequence[Value] | None],
        carried: Sequence[Value] = (),
    ) -> tuple[Value, ...]:
        """`while (goes_on(*carried)) carried = body(*carried)`, which may be never; gives the carried values in the end."""
        head, inside, done = (self.label(stem) for stem in ("again", "inside", "done"))
        before, hole = self.block, len(self.lines) + 2
        self.branch(head)
        self.start(head)
        kept = self._names(carried)
        self.branch_if(goes_on(*kept), inside, done)
        self.start(inside)
        after = tuple(body(*kept) or ())
        self.lines[hole:hole] = self._phis(kept, (carried, before), (after, self.block))
        self.branch(head)
        self.start(done)
        return tuple(kept)

    def _names(self, values: Sequence[Value]) -> list[Value]:
        """New names for values of the same types."""
        self._next += len(values)
        first = self._next - len(values) + 1
        return [Value(f"%v{k}", value.type) for k, value in enumerate(values, first)]

    @staticmethod
    def _phis(
        names: Sequence[Value], first: tuple[Sequence[Value], str], after: tuple[Sequence[Value], str]
    ) -> list[str]:
        """What begins the block of a loop: each value by name is one of `first`, and then one of `after`, with their blocks."""
        (starts, before), (ends, tail) = first, after
        assert len(starts) == len(ends), "a loop body must return one value per carried value"
        return [
            f"  {name.text} = phi {name.type} [ {start.text}, %{before} ], [ {end.text}, %{tail} ]"
            for name, start, end in zip(names, starts, ends, strict=True)
        ]

    def hidden(self, value: Value) -> Value:
        """The same number or pointer, but LLVM cannot see how it was computed.

        Loop strength reduction otherwise tries every way to share out the terms of all addresses over a loop's registers, which
        takes longer than all other passes together.
        """
        if value.type == "ptr":
            return self.call_intrinsic("llvm.launder.invariant.group.p0", "ptr", value)
        return self.emit(value.type, f'call {value.type} asm "", "=r,0"({value})')

    def when(
        self,
        condition: Value,
        then: Callable[[], Sequence[Value] | None],
        otherwise: Callable[[], Sequence[Value] | None] | None = None,
        rarely: bool = False,
    ) -> tuple[Value, ...]:
        """if / else; both branches return the same number of values, which are merged. Is the condition `rarely` met, `otherwise`
        is what should be fast."""
        yes, no, join = self.label("then"), self.label("else"), self.label("join")
        self.branch_if(condition, yes, no, rarely)
        self.start(yes)
        first = tuple(then() or ())
        first_end = self.block
        self.branch(join)
        self.start(no)
        second = tuple((otherwise() if otherwise is not None else None) or ())
        second_end = self.block
        self.branch(join)
        self.start(join)
        assert len(first) == len(second), "both branches must return the same number of values"
        return tuple(self.phi(a.type, [(a, first_end), (b, second_end)]) for a, b in zip(first, second, strict=True))

    def give_back(self, value: Value | None = None) -> None:
        """Return from the function."""
        self.do("ret void" if value is None else f"ret {value}")
