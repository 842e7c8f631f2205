"""Products of float32 with constant matrices of 16 bits, which lie in memory as they are stored.

They are products as others (`product.matrix`) by an instruction whose panels are of the shorter type. A few rows widen weights
where they multiply them, so that a token reads half as much. For many rows a worker widens a panel once for all tiles of a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from fusewise.codegen.families.product.loops import Parts
from fusewise.codegen.families.product.matrix import (
    PRODUCT,
    MatrixSchedule,
    arguments_by,
    matrix_schedules,
    packing,
    write_by,
)
from fusewise.codegen.families.product.shape import MatrixProduct, product_of
from fusewise.codegen.instructions.table import FUSED_SHORT
from fusewise.codegen.kernel import Argument, Kernel, working_memory
from fusewise.codegen.llvm.entry import OpenFunction, written
from fusewise.codegen.llvm.registers import widen
from fusewise.codegen.llvm.stores import reads
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.tile import Panel
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import InstructionSet, Target
from fusewise.codegen.view import short_view_of, view_of
from fusewise.ir.dtypes import FLOAT32, DType
from fusewise.lower.task import RefusalReason, Task

__all__ = ["SHORT_PRODUCTS", "of_short", "widened_copy"]

LEAST_TILES = 3
"""Tiles of a block that share a panel, from which on it is widened once for all of them: 64 rows by 896 and 4864 took 1.17 times
as long as in float32 where every tile widened it (Zen 4)."""

_PACKED, _WIDENED = "packed", "widened"

_TOGETHER = 4
"""Vectors that are widened one after the other."""


def of_short(instruction: Instruction, task: Task, instructions: InstructionSet) -> MatrixProduct | RefusalReason:
    """The product with a constant of the instruction's shorter type, or why it is none."""
    anchor = task.anchor
    if anchor is None or anchor.op not in ("MatMul", "Gemm"):
        return RefusalReason("no matrix product at the anchor")
    left, right = view_of(task, 0), short_view_of(task, 1)
    if isinstance(left, RefusalReason):
        return left
    if isinstance(right, RefusalReason):
        return right
    if left.operand.dtype != FLOAT32 or right.operand.dtype != instruction.short or not right.operand.constant:
        return RefusalReason("not float32 times a constant of the type", right.operand.dtype.name)
    if reads(task, right.operand.name):
        return RefusalReason("the packed operand is also read otherwise", right.operand.name)
    m = product_of(task, left, right)
    if isinstance(m, RefusalReason):
        return m
    if m.alpha != 1.0:
        return RefusalReason("weights of 16 bits are not scaled")
    return replace(m, product=replace(m.product, instruction=instruction))


def _schedules(m: MatrixProduct, task: Task, target: Target, most: int | None = 6) -> Iterable[MatrixSchedule]:
    """As of other products, panels widened for many rows, if one has room in the second cache level; with `most` None both ways."""
    for one in matrix_schedules(m, task, target, most):
        tiles = min(one.product.per_block, -(-m.product.height // one.product.tile.rows))
        has_room = _widened_bytes(m, one) <= target.l2_bytes // 2
        widens = tiles >= LEAST_TILES and has_room
        if widens:
            yield replace(one, product=replace(one.product, chunk=0), right=_WIDENED)
        if most is None or not widens:
            yield one


def _widened_bytes(m: MatrixProduct, schedule: MatrixSchedule) -> int:
    return m.product.depth * schedule.product.tile.width * FLOAT32.itemsize


def _arguments(m: MatrixProduct, task: Task, schedule: MatrixSchedule) -> tuple[Argument, ...]:
    found = arguments_by(packing, m, task, replace(schedule, right=_PACKED))
    return found if schedule.right == _PACKED else (*found, working_memory(_widened_bytes(m, schedule)))


def _write(o: OpenFunction, m: MatrixProduct, schedule: MatrixSchedule) -> None:
    adapt = None if schedule.right == _PACKED else _with_widened
    write_by(adapt, o, m, replace(schedule, right=_PACKED))


def _with_widened(o: OpenFunction, m: MatrixProduct, schedule: MatrixSchedule, parts: Parts) -> Parts:
    """A panel is widened before its tiles are reduced."""
    f, tile, before = o.f, schedule.product.tile, parts.right
    scratch, tag = o.scratch(), o.tag()

    def right(outer: Sequence[Int], group: Int, panel: Int, columns: Sequence[Int]) -> Panel:
        found = before(outer, group, panel, columns)
        assert found.dtype is not None and not outer, "one matrix of the shorter type"
        dtype, vectors = found.dtype, m.product.depth * tile.vectors
        f.stage(
            tag, panel, lambda: widened_copy(f, o.instructions, found.columns[0], dtype, scratch, vectors, tile.lanes)
        )
        return Panel(
            tuple(f.at(scratch, v * tile.lanes) for v in range(tile.vectors)), tile.width, None, found.following
        )

    return replace(parts, right=right)


def widened_copy(
    f: Function, instructions: InstructionSet, source: Value, dtype: DType, to: Value, vectors: int, lanes: int
) -> None:
    """Write so many vectors that lie side by side as float32."""
    stored = memory_type(dtype)
    together = next(n for n in (_TOGETHER, 2, 1) if vectors % n == 0)

    def some(number: Int, _: Sequence[Value]) -> None:
        first = f.mul(number, lanes)
        places = [f.add(first, v * lanes) for v in range(together)]
        given = [f.load(vector(stored, lanes), f.at(source, at, stored)) for at in places]
        for at, value in zip(places, given, strict=True):
            f.store(widen(f, instructions, value, dtype), f.at(to, at))

    f.loop(0, vectors, together, some, rolled=True)


def _kernel(instruction: Instruction) -> Kernel[MatrixProduct, MatrixSchedule]:
    return replace(
        PRODUCT,
        name=f"{instruction.short}-weights-product",
        understand=partial(of_short, instruction),
        schedules=_schedules,
        arguments=_arguments,
        build=written(_arguments, _write, overwrites=True),
        every=partial(_schedules, most=None),
    )


SHORT_PRODUCTS = tuple(map(_kernel, FUSED_SHORT))
"""By the type of the weights."""
