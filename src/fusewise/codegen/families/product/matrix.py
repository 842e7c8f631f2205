"""Matrix products: MatMul and Gemm with every broadcast, transpose and layout, as kernels.

Takes a task whose anchor is MatMul or Gemm; gives LLVM IR. Constant right operands are packed into panels at compile time;
others are used in place when their columns are neighbours in memory, or packed by each worker (`product.repack`). An instruction of
several terms takes as many steps of the reduction at once, where the left operand has them side by side: of bfloat16 two. Integers
are brought to that form when they are read (`product.integer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np

from fusewise.codegen.families.product.in_parts import NOTE_BYTES, is_in_parts
from fusewise.codegen.families.product.lanes import LaneCopy
from fusewise.codegen.families.product.loops import Parts, emit_product
from fusewise.codegen.families.product.places import Left, flat_index
from fusewise.codegen.families.product.plan import (
    ProductSchedule,
    cycles_of,
    is_long,
    plan_product,
    prefetched,
    product_pieces,
    tiles_for,
)
from fusewise.codegen.families.product.repack import repack, repacked_elements
from fusewise.codegen.families.product.shape import MatrixProduct, in_lanes, understand
from fusewise.codegen.families.product.tile_copy import TileCopy, noted_width
from fusewise.codegen.families.product.tiles import too_few_rows, widths
from fusewise.codegen.kernel import Argument, Kernel, Prefetch, working_memory
from fusewise.codegen.llvm.entry import OpenFunction, initial, operand_arguments, widened, written
from fusewise.codegen.llvm.stores import Finish, fetcher, is_heavy
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import Instruction, multiply_add
from fusewise.codegen.nest.tile import Panel, ReductionLoop, Tile
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.packing import packed, panels, panels_of
from fusewise.codegen.target import FIRST_LEVEL, InstructionSet, Target, whole_lines
from fusewise.codegen.view import OperandView
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.program import Packing, Panels
from fusewise.lower.task import RefusalReason, Task
from fusewise.records import record

__all__ = [
    "PRODUCT",
    "MatrixSchedule",
    "Pack",
    "arguments_by",
    "matrix_schedules",
    "note_of",
    "packing",
    "product_by",
    "write_by",
]

LONGEST_CHUNK = 512
"""The most steps of a chunk."""


OfTerms = Callable[[Instruction, Task, InstructionSet], MatrixProduct | RefusalReason]
"""`of(instruction, task, instructions)`: the task as a product by an instruction."""


def of_terms(instruction: Instruction, task: Task, instructions: InstructionSet) -> MatrixProduct | RefusalReason:
    """The product by an instruction, whose terms are neighbours along the depth, or why it is none."""
    m = understand(task, instructions)
    return m if isinstance(m, RefusalReason) else in_lanes(m, instruction)


def _how_right(m: MatrixProduct, target: Target, lanes: int) -> str:
    """`packed` at compile time, `inplace`, or `repacked` by every worker."""
    if m.right.operand.constant:
        return "packed"
    if m.computed is not None or m.right_column != 1 or m.product.columns < lanes:
        return "repacked"
    size = m.dtype.itemsize
    is_far = m.right_depth * size > target.figures.caches.far_row and m.product.height >= 32
    fits = m.product.depth * m.product.columns * size <= target.l2_bytes // 2
    return "repacked" if is_far and fits else "inplace"


def _chunk(m: MatrixProduct, target: Target, rows: int, step_bytes: int) -> int:
    """Steps of a chunk of the reduction, of which each reads `step_bytes` of a panel: all of them, unless panels that many tiles
    of `rows` share are too long for the caches, and the left operand is read in place."""
    depth = m.product.depth
    shares = m.product.height >= target.figures.sharing.least_tiles * rows
    in_place = m.computed is None and not m.product.outer and not m.product.instruction.is_exact
    if not in_place or not shares or not is_long(depth * step_bytes, target):
        return depth
    steps = m.product.instruction.steps
    return next((n for n in range(LONGEST_CHUNK, LONGEST_CHUNK // 4, -1) if depth % n == n % steps == 0), depth)


@record(frozen=True)
class MatrixSchedule:
    """The schedule of the product, and how its right operand is read: `packed` at compile time, `inplace`, or `repacked` by every
    worker."""

    product: ProductSchedule
    right: str

    def with_prefetch(self, prefetch: Prefetch) -> MatrixSchedule:
        return replace(self, product=replace(self.product, prefetch=prefetch))


def matrix_schedules(m: MatrixProduct, task: Task, target: Target, most: int | None = 6) -> Iterable[MatrixSchedule]:
    """By the tiles that suit, best first; with `most` None all that there are."""
    instruction = m.product.instruction
    size, lanes = instruction.panel_bytes, widths(target, m.product.columns, instruction)
    how = _how_right(m, target, lanes[0])
    for tile in islice(tiles_for(m.product, instruction.room(target), lanes), most):
        chunk = _chunk(m, target, tile.rows, tile.width * size) if how == "packed" else m.product.depth
        row = (m.product.rows[-1].stride if _shares(m) else chunk) * m.dtype.itemsize
        right = chunk * m.product.columns * m.product.groups * size
        schedule = plan_product(m.product, target, tile, row, right)
        if chunk < m.product.depth:
            schedule = replace(schedule, chunk=chunk)
        if how == "repacked" and m.computed is None:
            # the copy is made once per outer index, so all tiles of it belong to one block
            schedule = replace(schedule, per_block=max(1, -(-m.product.height // tile.rows)))
        yield MatrixSchedule(prefetched(schedule, m.product, task, target), how)


def _shares(m: MatrixProduct) -> bool:
    """Do rows of the product read several that are copied?"""
    return m.computed is not None and m.computed.shared is not None


Pack = Callable[[MatrixProduct, Tile], Packing]
"""`pack(m, tile)`: how a constant right operand is packed."""


def arguments_by(pack: Pack, m: MatrixProduct, task: Task, schedule: MatrixSchedule) -> tuple[Argument, ...]:
    """Operands, the packed one, and scratch."""
    tile = schedule.product.tile
    extra = []
    if schedule.right == "packed":
        extra.append(Argument(m.right.operand.name, pack(m, tile)))
    if schedule.product.chunk:
        extra.append(Argument("scratch", nbytes=m.product.kept(tile) * tile.instruction.sum.itemsize))
    if schedule.right == "repacked" or m.computed is not None:
        extra.append(working_memory(_copied_bytes(m, schedule)))
    if schedule.product.prefetch is not None:
        extra.append(Argument("later"))
    return operand_arguments(task, extra)


def _copied_bytes(m: MatrixProduct, schedule: MatrixSchedule) -> int:
    """What a worker copies: the right operand of an outer index, and after it, where they are computed, the rows of a block."""
    tile, per_block = schedule.product.tile, schedule.product.per_block
    nbytes = _repacked_bytes(m, tile) if schedule.right == "repacked" else 0
    rows = 0 if m.computed is None else per_block * tile.rows
    if m.computed is not None and m.computed.shared is not None:
        rows += m.computed.shared.behind
    return nbytes + rows * m.product.rows[-1].stride * m.dtype.itemsize


def _repacked_bytes(m: MatrixProduct, tile: Tile) -> int:
    """Panels of an outer index, and what is noted of them, if anything is."""
    noted = whole_lines(NOTE_BYTES) if is_in_parts(tile.instruction) else 0
    if m.computed is not None and m.computed.summed:
        noted = whole_lines(2 * noted_width(m.product, tile) * tile.instruction.sum.itemsize)
    return repacked_elements(m.product, tile) * tile.instruction.panel_bytes + noted


def packing(m: MatrixProduct, tile: Tile, multiple: int = 1) -> Packing:
    """The constant right operand in panels, a multiple of so many, scaled by alpha; for an instruction of several
    terms, as many of its rows in one."""
    instruction = m.product.instruction
    element = np.float64 if tile.element == "double" else np.float32

    def arrange(matrix: np.ndarray) -> np.ndarray:
        matrix = matrix.astype(element, copy=False)
        return panels(matrix if m.alpha == 1.0 else matrix * element(m.alpha), tile.lanes, tile.vectors, multiple)

    def arrange_terms(matrix: np.ndarray) -> np.ndarray:
        pairs = instruction.pack(matrix.astype(instruction.right.numpy, copy=False), -2)
        return panels(pairs, tile.lanes, tile.vectors)

    if instruction.terms > 1:
        of = f"{instruction.right.name} " if instruction.is_exact else ""
        recipe = f"gemm {of}{instruction.layout} {tile.vectors}x{tile.lanes}"
        return packed(m.matrices, recipe, arrange_terms)
    if instruction.short is not None:
        short = f"gemm {instruction.short.name} panels {multiple}x{tile.vectors}x{tile.lanes}"
        return packed(
            m.matrices,
            short,
            lambda matrix: panels(matrix, tile.lanes, tile.vectors, multiple),
            _panels(m, tile, multiple),
        )
    recipe = f"gemm panels {multiple}x{tile.vectors}x{tile.lanes} {tile.element} alpha {m.alpha!r}"
    return packed(m.matrices, recipe, arrange, _panels(m, tile, multiple))


def _panels(m: MatrixProduct, tile: Tile, multiple: int) -> Panels | None:
    """The packed right operand as data; None for types other than float32 and shorter ones that are widened as they are read."""
    if tile.element != "float":
        return None
    kept = m.product.instruction.short or FLOAT32
    outer = tuple((extent, stride) for (_, extent), stride in zip(m.product.outer, m.right_outer, strict=True))
    columns = (m.product.columns, m.right_column)
    depth = ((m.product.depth, m.right_depth),)
    return panels_of(m.matrices, (outer, depth, columns), tile.lanes, tile.vectors, (m.alpha,), multiple, kept)


def note_of(o: OpenFunction, m: MatrixProduct, schedule: MatrixSchedule) -> tuple[Value, int]:
    """Where it is noted what kind of numbers a right operand in parts has, and after how many stored lanes."""
    repacked, tile = schedule.right == "repacked", schedule.product.tile
    where = o.scratch() if repacked else o.pointers[m.right.operand.name]
    lanes = repacked_elements(m.product, tile) * (1 if repacked else m.product.repeats * m.product.groups)
    return o.f.at(where, lanes, "i32"), lanes


Adapt = Callable[[OpenFunction, MatrixProduct, MatrixSchedule, Parts], Parts]
"""`adapt(function, m, schedule, parts)` may replace what the loops do, such as the reduction."""


def write_by(adapt: Adapt | None, o: OpenFunction, m: MatrixProduct, schedule: MatrixSchedule) -> None:
    """The body of a product."""
    f, task, instructions, pointers, share = o.f, o.task, o.instructions, o.pointers, o.share
    product, tile = m.product, schedule.product.tile
    repacks = schedule.right == "repacked"
    scratch, tag = (o.scratch(), o.tag()) if repacks or m.computed is not None else (None, None)
    count = min(tile.lanes, product.columns)
    in_group = -(-product.columns // tile.width)
    extents = [extent for _, extent in product.outer]
    copy = None if scratch is None or tag is None else _computed_copy(o, m, schedule, scratch, tag)

    def left(outer: Sequence[Int], first: Int, last: Int) -> Left:
        offset = _offset(f, m.left, outer, m.left_outer)
        if repacks and scratch is not None and tag is not None:
            copied = column_copy(outer, scratch)
            f.stage(tag, flat_index(f, outer, extents), copied)
        if copy is not None:
            return copy.rows(outer, first, last)
        return Left(pointers[m.left.operand.name], offset, (ReductionLoop(product.depth, m.depth_stride),))

    def column_copy(outer: Sequence[Int], to: Value) -> Callable[[], None]:
        if copy is not None:
            return lambda: copy.columns(tile, outer, to)
        source = f.at(pointers[m.right.operand.name], _offset(f, m.right, outer, m.right_outer), memory_type(m.dtype))
        return lambda: repack(f, instructions, product, tile, source, (m.right_depth, m.right_column), to)

    def right(outer: Sequence[Int], group: Int, panel: Int, columns: Sequence[Int]) -> Panel:
        if schedule.right == "inplace":
            base = _offset(f, m.right, outer, m.right_outer)
            stored, where = memory_type(m.dtype), pointers[m.right.operand.name]
            return Panel(tuple(f.at(where, f.add(base, c), stored) for c in columns), m.right_depth, m.dtype)
        start: Int = f.mul(f.add(f.mul(group, in_group), panel), product.depth * tile.width)
        if not repacks:
            of_outer = product.groups * in_group * product.depth * tile.width
            start = f.add(start, f.mul(flat_index(f, outer, extents), of_outer))
        where = scratch if repacks and scratch is not None else pointers[m.right.operand.name]
        element = tile.instruction.panel_element
        first = f.at(where, start, element)
        following = None if repacks else f.at(first, product.depth * tile.width, element)
        columns_at = tuple(f.at(first, v * tile.lanes, element) for v in range(tile.vectors))
        return Panel(columns_at, tile.width, tile.instruction.stored, following)

    def start(outer: Sequence[Int], columns: Sequence[Int]) -> list[Value]:
        return initial(o, m.bias, columns, tile.kind, count)

    def group_at(group: Int) -> tuple[Int, Int]:
        steps = product.depth if m.computed is None else m.computed.levels(product.depth)[-1].extent
        return f.mul(group, steps), f.mul(group, product.columns)

    parts = Parts(
        left,
        right,
        start,
        _scaled(f, instructions, m, pointers, o.finish, schedule.right),
        rolled_finish=is_heavy(task),
        reading=fetcher(o.elements, FIRST_LEVEL, schedule.product.far),
        group_at=group_at if product.groups > 1 else None,
        kept=pointers["scratch"] if schedule.product.chunk else None,
        later=pointers.get("later"),
    )
    parts = parts if adapt is None else adapt(o, m, schedule, parts)
    emit_product(f, instructions, product, schedule.product, share, parts)


def _computed_copy(
    o: OpenFunction, m: MatrixProduct, schedule: MatrixSchedule, scratch: Value, tag: Value
) -> LaneCopy | TileCopy | None:
    """What copies factors that are computed on the way in, behind the columns that are repacked."""
    if m.computed is None:
        return None
    repacked = _repacked_bytes(m, schedule.product.tile) if schedule.right == "repacked" else 0
    rows_at = o.f.at(scratch, repacked, "i8")
    rows_tag = o.share.tag(o.f, o.f.at(tag, 1, "i64"))
    if m.product.instruction.matrix is None:
        return LaneCopy(o.elements, m.product, m.computed, rows_at, rows_tag)
    return TileCopy(o.elements, m.product, m.computed, rows_at, rows_tag, note_of(o, m, schedule)[0])


def _offset(f: Function, view: OperandView, outer: Sequence[Int], strides: Sequence[int]) -> Int:
    """Where an operand begins at these indices outside."""
    offset: Int = view.offset
    for index, stride in zip(outer, strides, strict=True):
        offset = f.add(offset, f.mul(index, stride))
    return offset


def _scaled(
    f: Function,
    instructions: InstructionSet,
    m: MatrixProduct,
    pointers: Mapping[str, Value],
    finish: Finish,
    right: str,
) -> Finish:
    """Gemm's alpha and beta, where they could not be folded into the packed operand or the start value."""
    scale = m.alpha != 1.0 and right != "packed"
    if not scale and m.addend is None:
        return finish

    def scaled(indices: Mapping[str, Int], lane: str, value: Value, count: int) -> None:
        if scale:
            value = f.fmul(value, f.constant(m.alpha, value.type))
        if m.addend is not None and m.beta != 0.0:
            view, strides = m.addend
            offset: Int = view.offset
            for name, stride in strides.items():
                offset = f.add(offset, f.mul(indices[name], stride))
            dtype, stride = view.operand.dtype, strides.get(lane, 0)
            first = f.at(pointers[view.operand.name], offset, memory_type(dtype))
            other = widened(f, instructions, first, stride, dtype, value.lanes, count)
            value = multiply_add(f, instructions, f.constant(m.beta, value.type), other, value)
        finish(indices, lane, value, count)

    return scaled


def _cycles(m: MatrixProduct, target: Target, schedule: MatrixSchedule) -> int:
    return 0 if schedule.product.chunk else cycles_of(m.product, target, schedule.product.tile)


PRODUCT = Kernel(
    "product",
    understand,
    matrix_schedules,
    partial(arguments_by, packing),
    written(partial(arguments_by, packing), partial(write_by, None), overwrites=True),
    cycles=_cycles,
    fetching=MatrixSchedule.with_prefetch,
    pieces=lambda m, target, schedule: product_pieces(m.product, target, schedule.product),
    writes_once=lambda m, schedule: m.product.is_written_once(schedule.product.tile),
    every=partial(matrix_schedules, most=None),
)


def product_by(name: str, instruction: Instruction, of: OfTerms = of_terms) -> Kernel[MatrixProduct, MatrixSchedule]:
    """The same of operands that an instruction takes, as `of` understands them."""
    return replace(PRODUCT, name=name, understand=partial(_by, of, instruction))


def _by(
    of: OfTerms, instruction: Instruction, task: Task, instructions: InstructionSet
) -> MatrixProduct | RefusalReason:
    m = of(instruction, task, instructions)
    return m if isinstance(m, RefusalReason) else too_few_rows(instruction, m.product.height) or m
