"""Element expressions of a task as LLVM values: one element, or several along one axis at once.

Takes a task, a function under construction and a pointer per operand; gives a `Point`, a place in the index space, that
values are asked from and stores are done at. Along the lane axis a point covers several consecutive elements. What does not
vary along that axis stays a scalar and is computed once. How a load is done follows from its offset, an integer linear form
(`lower.index`): coefficient 0 along the lane axis is one scalar, 1 a vector, anything else one element at a time.

Memory that an expression does not ask for is never touched: a condition that is the same for all lanes is a branch; under one
that differs between lanes, loads are masked, or their addresses limited to the operand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusewise.codegen.llvm.arithmetic import apply_binary, apply_compare, apply_unary
from fusewise.codegen.llvm.bounded import bounded_element
from fusewise.codegen.llvm.math import functions as mathfn
from fusewise.codegen.llvm.memory import fetch_element, load_element, store_element
from fusewise.codegen.llvm.point import Emission, Point
from fusewise.codegen.llvm.reduction import reduce_element
from fusewise.codegen.llvm.registers import clamped, convert, narrow, reinterpreted, resized, rounded, splat, wrapped
from fusewise.codegen.nest.build import Function, Module
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.nest.types import computed, register_type
from fusewise.codegen.target import InstructionSet
from fusewise.ir.dtypes import BFLOAT16, FLOAT32, FLOAT64, INT64, DType
from fusewise.ir.size import Size
from fusewise.lower.task import ACC, Store, Task
from fusewise.ops.expr import BINARY, COMPARE, UNARY, Expr, walk
from fusewise.ops.scalar import integer_range
from fusewise.records import record

__all__ = ["Elements", "unwritten"]


class Elements(Emission):
    """The expressions of one task, ready to be emitted into one function."""

    def at(
        self,
        indices: Mapping[str, Int],
        lane: str | None = None,
        lanes: int = 1,
        *,
        acc: Value | None = None,
        leaves: Mapping[Expr, Value] | None = None,
        count: Int | None = None,
    ) -> Point:
        """A place in the index space.

        `indices` gives every loop variable an i64. Along `lane` the point covers indices[lane] + 0 .. lanes-1; with `count`
        only the first `count` (at least 1) of them exist. `acc` is what a load of `acc` means, `leaves` what other
        expressions are known to be: scalars where they do not vary along the lane axis, vectors where they do.
        """
        if lanes == 1:
            lane, count = None, None
        return _Point(self, dict(indices), lane, lanes, acc, count, [dict(leaves or {})])


def unwritten(task: Task, instructions: InstructionSet) -> Elements:
    """The expressions of a task where nothing is emitted, to see how they would be."""
    return Elements(Module().function("analysis", ()), task, instructions, {})


@record
class _Point(Point):
    """With what every word means."""

    def store(self, store: Store) -> None:
        store_element(self, store)

    def fetch(self, name: str, index: tuple[Expr, ...], locality: int) -> None:
        fetch_element(self, name, index, locality)

    # --- the words ------------------------------------------------------------------------------------------------

    def emit(self, expr: Expr) -> Value:
        op, f = expr.op, self.function
        if op == "const" and isinstance(expr.value, Size):
            return _size_of(f, expr.value, expr.dtype)
        if op == "const":
            return f.constant(_bits(expr.value, expr.dtype), register_type(expr.dtype))
        if op == "index":
            at = self.indices[expr.value]
            return self.lane_indices(at) if expr.value == self.lane else f.i64(at)
        if op == "load":
            return self._accumulator(expr) if expr.value == ACC else load_element(self, expr)
        if op == "select":
            return self._select(expr)
        if op == "bounded":
            return bounded_element(self, expr)
        if op == "reduce":
            return reduce_element(self, expr)
        if op == "cast":
            return self._cast(expr, expr.args[0])
        if op == "bits":
            return reinterpreted(f, self.minimal(expr.args[0]), expr.args[0].dtype, expr.dtype)
        if expr.dtype == INT64 and not self.varies(expr) and not self.elements.facts.reads(expr):
            folded = self.folded(expr)
            if folded is not None:
                return f.i64(folded)
        source = expr.args[0].dtype
        if op in UNARY:
            return apply_unary(f, self.instructions, op, self.minimal(expr.args[0]), source)
        gate = None if self.elements.task.exact else _own_gate(expr)
        if gate is not None and self.known(gate) is None:
            x = expr.args[1] if expr.args[0] is gate else expr.args[0]
            return mathfn.gated(f, self.instructions, *self._aligned(self.minimal(x), self.minimal(gate.args[0])))
        a, b = self._aligned(self.minimal(expr.args[0]), self.minimal(expr.args[1]))
        if op in COMPARE:
            return apply_compare(f, self.instructions, op, a, b, source)
        assert op in BINARY, op
        if op in ("floordiv", "floormod") and source == INT64:
            short = self._short_division(expr, a, b)
            if short is not None:
                return short
        return apply_binary(f, self.instructions, op, a, b, source, _known(expr.args[1]))

    def _cast(self, expr: Expr, given: Expr) -> Value:
        f, to = self.function, expr.dtype
        if _is_clamped(given, to):
            whole = self._rounded(given)
            if whole is not None:
                return wrapped(f, resized(f, whole, register_type(to), True), to)
            low, high = given.args[0].args[1].value, given.args[1].value
            return clamped(f, self.minimal(given.args[0].args[0]), low, high, to)
        if to == FLOAT32 and given.op == "cast" and _is_clamped(given.args[0], given.dtype):
            # quantised and dequantised again: the number need not become narrow in between
            whole = None if self.known(given) is not None else self._rounded(given.args[0])
            if whole is not None:
                return f.convert("sitofp", whole, "float")
        if to == FLOAT32 and given.dtype == BFLOAT16 and not self.elements.task.exact:
            kept = self._unrounded(given)
            if kept is not None:
                return kept
        if to == BFLOAT16 and given.dtype == FLOAT32 and _computes(given):
            return narrow(f, self.instructions, self.minimal(given), to)
        return convert(f, self.instructions, self.minimal(given), given.dtype, to)

    def _unrounded(self, given: Expr) -> Value | None:
        """A bfloat16 as it was before it was rounded, where that is in a register: what is computed with it then errs less."""
        if given.op == "load" and given.value == ACC and self.acc is not None and self.acc.element == "float":
            return self.acc
        if given.op != "cast" or given.args[0].dtype != FLOAT32:
            return None
        is_there = self.known(given) is None or self.known(given.args[0]) is not None
        return self.minimal(given.args[0]) if is_there and _computes(given.args[0]) else None

    def _rounded(self, limited: Expr) -> Value | None:
        """A limited float32 as i32, when it is rounded just before, perhaps with a whole number added; else None."""
        inner, low, high = limited.args[0].args[0], limited.args[0].args[1].value, limited.args[1].value
        shift = _rounding_shift(inner)
        if shift is None:
            return None
        x = inner.args[0] if inner.op == "round" else inner.args[0].args[0]
        return rounded(self.function, self.minimal(x), shift, low, high)

    def _aligned(self, *values: Value) -> Sequence[Value]:
        """All scalars, or all vectors."""
        lanes = max(value.lanes for value in values)
        return tuple(self.function.splat(value, lanes) for value in values)

    def _accumulator(self, expr: Expr) -> Value:
        """The anchor's result; one that is wider than its dtype says is rounded."""
        assert self.acc is not None, "the task reads acc but the kernel gave none"
        if self.acc.element == register_type(expr.dtype):
            return self.acc
        assert self.acc.element == computed(expr.dtype), (self.acc.type, expr.dtype)
        return narrow(self.function, self.instructions, self.acc, expr.dtype)

    def _short_division(self, expr: Expr, a: Value, b: Value) -> Value | None:
        """Vectors of small non-negative numbers divide in 32 bits, which multiplies instead."""
        facts, f = self.elements.facts, self.function
        by = expr.args[1]
        if a.lanes == 1 or by.op != "const" or not 0 < by.value < 2**31:
            return None
        low, high = facts.simplifier.range_of(facts.simplifier.linear(expr.args[0]))
        if low < 0 or high >= 2**31:
            return None
        x, y = f.convert("trunc", a, "i32"), f.convert("trunc", b, "i32")
        return f.convert("zext", f.binary("udiv" if expr.op == "floordiv" else "urem", x, y), "i64")

    # --- conditions -----------------------------------------------------------------------------------------------

    def _select(self, expr: Expr) -> Value:
        condition, then, otherwise = expr.args
        f = self.function
        chosen = self.minimal(condition)
        if chosen.text in ("true", "false"):
            return self.minimal(then if chosen.text == "true" else otherwise)
        reads = [self.elements.facts.reads(x) and self.known(x) is None for x in (then, otherwise)]
        if chosen.lanes == 1 and any(reads):
            lanes = self.lanes if self.varies(then) or self.varies(otherwise) else 1
            return f.when(
                chosen,
                lambda: [f.splat(self.within(None, then), lanes)],
                lambda: [f.splat(self.within(None, otherwise), lanes)],
            )[0]
        if chosen.lanes > 1 and any(reads):
            first = self.within(chosen, then) if reads[0] else self.minimal(then)
            inverse = f.binary("xor", chosen, splat(f, 1, chosen, "i1"))
            second = self.within(inverse, otherwise) if reads[1] else self.minimal(otherwise)
        else:
            first, second = self.minimal(then), self.minimal(otherwise)
        if chosen.lanes > 1:
            first, second = (f.splat(v, chosen.lanes) for v in (first, second))
        else:
            first, second = self._aligned(first, second)
        return f.select(chosen, first, second)


