"""Strassen's algorithm as kernels: matrix products with a constant right operand, and 1x1 convolutions.

Not under `--exact`: an element of the result is then a difference of larger sums, whose rounding it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from fusewise.codegen.families.convolution.loops import direct_arguments, matrices, matrix_axes, weight_packing
from fusewise.codegen.families.convolution.plan import Direct, DirectSchedule, directs_of
from fusewise.codegen.families.convolution.shape import Convolution, convolution_of
from fusewise.codegen.families.product.matrix import packing
from fusewise.codegen.families.product.places import row_address
from fusewise.codegen.families.product.plan import ProductSchedule, RowAxis
from fusewise.codegen.families.product.shape import MatrixProduct, understand
from fusewise.codegen.families.product.short_weights import of_short
from fusewise.codegen.families.strassen.loops import emit_strassen
from fusewise.codegen.families.strassen.plan import (
    PAIR,
    FreeStrassenSchedule,
    Halves,
    StrassenSchedule,
    completed,
    declined,
    free_schedule,
    halves_of,
    panels_of,
    strassen_cycles,
    strassen_space,
)
from fusewise.codegen.families.strassen.room import Ends, OperandRow, Room, Rows, strassen_bytes
from fusewise.codegen.instructions.table import FUSED_SHORT
from fusewise.codegen.kernel import Argument, Kernel, working_memory
from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.llvm.entry import OpenFunction, initial, operand_arguments, written
from fusewise.codegen.llvm.point import Point
from fusewise.codegen.llvm.share import pieces_of
from fusewise.codegen.llvm.stores import fetcher
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.target import SECOND_LEVEL, InstructionSet, Target
from fusewise.codegen.view import OperandView
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.size import SizeNeeded
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.expr import walk
from fusewise.records import record

__all__ = ["SHORT_STRASSEN", "STRASSEN", "STRASSEN_CONV"]


OfTask = Callable[[Task, InstructionSet], MatrixProduct | RefusalReason]


@record(frozen=True)
class Understood:
    """A task in halves: what it is `whole`; its left operand, or the convolution whose input is computed; the name of the right
    one; the bias."""

    halves: Halves
    whole: MatrixProduct | Direct
    left: OperandView | Convolution
    right: str
    bias: OperandView | None


def _product(of: OfTask, task: Task, instructions: InstructionSet) -> Understood | RefusalReason:
    """A matrix product in halves, or why it is none."""
    m = of(task, instructions)
    if isinstance(m, RefusalReason):
        return m
    if task.exact or m.dtype != FLOAT32 or not m.right.operand.constant:
        return RefusalReason("exact, not of float32, or of a right operand that changes")
    if m.product.outer or m.depth_stride != 1 or m.addend is not None:
        return RefusalReason("not one product of two plain matrices")
    halves = halves_of(m.product, instructions)
    if isinstance(halves, RefusalReason):
        return halves
    short = m.product.instruction.short
    return Understood(replace(halves, short=short), m, m.left, m.right.operand.name, m.bias)


def _convolution(task: Task, instructions: InstructionSet) -> Understood | RefusalReason:
    """A 1x1 convolution in halves, or why it is none."""
    shape = convolution_of(task)
    if isinstance(shape, RefusalReason):
        return shape
    if task.exact or shape.dtype != FLOAT32:
        return RefusalReason("exact, or not of float32")
    if shape.taps > 1 or shape.groups > 1 or shape.planar or not all(axis.is_inside for axis in shape.spatial):
        return RefusalReason("not one product of pixels and channels")
    (d,), is_computed = directs_of(replace(shape, computed=None), task, instructions), shape.computed is not None
    halves = halves_of(d.product, instructions, convolves=True, computed=is_computed)
    if isinstance(halves, RefusalReason):
        return halves
    return Understood(halves, d, shape if is_computed else shape.data, shape.weight.operand.name, shape.bias)


def _schedules(u: Understood, task: Task, target: Target) -> Iterable[StrassenSchedule]:
    found = (completed(schedule, u.halves, task, target) for schedule in strassen_space(u.halves, target))
    if not u.halves.free:
        return found
    return (
        free_schedule(one, u.halves, target) for one in found if u.halves.product.columns % (PAIR * one.tile.width) == 0
    )


def _declines(u: Understood, task: Task, target: Target) -> RefusalReason | None:
    reason = declined(u.halves, target)
    if reason is None and u.halves.free and not any(True for _ in _schedules(u, task, target)):
        return RefusalReason("panels of no tile go together in pairs")
    return reason


def _arguments(u: Understood, task: Task, schedule: StrassenSchedule) -> tuple[Argument, ...]:
    following = [Argument("next")] if schedule.fetches_next else []
    memory = working_memory(strassen_bytes(u.halves, schedule))
    return (*_operands(u.whole, task, schedule), *following, memory)


def _operands(whole: MatrixProduct | Direct, task: Task, schedule: StrassenSchedule) -> tuple[Argument, ...]:
    """Those that it takes whole, too, but for the right one's panels, which come in pairs."""
    pair = (
        1 if isinstance(schedule, FreeStrassenSchedule) else PAIR
    )  # they do in any case, and other versions share them
    if isinstance(whole, MatrixProduct):
        later = [] if schedule.prefetch is None else [Argument("later")]
        right = Argument(whole.right.operand.name, packing(whole, schedule.tile, pair))
        return operand_arguments(task, [right, *later])
    shape = whole.shape
    product = ProductSchedule(schedule.tile, schedule.per_block, by_columns=False, prefetch=schedule.prefetch)
    recipe, axes = "convolution", matrix_axes(shape, 1)
    weights = weight_packing(whole, product.tile, lambda weight: matrices(weight, shape, 1), recipe, axes, pair)
    return direct_arguments(whole, task, DirectSchedule(product), weights)


