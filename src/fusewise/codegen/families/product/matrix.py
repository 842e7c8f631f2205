"""Matrix products: MatMul and Gemm with every broadcast, transpose and layout, as kernels.

Takes a task whose anchor is MatMul or Gemm; gives LLVM IR. Constant right operands are packed into panels at compile time;
others are used in place when their columns are neighbours in memory, or packed by each worker (`product.repack`). An instruction of
several terms takes as many steps of the reduction at once, where the left operand has them side by side: of bfloat16 two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fusewise.codegen.families.product.loops import Left, Parts, emit_product, flat_index
from fusewise.codegen.families.product.plan import (
    Product,
    ProductSchedule,
    RowAxis,
    cycles_of,
    is_long,
    plan_product,
    prefetched,
    product_pieces,
    tiles_for,
)
from fusewise.codegen.families.product.repack import repack, repacked_elements
from fusewise.codegen.families.product.tile import Panel, ReductionLoop, Tile
from fusewise.codegen.families.product.tiles import widths
from fusewise.codegen.instructions.table import DPBF16, Instruction, fused_of, multiply_add
from fusewise.codegen.kernel import Argument, Kernel, Prefetch, working_memory
from fusewise.codegen.llvm.entry import enter, initial, operand_arguments, scratch_of, tag_of, widened
from fusewise.codegen.llvm.registers import memory_type
from fusewise.codegen.llvm.share import prepared
from fusewise.codegen.llvm.stores import Finish, fetcher, finisher, is_heavy, joined_axis, reads
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.packing import packed, panels, panels_of
from fusewise.codegen.steps.overwrite import shared_pointers
from fusewise.codegen.target import FIRST_LEVEL, InstructionSet, Target
from fusewise.codegen.view import OperandView, view_of
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, DType
from fusewise.lower.program import Packing, Panels
from fusewise.lower.task import RefusalReason, Task
from fusewise.records import record

__all__ = ["PAIRS", "PRODUCT", "MatrixProduct", "packing", "product_by", "understand"]

FLOATS = (FLOAT32, FLOAT64, FLOAT16, BFLOAT16)


@record(frozen=True)
class MatrixProduct:
    """MatMul and Gemm alike: out[outer, rows, column] = alpha * sum_k left * right + beta * addend.

    `right_outer` are the right operand's strides along the outer axes, `addend` strides are per index variable.
    """

    product: Product
    left: OperandView
    left_outer: tuple[int, ...]
    depth_stride: int
    right: OperandView
    right_outer: tuple[int, ...]
    right_depth: int
    right_column: int
    bias: OperandView | None = None
    addend: tuple[OperandView, Mapping[str, int]] | None = None
    alpha: float = 1.0
    beta: float = 1.0

    @property
    def dtype(self) -> DType:
        return self.product.dtype

    @property
    def depth(self) -> int:
        """Rows of the right operand, as many for every step as the instruction has terms."""
        return self.product.depth * self.product.instruction.terms


def understand(task: Task, instructions: InstructionSet) -> MatrixProduct | RefusalReason:
    """The task as a matrix product, or why it is none."""
    anchor = task.anchor
    if anchor is None or anchor.op not in ("MatMul", "Gemm"):
        return RefusalReason("no matrix product at the anchor")
    left, right = view_of(task, 0), view_of(task, 1)
    if isinstance(left, RefusalReason):
        return left
    if isinstance(right, RefusalReason):
        return right
    if left.operand.dtype not in FLOATS or right.operand.dtype != left.operand.dtype:
        return RefusalReason("element type has no matrix product kernel", left.operand.dtype.name)
    if right.operand.constant and (reads(task, right.operand.name) or left.operand.name == right.operand.name):
        return RefusalReason("the packed operand is also read otherwise", right.operand.name)
    return _matmul(task, left, right) if anchor.op == "MatMul" else _gemm(task, left, right)


def _matmul(task: Task, left: OperandView, right: OperandView) -> MatrixProduct:
    """NumPy's rules: one-dimensional operands lose their axis, leading axes are broadcast."""
    assert task.anchor is not None
    shape = task.anchor.output.dims
    has_rows, has_columns = len(left.shape) > 1, len(right.shape) > 1
    lead = len(shape) - has_rows - has_columns
    left_strides = _leading(left, 2 if has_rows else 1, lead)
    right_strides = _leading(right, 2 if has_columns else 1, lead)
    shared = [k for k in range(lead) if right_strides[k] == 0 or shape[k] == 1]
    apart = [k for k in range(lead) if k not in shared]
    rows = [RowAxis(f"i{k}", shape[k], left_strides[k]) for k in shared]
    if has_rows:
        rows.append(RowAxis(f"i{lead}", left.shape[-2], left.strides[-2]))
    if not rows:
        rows.append(RowAxis("row", 1, 0))
    product = Product(
        outer=tuple((f"i{k}", shape[k]) for k in apart),
        rows=tuple(rows),
        column=f"i{len(shape) - 1}" if has_columns else "column",
        columns=right.shape[-1] if has_columns else 1,
        depth=left.shape[-1],
        joined=joined_axis(task, [(axis.name, axis.extent) for axis in rows]),
        dtype=left.operand.dtype,
        instruction=fused_of(left.operand.dtype),
    )
    return MatrixProduct(
        product,
        left,
        tuple(left_strides[k] for k in apart),
        left.strides[-1],
        right,
        tuple(right_strides[k] for k in apart),
        right.strides[-2] if has_columns else right.strides[-1],
        right.strides[-1] if has_columns else 1,
    )


