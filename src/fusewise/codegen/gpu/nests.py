"""Any nest of loops as a kernel: what has no anchor, or whose anchor is written as its definition. Accepts everything that has one.

Loops are made few first (`llvm.loops`). Then there are two ways:

- flat: a lane for each element of the index space, neighbours beside each other in memory; each lane makes its own reductions
- rows: a block takes some rows, the axes that reductions depend on; its lanes share each reduction, and then go over the columns

Rows are taken where a reduction is long, or used by many columns. Where there are enough elements to keep the device busy and lanes
read beside each other as it is, flat does as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import GpuKernel, NoKernel, arguments_of
from fusewise.codegen.gpu.source import LaneSharing, Scope, TritonWriter, decoded, goes_over_lanes, is_int32
from fusewise.codegen.gpu.words import TritonTerm
from fusewise.codegen.llvm.loops import simplified
from fusewise.codegen.llvm.plain import plain_task
from fusewise.lower.task import ACC, Task
from fusewise.ops.expr import Expr, index, walk
from fusewise.records import record

__all__ = [
    "RowLayout",
    "certain_reductions",
    "finished",
    "flat_over",
    "layout_of",
    "nest",
    "next_power",
    "row_scope",
    "understood",
]

Axes = Sequence[tuple[str, int]]

WIDEST = 1024
"""Lanes of a tile, at most, that a thread has no more than a few elements of."""
_LONG = 32
"""Steps of a reduction from which lanes share it."""
_SHARED = 4
"""The same where several columns use it."""
_FULL = 512
"""Lanes of a multiprocessor that keep it busy."""


def next_power(number: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()


def understood(task: Task) -> Task:
    """The task without its anchor and with few loops; `NoKernel` where it has no definition or sizes that are not known."""
    if not task.is_fixed:
        raise NoKernel("a kernel for a GPU is written for known sizes")
    if task.anchor is not None:
        plain = plain_task(task)
        if plain is None:
            raise NoKernel(f"the definition of {task.anchor.op} does not cover the case")
        task = plain
    arguments_of(task)
    return simplified(task)


def outermost_reductions(task: Task, *, certain: bool = False) -> list[Expr]:
    """Reductions that are in no other; with `certain` those that every element needs, whatever conditions say."""
    found: dict[Expr, None] = {}
    seen = set[Expr]()
    stack = [store.value for store in task.stores]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "reduce":
            found[node] = None
        else:
            stack += node.args[:1] if certain and node.op == "select" else node.args
    return list(found)


def certain_reductions(task: Task) -> list[Expr]:
    """Outermost reductions of something that every element needs."""
    return [node for node in outermost_reductions(task, certain=True) if all(extent for _, extent in node.value[1])]


@record(frozen=True)
class RowLayout:
    """Axes that reductions depend on, and the others; how many rows a block takes, by how many lanes. `is_beside`: elements of
    neighbouring rows lie beside each other, and not those of a row."""

    rows: tuple[tuple[str, int], ...]
    columns: tuple[tuple[str, int], ...]
    row_tile: int
    lanes: int
    is_beside: bool = False

    @property
    def row_count(self) -> int:
        return math.prod(extent for _, extent in self.rows)

    @property
    def column_count(self) -> int:
        return math.prod(extent for _, extent in self.columns)


def _beside_in_rows(writer: TritonWriter, reductions: Sequence[Expr], row: str) -> bool:
    """Do neighbours along a row axis read beside each other, and not neighbours along a reduction?"""
    for reduction in reductions:
        steps = {name for name, _ in reduction.value[1]}
        for node in walk(reduction.args[0]):
            if node.op == "load" and node.value != ACC:
                terms = dict(writer.simplifier.linear(node.args[0]).terms)
                if any(abs(terms.get(index(name), 0)) == 1 for name in steps):
                    return False
                if abs(terms.get(index(row), 0)) == 1:
                    return True
    return False


def layout_of(writer: TritonWriter, device: Device) -> RowLayout | None:
    """How rows are shared out, or None where a lane for each element is better."""
    task = writer.task
    reductions = [r for r in certain_reductions(task) if goes_over_lanes(r)]
    if not reductions:
        return None
    needed = frozenset[str]().union(*(writer.free(r) for r in reductions))
    axes = list(task.ranges.items())
    rows = tuple(axis for axis in axes if axis[0] in needed)
    columns = tuple(axis for axis in axes if axis[0] not in needed)
    steps = max(math.prod(extent for _, extent in r.value[1]) for r in reductions)
    if steps < (_SHARED if columns else _LONG):
        return None
    count = math.prod(extent for _, extent in rows)
    beside = bool(rows) and _beside_in_rows(writer, reductions, rows[-1][0])
    if beside and not columns and count >= device.sms * _FULL:
        return None
    longest = max(steps, math.prod(extent for _, extent in columns))
    if beside:
        row_tile = min(32, next_power(count))
        return RowLayout(rows, columns, row_tile, min(next_power(longest), WIDEST // row_tile), is_beside=True)
    lanes = min(next_power(longest), WIDEST)
    return RowLayout(rows, columns, max(1, min(next_power(count), WIDEST // 4 // lanes)), lanes)


def _numbered(writer: TritonWriter, tile: int, count: int, column: str = "") -> tuple[TritonTerm, list[TritonTerm]]:
    """The number of a block's every lane, or row, and the bound that it needs."""
    wide = not is_int32(0, count + tile)
    block = "tl.program_id(0)" + (".to(tl.int64)" if wide else "")
    kind = "int64" if wide else "int32"
    if tile == 1:
        return TritonTerm(writer.name(block), kind), []
    shape = (tile, 1) if column else (tile,)
    number = TritonTerm(writer.name(f"{block} * {tile} + tl.arange(0, {tile}){column}"), kind, shape)
    return number, [writer.words.term(f"{number.text} < {count}", "int1", number)] if count % tile else []


