"""Reductions inside element expressions: loops that carry several accumulators, combined at the end.

When the result differs between the point's lanes the accumulators are vectors along the lane axis. Otherwise the reduction
itself is vectorised, along the axis whose elements lie side by side in memory, if there is one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from fusewise.codegen.llvm.arithmetic import combine, identity
from fusewise.codegen.llvm.memory import access_of
from fusewise.codegen.llvm.point import Point
from fusewise.codegen.llvm.registers import narrow, widen
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import computed
from fusewise.codegen.target import InstructionSet
from fusewise.ir.deciding import hint, known_equal, known_one, known_zero
from fusewise.ir.dtypes import DType
from fusewise.lower.task import ACC
from fusewise.ops.expr import Expr, walk
from fusewise.records import record

__all__ = ["across_lanes", "lanes_for", "pairwise", "reduce_element"]


LONGEST_RUN = 128
"""Additions to one accumulator; a longer sum is a sum of runs, so that rounding errors do not grow with its length."""

LEAST_RUN = 8
"""Shorter sums are not worth an accumulator of their own."""


@record(frozen=True)
class _Plan:
    """Loops (name, extent) outermost first; the last is cut into `unroll` accumulators of `lanes` elements along it (1: not
    vectorised along it). `flat`: no loops at all, every step is written out."""

    loops: tuple[tuple[str, int], ...]
    lanes: int
    unroll: int
    flat: bool = False


def lanes_for(instructions: InstructionSet, dtypes: Sequence[DType], extent: int) -> int:
    """Elements per vector: one register of the widest type, but no more than the extent (a power of two)."""
    widest = max((max(1, dtype.bits // 8) for dtype in dtypes), default=4)
    limit = max(1, instructions.vector_bits // 8 // widest)
    return min(limit, 1 << (max(1, extent).bit_length() - 1))


def reduce_element(point: Point, expr: Expr) -> Value:
    """The value of a `reduce` node at a point."""
    f, target = point.function, point.instructions
    kind, axes = expr.value
    axes = tuple((name, extent) for name, extent in axes)
    element = computed(expr.dtype)
    varying = point.varies(expr)
    if any(known_zero(extent) for _, extent in axes):
        empty = f.constant(identity(kind, expr.dtype), element)
        return narrow(f, target, empty, expr.dtype)
    plan = _plan(point, expr, varying, axes)
    start = f.constant(identity(kind, expr.dtype), vector(element, point.lanes if varying else plan.lanes))
    total = _Reducer(point, expr, plan, varying).run(start)
    return narrow(f, target, total, expr.dtype)


def _plan(point: Point, expr: Expr, varying: bool, axes: tuple[tuple[str, int], ...]) -> _Plan:
    nodes = walk(expr.args[0])
    wide = 4 if len(nodes) <= 24 else 2 if len(nodes) <= 80 else 1
    if varying:  # a point of several vectors has as many chains of its own
        wide = max(1, wide * point.instructions.lanes // max(point.lanes, point.instructions.lanes))
    if not varying:
        chosen = _contiguous_axis(point, nodes, axes)
        if chosen is not None:
            axes = (*(a for a in axes if a is not chosen), chosen)
            floats = [n.dtype for n in nodes if n.op != "index" and not _is_address(n)]
            lanes = lanes_for(point.instructions, floats, hint(chosen[1]))
            return _Plan(axes, lanes, max(1, min(wide, hint(chosen[1]) // lanes)))
    longest = max(axes, key=lambda a: hint(a[1])) if hint(axes[-1][1]) < 4 else axes[-1]
    axes = (*(a for a in axes if a is not longest), longest)
    steps = math.prod(extent for _, extent in axes)
    if isinstance(steps, int) and steps <= 16 and len(nodes) <= 24 and not any(n.op == "select" for n in nodes):
        return _Plan(axes, 1, min(2, steps), flat=True)
    return _Plan(axes, 1, max(1, min(wide, hint(longest[1]))))


def _is_address(node: Expr) -> bool:
    return node.dtype.name == "int64" and node.op in (
        "const",
        "add",
        "sub",
        "mul",
        "floordiv",
        "floormod",
        "min",
        "max",
    )


def _contiguous_axis(point: Point, nodes: Sequence[Expr], axes: tuple[tuple[str, int], ...]) -> tuple[str, int] | None:
    """The axis along which most loads of the body move by one element; None when none does."""
    best, best_score = None, 0
    loads = [n for n in nodes if n.op == "load" and n.value != ACC]
    for axis in axes:
        if hint(axis[1]) < 4:
            continue
        view = point.inner({axis[0]: 0}, axis[0], 2)
        score = 0
        for node in loads:
            step = access_of(view, point.elements.task.operand(node.value), node.args).pace
            score += 2 if step == 1 else 0 if step == 0 else -1
        if not loads:
            score = 1
        if score > best_score:
            best, best_score = axis, score
    return best


@record(frozen=True)
class _Reducer:
    point: Point
    expr: Expr
    plan: _Plan
    varying: bool

    @property
    def function(self) -> Function:
        return self.point.function

    def run(self, start: Value) -> Value:
        accumulators = (start,) * self.plan.unroll
        extent = self.plan.loops[-1][1]
        if not known_zero(extent % self.plan.lanes):
            first = start.element
            accumulators += (self.function.constant(identity(self.expr.value[0], self.expr.dtype), first),)
        done = self._written_out(accumulators) if self.plan.flat else self._nest(0, {}, accumulators)
        vectors, rest = done[: self.plan.unroll], done[self.plan.unroll :]
        total = self._combined(vectors)
        if self.plan.lanes > 1:
            total = across_lanes(self.function, self.point.instructions, self.expr.value[0], total, self.expr.dtype)
        return self._combined((total, *rest))

    def _written_out(self, accumulators: tuple[Value, ...]) -> tuple[Value, ...]:
        names = [name for name, _ in self.plan.loops]
        totals = list(accumulators)
        for k, at in enumerate(itertools.product(*(range(extent) for _, extent in self.plan.loops))):
            outer = dict(zip(names[:-1], at[:-1], strict=True))
            totals[k % len(totals)] = self._step(dict(outer), at[-1], 1, totals[k % len(totals)])
        return tuple(totals)

    def _combined(self, values: Sequence[Value]) -> Value:
        return pairwise(values, self._join)

    def _join(self, a: Value, b: Value) -> Value:
        return combine(self.function, self.point.instructions, self.expr.value[0], a, b, self.expr.dtype)

    def _nest(self, depth: int, indices: dict[str, Int], carried: tuple[Value, ...]) -> tuple[Value, ...]:
        name, extent = self.plan.loops[depth]
        if depth + 1 == len(self.plan.loops):
            return self._innermost(indices, carried)
        if known_one(extent):
            return self._nest(depth + 1, {**indices, name: 0}, carried)
        apart = self._apart(extent, math.prod(e for _, e in self.plan.loops[depth + 1 :]))

        def body(i: Int, inside: tuple[Value, ...]) -> tuple[Value, ...]:
            here = {**indices, name: i}
            if apart:
                return self._added(inside, lambda fresh: self._nest(depth + 1, here, fresh))
            return self._nest(depth + 1, here, inside)

        return self.function.loop(0, extent, 1, body, carried, rolled=True)

    def _apart(self, turns: int, below: int) -> bool:
        """Is each of `turns` turns of a loop, of `below` steps, summed alone? Rounding grows with the length of a sum."""
        if self.expr.value[0] != "sum" or not self.expr.dtype.is_float:
            return False
        steps, turns = hint(below // (self.plan.lanes * self.plan.unroll)), hint(turns)
        return steps >= LEAST_RUN and turns * steps > LONGEST_RUN

    def _added(
        self, totals: tuple[Value, ...], run: Callable[[tuple[Value, ...]], tuple[Value, ...]]
    ) -> tuple[Value, ...]:
        """What `run` sums up beginning from nothing, added to the totals."""
        fresh = tuple(self.function.constant(0.0, value.type) for value in totals)
        return tuple(self._join(total, own) for total, own in zip(totals, run(fresh), strict=True))

    def _innermost(self, indices: dict[str, Int], carried: tuple[Value, ...]) -> tuple[Value, ...]:
        """Blocks of `unroll` vectors, then single vectors, then single elements."""
        _, extent = self.plan.loops[-1]
        lanes, unroll = self.plan.lanes, self.plan.unroll
        whole = extent // lanes * lanes
        blocks = extent // (lanes * unroll) * (lanes * unroll)

        def block(width: int) -> Callable[[Int, tuple[Value, ...]], tuple[Value, ...]]:
            def body(i: Int, inside: tuple[Value, ...]) -> tuple[Value, ...]:
                fresh = list(inside)
                for u in range(width):
                    fresh[u] = self._step(indices, self.function.add(i, u * lanes), lanes, inside[u])
                return tuple(fresh)

            return body

        carried = self._loop(0, blocks, lanes * unroll, block(unroll), carried)
        carried = self._loop(blocks, whole, lanes, block(1), carried)

        def single(i: Int, inside: tuple[Value, ...]) -> tuple[Value, ...]:
            return (*inside[:-1], self._step(indices, i, 1, inside[-1]))

        return self._loop(whole, extent, 1, single, carried) if lanes > 1 else carried

    def _loop(
        self,
        low: int,
        high: int,
        step: int,
        body: Callable[[Int, tuple[Value, ...]], tuple[Value, ...]],
        carried: tuple[Value, ...],
    ) -> tuple[Value, ...]:
        if known_equal(high - low, step):
            return body(low, carried)
        f, steps = self.function, hint((high - low) // step)
        if steps <= LONGEST_RUN or self.expr.value[0] != "sum" or not self.expr.dtype.is_float:
            return f.loop(low, high, step, body, carried, rolled=True)
        length = -(-steps // -(-steps // LONGEST_RUN)) * step

        def run(start: Int, totals: tuple[Value, ...]) -> tuple[Value, ...]:
            is_whole = known_zero((high - low) % length)
            end = f.add(start, length) if is_whole else f.minimum(f.add(start, length), high)
            return self._added(totals, lambda fresh: f.loop(start, end, step, body, fresh, rolled=True))

        return f.loop(low, high, length, run, carried, rolled=True)

    def _step(self, indices: dict[str, Int], at: Int, lanes: int, total: Value) -> Value:
        """Fold the body at one place into an accumulator."""
        name = self.plan.loops[-1][0]
        point = self.point
        if self.varying:
            inner = point.inner({**indices, name: at}, point.lane, point.lanes)
        else:
            inner = point.inner({**indices, name: at}, name if lanes > 1 else None, lanes)
        f, body, dtype = self.function, self.expr.args[0], self.expr.dtype
        kind = self.expr.value[0]
        fused = kind == "sum" and body.op == "mul" and dtype.is_float and dtype.bits >= 32
        if fused and point.instructions.fma and not point.elements.task.exact:
            a, b = (f.splat(inner.minimal(x), total.lanes) for x in body.args)
            return f.fma(a, b, total)
        value = widen(f, point.instructions, f.splat(inner.minimal(body), total.lanes), dtype)
        return combine(f, point.instructions, kind, total, value, dtype)


def pairwise(values: Sequence[Value], join: Callable[[Value, Value], Value]) -> Value:
    """Values joined two by two until one is left."""
    left = list(values)
    while len(left) > 1:
        left = [*(join(a, b) for a, b in zip(left[::2], left[1::2], strict=False)), *left[len(left) & ~1 :]]
    return left[0]


def across_lanes(f: Function, instructions: InstructionSet, kind: str, x: Value, dtype: DType) -> Value:
    """Combine all lanes of a vector (a power of two) into a scalar, halving each time."""
    while x.lanes > 1:
        half = x.lanes // 2
        if half == 1:
            return combine(f, instructions, kind, f.extract(x, 0), f.extract(x, 1), dtype)
        low, high = f.shuffle(x, x, range(half)), f.shuffle(x, x, range(half, x.lanes))
        x = combine(f, instructions, kind, low, high, dtype)
    return x