def _write(o: OpenFunction, u: Understood, schedule: StrassenSchedule) -> None:
    f, instructions, pointers, lanes = o.f, o.instructions, o.pointers, schedule.tile.lanes
    if isinstance(schedule, FreeStrassenSchedule) and u.halves.product.height < schedule.least:
        raise SizeNeeded(f"halves of {u.halves.product.height} rows do not pay")

    def start(columns: Sequence[Int]) -> list[Value]:
        return initial(o, u.bias, columns, vector("float", lanes), lanes)

    if isinstance(u.left, OperandView):
        first = f.at(pointers[u.left.operand.name], u.left.offset)
        left, rows = first, _in_place(f, first, u.halves.rows, lanes)
    else:
        left, rows = None, _computed(f, u.left, o.elements, lanes)
    ends = Ends(
        rows=rows,
        left=left,
        right=pointers[u.right],
        start=start,
        finish=o.finish,
        fetch=fetcher(o.elements, SECOND_LEVEL, schedule.far),
        own=o.scratch(),
        tag=o.tag(),
        later=pointers.get("later"),
        following=pointers.get("next"),
    )
    emit_strassen(f, instructions, Room(u.halves, schedule), o.share, ends)


def _in_place(f: Function, left: Value, axes: Sequence[RowAxis], lanes: int) -> Rows:
    """Rows that lie in memory, along some axes from the first element of the `left` operand on."""

    def row(number: Int) -> OperandRow:
        start = f.at(left, row_address(f, axes, number))

        def fetch(k: Int) -> None:
            f.prefetch(f.at(start, k), SECOND_LEVEL)

        return OperandRow(lambda k: f.load(vector("float", lanes), f.at(start, k)), fetch)

    return row


def _computed(f: Function, shape: Convolution, elements: Elements, lanes: int) -> Rows:
    """What is fused in front of a convolution, evaluated for a vector of channels of an output's pixel."""
    element, names = shape.computed, [f"p{k + 2}" for k in range(len(shape.spatial))]
    assert element is not None
    maps = [e for e in walk(element) if e.op == "load" and any(i.op == "index" and i.value in names for i in walk(e))]

    def row(number: Int) -> OperandRow:
        pixel: dict[str, Int] = {}
        for name, axis in zip(reversed(names), reversed(shape.spatial), strict=True):
            pixel[name], number = f.mul(f.urem(number, axis.out), axis.stride), f.udiv(number, axis.out)

        def at(k: Int) -> Point:
            return elements.at({"p0": number, **pixel, "p1": k}, "p1", lanes)

        def fetch(k: Int) -> None:
            for e in maps:
                at(k).fetch(str(e.value), e.args, SECOND_LEVEL)

        return OperandRow(lambda k: at(k).value(element), fetch)

    return row


def _pieces(u: Understood, target: Target, schedule: StrassenSchedule) -> int:
    tiles, panels = u.halves.tiles(schedule.tile), panels_of(u.halves, schedule.tile) // 2
    blocks = -(-tiles // schedule.per_block)
    return pieces_of(tiles * panels, _cycles(u, target, schedule), target, blocks * panels)


def _cycles(u: Understood, target: Target, schedule: StrassenSchedule) -> int:
    return strassen_cycles(u.halves, target, schedule.tile)


STRASSEN = Kernel(
    "strassen-product",
    partial(_product, understand),
    _schedules,
    _arguments,
    written(_arguments, _write, hides_counters=True, overwrites=True),
    declines=_declines,
    cycles=_cycles,
    fetching=StrassenSchedule.with_prefetch,
    pieces=_pieces,
    writes_once=lambda u, schedule: u.halves.is_written_once(schedule.tile),
    saves=lambda u, schedule: 8 / 7,
    effort=2,
    level=lambda schedule: "bare",
)
STRASSEN_CONV = replace(STRASSEN, name="strassen-convolution", understand=_convolution)

SHORT_STRASSEN: tuple[Kernel[Understood, StrassenSchedule], ...] = tuple(
    replace(
        STRASSEN, name=f"strassen-{row.short}-weights-product", understand=partial(_product, partial(of_short, row))
    )
    for row in FUSED_SHORT
)
"""By the type of the weights, of 16 bits."""