def row_scope(writer: TritonWriter, layout: RowLayout) -> Scope:
    """Where a block's rows are known."""
    if layout.row_count == 1:
        return Scope(writer, {name: TritonTerm("0", "int32", (), 0) for name, _ in layout.rows})
    number, bounds = _numbered(writer, layout.row_tile, layout.row_count, "[:, None]")
    return Scope(writer, decoded(writer, number, layout.rows), tuple(bounds))


def _flat(writer: TritonWriter, device: Device) -> tuple[int, int, str]:
    """Writes a lane for each element; gives blocks, warps and the way."""
    axes = list(writer.task.ranges.items())
    count = math.prod(extent for _, extent in axes)
    loops = any(node.op == "reduce" for store in writer.task.stores for node in walk(store.value))
    block = max(1, min(next_power(count), max(128, min(WIDEST, next_power(count // device.sms // 2)))))
    block = min(block, 128) if loops else block
    flat_over(writer, block)
    return -(-count // block), warps_for(block, 1 if loops else 4), f"flat, {block} elements to a block"


def flat_over(writer: TritonWriter, block: int, word: str = "store", how: str = "") -> int:
    """Writes a lane for each element, so many to a block, and stores them by `word` (`Scope.store`); gives blocks."""
    axes = list(writer.task.ranges.items())
    count = math.prod(extent for _, extent in axes)
    number, bounds = _numbered(writer, block, count)
    scope = Scope(writer, decoded(writer, number, axes), tuple(bounds))
    for store in writer.task.stores:
        scope.store(store, word, how)
    return -(-count // block)


def warps_for(elements: int, each: int, most: int = 8) -> int:
    """Warps of a block whose threads have so many elements each."""
    return max(1, min(most, next_power(elements // (32 * each))))


def _by_rows(writer: TritonWriter, layout: RowLayout) -> tuple[int, int, str]:
    """Writes rows by lanes that share reductions; gives blocks, warps and the way."""
    task, depth = writer.task, writer.depth
    scope = row_scope(writer, layout).over(LaneSharing(layout.row_tile, layout.lanes))
    for store in task.stores:
        scope.prepare(store.value, [name for name, _ in layout.columns])
    if layout.columns:
        lanes = LaneSharing(layout.row_tile, layout.lanes)
        several = layout.column_count > layout.lanes
        start = writer.fresh()
        if several:
            writer.put(f"for {start} in range(0, {layout.column_count}, {layout.lanes}):", 1)
        shape = (layout.lanes,) if layout.row_tile == 1 else (1, layout.lanes)
        column = TritonTerm(writer.name(lanes.along(f"{start} + " if several else "")), "int32", shape)
        bounds = []
        if layout.column_count % layout.lanes:
            bounds = [writer.words.term(f"{column.text} < {layout.column_count}", "int1", column)]
        scope = scope.inside(decoded(writer, column, layout.columns), *bounds)
    for store in task.stores:
        scope.store(store)
    writer.depth = depth
    way = f"rows, {layout.row_tile} to a block by {layout.lanes} lanes"
    return -(-layout.row_count // layout.row_tile), warps_for(layout.row_tile * layout.lanes, 4), way


def finished(writer: TritonWriter, symbol: str, blocks: int, warps: int, way: str) -> GpuKernel:
    """The kernel whose text is written."""
    arguments = arguments_of(writer.task)
    types, alignments = zip(*arguments.values(), strict=True)
    source = writer.source(symbol, arguments)
    return GpuKernel(symbol, source, tuple(arguments), types, alignments, (blocks,), warps, way=way)


def nest(task: Task, device: Device, *, flat: bool = False) -> GpuKernel:
    """A kernel for a task, if asked for with a lane for each element; of one without elements it has no blocks. `NoKernel` where a
    task has no definition."""
    symbol = f"nest_{task.digest}"
    writer = TritonWriter(understood(task))
    if any(extent == 0 for extent in writer.task.extents):
        return finished(writer, symbol, 0, 1, "nothing")
    layout = None if flat else layout_of(writer, device)
    written = _flat(writer, device) if layout is None else _by_rows(writer, layout)
    return finished(writer, symbol, *written)
