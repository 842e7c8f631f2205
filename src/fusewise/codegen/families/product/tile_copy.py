"""Operands as a matrix unit loads them: copied into blocks of lanes, every number in its parts.

A row of the left operand, and a column of the right one, is [block][part][lane][term]; behind its last number are zeros. Rows are
copied a block of tiles at a time and lie a cache line or two further apart than they are long, never a multiple of
`plan.SAME_SET_BYTES`. In the gap behind each is noted whether it is odd (`product.in_parts`), and in that behind the first one
whether any is; of bytes the sum of a row. Columns are copied into panels, [panel][block][part][lane][column], behind which there is
a note of all; of bytes for each column the sum of its numbers less their zero point, and for each less that zero point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fusewise.codegen.families.product.in_parts import IS_ODD, is_in_parts, is_odd, magnitude, split, without_tiny
from fusewise.codegen.families.product.lanes import STEP, ComputedOperands
from fusewise.codegen.families.product.places import Left, column_at, flat_index, unravel
from fusewise.codegen.families.product.plan import SAME_SET_BYTES, Product
from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.llvm.registers import splat
from fusewise.codegen.llvm.square import transposed
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type, register_type
from fusewise.codegen.target import LINE_BYTES
from fusewise.ir.deciding import known_below
from fusewise.ir.dtypes import DType
from fusewise.ops.expr import Expr
from fusewise.records import record

__all__ = ["TileCopy", "block_of", "noted_width", "pitch_of", "row_lanes", "stored_lanes"]

Write = Callable[[Value, tuple[Value, ...]], tuple[Sequence[Value], tuple[Value, ...]]]
"""`write(x, most)`: what is kept of numbers, and the largest magnitudes with theirs."""


@record(frozen=True)
class _Columns:
    """A vector of columns of an outer index, from `column` on, that is copied to `start` as `write` keeps its numbers."""

    tile: Tile
    outer: Sequence[Int]
    column: Int
    start: Value
    write: Write


def block_of(instruction: Instruction) -> tuple[int, int]:
    """Lanes of a part of a block, and its parts: what an instruction of a matrix unit takes; of others a cache line."""
    form = instruction.matrix
    return (LINE_BYTES // instruction.lane.itemsize, 1) if form is None else (form.steps, form.parts)


def stored_lanes(depth: int, instruction: Instruction) -> int:
    """Lanes that a row of so many numbers takes, in all parts."""
    steps, parts = block_of(instruction)
    return -(-depth // (steps * instruction.terms)) * steps * parts


def row_lanes(of: ComputedOperands, instruction: Instruction) -> int:
    """Lanes of a copied row, behind which there are notes."""
    return stored_lanes(of.depth, instruction) * of.taps


def noted_width(product: Product, tile: Tile) -> int:
    """Columns that something is noted of: of all groups, and a vector of them at least."""
    return (product.groups - 1) * product.columns + max(tile.lanes, product.columns)


def pitch_of(lanes: int, instruction: Instruction) -> int:
    """Lanes from a copied row of so many to the next."""
    line, size = LINE_BYTES // instruction.lane.itemsize, instruction.lane.itemsize
    pitch = -(-lanes // line) * line + line
    return pitch if pitch * size % SAME_SET_BYTES else pitch + line


@record(frozen=True)
class TileCopy:
    """Copying for a matrix unit in a function under construction. Rows of the left operand are kept at `kept`, those that `tag`
    says (`share.prepared`); at `note` is what is noted of the right one, of numbers in parts. Where those of a column lie side by
    side it is `turned`, a square of numbers at a time."""

    elements: Elements
    product: Product
    of: ComputedOperands
    kept: Value
    tag: Value
    note: Value | None = None
    turned: bool = False

    @property
    def _f(self) -> Function:
        return self.elements.function

    @property
    def _steps(self) -> int:
        return block_of(self.product.instruction)[0]

    @property
    def _parts(self) -> int:
        return block_of(self.product.instruction)[1]

    @property
    def _block(self) -> int:
        """Numbers of a block."""
        return self._steps * self.product.instruction.terms

    @property
    def _lanes(self) -> int:
        """Of a copied row."""
        return row_lanes(self.of, self.product.instruction)

    def rows(self, outer: Sequence[Int], first: Int, last: Int) -> Left:
        """The rows first..last, flat, of an outer index; copied unless they are there."""
        f, product, shared = self._f, self.product, self.of.shared
        number = f.add(f.mul(flat_index(f, outer, [n for _, n in product.outer]), product.height), first)
        pitch = product.rows[-1].stride

        def plain(r: Value, _: Sequence[Value]) -> None:
            self._row(outer, r, f.at(self.kept, f.mul(f.sub(r, first), pitch), "i32"), self._narrow, _as_they_are)

        def in_parts(r: Value, some: tuple[Value, ...]) -> list[Value]:
            at = f.at(self.kept, f.mul(f.sub(r, first), pitch), "i32")
            (most,) = self._row(outer, r, at, "i16", self._in_parts)
            odd = f.binary("or", is_odd(f, most), self._right_odd())
            f.store(odd, f.at(at, self._lanes, "i32"))
            is_not = f.compare("icmp ne", odd, f.constant(0, "i32"))
            f.when(is_not, lambda: _nothing(self._row(outer, r, at, "float", _as_they_are)))
            return [f.binary("or", some[0], odd)]

        def summed(r: Value, _: Sequence[Value]) -> None:
            at = f.at(self.kept, f.mul(f.sub(r, first), pitch), "i32")
            (totals,) = self._row(outer, r, at, self._narrow, self._adding(self.of.left.dtype))
            f.store(f.intrinsic("vector.reduce.add", totals, result="i32"), f.at(at, self._lanes, "i32"))

        def copy() -> None:
            end = f.add(last, 1)
            if shared is not None:
                end = f.minimum(f.add(end, shared.behind), shared.count)
            if not is_in_parts(product.instruction):
                f.loop(first, end, 1, summed if self.of.summed else plain, rolled=True)
                return
            (some,) = f.loop(first, end, 1, in_parts, [f.constant(0, "i32")], rolled=True)
            f.store(some, f.at(self.kept, self._lanes + 1, "i32"))

        f.stage(self.tag, number, copy)
        return Left(self.kept, f.mul(first, -pitch), self.of.levels(product.depth))

    def _row(self, outer: Sequence[Int], row: Int, at: Value, kept: str, write: Write) -> tuple[Value, ...]:
        """Copy a row to `at`, as elements of the type `kept`; gives the largest magnitudes, where they are found."""
        f, of = self._f, self.of
        each = unravel(f, row, self._extents)
        known = self.product.outer_at(outer) | {axis.name: i for axis, i in zip(self.product.rows, each, strict=True)}
        most = () if write is _as_they_are else (f.constant(0, vector("i32", self._width)),)
        if not of.window:
            return self._run(known, at, kept, write, most)
        lanes = self._lanes // of.taps

        def tap(number: Value, most: tuple[Value, ...]) -> tuple[Value, ...]:
            to = f.at(at, f.mul(number, lanes), "i32")
            places, inside = self._places(known, number)

            def nothing() -> tuple[Value, ...]:
                byte = None if of.outside is None else self.elements.at({}).value(of.outside)
                f.clear(to, lanes * self.product.instruction.lane.itemsize, byte=byte)
                if byte is None or not of.summed:
                    return most
                every = f.binary("mul", _wide(f, byte, of.left.dtype), f.constant(of.depth, "i32"))
                return (f.insert(most[0], f.binary("add", f.extract(most[0], 0), every), 0),)

            def there() -> tuple[Value, ...]:
                return self._run({**known, **places}, to, kept, write, most)

            return there() if inside is None else f.when(inside, there, nothing)

        return f.loop(0, of.taps, 1, tap, most, rolled=True)

    def _places(self, known: Mapping[str, Int], number: Int) -> tuple[dict[str, Int], Value | None]:
        """Where a tap of a window is, and whether that is inside, if it may be elsewhere."""
        f, places, inside = self._f, dict[str, Int](), None
        taps = unravel(f, number, [axis.taps for axis in self.of.window])
        for axis, t in zip(self.of.window, taps, strict=True):
            at = f.add(f.mul(known[axis.row], axis.stride), f.sub(f.mul(t, axis.dilation), axis.before))
            places[axis.place] = at
            named = zip(self.product.rows, self._extents, strict=True)
            rows = next(extent for one, extent in named if one.name == axis.row)
            last = (rows - 1) * axis.stride + (axis.taps - 1) * axis.dilation
            if axis.before or not known_below(last, axis.extent):
                here = f.compare("icmp ult", f.i64(at), axis.extent)
                inside = here if inside is None else f.binary("and", inside, here)
        return places, inside

    @property
    def _extents(self) -> Sequence[int]:
        """Of the axes of copied rows."""
        return [axis.extent for axis in self.product.rows] if self.of.shared is None else self.of.shared.extents

    @property
    def _width(self) -> int:
        """Numbers of the left operand that are copied at once."""
        return max(1, min(self._block, self.elements.instructions.vector_bits // self.of.left.dtype.bits))

    def _run(
        self, known: Mapping[str, Int], at: Value, kept: str, write: Write, most: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """Copy the numbers of a row, or of a tap of it."""
        f, of, block, width = self._f, self.of, self._block, self._width
        parts = 1 if write is _as_they_are else self._parts

        def some(number: Int, first: int, present: int, most: tuple[Value, ...]) -> tuple[Value, ...]:
            here = {**known, STEP: f.add(f.mul(number, block), first)}
            x = self._numbers(of.left, here, STEP, width, min(width, present - first))
            values, most = write(x, most)
            for part, value in enumerate(values):
                to = f.add(f.mul(number, block * parts), part * block + first)
                f.store(value, f.at(at, to, kept))
            return most

        def whole(number: Int, present: int, most: tuple[Value, ...]) -> tuple[Value, ...]:
            for first in range(0, block, width):
                most = some(number, first, present, most)
            return most

        full, rest = divmod(of.depth, block)
        most = f.loop(0, full, 1, lambda number, most: whole(number, block, most), most, rolled=True)
        if rest:
            most = whole(full, rest, most)
        return most

    def columns(self, tile: Tile, outer: Sequence[Int], to: Value) -> None:
        """Write the right operand of an outer index, and what is noted of it."""
        f, product = self._f, self.product
        count, size = -(-product.columns // tile.width), product.depth * tile.width

        def panels(
            write: Callable[[Value, Value, tuple[Value, ...]], tuple[Value, ...]], *most: Value
        ) -> Sequence[Value]:
            def one(p: Value, most: tuple[Value, ...]) -> tuple[Value, ...]:
                return write(p, f.at(to, f.mul(p, size), "i32"), most)

            return f.loop(0, count, 1, one, most, rolled=True)

        if self.of.summed:
            panels(lambda p, at, _: self._summed_panel(tile, outer, p, at, f.at(to, count * size, "i32")))
            return
        if not is_in_parts(product.instruction):
            panels(lambda p, at, most: self._panel(tile, outer, p, at, _as_they_are, most))
            return
        none = f.constant(0, vector("i32", tile.lanes))
        (most,) = panels(lambda p, at, most: self._panel(tile, outer, p, at, self._without_tiny, most), none)
        odd = is_odd(f, most)
        f.store(odd, f.at(to, count * size, "i32"))
        is_not = f.compare("icmp ne", odd, f.constant(0, "i32"))
        f.when(is_not, lambda: _nothing(panels(lambda p, at, _: self._plain_panel(tile, outer, p, at))))

    def _panel(
        self, tile: Tile, outer: Sequence[Int], p: Value, at: Value, write: Write, most: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """Copy a panel to `at`; gives the largest magnitudes so far, where they are asked for."""
        for v in range(tile.vectors):
            column, start = column_at(self.product, tile, p, v, self._f), self._f.at(at, v * tile.lanes, "i32")
            most = self._vector(_Columns(tile, outer, column, start, write), most)
        return most

    def _vector(self, of: _Columns, most: tuple[Value, ...]) -> tuple[Value, ...]:
        """The same of a vector of columns."""
        f, (full, rest), lanes = self._f, divmod(self.of.depth, self._block), of.tile.lanes
        in_squares = self.turned and self._block % lanes == lanes % self.product.instruction.terms == 0
        copy = self._turned_block if in_squares else self._block_by_steps
        most = f.loop(0, full, 1, lambda block, most: copy(of, block, self._block, most), most, rolled=True)
        return copy(of, full, rest, most) if rest else most

    def _block_by_steps(self, of: _Columns, block: Int, present: int, most: tuple[Value, ...]) -> tuple[Value, ...]:
        """Copy a block of columns, of which so many numbers are there."""
        f, steps, terms = self._f, self._steps, self.product.instruction.terms
        lanes, last = divmod(present, terms)

        def lane(s: Int, present: int, most: tuple[Value, ...]) -> tuple[Value, ...]:
            first = f.mul(f.add(f.mul(block, steps), s), terms)
            numbers = [self._of_columns(of.tile, of.outer, of.column, f.add(first, term)) for term in range(present)]
            return self._lane(of, (block, s), numbers, most)

        most = f.loop(0, lanes, 1, lambda s, most: lane(s, terms, most), most, rolled=True)
        most = lane(lanes, last, most) if last else most
        if present < self._block:
            f.loop(lanes + (last > 0), steps, 1, lambda s, _: _nothing(lane(s, 0, ())), rolled=True)
        return most

    def _turned_block(self, of: _Columns, block: Int, present: int, most: tuple[Value, ...]) -> tuple[Value, ...]:
        """The same of columns whose numbers lie side by side."""
        f, product, lanes, right = self._f, self.product, of.tile.lanes, self.of.right
        assert right is not None, "a right operand that is copied has an element"
        for first in range(0, self._block, lanes):
            known = self.product.outer_at(of.outer) | {STEP: f.add(f.mul(block, self._block), first)}
            columns = []
            for lane in range(lanes):
                here = {**known, product.column: f.add(of.column, min(lane, product.columns - 1))}
                columns.append(self._numbers(right, here, STEP, lanes, min(lanes, present - first)))
            numbers = transposed(f, columns)
            for k in range(0, lanes, product.instruction.terms):
                place = block, (first + k) // product.instruction.terms
                most = self._lane(of, place, numbers[k : k + product.instruction.terms], most)
        return most

    def _summed_panel(self, tile: Tile, outer: Sequence[Int], p: Value, at: Value, notes: Value) -> tuple[Value, ...]:
        """A panel of bytes, and what is noted of its columns."""
        f, of, none = self._f, self.of, self._f.constant(0, tile.kind)
        assert of.right is not None, "a right operand that is copied has an element"
        for v in range(tile.vectors):
            column, start = column_at(self.product, tile, p, v, f), f.at(at, v * tile.lanes, "i32")
            (total,) = self._vector(_Columns(tile, outer, column, start, self._adding(of.right.dtype)), (none,))
            less = none
            if of.zero is not None:
                known = self.product.outer_at(outer) | {self.product.column: column}
                present = min(tile.lanes, self.product.columns)
                zero = f.splat(self._numbers(of.zero, known, self.product.column, tile.lanes, present), tile.lanes)
                less = f.binary("sub", less, zero)
                total = f.binary("add", total, f.binary("mul", less, f.constant(of.depth, tile.kind)))
            f.store(total, f.at(notes, column, "i32"))
            f.store(less, f.at(notes, f.add(column, noted_width(self.product, tile)), "i32"))
        return ()

    def _lane(
        self, of: _Columns, place: tuple[Int, Int], numbers: Sequence[Value], most: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """Write a lane of columns, of as many terms as there are, in all parts, at a block's step."""
        f, tile, (block, s) = self._f, of.tile, place
        bits = self.product.instruction.lane.bits // self.product.instruction.terms
        joined = [f.constant(0, vector("i32", tile.lanes))] * self._parts
        for term, number in enumerate(numbers):
            values, most = of.write(number, most)
            for part, value in enumerate(values):
                wide = f.convert("zext", value, "i32")
                shifted = f.binary("shl", wide, splat(f, term * bits, wide, "i32")) if term else wide
                joined[part] = f.binary("or", joined[part], shifted)
        for part, value in enumerate(joined):
            step = f.add(f.mul(block, self._steps * self._parts), f.add(s, part * self._steps))
            f.store(value, f.at(of.start, f.mul(step, tile.width), "i32"))
        return most

    def _plain_panel(self, tile: Tile, outer: Sequence[Int], p: Value, at: Value) -> tuple[Value, ...]:
        """A panel as floats; of what is not asked for any more, nothing."""
        f, product, zero = self._f, self.product, f"<{tile.lanes} x float>"
        for v in range(tile.vectors):
            column = column_at(product, tile, p, v, f)

            def step(k: Int, value: Value, v: int = v) -> None:
                f.store(value, f.at(at, f.add(f.mul(k, tile.width), v * tile.lanes)))

            def some(
                k: Value, _: Sequence[Value], column: Int = column, step: Callable[[Int, Value], None] = step
            ) -> None:
                step(k, self._of_columns(tile, outer, column, k))

            f.loop(0, self.of.depth, 1, some, rolled=True)
            for k in range(self.of.depth, product.depth):
                step(k, f.constant(0.0, zero))
        return ()

    def _of_columns(self, tile: Tile, outer: Sequence[Int], column: Int, k: Int) -> Value:
        """A step of a vector of columns; of those that are not there, anything."""
        assert self.of.right is not None, "a right operand that is copied has an element"
        known = self.product.outer_at(outer) | {self.product.column: column, STEP: k}
        present = min(tile.lanes, self.product.columns)
        return self._numbers(self.of.right, known, self.product.column, tile.lanes, present)

    def _numbers(self, element: Expr, known: dict[str, Int], along: str, lanes: int, present: int) -> Value:
        """So many elements, as they are in registers; zeros where there are no more."""
        f, kind = self._f, vector(register_type(element.dtype), lanes)
        nothing = f.constant(0, kind)
        if present <= 0:
            return nothing
        count = None if present >= lanes else f.i64(present)
        value = self.elements.at(known, along, lanes, count=count).value(element)
        return value if count is None else f.select(f.mask(present, lanes), value, nothing)

    def _in_parts(self, x: Value, most: tuple[Value, ...]) -> tuple[Sequence[Value], tuple[Value, ...]]:
        f = self._f
        return split(f, x), (f.intrinsic("umax", magnitude(f, x), most[0]),)

    def _without_tiny(self, x: Value, most: tuple[Value, ...]) -> tuple[Sequence[Value], tuple[Value, ...]]:
        f = self._f
        return split(f, x), (f.intrinsic("umax", without_tiny(f, magnitude(f, x)), most[0]),)

    def _adding(self, dtype: DType) -> Write:
        """Bytes as they are, and their sums."""
        f = self._f
        return lambda x, totals: ((x,), (f.binary("add", totals[0], _wide(f, x, dtype)),))

    def _right_odd(self) -> Value:
        """What is noted of the right operand, if anything is."""
        f = self._f
        assert self.note is not None, "numbers in parts are noted"
        return f.binary("and", f.load("i32", self.note), f.constant(IS_ODD, "i32"))

    @property
    def _narrow(self) -> str:
        return memory_type(self.of.left.dtype)


def _wide(f: Function, x: Value, dtype: DType) -> Value:
    """Bytes in 32 bits."""
    return f.convert("sext" if dtype.kind == "int" else "zext", x, "i32")


def _as_they_are(x: Value, most: tuple[Value, ...]) -> tuple[Sequence[Value], tuple[Value, ...]]:
    return (x,), most


def _nothing(values: Sequence[Value]) -> None:
    """What is found on the way is not asked for."""