def _leading(view: OperandView, own: int, lead: int) -> list[int]:
    """Strides along the broadcast leading axes; 0 where the operand is broadcast."""
    strides = [0 if extent == 1 else stride for extent, stride in zip(view.shape[:-own], view.strides, strict=False)]
    return [0] * (lead - len(strides)) + strides


def _gemm(task: Task, left: OperandView, right: OperandView) -> MatrixProduct | RefusalReason:
    anchor = task.anchor
    assert anchor is not None
    row, depth = (1, 0) if anchor.attribute("transA", 0) else (0, 1)
    deep, column = (1, 0) if anchor.attribute("transB", 0) else (0, 1)
    alpha, beta = float(anchor.attribute("alpha", 1.0)), float(anchor.attribute("beta", 1.0))
    bias, addend = None, None
    if len(anchor.inputs) > 2 and anchor.inputs[2] is not None:
        third = view_of(task, 2)
        if isinstance(third, RefusalReason):
            return third
        by_row = len(third.shape) > 1 and third.shape[-2] != 1
        if not by_row and beta == 1.0 and (alpha == 1.0 or right.operand.constant):
            bias = third
        else:
            names = ("i0", "i1")[2 - len(third.shape) :]
            strides = {
                name: 0 if extent == 1 else stride
                for name, extent, stride in zip(names, third.shape, third.strides, strict=True)
            }
            addend = (third, strides)
    product = Product(
        outer=(),
        rows=(RowAxis("i0", left.shape[row], left.strides[row]),),
        column="i1",
        columns=right.shape[column],
        depth=left.shape[depth],
        dtype=left.operand.dtype,
        instruction=fused_of(left.operand.dtype),
    )
    return MatrixProduct(
        product,
        left,
        (),
        left.strides[depth],
        right,
        (),
        right.strides[deep],
        right.strides[column],
        bias,
        addend,
        alpha,
        beta,
    )


LONGEST_CHUNK = 512
"""The most steps of a chunk."""


