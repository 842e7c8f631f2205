"""Matrix products and convolutions on tensor cores: a tile of results for each block, which goes along the depth step by step.

Written from the definition (`contraction`), so that MatMul, Gemm and Conv of any rank, layout and transposition are one case: rows
and columns are numbers that are taken apart into the variables of the task. Factors are computed on their tiles, whatever was fused
in front; the sum takes the place of the definition's in what is stored. A lane that is no element reads nothing and counts as 0.

float32 is multiplied as three products of TF32, whose operands are the two halves of each number (`tf32x3`): what is left out is
the product of the low halves. `exact` multiplies and adds in IEEE's float32. Bytes less a zero point are multiplied as float16,
which holds them, a step at a time, whose sum float32 holds: at most 128 products of 255 * 255, less than 2^23.

Weights are rearranged (`depth`) for lanes to lie beside each other: for float32 those of a column, since tensor cores of sm_90 take
no others of 32 bits; a copy to shared memory then has 16 bytes, not 4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from fusewise.codegen.gpu.contraction import Axes, Contraction, Factor, contraction, extent_of, main_load
from fusewise.codegen.gpu.depth import DEPTH, DepthWalk, repacked, walked
from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import SCRATCH, GpuKernel, NoKernel, arguments_of, pointer_type
from fusewise.codegen.gpu.product_tiles import ProductWay, best_way, kind_of, ways
from fusewise.codegen.gpu.source import Scope, TritonWriter, decoded, is_int32
from fusewise.codegen.gpu.words import TritonTerm, joined_shape
from fusewise.lower.task import Task
from fusewise.ops.expr import cast
from fusewise.records import record

__all__ = ["other_products", "product", "product_by"]

_LEAST_DEPTH = 8
"""Steps of a sum from which on tiles are worth while."""
_LEAST_SIDE = 8
"""Rows and columns from which on several small products are worth tiles."""
_LEAST_LANES = 32
"""Steps of the sums of many vectors, which lanes share: a window of few taps is better off with a lane for each result."""
_LANES = 512
"""Results of a block that adds up parts."""


def product(task: Task, device: Device, precision: str = "float32") -> GpuKernel:
    """A kernel for a task that is a sum of products with something done before and after; `NoKernel` for others.

    `precision`: what float32 is multiplied in, one of `float32`, `exact` and `tf32`.
    """
    c = suitable(task)
    return product_by(task, c, best_way(c, device, kind_of(c, precision)), precision)


def other_products(task: Task, device: Device, precision: str = "float32") -> Iterator[GpuKernel]:
    """Kernels for a task that `product` accepts, in other tiles or parts of the depth than its own."""
    c = suitable(task)
    for way in islice(ways(c, device, kind_of(c, precision)), 1, None):
        yield product_by(task, c, way, precision)


def suitable(task: Task) -> Contraction:
    """The contraction of a task for which there is something better than a nest; `NoKernel` for others."""
    c = contraction(task)
    rows, columns, depth, matrices = c.sizes
    if depth < _LEAST_DEPTH:
        raise NoKernel(f"a sum of {depth} products")
    if matrices > 1 and 1 < min(rows, columns) < _LEAST_SIDE:
        raise NoKernel(f"many products of {rows} rows and {columns} columns")
    if rows == columns == 1 or (matrices > 1 and min(rows, columns) == 1 and depth < _LEAST_LANES):
        raise NoKernel("many sums of few products")
    return c


def product_by(task: Task, c: Contraction, way: ProductWay, precision: str) -> GpuKernel:
    """The kernel of a task, whose contraction is `c`, in one of `ways`."""
    kind = kind_of(c, precision)
    if way.vector and extent_of(c.rows) > 1:
        c = replace(c, left=c.right, right=c.left, rows=c.columns, columns=c.rows)
    walk = walked(c, way.depth)
    c, packed = repacked(c, walk, by_depth=not way.vector and kind != "half")
    text = _ProductText(c, way, walk, kind)
    symbol = f"product_{task.digest}"
    text.write()
    blocks = text.blocks
    if way.splits == 1:
        whole = _launched(text.writer, symbol, list(arguments_of(c.task)), blocks, way.warps)
        return replace(whole, stages=way.stages, way=str(way), packed=packed)
    scratch_type = pointer_type(c.total.dtype)
    scratch = 4 * way.splits * extent_of((*c.batch, *c.rows, *c.columns))
    second = _added_up(c, way.splits)
    count, warps = -(-scratch // (4 * way.splits) // _LANES), 4
    then = _launched(second, f"{symbol}_sum", _mentioned(second), count, warps, scratch_type)
    first = _launched(text.writer, symbol, _mentioned(text.writer), blocks, way.warps, scratch_type)
    then = replace(then, way=f"the sum of {way.splits} parts")
    return replace(first, stages=way.stages, way=str(way), packed=packed, scratch_bytes=scratch, then=(then,))


def _mentioned(writer: TritonWriter) -> list[str]:
    """The arguments that a text is about."""
    words = set(re.findall(r"[A-Za-z_]\w*", "\n".join(writer.lines)))
    return [name for name in (*arguments_of(writer.task), SCRATCH) if name in words]


def _launched(
    writer: TritonWriter, symbol: str, names: Sequence[str], blocks: int, warps: int, scratch_type: str = "fp32"
) -> GpuKernel:
    known = arguments_of(writer.task) | {SCRATCH: (scratch_type, 64)}
    types, alignments = zip(*(known[name] for name in names), strict=True)
    return GpuKernel(symbol, writer.source(symbol, names), tuple(names), types, alignments, (blocks,), warps)


@record
class _ProductText:
    """The text of the first, or only, kernel."""

    c: Contraction
    way: ProductWay
    walk: DepthWalk
    kind: str

    def __post_init__(self) -> None:
        self.writer = TritonWriter(self.c.task)
        simplifier = self.writer.simplifier
        simplifier.ranges = {**simplifier.ranges, DEPTH: self.walk.count * self.walk.block}

    @property
    def blocks(self) -> int:
        """Of the grid."""
        rows, columns = self._tiles()
        return rows * columns * extent_of(self.c.batch) * self.way.splits

    def _tiles(self) -> tuple[int, int]:
        return -(-extent_of(self.c.rows) // self.way.rows), -(-extent_of(self.c.columns) // self.way.columns)

    def write(self) -> None:
        """All of it."""
        writer, c, way = self.writer, self.c, self.way
        part, matrix, row_tile, column_tile = self._places()
        matrices = Scope(writer, decoded(writer, matrix, c.batch))
        columns, column_bound = self._numbers(
            column_tile, way.columns, c.columns, "[:, None]" if way.vector else "[None, :]"
        )
        right = matrices.inside(decoded(writer, columns, c.columns), *column_bound)
        left, row_bound = matrices, list[TritonTerm]()
        rows = TritonTerm("0", "int32", (), 0)
        if not way.vector:
            rows, row_bound = self._numbers(row_tile, way.rows, c.rows, "[:, None]")
            left = matrices.inside(decoded(writer, rows, c.rows), *row_bound)
        else:
            left = matrices.inside({name: TritonTerm("0", "int32", (), 0) for name, _ in c.rows})
        for scope, factor in ((left, c.left), (right, c.right)):
            root = factor.value if factor.guard is None else factor.guard
            scope.prepare(root, [DEPTH, *(name for name, _ in c.total.value[1])])
        total = self._along(part, left, right)
        if way.splits > 1:
            self._keep(part, matrix, rows, columns, total, [*row_bound, *column_bound])
            return
        known = {e: t for e, t in left.known.items() if e not in right.known} | right.known
        indices = {**left.indices, **right.indices}
        results = Scope(writer, indices, (*row_bound, *column_bound), known=known | {c.total: total})
        for store in c.task.stores:
            results.store(store)

    def _numbers(self, tile: TritonTerm, size: int, axes: Axes, spread: str) -> tuple[TritonTerm, list[TritonTerm]]:
        """Rows or columns of a block's tile, and the bound that they need."""
        count, writer = extent_of(axes), self.writer
        kind = "int32" if is_int32(0, count + size) else "int64"
        shape = (size, 1) if spread == "[:, None]" else (1, size)
        start = writer.words.to(tile, kind).text
        number = TritonTerm(writer.name(f"{start} * {size} + tl.arange(0, {size}){spread}"), kind, shape)
        return number, [writer.words.term(f"{number.text} < {count}", "int1", number)] if count % size else []

    def _places(self) -> tuple[TritonTerm, ...]:
        """The part of the depth, the matrix, the tile of rows and that of columns of a block: some tiles of rows by all columns are
        neighbours, which read the same."""
        rows, columns = self._tiles()
        group = next(g for g in (8, 4, 2, 1) if rows % g == 0)
        block = TritonTerm(self.writer.name("tl.program_id(0)"), "int32")
        axes = (
            ("part", self.way.splits),
            ("matrix", extent_of(self.c.batch)),
            ("group", rows // group),
            ("column", columns),
            ("row", group),
        )
        place = decoded(self.writer, block, axes)
        row = place["group"]
        if group > 1:
            row = self.writer.words.term(f"{row.text} * {group} + {place['row'].text}", "int32")
        return place["part"], place["matrix"], row, place["column"]

    # --- along the depth -----------------------------------------------------------------------------------------

    def _along(self, part: TritonTerm, left: Scope, right: Scope) -> TritonTerm:
        """The sum over all steps of this part."""
        writer, way = self.writer, self.way
        size = (way.columns, way.depth) if way.vector else (way.rows, way.columns)
        total = writer.name(f"tl.zeros({list(size)}, tl.{self.c.total.dtype.name})")
        depth, number = writer.depth, writer.fresh()
        writer.put(f"for {number} in range({self._range(part)}):", 1)
        step = TritonTerm(writer.name(f"tl.full([], 0, tl.int32) + {number}"), "int32")
        if way.vector:
            self._vector_step(total, step, left, right)
        else:
            a = self._factor(left, self.c.left, step, "[None, :]", (way.rows, way.depth))
            b = self._factor(right, self.c.right, step, "[:, None]", (way.depth, way.columns))
            writer.put(f"{total} = {self._dot(a, b, total)}")
        writer.depth = depth
        kind = self.c.total.dtype.name
        if not way.vector:
            return TritonTerm(total, kind, size)
        return TritonTerm(writer.name(f"tl.sum({total}, 1)[:, None]"), kind, (way.columns, 1))

    def _dot(self, a: str, b: str, total: str) -> str:
        if self.c.kind == "bytes":
            return f"{total} + tl.dot({a}.to(tl.float16), {b}.to(tl.float16)).to(tl.int32)"
        if self.c.kind == "int8":
            return f"tl.dot({a}, {b}, {total}, out_dtype=tl.int32)"
        how = "" if self.kind == "half" else f', input_precision="{self.kind}"'
        return f"tl.dot({a}, {b}, {total}{how})"

    def _range(self, part: TritonTerm) -> str:
        count, splits = self.walk.count, self.way.splits
        if splits == 1:
            return f"0, {count}"
        each = -(-count // splits)
        end = f"{part.text} * {each} + {each}"
        return f"{part.text} * {each}, {end if count % splits == 0 else f'tl.minimum({end}, {count})'}"

    def _vector_step(self, total: str, step: TritonTerm, left: Scope, right: Scope) -> None:
        way, sides = self.way, []
        wide = [replace(f, value=cast(f.value, self.c.total.dtype)) for f in (self.c.left, self.c.right)]
        for scope, factor, rows in ((left, wide[0], 1), (right, wide[1], way.columns)):
            sides.append(self._factor(scope, factor, step, "[None, :]", (rows, way.depth)))
        self.writer.put(f"{total} = {total} + {sides[0]} * {sides[1]}")

    def _factor(self, scope: Scope, factor: Factor, step: TritonTerm, spread: str, tile: tuple[int, int]) -> str:
        """A factor on its tile, 0 in lanes that are none of its elements."""
        writer, words, walk = self.writer, self.writer.words, self.walk
        shape = (1, walk.block) if spread == "[None, :]" else (walk.block, 1)
        lane = f"tl.arange(0, {walk.block}){spread}"
        whole, block = step, step
        indices = {name: TritonTerm("0", "int32", (), 0) for name, _ in self.c.total.value[1]}
        if walk.steps:
            if walk.blocks > 1:
                whole = words.term(f"{step.text} // {walk.blocks}", "int32")
                block = words.term(f"{step.text} % {walk.blocks}", "int32")
            else:
                block = TritonTerm("0", "int32", (), 0)
            indices |= decoded(writer, whole, walk.steps)
        start = f"{block.text} * {walk.block} + " if block.number is None else ""
        number = TritonTerm(writer.name(start + lane), "int32", shape)
        indices |= decoded(writer, number, walk.lanes)
        indices[DEPTH] = TritonTerm(writer.name(f"{step.text} * {walk.block} + {lane}"), "int32", shape)
        is_packed = DEPTH in writer.free(factor.value)
        bound = None
        if not walk.is_full and not is_packed:
            bound = words.term(f"{number.text} < {extent_of(walk.lanes)}", "int1", number)
        inner = scope.inside(indices, *([] if bound is None else [bound]))
        guard = None
        if factor.guard is not None:  # what a condition reads is not what is read under it
            reads = writer.touches_memory(factor.guard)
            guard = (inner.inside({}) if reads else inner).value(factor.guard)
        found = (inner if guard is None else inner.under(guard)).value(factor.value)
        needed = words.every([x for x in (bound, guard) if x is not None])
        reads_zero = main_load(factor.value) is not None and (
            bound is None or joined_shape((found.shape, bound.shape)) == found.shape
        )
        if needed is not None and not reads_zero:
            found = words.where(needed, found, words.constant(0, found.type))
        return words.spread(found, tile)

    # --- parts of the depth --------------------------------------------------------------------------------------

    def _keep(
        self,
        part: TritonTerm,
        matrix: TritonTerm,
        rows: TritonTerm,
        columns: TritonTerm,
        total: TritonTerm,
        bounds: Sequence[TritonTerm],
    ) -> None:
        """Store the sum of a part: [part][matrix][row][column]."""
        words, (row_count, column_count, _, matrices) = self.writer.words, self.c.sizes
        wide = not is_int32(0, self.way.splits * matrices * row_count * column_count)
        kind = "int64" if wide else "int32"
        part, matrix, rows, columns = (words.to(x, kind) for x in (part, matrix, rows, columns))
        above = f"({words.typed(part)} * {matrices} + {words.typed(matrix)}) * {row_count}"
        place = f"({above} + {words.typed(rows)}) * {column_count} + {columns.text}"
        mask = words.every(bounds)
        masked = "" if mask is None else f", mask={words.spread(mask, total.shape)}"
        term = TritonTerm(self.writer.name(place), kind, columns.shape if self.way.vector else total.shape)
        self.writer.put(f"tl.store({SCRATCH} + ({words.spread(term, total.shape)}), {total.text}{masked})")


def _added_up(c: Contraction, splits: int) -> TritonWriter:
    """The second kernel: a lane for each result adds up the parts in their order."""
    writer = TritonWriter(c.task)
    words, axes = writer.words, (*c.batch, *c.rows, *c.columns)
    count = extent_of(axes)
    place = "int32" if is_int32(0, splits * count) else "int64"
    block = "tl.program_id(0)" + (".to(tl.int64)" if place == "int64" else "")
    flat = TritonTerm(writer.name(f"{block} * {_LANES} + tl.arange(0, {_LANES})"), place, (_LANES,))
    bounds = [words.term(f"{flat.text} < {count}", "int1", flat)] if count % _LANES else []
    masked = f", mask={bounds[0].text}, other=0" if bounds else ""
    kind = c.total.dtype.name
    total = writer.name(f"tl.zeros([{_LANES}], tl.{kind})")
    for part in range(splits):
        writer.put(f"{total} = {total} + tl.load({SCRATCH} + ({flat.text} + {part * count}){masked})")
    scope = Scope(writer, decoded(writer, flat, axes), tuple(bounds))
    scope.known[c.total] = TritonTerm(total, kind, (_LANES,))
    for store in c.task.stores:
        scope.store(store)
    return writer
