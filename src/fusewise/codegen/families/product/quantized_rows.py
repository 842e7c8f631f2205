"""Products of rows that were rounded to bytes, with a scale for each block of the depth, and quantised weights: sums of integers.

The left operand is codes * scales, int8 and float32, of neighbours; weights are 2, 4 or 8 bits that a shift and a mask make
unsigned bytes, four steps of the reduction in a lane. Sums of a block are exact; zero points are taken from them by the sum of its
codes, which a worker finds once for a block of rows. Then they are scaled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from fusewise.codegen.families.product.dequantized import Dequantizing, PanelAt, few_rows, planned
from fusewise.codegen.families.product.loops import Parts
from fusewise.codegen.families.product.matrix import MatrixSchedule, write_by
from fusewise.codegen.families.product.places import Left, row_pointers
from fusewise.codegen.families.product.plan import product_pieces
from fusewise.codegen.families.product.quantized import QuantizedProduct, quantized_by
from fusewise.codegen.families.product.quantized_packing import packings
from fusewise.codegen.families.product.shape import product_of
from fusewise.codegen.instructions.byte_products import add_quads, add_quads_by_pairs, has_quads, sums_in_one
from fusewise.codegen.kernel import Argument, Kernel, working_memory
from fusewise.codegen.llvm.entry import OpenFunction, operand_arguments, written
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import multiply_add
from fusewise.codegen.nest.tile import Ahead, Panel, ReductionLoop, Tile
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.target import InstructionSet, Target
from fusewise.codegen.view import OperandView, strides_along
from fusewise.ir.dtypes import FLOAT32, INT8, INT32
from fusewise.ir.types import TensorType
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.expr import Expr, index
from fusewise.records import record

__all__ = ["QUANTIZED_ROWS"]

MOST_TILE_ROWS = 10
"""Rows of a tile at most."""

_IN_BYTES = "bytes"
_QUAD = 4
"""Steps of the reduction in a lane."""


def _understand(task: Task, instructions: InstructionSet) -> QuantizedProduct | RefusalReason:
    anchor = task.anchor
    if anchor is None or anchor.op != "MatMul" or anchor.inputs[0] is None or anchor.prologue[0] is None:
        return RefusalReason("no matrix product at the anchor")
    found = _codes_and_scales(task, anchor.inputs[0], anchor.prologue[0])
    if found is None:
        return RefusalReason("rows are not bytes with scales")
    codes, scales, block = found
    q = quantized_by(task, codes, instructions)
    if isinstance(q, RefusalReason):
        return q
    if q.table is not None:
        return RefusalReason("weights are numbers of a table", q.table.name)
    rows = product_of(task, scales, q.m.right)
    if isinstance(rows, RefusalReason):
        return rows
    if q.m.depth_stride != 1 or (block != q.block and q.blocks > 1) or q.product.outer:
        return RefusalReason("blocks of rows and of weights differ", f"{block} and {q.block}")
    return replace(q, rows=rows)


def _codes_and_scales(task: Task, kind: TensorType, element: Expr) -> tuple[OperandView, OperandView, int] | None:
    """The codes, the scales as a tensor of the same shape whose last axis counts blocks, and steps of a block."""
    if element.op != "mul" or element.args[0].op != "cast" or element.args[0].args[0].op != "load":
        return None
    code, scale = element.args[0].args[0], element.args[1]
    if scale.op != "load" or code.dtype != INT8 or scale.dtype != FLOAT32 or not kind.rank:
        return None
    along, block = index(f"p{kind.rank - 1}"), kind.dims[-1]
    at = list(scale.args)
    if at and at[-1].op == "floordiv" and at[-1].args[0] == along and at[-1].args[1].op == "const":
        at[-1], block = along, int(at[-1].args[1].value)
    views = []
    for read, places in ((code, code.args), (scale, tuple(at))):
        operand = task.operand(read.value)
        found = strides_along(operand, places)
        if found is None or operand.constant:
            return None
        strides, offset = found
        views.append(OperandView(operand, kind.dims, tuple(strides.get(f"p{k}", 0) for k in range(kind.rank)), offset))
    return views[0], views[1], block


def _schedules(q: QuantizedProduct, task: Task, target: Target, most: int | None = 6) -> Iterable[MatrixSchedule]:
    """With `most` None all that there are."""
    rows = range(1, max(1, min(MOST_TILE_ROWS, q.product.height)) + 1)
    fewest = min(rows, key=lambda n: -(-q.product.height // n) * (n + 1))
    tiles = few_rows(q, target, fewest)
    if most is None:
        tiles = [*tiles, *few_rows(q, target, 1)]
    for tile in tiles[:most]:
        yield MatrixSchedule(planned(q, task, target, tile), _IN_BYTES)


def _arguments(q: QuantizedProduct, task: Task, schedule: MatrixSchedule) -> tuple[Argument, ...]:
    rows = schedule.product.per_block * schedule.product.tile.rows
    extra = [Argument(name, packing) for name, packing in packings(q)]
    return operand_arguments(task, [*extra, working_memory(rows * q.blocks * FLOAT32.itemsize)])


def _write(o: OpenFunction, q: QuantizedProduct, schedule: MatrixSchedule) -> None:
    scratch, tag = o.scratch(), o.tag()
    reducing = _ByBytes(o, q, schedule.product.tile, Dequantizing(o, q, schedule.product.tile), scratch)
    write_by(lambda _, m, one, parts: reducing.adapted(parts, tag), o, q.m, schedule)


@record(frozen=True)
class _ByBytes:
    """Writes the reduction of a tile: sums of codes lie in `totals`."""

    o: OpenFunction
    q: QuantizedProduct
    tile: Tile
    weights: Dequantizing
    totals: Value

    @property
    def f(self) -> Function:
        return self.o.f

    def adapted(self, parts: Parts, tag: Value) -> Parts:
        """Codes are summed when a block of rows begins, and multiplied where they lie."""
        f, before = self.f, parts.left
        begun: list[Int] = []

        def left(outer: Sequence[Int], first: Int, last: Int) -> Left:
            found = before(outer, first, last)
            begun[:] = [first]
            f.stage(tag, first, lambda: self._sum(found, first, last))
            return found

        def taps(
            tile: Tile, row: Int, left: Left, panel: Panel, sums: Sequence[Value], ahead: Sequence[Ahead]
        ) -> Sequence[Value]:
            return self._reduced(PanelAt.of(panel), left, row, f.sub(row, begun[0]), sums)

        return replace(parts, left=left, right=self.weights.right, taps=taps)

    def _sum(self, left: Left, first: Int, last: Int) -> None:
        """Write the sum of codes of every row and block."""
        f, q = self.f, self.q
        depth, one = q.product.depth, replace(self.tile, rows=1)

        def row(number: Value, _: Sequence[Value]) -> None:
            (start,) = row_pointers(f, q.product, one, left, number)
            to = f.at(self.totals, f.mul(f.sub(number, first), q.blocks))

            def block(which: Int, steps: int) -> None:
                total = self._total(f.at(start, f.mul(which, q.block), "i8"), steps)
                f.store(f.convert("sitofp", total, "float"), f.at(to, which))

            f.loop(0, depth // q.block, 1, lambda which, _: block(which, q.block), rolled=True)
            if depth % q.block:
                block(depth // q.block, depth % q.block)

        f.loop(first, f.add(last, 1), 1, row, rolled=True)

    def _total(self, start: Value, steps: int) -> Value:
        """The sum of so many codes, as an i32."""
        f, lanes = self.f, min(16, self.o.instructions.lanes)
        wide = vector("i32", lanes)

        def some(at: Int) -> Value:
            return f.convert("sext", f.load(vector("i8", lanes), f.at(start, at, "i8")), "i32")

        whole = steps // lanes * lanes
        zero = f.constant(0, wide)
        (total,) = f.loop(0, whole, lanes, lambda at, t: [f.binary("add", t[0], some(at))], [zero], rolled=True)
        while total.lanes > 1:
            half = total.lanes // 2
            total = f.binary("add", f.part(total, 0, half), f.part(total, half, half))
        for at in range(whole, steps):
            total = f.binary("add", total, f.convert("sext", f.load("i8", f.at(start, at, "i8")), "i32"))
        return total

    def _reduced(self, at: PanelAt, left: Left, row: Int, number: Int, sums: Sequence[Value]) -> Sequence[Value]:
        """The sums of a tile and its products; `number` is that of its first row in the block of rows."""
        f, q, tile = self.f, self.q, self.tile
        assert q.rows is not None
        codes = row_pointers(f, q.product, tile, left, row)
        scales_at = Left(self.o.pointers[q.rows.left.operand.name], q.rows.left.offset, (ReductionLoop(1, 1),))
        factors = row_pointers(f, q.rows.product, tile, scales_at, row)
        totals = [f.at(self.totals, f.mul(f.add(number, r), q.blocks)) for r in range(tile.rows)]

        def block(which: Int, steps: int, before: Sequence[Value]) -> Sequence[Value]:
            found = self._products(at, codes, f.mul(which, q.block), steps)
            return self._scaled(at, which, (factors, totals), found, before)

        depth = q.product.depth
        sums = f.loop(0, depth // q.block, 1, lambda which, before: block(which, q.block, before), sums, rolled=True)
        return block(depth // q.block, depth % q.block, sums) if depth % q.block else sums

    def _scaled(
        self,
        at: PanelAt,
        which: Int,
        rows: tuple[Sequence[Value], Sequence[Value]],
        found: Sequence[Value],
        before: Sequence[Value],
    ) -> list[Value]:
        """Sums of a block as numbers, added to those before."""
        f, q, tile, instructions = self.f, self.q, self.tile, self.o.instructions
        assert q.rows is not None
        scales, zeros, sums = self.weights.scales(at, which), self.weights.zeros(at, which), []
        if zeros is None and q.moved:
            zeros = [f.constant(float(q.moved), tile.kind)] * tile.vectors
        taken = None if zeros is None else [f.negated(f.fmul(a, b)) for a, b in zip(scales, zeros, strict=True)]
        for r, (factor_at, total_at) in enumerate(zip(*rows, strict=True)):
            one = f.load("float", f.at(factor_at, f.mul(which, q.rows.depth_stride)))
            factor = f.splat(one, tile.lanes)
            whole = None if taken is None else f.splat(f.fmul(one, f.load("float", f.at(total_at, which))), tile.lanes)
            for v in range(tile.vectors):
                place = r * tile.vectors + v
                number = f.convert("sitofp", found[place], "float")
                total = multiply_add(f, instructions, number, f.fmul(scales[v], factor), before[place])
                if taken is not None and whole is not None:
                    total = multiply_add(f, instructions, taken[v], whole, total)
                sums.append(total)
        return sums

    def _products(self, at: PanelAt, codes: Sequence[Value], first: Int, steps: int) -> Sequence[Value]:
        """The sums of products of a block, int32, row by row."""
        f, q, tile = self.f, self.q, self.tile
        before, zero = f.udiv(first, q.per_word), f.constant(0, vector("i32", tile.lanes))
        mask = f.constant(((1 << q.bits) - 1) * 0x01010101, vector("i32", tile.lanes))

        def some(word: Int, given: Sequence[Value], count: int) -> Sequence[Value]:
            words = self.weights.row(at.words, f.add(before, word), INT32)
            start, found = f.add(first, f.mul(word, q.per_word)), list(given)
            for part in range(-(-count // _QUAD)):
                moved = [f.binary("lshr", w, f.constant(q.bits * part, w.type)) if part else w for w in words]
                numbers = moved if q.bits == 8 else [f.binary("and", w, mask) for w in moved]
                for r, row in enumerate(codes):
                    here = f.at(row, f.add(start, part * _QUAD), "i8")
                    quad = f.splat(self._quad(here, min(_QUAD, count - part * _QUAD)), tile.lanes)
                    for v, one in enumerate(numbers):
                        place = r * tile.vectors + v
                        found[place] = _added(f, self.o.instructions, q.bits, one, quad, found[place])
            return found

        whole, rest = divmod(steps, q.per_word)
        sums: Sequence[Value] = [zero] * (tile.rows * tile.vectors)
        sums = f.loop(0, whole, 1, lambda word, given: some(word, given, q.per_word), sums, rolled=True)
        return some(whole, sums, rest) if rest else sums

    def _quad(self, here: Value, count: int) -> Value:
        """So many codes, as bytes of an i32."""
        f = self.f
        if count == _QUAD:
            return f.load("i32", here, align=1)
        total = Value("0", "i32")
        for k in range(count):
            byte = f.convert("zext", f.load("i8", f.at(here, k, "i8")), "i32")
            total = f.binary("or", total, f.binary("shl", byte, f.constant(8 * k, "i32")))
        return total


def _added(f: Function, instructions: InstructionSet, bits: int, a: Value, x: Value, total: Value) -> Value:
    """total + the four products of the unsigned bytes of `a`, of so many bits, and the signed ones of `x`."""
    if sums_in_one(instructions, a.lanes):
        return add_quads(f, instructions, a, x, total)
    if bits <= 4 and has_quads(instructions, a.lanes):  # two such products fit 16 bits
        return add_quads_by_pairs(f, instructions, a, x, total)
    for k in range(_QUAD):
        low = f.binary("and", f.binary("lshr", a, f.constant(8 * k, a.type)), f.constant(255, a.type))
        high = f.binary("shl", x, f.constant(24 - 8 * k, x.type))
        total = f.binary("add", total, f.binary("mul", low, f.binary("ashr", high, f.constant(24, x.type))))
    return total


QUANTIZED_ROWS = Kernel(
    "quantised-rows-product",
    _understand,
    _schedules,
    _arguments,
    written(_arguments, _write, overwrites=True),
    pieces=lambda q, target, schedule: product_pieces(q.product, target, schedule.product),
    writes_once=lambda q, schedule: q.product.is_written_once(schedule.product.tile),
    every=partial(_schedules, most=None),
)