def of_terms(instruction: Instruction, task: Task, instructions: InstructionSet) -> MatrixProduct | RefusalReason:
    """The product by an instruction of several terms, neighbours along the depth, or why there are none."""
    m, terms = understand(task, instructions), instruction.terms
    if isinstance(m, RefusalReason):
        return m
    if not m.right.operand.constant or m.alpha != 1.0 or m.left.operand.dtype != instruction.left:
        return RefusalReason(f"not a product of {instruction.left.name} with a constant matrix")
    steps = (m.left.offset, *m.left_outer, *(axis.stride for axis in m.product.rows))
    if m.product.depth % terms or m.depth_stride != 1 or any(step % terms for step in steps):
        return RefusalReason(f"neighbours of the reduction do not lie in {instruction.layout}", m.left.operand.name)
    rows = tuple(replace(axis, stride=axis.stride // terms) for axis in m.product.rows)
    depth = m.product.depth // terms
    return replace(
        m,
        product=replace(m.product, rows=rows, depth=depth, dtype=instruction.lane, instruction=instruction),
        left=replace(m.left, offset=m.left.offset // terms),
        left_outer=tuple(step // terms for step in m.left_outer),
    )


def _how_right(m: MatrixProduct, target: Target, lanes: int) -> str:
    """`packed` at compile time, `inplace`, or `repacked` by every worker."""
    if m.right.operand.constant:
        return "packed"
    if m.right_column != 1 or m.product.columns < lanes:
        return "repacked"
    size = m.dtype.itemsize
    is_far = m.right_depth * size > target.figures.caches.far_row and m.product.height >= 32
    fits = m.product.depth * m.product.columns * size <= target.l2_bytes // 2
    return "repacked" if is_far and fits else "inplace"


def _chunk(m: MatrixProduct, target: Target, rows: int, step_bytes: int) -> int:
    """Steps of a chunk of the reduction, of which each reads `step_bytes` of a panel: all of them, unless panels that many tiles
    of `rows` share are too long for the caches."""
    depth = m.product.depth
    if (
        m.product.outer
        or m.product.height < target.figures.sharing.least_tiles * rows
        or not is_long(depth * step_bytes, target)
    ):
        return depth
    return next((n for n in range(LONGEST_CHUNK, LONGEST_CHUNK // 4, -1) if depth % n == 0), depth)


@record(frozen=True)
class MatrixSchedule:
    """The schedule of the product, and how its right operand is read: `packed` at compile time, `inplace`, or `repacked` by every
    worker."""

    product: ProductSchedule
    right: str

    def with_prefetch(self, prefetch: Prefetch) -> MatrixSchedule:
        return replace(self, product=replace(self.product, prefetch=prefetch))


def _schedules(m: MatrixProduct, task: Task, target: Target) -> Iterable[MatrixSchedule]:
    instruction = m.product.instruction
    size, lanes = instruction.panel_bytes, widths(target, m.product.columns, instruction.sum.bits)
    how = _how_right(m, target, lanes[0])
    for tile in tiles_for(m.product, instruction.room(target), lanes)[:6]:
        chunk = _chunk(m, target, tile.rows, tile.width * size) if how == "packed" else m.product.depth
        row, right = chunk * m.dtype.itemsize, chunk * m.product.columns * size
        schedule = plan_product(m.product, target, tile, row, right)
        if chunk < m.product.depth:
            schedule = replace(schedule, chunk=chunk)
        if how == "repacked":
            # the copy is made once per outer index, so all tiles of it belong to one block
            schedule = replace(schedule, per_block=max(1, -(-m.product.height // tile.rows)))
        yield MatrixSchedule(prefetched(schedule, m.product, task, target), how)


def _arguments(m: MatrixProduct, task: Task, schedule: MatrixSchedule) -> tuple[Argument, ...]:
    tile = schedule.product.tile
    extra = []
    if schedule.right == "packed":
        extra.append(Argument(m.right.operand.name, packing(m, tile)))
    size = tile.instruction.sum.itemsize
    if schedule.product.chunk:
        extra.append(Argument("scratch", nbytes=m.product.kept(tile) * size))
    if schedule.right == "repacked":
        extra.append(working_memory(repacked_elements(m.product, tile) * size))
    if schedule.product.prefetch is not None:
        extra.append(Argument("later"))
    return operand_arguments(task, extra)


def packing(m: MatrixProduct, tile: Tile, multiple: int = 1) -> Packing:
    """The constant right operand in panels, a multiple of so many, scaled by alpha; for an instruction of several
    terms, as many of its rows in one."""
    instruction = m.product.instruction
    element = np.float64 if tile.element == "double" else np.float32

    def arrange(matrix: np.ndarray) -> np.ndarray:
        matrix = matrix.astype(element, copy=False)
        return panels(matrix if m.alpha == 1.0 else matrix * element(m.alpha), tile.lanes, tile.vectors, multiple)

    def arrange_terms(matrix: np.ndarray) -> np.ndarray:
        return panels(instruction.pack(matrix, -2), tile.lanes, tile.vectors)

    if instruction.terms > 1:
        return packed(_matrices(m), f"gemm {instruction.layout} {tile.vectors}x{tile.lanes}", arrange_terms)
    recipe = f"gemm panels {multiple}x{tile.vectors}x{tile.lanes} {tile.element} alpha {m.alpha!r}"
    return packed(_matrices(m), recipe, arrange, _panels(m, tile, multiple))


def _matrices(m: MatrixProduct) -> OperandView:
    """The right operand as [outer..., depth, columns]."""
    extents = tuple(extent for _, extent in m.product.outer)
    return OperandView(
        m.right.operand,
        (*extents, m.depth, m.product.columns),
        (*m.right_outer, m.right_depth, m.right_column),
        m.right.offset,
    )


def _panels(m: MatrixProduct, tile: Tile, multiple: int) -> Panels | None:
    """The packed right operand as data; None for types other than float."""
    if tile.element != "float":
        return None
    outer = tuple((extent, stride) for (_, extent), stride in zip(m.product.outer, m.right_outer, strict=True))
    columns = (m.product.columns, m.right_column)
    depth = ((m.product.depth, m.right_depth),)
    return panels_of(_matrices(m), (outer, depth, columns), tile.lanes, tile.vectors, (m.alpha,), multiple)


def _build(m: MatrixProduct, task: Task, instructions: InstructionSet, schedule: MatrixSchedule, symbol: str) -> str:
    product, tile = m.product, schedule.product.tile
    arguments = _arguments(m, task, schedule)
    module, f, pointers, share = enter(symbol, arguments, shared=shared_pointers(task))
    repacks = schedule.right == "repacked"
    scratch, tag = (find(f, pointers, arguments, share) if repacks else None for find in (scratch_of, tag_of))
    count = min(tile.lanes, product.columns)
    in_group = -(-product.columns // tile.width)
    right_pointer = pointers[m.right.operand.name]

    def right_offset(outer: Sequence[Int]) -> Int:
        offset: Int = m.right.offset
        for index, stride in zip(outer, m.right_outer, strict=True):
            offset = f.add(offset, f.mul(index, stride))
        return offset

    def left(outer: Sequence[Int], first: Int, last: Int) -> Left:
        offset: Int = m.left.offset
        for index, stride in zip(outer, m.left_outer, strict=True):
            offset = f.add(offset, f.mul(index, stride))
        if scratch is not None and tag is not None:
            source = f.at(right_pointer, right_offset(outer), memory_type(m.dtype))
            number = flat_index(f, outer, [extent for _, extent in product.outer])
            prepared(
                f,
                tag,
                number,
                lambda: repack(f, instructions, product, tile, source, (m.right_depth, m.right_column), scratch),
            )
        return Left(pointers[m.left.operand.name], offset, (ReductionLoop(product.depth, m.depth_stride),))

    def right(outer: Sequence[Int], group: Int, panel: Int, columns: Sequence[Int]) -> Panel:
        if schedule.right == "inplace":
            base = right_offset(outer)
            stored = memory_type(m.dtype)
            return Panel(tuple(f.at(right_pointer, f.add(base, c), stored) for c in columns), m.right_depth, m.dtype)
        start: Int = f.mul(panel, product.depth * tile.width)
        if scratch is None:
            flat = flat_index(f, outer, [extent for _, extent in product.outer])
            start = f.add(start, f.mul(flat, in_group * product.depth * tile.width))
        where = right_pointer if scratch is None else scratch
        element = tile.instruction.panel_element
        first = f.at(where, start, element)
        following = f.at(first, product.depth * tile.width, element) if scratch is None else None
        columns_at = tuple(f.at(first, v * tile.lanes, element) for v in range(tile.vectors))
        return Panel(columns_at, tile.width, tile.instruction.stored, following)

    def start(outer: Sequence[Int], columns: Sequence[Int]) -> list[Value]:
        return initial(f, instructions, pointers, m.bias, columns, tile.kind, count)

    finish = _scaled(f, instructions, m, pointers, finisher(f, task, instructions, pointers), schedule.right)
    kept = pointers["scratch"] if schedule.product.chunk else None
    parts = Parts(
        left,
        right,
        start,
        finish,
        rolled_finish=is_heavy(task),
        reading=fetcher(f, task, instructions, pointers, FIRST_LEVEL, schedule.product.far),
        kept=kept,
        later=pointers.get("later"),
    )
    emit_product(f, instructions, product, schedule.product, share, parts)
    f.give_back()
    return module.text()


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
    _schedules,
    _arguments,
    _build,
    cycles=_cycles,
    fetching=MatrixSchedule.with_prefetch,
    pieces=lambda m, target, schedule: product_pieces(m.product, target, schedule.product),
    writes_once=lambda m, schedule: m.product.is_written_once(schedule.product.tile),
)


def product_by(name: str, instruction: Instruction) -> Kernel[MatrixProduct, MatrixSchedule]:
    """The same of operands that an instruction of several terms takes."""
    return replace(PRODUCT, name=name, understand=partial(of_terms, instruction))


PAIRS = product_by("bfloat16-product", DPBF16)
