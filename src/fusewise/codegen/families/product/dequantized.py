"""Products with quantised weights, which lie in memory as they are stored and become numbers in registers.

A few rows multiply them as they are read, in words of several: a shift and an instruction that picks one of sixteen numbers turn
weights of a step of the reduction into floats, and what the steps of a block add up to is scaled. For many rows a worker
dequantises a panel, for all tiles of a block of rows, and multiplies floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from fusewise.codegen.families.product.in_words import TableAt, in_table, number, table_at
from fusewise.codegen.families.product.loops import Parts
from fusewise.codegen.families.product.matrix import MatrixSchedule, write_by
from fusewise.codegen.families.product.places import Left, row_pointers
from fusewise.codegen.families.product.plan import ProductSchedule, cycles_of, plan_product, product_pieces, tiles_for
from fusewise.codegen.families.product.quantized import QuantizedProduct, understand_quantized
from fusewise.codegen.families.product.quantized_packing import packings
from fusewise.codegen.kernel import Argument, Kernel, working_memory
from fusewise.codegen.llvm.entry import OpenFunction, operand_arguments, written
from fusewise.codegen.llvm.registers import widen
from fusewise.codegen.llvm.stores import far_of
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import multiply_add
from fusewise.codegen.nest.tile import Ahead, Panel, Tile
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import Target
from fusewise.ir.deciding import known_one
from fusewise.ir.dtypes import INT32, DType
from fusewise.lower.task import Task
from fusewise.passes.packed_weights import BLOCK_STEPS
from fusewise.records import record

__all__ = ["DEQUANTIZED", "Dequantizing", "PanelAt", "few_rows", "planned"]

MOST_ROWS, MOST_ROWS_ONCE = 40, 1024
"""Rows that weights are dequantised anew for, tile by tile; for more, panels are made. More where a core begins one multiply-add of
the widest vectors in a cycle, and has the rest done meanwhile: of 64 to 512 rows panels take up to a quarter longer (Zen 4)."""

MOST_ROWS_BYTES = 127
"""The same there of weights of eight bits, which take three instructions to become numbers, where panels fit as wide as they are
packed: these take as long of 128 rows, and 1 to 8 % less of 197 and 512 (Zen 4, depth 768 and 1024)."""

MOST_TILE_ROWS, WIDE_ROWS = 10, 2
"""Rows of a tile whose weights are dequantised in registers, at most; up to how many it is as wide as a panel (Zen 4)."""

LONGEST_SUM = 256
"""Steps that are added up before they are scaled, at most, where a block has more."""

WRITTEN_WORDS = 4
"""Words of a block that are written out one after the other; of more, in a loop."""

IN_REGISTERS, IN_PANELS = "dequantised in registers", "dequantised in panels"


def _schedules(q: QuantizedProduct, task: Task, target: Target, most: int | None = 6) -> Iterable[MatrixSchedule]:
    """By rows in registers for a few, else by panels; with `most` None all that there are."""
    product = q.product
    ways: list[tuple[Tile, str]] = []
    few = _few(q, target)
    if product.height <= few or most is None:
        rows = range(1, max(1, min(MOST_TILE_ROWS, product.height)) + 1)
        fewest = min(rows, key=lambda n: -(-product.height // n) * (n + 1))
        ways += [(tile, IN_REGISTERS) for tile in few_rows(q, target, fewest)]
    if product.height > few or most is None:
        ways += [(tile, IN_PANELS) for tile in _many(q, target)]
    if most is None:
        ways += [(tile, IN_REGISTERS) for tile in few_rows(q, target, 1)]
    for tile, how in ways[:most]:
        yield MatrixSchedule(planned(q, task, target, tile), how)


def _few(q: QuantizedProduct, target: Target) -> int:
    """Rows that weights are dequantised anew for, at most."""
    if not target.multiplies_once:
        return MOST_ROWS
    widest = q.product.depth * q.group * q.lanes * q.product.instruction.sum.itemsize
    return MOST_ROWS_BYTES if q.bits == 8 and widest <= _near(target) else MOST_ROWS_ONCE


def _near(target: Target) -> int:
    """Bytes of a panel that stays close to a core."""
    return target.l2_bytes // 4


def few_rows(q: QuantizedProduct, target: Target, rows: int) -> list[Tile]:
    """Tiles of so many rows, or as many as there are registers for: their sums are there twice, of a block and of all before."""
    most = max(1, (target.registers - 5) // 2)
    rows = -(-rows // -(-rows // most))
    widths = [n for n in (4, 2, 1) if n <= q.group and (2 * rows * n + 2 * n + 3 <= target.registers or n == 1)]
    return [Tile(rows, n, q.lanes, q.product.instruction) for n in (widths if rows <= WIDE_ROWS else widths[::-1])]


def _many(q: QuantizedProduct, target: Target) -> list[Tile]:
    """Tiles of panels that are made; narrow ones where the depth is long."""
    every = [tile for tile in tiles_for(q.product, target, (q.lanes,)) if q.group % tile.vectors == 0]
    near = [tile for tile in every if _panel_bytes(q, tile) <= _near(target)]
    return near or [tile for tile in every if tile.vectors == 1]


def _panel_bytes(q: QuantizedProduct, tile: Tile) -> int:
    return q.product.depth * tile.width * q.product.instruction.sum.itemsize


def planned(q: QuantizedProduct, task: Task, target: Target, tile: Tile) -> ProductSchedule:
    """Workers share out panels where there are enough, so that each dequantises its own."""
    product, row_bytes = q.product, q.product.depth * q.m.dtype.itemsize
    right_bytes = q.words * product.columns * 4
    planned = plan_product(product, target, tile, row_bytes, right_bytes)
    panels = -(-product.columns // tile.width)
    by_columns = planned.by_columns or panels >= 2 * target.workers
    return replace(planned, by_columns=by_columns, far=far_of(task, target))


def _arguments(q: QuantizedProduct, task: Task, schedule: MatrixSchedule) -> tuple[Argument, ...]:
    extra = [Argument(name, packing) for name, packing in packings(q)]
    if schedule.right == IN_PANELS:
        extra.append(working_memory(_panel_bytes(q, schedule.product.tile)))
    if schedule.product.prefetch is not None:
        extra.append(Argument("later"))
    return operand_arguments(task, extra)


def _write(o: OpenFunction, q: QuantizedProduct, schedule: MatrixSchedule) -> None:
    table = (
        None
        if q.table is None
        else table_at(o.f, o.instructions, o.pointers[q.table.name], schedule.product.tile.lanes)
    )
    dequantizing = Dequantizing(o, q, schedule.product.tile, table)
    if schedule.right == IN_REGISTERS:
        adapted = dequantizing.in_registers
    else:
        adapted = partial(dequantizing.in_panels, o.scratch(), o.tag())
    write_by(lambda _, m, one, parts: adapted(parts), o, q.m, schedule)


@record(frozen=True)
class PanelAt:
    """Where the words, scales and zero points of a panel's columns lie."""

    words: Value
    scales: Value
    zeros: Value | None

    @property
    def columns(self) -> Panel:
        """As loops hand it on."""
        return Panel((self.words, self.scales, *(() if self.zeros is None else (self.zeros,))), 0)

    @staticmethod
    def of(panel: Panel) -> PanelAt:
        """What loops were given."""
        words, scales, *zeros = panel.columns
        return PanelAt(words, scales, zeros[0] if zeros else None)