def _size_of(f: Function, size: Size, dtype: DType) -> Value:
    """A size as a number of an integer type."""
    kind, value = register_type(dtype), f.size(size)
    return value if kind == "i64" else f.convert("trunc", value, kind)


def _is_clamped(expr: Expr, dtype: DType) -> bool:
    """Is it a float32 or float64 limited, by constants, to numbers that the integer `dtype` has?"""
    if not dtype.is_integer or dtype.bits > 16 or expr.op != "min" or expr.args[0].op != "max":
        return False
    if expr.dtype not in (FLOAT32, FLOAT64):
        return False
    low, high = expr.args[0].args[1], expr.args[1]
    least, most = integer_range(dtype)
    return low.op == high.op == "const" and least <= low.value <= high.value <= most


def _rounding_shift(expr: Expr) -> int | None:
    """The whole number that is added to a rounded float32, 0 where nothing is; None when it is nothing of the kind."""
    if expr.dtype != FLOAT32 or expr.op not in ("round", "add"):
        return None
    if expr.op == "round":
        return 0
    first, second = expr.args
    while second.op == "cast":
        second = second.args[0]
    small = second.op == "const" and abs(second.value) < 2**16 and int(second.value) == second.value
    return int(second.value) if first.op == "round" and small else None


def _known(expr: Expr) -> float | None:
    """The number that an expression is, if it is a constant, also one of a narrow float widened."""
    given = expr.args[0] if expr.op == "cast" and expr.dtype == FLOAT32 and expr.args[0].dtype == BFLOAT16 else expr
    return given.value if given.op == "const" else None


def _computes(expr: Expr) -> bool:
    """Is it arithmetic, and not a number as it was read?"""
    if expr.op in ("cast", "select"):
        return any(map(_computes, expr.args[expr.op == "select" :]))
    return expr.op in UNARY or expr.op in BINARY or expr.op == "reduce" or (expr.op == "load" and expr.value == ACC)


def _own_gate(expr: Expr) -> Expr | None:
    """The sigmoid of x in a float32 product with x, as in Swish; not one of something that may vary less than x."""
    if expr.op != "mul" or expr.dtype != FLOAT32:
        return None
    for x, gate in (expr.args, expr.args[::-1]):
        if gate.op == "sigmoid" and x in walk(gate.args[0]):
            return gate
    return None


def _bits(value: float | int | bool, dtype: DType) -> float | int | bool:
    """The register form of a constant: narrow floats are bit patterns."""
    if dtype.is_float and dtype.bits < 32:
        import numpy as np

        return int(np.array(value, np.float32).astype(dtype.numpy).view(f"u{dtype.itemsize}"))
    return value
