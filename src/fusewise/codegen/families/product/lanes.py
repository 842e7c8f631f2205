"""Operands that are copied into lanes: several neighbours of the reduction, each a narrow number, in one element.

Rows of a left operand are copied as they are computed, a block at a time. A right operand that is no constant is copied into
panels, as `product.repack` does it for floats. A lane that is not full has zeros behind its last number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from fusewise.codegen.families.product.places import Left, column_at, flat_index, unravel
from fusewise.codegen.families.product.plan import Product
from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.llvm.registers import splat
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tails import each_part
from fusewise.codegen.nest.tile import ReductionLoop, Tile
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import InstructionSet
from fusewise.ops.expr import Expr
from fusewise.records import record

__all__ = ["ComputedOperands", "LaneCopy", "SharedRows", "WindowAxis", "in_runs"]

STEP = "k"
"""The index variable of the reduction, in elements."""


@record(frozen=True)
class WindowAxis:
    """An axis that rows are positions on, by the name `row`: tap t of so many is at row * stride + t * dilation - before of it, by
    the name `place`, if that is within `extent`."""

    row: str
    place: str
    extent: int
    taps: int
    stride: int
    dilation: int
    before: int


@record(frozen=True)
class SharedRows:
    """Copied rows of which a row of the product reads several, from its own on, as `levels` say. There are as many as the `extents`
    of their axes make; those of a block, and so many `behind` its last one, are copied."""

    levels: tuple[ReductionLoop, ...]
    extents: tuple[int, ...]
    behind: int

    @property
    def count(self) -> int:
        """Of all of them."""
        return math.prod(self.extents)


@record(frozen=True)
class ComputedOperands:
    """Elements of both operands as narrow numbers, in the index variables of the result and `k`, of which there are `depth`; None
    for a right operand that is always packed. Of rows that are windows, that is for each tap, and the left one is in their places,
    too; outside it is 0, or bytes as `outside` says. Where windows share what is copied, `shared` says how. Bytes that are `summed`
    are noted with the sum of each row, for a right operand around `zero`, or around constants."""

    left: Expr
    right: Expr | None
    depth: int
    window: tuple[WindowAxis, ...] = ()
    outside: Expr | None = None
    shared: SharedRows | None = None
    summed: bool = False
    zero: Expr | None = None

    def levels(self, depth: int) -> tuple[ReductionLoop, ...]:
        """The reduction of so many stored lanes, through rows as they are copied."""
        return (ReductionLoop(depth, 1),) if self.shared is None else self.shared.levels

    @property
    def taps(self) -> int:
        """Of a row that is copied."""
        return math.prod(axis.taps for axis in self.window)


@record(frozen=True)
class LaneCopy:
    """Copying into lanes in a function under construction. Rows of the left operand are kept at `kept`, those that `tag` says
    (`share.prepared`)."""

    elements: Elements
    product: Product
    of: ComputedOperands
    kept: Value
    tag: Value

    def rows(self, outer: Sequence[Int], first: Int, last: Int) -> Left:
        """The rows first..last, flat, of an outer index, one behind the other; copied unless they are there."""
        f, product = self.elements.function, self.product
        number = f.add(f.mul(flat_index(f, outer, [n for _, n in product.outer]), product.height), first)

        def copy() -> None:
            f.loop(first, f.add(last, 1), 1, lambda r, _: self._row(outer, r, f.sub(r, first)), rolled=True)

        f.stage(self.tag, number, copy)
        return Left(self.kept, f.mul(first, -product.depth), (ReductionLoop(product.depth, 1),))

    def _row(self, outer: Sequence[Int], row: Int, turn: Int) -> None:
        f, product, of = self.elements.function, self.product, self.of
        narrow, pitch = memory_type(of.left.dtype), product.depth * product.instruction.terms
        at = f.at(self.kept, f.mul(turn, pitch), narrow)
        each = unravel(f, row, [axis.extent for axis in product.rows])
        known = self.product.outer_at(outer) | {
            axis.name: index for axis, index in zip(product.rows, each, strict=True)
        }
        for absent in range(of.depth, pitch):
            f.store(f.constant(0, narrow), f.at(at, absent, narrow))

        def some(k: Int, lanes: int) -> None:
            value = self.elements.at({**known, STEP: k}, STEP, lanes).value(of.left)
            f.store(value, f.at(at, k, narrow))

        in_runs(f, self.elements.instructions, of.depth, of.left.dtype.bits, some)

    def columns(self, tile: Tile, outer: Sequence[Int], to: Value) -> None:
        """Write the right operand of an outer index as [panel][step][vector][lane]."""
        f, product = self.elements.function, self.product
        full, rest = divmod(self.of.depth, product.instruction.terms)

        def panel(p: Value, _: Sequence[Value]) -> None:
            for v in range(tile.vectors):
                column = column_at(product, tile, p, v, f)
                at = f.add(f.mul(p, product.depth * tile.width), v * tile.lanes)
                start = f.at(to, at, tile.instruction.panel_element)
                step = partial(self._step, tile, outer, column, start)
                _steps(f, step, full, product.instruction.terms)
                if rest:
                    step(full, rest)

        f.loop(0, -(-product.columns // tile.width), 1, panel, rolled=True)

    def _step(self, tile: Tile, outer: Sequence[Int], column: Int, start: Value, number: Int, present: int) -> None:
        """One step of a vector of columns, of which so many terms are there."""
        f, product, element = self.elements.function, self.product, self.of.right
        assert element is not None, "a right operand that is copied has an element"
        count = None if product.columns >= tile.lanes else f.i64(product.columns)
        whole = f"i{product.instruction.lane.bits}"
        joined = f.constant(0, vector(whole, tile.lanes))
        for term in range(present):
            k = f.add(f.mul(number, product.instruction.terms), term)
            at = self.product.outer_at(outer) | {product.column: column, STEP: k}
            value = f.convert(
                "zext", self.elements.at(at, product.column, tile.lanes, count=count).value(element), whole
            )
            joined = f.binary("or", joined, f.binary("shl", value, splat(f, term * element.dtype.bits, value, whole)))
        f.store(joined, f.at(start, f.mul(number, tile.width), tile.instruction.panel_element))


def _steps(f: Function, step: Callable[[Int, int], None], count: int, terms: int) -> None:
    f.loop(0, count, 1, lambda number, _: step(number, terms), rolled=True)


def in_runs(f: Function, instructions: InstructionSet, count: int, bits: int, emit: Callable[[Int, int], None]) -> None:
    """`emit(first, lanes)` for vectors of numbers of so many bits that together cover `count`; the last is moved back."""
    lanes = max(1, instructions.vector_bits // bits)
    while lanes > count:
        lanes //= 2

    each_part(f, count, lanes, lambda first: emit(first, lanes))