_Block = Callable[[PanelAt, Int, int, Sequence[Value]], Sequence[Value]]
_Step = Callable[[Int, Sequence[Value], Sequence[Value]], Sequence[Value]]


@record(frozen=True)
class Dequantizing:
    """Writes what turns weights into numbers, for a tile; where these stand in a table, that is at hand."""

    o: OpenFunction
    q: QuantizedProduct
    tile: Tile
    table: TableAt | None = None

    @property
    def f(self) -> Function:
        return self.o.f

    @property
    def unit(self) -> int:
        """Steps that are added up before they are scaled."""
        block = self.q.block
        return block if block <= LONGEST_SUM or (block % LONGEST_SUM and self.q.blocks > 1) else LONGEST_SUM

    # --- the two ways ---------------------------------------------------------------------------------------------

    def in_registers(self, parts: Parts) -> Parts:
        """Weights are dequantised where they are multiplied."""

        def taps(
            tile: Tile, row: Int, left: Left, panel: Panel, sums: Sequence[Value], ahead: Sequence[Ahead]
        ) -> Sequence[Value]:
            return self._reduced(PanelAt.of(panel), row_pointers(self.f, self.q.product, tile, left, row), sums)

        return replace(parts, right=self.right, taps=taps)

    def in_panels(self, scratch: Value, tag: Value, parts: Parts) -> Parts:
        """A panel is dequantised before its tiles are reduced."""
        f, tile = self.f, self.tile

        def right(outer: Sequence[Int], group: Int, panel: Int, columns: Sequence[Int]) -> Panel:
            f.stage(tag, panel, lambda: self._unpacked(self.panel(panel), scratch))
            return Panel(tuple(f.at(scratch, v * tile.lanes) for v in range(tile.vectors)), tile.width)

        return replace(parts, right=right)

    def right(self, outer: Sequence[Int], group: Int, panel: Int, columns: Sequence[Int]) -> Panel:
        """A panel as it is packed."""
        return self.panel(panel).columns

    # --- where things lie -----------------------------------------------------------------------------------------

    def panel(self, panel: Int) -> PanelAt:
        """The columns of a tile, as many as its vectors of a packed panel."""
        f, q, tile, pointers = self.f, self.q, self.tile, self.o.pointers
        parts = q.group // tile.vectors
        which, inside = f.udiv(panel, parts), f.mul(f.urem(panel, parts), tile.width)

        def at(name: str, rows: int, element: str) -> Value:
            return f.at(pointers[name], f.add(f.mul(which, rows * q.group * q.lanes), inside), element)

        zeros = None if q.zeros is None else at(q.zeros.operand.name, q.blocks, "i8")
        scales = at(q.scales.operand.name, q.blocks, memory_type(q.scales.operand.dtype))
        return PanelAt(at(q.weights.operand.name, q.words, "i32"), scales, zeros)

    def row(self, pointer: Value, row: Int, dtype: DType) -> list[Value]:
        """The vectors of a row of a panel, as they are stored."""
        f, q, stored = self.f, self.q, memory_type(dtype)
        first = f.at(pointer, f.mul(row, q.group * q.lanes), stored)
        kind = vector(stored, q.lanes)
        return [f.load(kind, f.at(first, v * q.lanes, stored)) for v in range(self.tile.vectors)]

    def scales(self, at: PanelAt, block: Int) -> list[Value]:
        dtype = self.q.scales.operand.dtype
        return [widen(self.f, self.o.instructions, value, dtype) for value in self.row(at.scales, block, dtype)]

    def zeros(self, at: PanelAt, block: Int) -> list[Value] | None:
        if at.zeros is None:
            return None
        f = self.f
        dtype = self.q.zero_dtype
        wide = "sext" if dtype.kind == "int" else "zext"
        return [f.convert("sitofp", f.convert(wide, v, "i32"), "float") for v in self.row(at.zeros, block, dtype)]

    # --- numbers --------------------------------------------------------------------------------------------------

    def _numbers(self, words: Sequence[Value], step: int, zeros: Sequence[Value] | None) -> list[Value]:
        """The weights at a step of their words, less the zero points."""
        f, instructions, dtype = self.f, self.o.instructions, self.q.packed
        if self.table is not None:
            return [in_table(f, instructions, self.table, word, step) for word in words]
        found = [number(f, instructions, dtype, word, step) for word in words]
        return found if zeros is None else [self.f.fsub(a, z) for a, z in zip(found, zeros, strict=True)]

    def _each(self, at: PanelAt, block: _Block, carried: Sequence[Value]) -> Sequence[Value]:
        """Runs of steps that share a scale: `block(at, first, steps, carried)` gives the next carried values."""
        f, depth, unit = self.f, self.q.product.depth, min(self.unit, self.q.product.depth)
        whole = depth // unit

        def one(number: Value, before: Sequence[Value]) -> Sequence[Value]:
            return block(at, f.mul(number, unit), unit, before)

        carried = f.loop(0, whole, 1, one, carried, rolled=True)
        return block(at, whole * unit, depth % unit, carried) if depth % unit else carried

    def _steps(
        self, at: PanelAt, first: Int, steps: int, zeros: Sequence[Value] | None, one: _Step, carried: Sequence[Value]
    ) -> Sequence[Value]:
        """So many steps from the first on, which begins a word: `one(step, numbers, carried)` gives the next carried values."""
        f, per_word = self.f, self.q.per_word
        before = f.udiv(first, per_word)

        def some(word: Int, given: Sequence[Value], count: int) -> Sequence[Value]:
            words = self.row(at.words, f.add(before, word), INT32)
            start = f.add(first, f.mul(word, per_word))
            for step in range(count):
                given = one(f.add(start, step), self._numbers(words, step, zeros), given)
            return given

        whole, rest = divmod(steps, per_word)
        if whole <= WRITTEN_WORDS:
            for word in range(whole):
                carried = some(word, carried, per_word)
        else:
            carried = f.loop(0, whole, 1, lambda word, given: some(word, given, per_word), carried, rolled=True)
        return some(whole, carried, rest) if rest else carried

    def _reduced(self, at: PanelAt, rows: Sequence[Value], sums: Sequence[Value]) -> Sequence[Value]:
        """The sums of a tile and its products, row by row."""
        f, tile, instructions, m = self.f, self.tile, self.o.instructions, self.q.m
        stored, every = memory_type(m.dtype), range(tile.vectors)

        def step(k: Int, numbers: Sequence[Value], before: Sequence[Value]) -> Sequence[Value]:
            found = []
            for r, row in enumerate(rows):
                x = f.load(stored, f.at(row, f.mul(k, m.depth_stride), stored))
                x = f.splat(widen(f, instructions, x, m.dtype), tile.lanes)
                found += [multiply_add(f, instructions, x, numbers[v], before[r * tile.vectors + v]) for v in every]
            return found

        def block(at: PanelAt, first: Int, steps: int, before: Sequence[Value]) -> Sequence[Value]:
            number = f.udiv(first, self.q.block)
            zeros, begun = self.zeros(at, number), [f.constant(0.0, tile.kind)] * len(sums)
            if zeros is not None and self._are_summed(steps):
                totals = [f.negated(f.splat(self._total(row, first, steps), tile.lanes)) for row in rows]
                begun = [f.fmul(total, zero) for total in totals for zero in zeros]
                zeros = None
            found = self._steps(at, first, steps, zeros, step, begun)
            scales = self.scales(at, number)
            pairs = enumerate(zip(found, before, strict=True))
            return [multiply_add(f, instructions, a, scales[k % tile.vectors], b) for k, (a, b) in pairs]

        return self._each(at, block, sums)

    def _are_summed(self, steps: int) -> bool:
        """Are zero points multiplied by the sum of a row's steps, and not taken from every weight?"""
        is_dense = known_one(self.q.m.depth_stride) and self.q.m.dtype.is_float
        return is_dense and self.tile.rows == 1 and steps % self._total_lanes == 0

    @property
    def _total_lanes(self) -> int:
        return min(BLOCK_STEPS, self.o.instructions.lanes)

    def _total(self, row: Value, first: Int, steps: int) -> Value:
        """The sum of so many neighbours in a row."""
        f, dtype, lanes = self.f, self.q.m.dtype, self._total_lanes
        stored, pieces = memory_type(dtype), []
        for k in range(0, steps, lanes):
            there = f.at(f.at(row, first, stored), k, stored)
            pieces.append(widen(f, self.o.instructions, f.load(vector(stored, lanes), there), dtype))
        total = pieces[0]
        for some in pieces[1:]:
            total = f.fadd(total, some)
        while total.lanes > 1:
            half = total.lanes // 2
            total = f.fadd(f.part(total, 0, half), f.part(total, half, half))
        return total

    def _unpacked(self, at: PanelAt, to: Value) -> None:
        """Write the numbers of a panel, step by step."""
        f, tile = self.f, self.tile

        def block(at: PanelAt, first: Int, steps: int, carried: Sequence[Value]) -> Sequence[Value]:
            number = f.udiv(first, self.q.block)
            zeros, scales = self.zeros(at, number), self.scales(at, number)

            def step(k: Int, numbers: Sequence[Value], given: Sequence[Value]) -> Sequence[Value]:
                start = f.at(to, f.mul(k, tile.width))
                for v, (one, scale) in enumerate(zip(numbers, scales, strict=True)):
                    f.store(f.fmul(one, scale), f.at(start, v * tile.lanes))
                return given

            return self._steps(at, first, steps, zeros, step, carried)

        self._each(at, block, ())


DEQUANTIZED = Kernel(
    "quantised-product",
    understand_quantized,
    _schedules,
    _arguments,
    written(_arguments, _write, overwrites=True),
    cycles=lambda q, target, schedule: (
        cycles_of(q.product, target, schedule.product.tile) if schedule.right == IN_PANELS else 0
    ),
    fetching=MatrixSchedule.with_prefetch,
    pieces=lambda q, target, schedule: product_pieces(q.product, target, schedule.product),
    writes_once=lambda q, schedule: q.product.is_written_once(schedule.product.tile),
    every=partial(_schedules, most=None),
)
