"""Builds the program of a kernel (`nest.tree`): knows values, loops and vectors, and nothing of kernels.

A kernel is written by calling these methods in the order of the program. Integers that are Python `int` fold as they go, so address
arithmetic with constant strides never becomes part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fusewise.codegen.nest.spelling import bare, element_bytes, literal, size_name
from fusewise.codegen.nest.tree import (
    Block,
    For,
    Int,
    NestNode,
    Operation,
    Repeat,
    Stage,
    StoreAccumulator,
    Table,
    Value,
    When,
    vector,
)
from fusewise.ir.size import Size, SizeNeeded, greatest, least
from fusewise.lower.task import Task

__all__ = ["Function", "Module"]


class Module:
    """The functions and constant tables of a kernel, and the sizes that it takes as numbers when it is called, each with its place
    among them."""

    def __init__(self) -> None:
        self.functions: list[Function] = []
        self.tables: list[Table] = []
        self.sizes: dict[Size, int] = {}

    def function(
        self, name: str, arguments: Sequence[str], result: str = "void", attributes: str = "", linkage: str = ""
    ) -> Function:
        """Start a function; `arguments` are types, optionally with attributes (`"ptr noalias"`)."""
        function = Function(self, name, tuple(arguments), result, attributes, linkage)
        self.functions.append(function)
        return function

    @property
    def contents(self) -> tuple[tuple[Table, ...], tuple[Any, ...]]:
        """Tables and functions as plain data: equal for equal programs."""
        return tuple(self.tables), tuple(function.contents for function in self.functions)

    def table(self, name: str, element: str, values: Sequence[int | float] | bytes) -> Value:
        """A constant array; the value is its address."""
        self.tables.append(Table(name, element, values if isinstance(values, bytes) else tuple(values)))
        return Value(f"@{name}", "ptr")


_KNOWN = (int, Size)
"""What is no value of the program: the type checker takes a size for an int, which it is not."""

_operation = tuple.__new__
"""Makes a named tuple in a third of the time that calling it takes."""


class Function:
    """A function under construction, with a current block that nodes are appended to."""

    def __init__(
        self, module: Module, name: str, arguments: tuple[str, ...], result: str, attributes: str, linkage: str = ""
    ) -> None:
        self.module = module
        self.name = name
        self.result = result
        self.attributes = attributes
        self.linkage = linkage
        self.kinds = arguments
        self.arguments = tuple(Value(f"%a{k}", bare(kind)) for k, kind in enumerate(arguments))
        self.hides_counters = False
        self.sizes_at: Value | None = None
        self.values = 0
        self._nodes: list[NestNode] = []

    @property
    def body(self) -> Block:
        """What has been built."""
        return tuple(self._nodes)

    @property
    def contents(self) -> tuple[str | bool | Block | tuple[str, ...], ...]:
        """All that makes it what it is as plain data: equal for equal functions."""
        how = self.result, self.attributes, self.linkage, self.hides_counters
        return self.name, self.kinds, *how, self.body

    # --- plumbing -------------------------------------------------------------------------------------------------

    def named(self, kind: str) -> Value:
        """A value with a name of its own."""
        self.values += 1
        return Value(f"%v{self.values}", kind)

    def _made(self, opcode: str, kind: str, *operands: Value, detail: tuple[str | int, ...] = ()) -> Value:
        """Append an operation with a result."""
        self.values += 1
        result = Value(f"%v{self.values}", kind)
        self._nodes.append(_operation(Operation, (opcode, result, operands, detail)))
        return result

    def _done(self, opcode: str, *operands: Value, detail: tuple[str | int, ...] = ()) -> None:
        """Append an operation without one."""
        self._nodes.append(Operation(opcode, None, operands, detail))

    def block(self, build: Callable[[], Sequence[Value] | None]) -> tuple[Block, tuple[Value, ...]]:
        """What `build` appends, as a block of its own, and the values that it gives."""
        before, self._nodes = self._nodes, []
        values = tuple(build() or ())
        block, self._nodes = tuple(self._nodes), before
        return block, values

    def alloca(self, element: str, count: int = 1, align: int = 64) -> Value:
        """Stack memory, reserved once at function entry."""
        return self._made("alloca", "ptr", detail=(element, count, align))

    # --- constants ------------------------------------------------------------------------------------------------

    def i64(self, value: Int) -> Value:
        if isinstance(value, Value):
            return value
        return self.size(value) if isinstance(value, Size) else Value(str(value), "i64")

    def size(self, size: Size) -> Value:
        """A size as a number: functions that are given where the numbers lie (`sizes_at`) load it when they are called."""
        if self.sizes_at is None:
            raise SizeNeeded(f"{self.name} is not told what {size} is")
        return Value(size_name(self.module.sizes.setdefault(size, len(self.module.sizes))), "i64")

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

    def every(self, value: Int, lanes: int) -> Value:
        """An i64 in every lane."""
        if isinstance(value, int) and not isinstance(value, Size):
            return self.constant(value, vector("i64", lanes))
        return self.splat(self.i64(value), lanes)

    def unset(self, kind: str) -> Value:
        """A value of which nothing is known, to insert into."""
        return Value("poison", kind)

    # --- i64 arithmetic with folding ------------------------------------------------------------------------------

    def add(self, a: Int, b: Int) -> Int:
        if isinstance(a, _KNOWN) and isinstance(b, _KNOWN):
            return a + b
        if isinstance(a, int) and a == 0:
            return b
        if isinstance(b, int) and b == 0:
            return a
        return self._made("add nsw", "i64", self.i64(a), self.i64(b))

    def sub(self, a: Int, b: Int) -> Int:
        if isinstance(b, _KNOWN):
            if isinstance(a, _KNOWN):
                return a - b
            if isinstance(b, int):
                return self.add(a, -b)
        return self._made("sub nsw", "i64", self.i64(a), self.i64(b))

    def mul(self, a: Int, b: Int) -> Int:
        if isinstance(a, _KNOWN):
            a, b = b, a
        if isinstance(b, _KNOWN):
            if isinstance(a, _KNOWN):
                return a * b
            if isinstance(b, int) and b == 0:
                return 0
            if isinstance(b, int) and b == 1:
                return a
        return self._made("mul nsw", "i64", self.i64(a), self.i64(b))

    def udiv(self, a: Int, b: Int) -> Int:
        """Division of numbers known to be non-negative."""
        if isinstance(a, _KNOWN) and isinstance(b, _KNOWN):
            return a // b
        if isinstance(b, int) and b == 1:
            return a
        return self._made("udiv", "i64", self.i64(a), self.i64(b))

    def urem(self, a: Int, b: Int) -> Int:
        """Remainder of numbers known to be non-negative."""
        if isinstance(a, _KNOWN) and isinstance(b, _KNOWN):
            return a % b
        if isinstance(b, int) and b == 1:
            return 0
        return self._made("urem", "i64", self.i64(a), self.i64(b))

    def minimum(self, a: Int, b: Int) -> Int:
        """The smaller of two signed i64."""
        if isinstance(a, _KNOWN) and isinstance(b, _KNOWN):
            found: int = least(a, b)
            return found
        return self.intrinsic("smin", self.i64(a), self.i64(b))

    def maximum(self, a: Int, b: Int) -> Int:
        """The larger of two signed i64."""
        if isinstance(a, _KNOWN) and isinstance(b, _KNOWN):
            found: int = greatest(a, b)
            return found
        return self.intrinsic("smax", self.i64(a), self.i64(b))

    # --- instructions on any type ---------------------------------------------------------------------------------

    def binary(self, op: str, a: Value, b: Value) -> Value:
        """`op` as LLVM spells it: `fadd`, `and`, `shl`, ..."""
        return self._made(op, a.type, a, b)

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
        return self._made("fneg", a.type, a)

    def intrinsic(self, stem: str, *operands: Value, result: str | None = None) -> Value:
        """`llvm.<stem>` of operands of the first one's type."""
        return self._made(f"llvm.{stem}", operands[0].type if result is None else result, *operands)

    def call_intrinsic(self, name: str, result: str, *operands: Value) -> Value:
        """Call an intrinsic by its whole name; what comes of `void` is no value."""
        return self._called("intrinsic", name, result, operands)

    def call(self, name: str, result: str, *operands: Value) -> Value:
        """Call a function of this module or of the process; what comes of `void` is no value."""
        return self._called("call", name, result, operands)

    def _called(self, opcode: str, name: str, result: str, operands: tuple[Value, ...]) -> Value:
        if result == "void":
            self._done(opcode, *operands, detail=(name,))
            return Value("", result)
        return self._made(opcode, result, *operands, detail=(name,))

    def compare(self, predicate: str, a: Int, b: Int) -> Value:
        """`predicate` with its family: `icmp slt`, `fcmp olt`, ..."""
        left, right = self.i64(a), self.i64(b)
        return self._made(predicate, vector("i1", left.lanes), left, right)

    def select(self, condition: Value, then: Value, otherwise: Value) -> Value:
        return self._made("select", then.type, condition, then, otherwise)

    def convert(self, op: str, value: Value, element: str) -> Value:
        """`sitofp`, `fptosi`, `sext`, `bitcast`, ... to `element`, lane by lane."""
        return self._made(op, vector(element, value.lanes), value)

    def bitcast(self, value: Value, kind: str) -> Value:
        """The same bits as another type of as many, whatever its lanes."""
        return self._made("bitcast", kind, value)

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
        first = self._made("insertelement", kind, Value("poison", kind), value, self.i64(0))
        return self._made("broadcast", kind, first)

    def extract(self, value: Value, lane: Int) -> Value:
        return self._made("extractelement", value.element, value, self.i64(lane))

    def insert(self, into: Value, value: Value, lane: Int) -> Value:
        return self._made("insertelement", into.type, into, value, self.i64(lane))

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        return self._made("shufflevector", vector(a.element, len(lanes)), a, b, detail=tuple(lanes))

    def joined(self, parts: Sequence[Value]) -> Value:
        """Equal vectors or scalars, two to a power of them, side by side in one vector."""
        if len(parts) > 1 and parts[0].lanes == 1:
            kind = vector(parts[0].type, len(parts))
            found = Value("poison", kind)
            for lane, part in enumerate(parts):
                found = self.insert(found, part, lane)
            return found
        while len(parts) > 1:
            lanes = range(2 * parts[0].lanes)
            parts = [self.shuffle(a, b, lanes) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def part(self, value: Value, first: int, lanes: int) -> Value:
        """So many lanes of a vector, from the first on."""
        return self.extract(value, first) if lanes == 1 else self.shuffle(value, value, range(first, first + lanes))

    # --- memory ---------------------------------------------------------------------------------------------------

    def at(self, pointer: Value, offset: Int, element: str = "float", inside: bool = True) -> Value:
        """The address `offset` elements after `pointer`; if not `inside` what that points into, nobody may read there."""
        if isinstance(offset, int) and offset == 0:
            return pointer
        return self._made(
            "getelementptr inbounds" if inside else "getelementptr", "ptr", pointer, self.i64(offset), detail=(element,)
        )

    def load(self, kind: str, pointer: Value, align: int | None = None) -> Value:
        """Load a scalar or vector; a vector is only assumed aligned to its element."""
        return self._made("load", kind, pointer, detail=(align or element_bytes(kind),))

    def store(self, value: Value, pointer: Value, align: int | None = None) -> None:
        self._done("store", value, pointer, detail=(align or element_bytes(value.type),))

    def copy(self, target: Value, source: Value, nbytes: Int, align: int = 4) -> None:
        """Copy memory that does not overlap."""
        self._done("memcpy", target, source, self.i64(nbytes), detail=(align,))

    def clear(self, target: Value, nbytes: Int, align: int = 4, byte: Value | None = None) -> None:
        """Fill memory with zero bytes, or with `byte`."""
        filler = Value("0", "i8") if byte is None else byte
        self._done("memset", target, filler, self.i64(nbytes), detail=(align,))

    def mask(self, count: Int, lanes: int) -> Value:
        """A lane mask with the first `count` lanes set."""
        return self.compare("icmp slt", self.constants(range(lanes), "i64"), self.splat(self.i64(count), lanes))

    def masked_load(self, kind: str, pointer: Value, mask: Value, fill: Value | None = None) -> Value:
        """Load the lanes that `mask` sets; the others take `fill` (default zero) and memory there is not touched."""
        other = Value("zeroinitializer", kind) if fill is None else fill
        return self._made("masked.load", kind, pointer, mask, other)

    def masked_store(self, value: Value, pointer: Value, mask: Value) -> None:
        """Store the lanes that `mask` sets."""
        self._done("masked.store", value, pointer, mask)

    def prefetch(self, pointer: Value, locality: int = 3) -> None:
        """Hint that memory will be read soon."""
        self._done("prefetch", pointer, detail=(locality,))

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

        `rolled` forbids LLVM to unroll it. In a function that `hides_counters`, LLVM cannot see that the body is given one,
        unless the loop is `tight` or carries values.
        """
        if isinstance(low, int) and isinstance(high, int) and low >= high:
            return tuple(carried)
        low, high = (self.i64(end) if isinstance(end, Size) else end for end in (low, high))
        index, inside = self.named("i64"), tuple(self.named(value.type) for value in carried)

        def build() -> Sequence[Value] | None:
            return body(self.hidden(index) if self.hides_counters and not (tight or carried) else index, inside)

        block, after = self.block(build)
        assert len(after) == len(carried), "a loop body must return one value per carried value"
        results = tuple(self.named(value.type) for value in carried)
        self._nodes.append(For(index, low, high, step, tuple(carried), inside, block, after, results, rolled))
        return results

    def repeat(
        self,
        goes_on: Callable[..., Value],
        body: Callable[..., Sequence[Value] | None],
        carried: Sequence[Value] = (),
    ) -> tuple[Value, ...]:
        """`while (goes_on(*carried)) carried = body(*carried)`, which may be never; gives the carried values in the end."""
        inside = tuple(self.named(value.type) for value in carried)
        first, (condition,) = self.block(lambda: [goes_on(*inside)])
        block, after = self.block(lambda: body(*inside))
        assert len(after) == len(carried), "a loop body must return one value per carried value"
        self._nodes.append(Repeat(tuple(carried), inside, first, condition, block, after))
        return inside

    def hidden(self, value: Value) -> Value:
        """The same number or pointer, but LLVM cannot see how it was computed.

        Loop strength reduction otherwise tries every way to share out the terms of all addresses over a loop's registers, which
        takes longer than all other passes together.
        """
        return self._made("hidden", value.type, value)

    def when(
        self,
        condition: Value,
        then: Callable[[], Sequence[Value] | None],
        otherwise: Callable[[], Sequence[Value] | None] | None = None,
        rarely: bool = False,
    ) -> tuple[Value, ...]:
        """if / else; both branches return the same number of values, which are merged. Is the condition `rarely` met, `otherwise`
        is what should be fast."""
        yes, first = self.block(then)
        no, second = self.block(otherwise or (lambda: None))
        assert len(first) == len(second), "both branches must return the same number of values"
        results = tuple(self.named(value.type) for value in first)
        self._nodes.append(When(condition, yes, first, no, second, results, rarely))
        return results

    def stage(self, tag: Value, unit: Int, make: Callable[[], object]) -> None:
        """Have `make` write what belongs to a unit of work, unless it lies there; `tag` is where that is noted."""

        def build() -> None:
            make()

        at = self.i64(unit) if isinstance(unit, Size) else unit
        self._nodes.append(Stage(tag, at, self.block(build)[0]))

    def results(
        self,
        stores: tuple[Task, Mapping[str, Value]],
        indices: Mapping[str, Int],
        lane: str,
        value: Value,
        count: int,
    ) -> None:
        """The stores of a task, with a pointer for each of its operands, of one accumulator."""
        task, pointers = stores
        at = tuple((name, self.i64(i) if isinstance(i, Size) else i) for name, i in indices.items())
        self._nodes.append(StoreAccumulator(task, pointers, at, lane, value, count))

    # --- blocks ---------------------------------------------------------------------------------------------------

    def same(self, name: Value, value: Value) -> None:
        """Give a value another name."""
        self._nodes.append(Operation("same", name, (value,)))

    def append(self, node: NestNode) -> None:
        """Append a node that was made elsewhere."""
        self._nodes.append(node)

    def include(self, block: Block) -> None:
        """Append nodes that were built before."""
        self._nodes.extend(block)

    def beside(self, module: Module) -> Function:
        """A function to build nodes in that will be part of this one's: with other names for values, and functions and tables
        added to `module`."""
        other = Function(module, self.name, self.kinds, self.result, self.attributes, self.linkage)
        other.hides_counters, other.sizes_at = self.hides_counters, self.sizes_at
        other.values = self.values
        return other

    def taken(self) -> Block:
        """What has been built, which is no longer part of the function."""
        block, self._nodes = tuple(self._nodes), []
        return block

    def give_back(self, value: Value | None = None) -> None:
        """Return from the function."""
        self._done("ret", *(() if value is None else (value,)))
