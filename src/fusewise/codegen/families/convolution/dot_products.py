"""Convolutions of 8-bit integers as they are: the direct convolution over lanes of four channels, summed exactly in 32 bits.

Takes a task whose anchor is a ConvInteger; gives LLVM IR for machines that multiply unsigned by signed bytes
(`instructions.table`). Unsigned inputs that lie with their channels side by side are read in place where no tap leaves them;
others are copied into a strip, signed ones with 128 added, and padded with the zero point z. It is taken out of the sums, which are
then exactly

    sum (x - z) * w  =  sum x * w  -  z * sum w

Weights that were bytes before their zero point was taken away may need one bit more: what does not fit a byte is a step of its
own (`byte_products.bytes_of`). A panel of weights lists the steps of the reduction, and for each where the rows have their four
bytes (`byte_products.stream`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from fusewise.codegen.families.convolution.integer import Rows, in_lanes, line_of, rows_of
from fusewise.codegen.families.convolution.loops import (
    OpenFunction,
    RowFill,
    direct_arguments,
    emit_direct,
    matrices,
    padded_rows,
)
from fusewise.codegen.families.convolution.plan import Direct, DirectSchedule, directs_of, favourite, within_cache
from fusewise.codegen.families.convolution.shape import Convolution, integer_convolution_of
from fusewise.codegen.families.product.loops import Left, Parts, row_pointers
from fusewise.codegen.families.product.plan import merged, plan_product, prefetched
from fusewise.codegen.families.product.tile import Ahead, Panel, ReductionLoop, Tile
from fusewise.codegen.families.product.tiles import lanes_for
from fusewise.codegen.instructions.byte_products import HEADER, bytes_of, stream
from fusewise.codegen.instructions.table import Instruction, for_bytes
from fusewise.codegen.kernel import Argument, Kernel
from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.llvm.entry import enter
from fusewise.codegen.llvm.stores import finisher
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.packing import packed, panels
from fusewise.codegen.target import InstructionSet, Target
from fusewise.codegen.view import OperandView
from fusewise.ir.dtypes import INT8, INT16, INT32, UINT8
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.expr import Expr, cast, const

__all__ = ["QUAD_CONV"]

LEAST_LANES = 4
"""Fewest output channels to a vector."""


def convolution(task: Task, instruction: Instruction) -> Convolution | RefusalReason:
    """The task's ConvInteger as a convolution of quads: a quarter of the input channels, of INT32."""
    given = integer_convolution_of(task)
    if isinstance(given, RefusalReason):
        return given
    if given.groups > 1 and given.inputs % 4:
        return RefusalReason("groups whose channels do not fill lanes of four")
    if len(given.spatial) > 2:
        return RefusalReason("more than two spatial axes")
    if given.weight.operand.dtype not in (INT8, INT16):
        return RefusalReason("weights are not signed", given.weight.operand.dtype.name)
    if _is_in_place(given):
        return _in_place(given, instruction)
    anchor = task.anchor
    assert anchor is not None and anchor.prologue[0] is not None
    element = anchor.prologue[0]
    if element.dtype == INT8:
        element = cast(cast(element, INT16) + const(128, INT16), UINT8)
    return in_lanes(given, element, instruction)


def _is_in_place(given: Convolution) -> bool:
    """Are four channels one aligned element of the input, and are there no others to be read?"""
    data = given.data
    steps = (*data.strides[:1], *data.strides[2:], data.offset)
    return (
        given.computed is None
        and data.operand.dtype == UINT8
        and given.inputs % 4 == 0
        and data.strides[1] == 1
        and all(step % 4 == 0 for step in steps)
        and all(axis.is_inside for axis in given.spatial)
    )


def _in_place(given: Convolution, instruction: Instruction) -> Convolution:
    data, inputs = given.data, given.inputs // 4
    batch, _, *strides = (step // 4 for step in data.strides)
    shape = (data.shape[0], data.shape[1] // 4, *data.shape[2:])
    view = OperandView(replace(data.operand, dtype=instruction.lane), shape, (batch, 1, *strides), data.offset // 4)
    return replace(given, inputs=inputs, data=view, instruction=instruction)


def _understand(task: Task, instructions: InstructionSet) -> Rows | RefusalReason:
    instruction = for_bytes(instructions)
    if instruction is None:
        return RefusalReason("the machine has no products of unsigned and signed bytes")
    shape = convolution(task, instruction)
    if isinstance(shape, RefusalReason):
        return shape
    if shape.computed is None:
        rows = Rows(directs_of(shape, task, instructions), shape.channels * 4, (), ())
    else:
        rows = rows_of(shape, task, instructions)
    if lanes_for(instructions, rows.shape.outputs) < LEAST_LANES:
        return RefusalReason("too few output channels for a vector")
    return rows


def _declines(found: Rows, task: Task, target: Target) -> RefusalReason | None:
    beside = favourite(found.directs, target).side_by_side > 1
    return RefusalReason("groups are narrow enough to share a vector") if beside else None


def _tiles(d: Direct, target: Target) -> list[Tile]:
    """Tiles that fit the registers, the one with the fewest estimated cycles first.

    Beside the sums there are the weights of a step and their masks, a row's bytes, products and ones.
    """
    height, lanes = d.product.height, lanes_for(target, d.shape.outputs)
    vectors = -(-d.product.columns // lanes)
    axes, figures = merged(d.product.rows), target.figures.integer

    def cycles(tile: Tile) -> float:
        r, v = tile.rows, tile.vectors
        crossing = len(axes) > 1 and (axes[-1].extent % r != 0 or height % r != 0)
        # loads cost beside products, and so do registers that are all in use and masks for a single vector
        step = max(r * v, 0.55 * (r + 2 * v)) + 0.2 * (r + v)
        step *= (1.04 if r * v + 2 * v > target.registers - 3 else 1.0) * (1.08 if v == 1 else 1.0)
        once = figures.tile + figures.finish * r * v / (v & -v) + (2 * r if crossing else 0)
        return (step * d.product.depth + once) * -(-height // r) * -(-vectors // v)

    most = target.registers - 2
    sizes = [(r, v) for v in range(1, 5) for r in range(1, 9) if v <= vectors and r <= height and r * v + 2 * v <= most]
    return sorted((Tile(r, v, lanes, d.product.instruction) for r, v in sizes), key=cycles)


def _schedules(found: Rows, task: Task, target: Target) -> Iterable[DirectSchedule]:
    d = found.directs[0]
    right_bytes = d.product.groups * d.product.depth * d.product.columns * 6
    row_bytes = d.shape.channels * 4
    if d.strip is not None:
        row_bytes *= d.strip.rows.stride * d.strip.columns.stride
    for tile in _tiles(d, target)[:6]:
        schedule = plan_product(d.product, target, tile, row_bytes, right_bytes)
        schedule = schedule if d.strip is None else within_cache(d.strip, schedule, target)
        yield DirectSchedule(prefetched(schedule, d.product, task, target))


def _places(d: Direct) -> np.ndarray:
    """Where a row has the elements of each step of the reduction, from its first one."""
    if d.strip is None:
        strides = d.shape.data.strides[2:]
        taps = [
            ReductionLoop(axis.kernel, axis.dilation * step)
            for axis, step in zip(d.shape.spatial, strides, strict=True)
        ]
        levels: Sequence[ReductionLoop] = (*taps, ReductionLoop(d.shape.inputs, 1))
    else:
        levels = d.strip.levels(d.shape.inputs, 0)
    found = np.zeros(1, np.int32)
    for level in levels:
        found = np.add.outer(found, np.arange(level.extent, dtype=np.int32) * np.int32(level.stride)).reshape(-1)
    return found


def _arguments(found: Rows, task: Task, schedule: DirectSchedule) -> tuple[Argument, ...]:
    d, tile = found.directs[0], schedule.product.tile
    whole = not tile.instruction.saturates
    places = _places(d)

    def pack(weight: np.ndarray) -> np.ndarray:
        parts = [
            panels(matrices(_joined(part, d.shape), d.shape, 1), tile.lanes, tile.vectors) for part in bytes_of(weight)
        ]
        every = np.concatenate(parts, -2)
        return stream(every, np.tile(places, len(parts)), tile.lanes, tile.rows * tile.vectors, whole)

    panel = f"{tile.rows}x{tile.vectors}x{tile.lanes} groups {d.shape.groups}"
    name = f"quads of channels in panels {panel} at {places.tolist()}{' whole' if whole else ''}"
    return direct_arguments(d, task, schedule, packed(d.shape.weight, name, pack))


def _joined(weight: np.ndarray, shape: Convolution) -> np.ndarray:
    """Signed bytes with four input channels as one int32 each."""
    joined = shape.instruction.pack(weight, 1)
    return joined.reshape(*joined.shape[:2], *(axis.kernel for axis in shape.spatial))


def _build(found: Rows, task: Task, instructions: InstructionSet, schedule: DirectSchedule, symbol: str) -> str:
    d, arguments = found.directs[0], _arguments(found, task, schedule)
    module, f, pointers, share = enter(symbol, arguments)
    elements, tile = Elements(f, task, instructions, pointers), schedule.product.tile
    zero = _zero(f, task, elements)
    fill = pad = None
    if d.strip is not None:
        pad = f.convert("trunc", zero, "i8")
        fill = padded_rows(f, d.shape, d.strip, line_of(f, found, elements), pad)
    weights = pointers[d.shape.weight.operand.name]
    in_group = -(-d.product.columns // tile.width)

    def right(outer: Sequence[Int], group: Int, panel: Int, columns: Sequence[Int]) -> Panel:
        number = f.add(f.mul(group, in_group), panel)
        return Panel((f.at(weights, f.mul(number, HEADER), "i32"),), 0)

    def reduced(
        tile: Tile, row: Int, left: Left, panel: Panel, sums: Sequence[Value], _: Sequence[Ahead]
    ) -> Sequence[Value]:
        rows = row_pointers(f, d.product, tile, left, row)
        return _reduce(f, instructions, tile, rows, weights, panel.columns[0], zero)

    def adapt(parts: Parts) -> Parts:
        return replace(parts, right=right, taps=reduced)

    finish = finisher(f, task, instructions, pointers)
    emit_direct(
        OpenFunction(f, task, instructions, arguments, pointers, share), d, schedule, finish, RowFill(fill, pad), adapt
    )
    f.give_back()
    return module.text()


def _zero(f: Function, task: Task, elements: Elements) -> Value:
    """The zero point of the unsigned bytes, an i32."""
    anchor = task.anchor
    assert anchor is not None and anchor.prologue[0] is not None
    given = anchor.prologue[2] if len(anchor.prologue) > 2 else None
    element: Expr = const(0, INT32) if given is None else cast(given, INT32)
    if anchor.prologue[0].dtype == INT8:
        element = element + const(128, INT32)
    return elements.at({}).value(element)


def _reduce(
    f: Function,
    instructions: InstructionSet,
    tile: Tile,
    rows: Sequence[Value],
    weights: Value,
    header: Value,
    zero: Value,
) -> Sequence[Value]:
    """The sums of a tile: what they begin with, and the three kinds of steps of a panel."""
    front_at, panel_at, unmasked, same, every = (_index(f, f.at(header, k, "i32")) for k in range(HEADER))
    front, panel = f.at(weights, front_at, "i32"), f.at(weights, panel_at, "i32")
    places = f.at(front, 2 * tile.width, "i32")

    def begin(v: int) -> Value:
        total, taken = (f.load(tile.kind, f.at(front, v * tile.lanes + k * tile.width, "i32")) for k in range(2))
        return f.binary("sub", taken, f.binary("mul", total, f.splat(zero, tile.lanes)))

    def some(low: Int, high: Int, first: Value, masks: int, sums: Sequence[Value]) -> Sequence[Value]:
        """The steps low..high, whose weights begin at `first`, each after so many vectors of masks."""
        width = (masks + tile.vectors) * tile.lanes

        def step(k: Value, carried: Sequence[Value]) -> list[Value]:
            at = f.at(first, f.mul(f.sub(k, low), width), "i32")
            place, result = _index(f, f.at(places, k, "i32")), list(carried)
            vectors = [f.load(tile.kind, f.at(at, c, "i32")) for c in range(0, width, tile.lanes)]
            for r, pointer in enumerate(rows):
                value = f.splat(f.load("i32", f.at(pointer, place, "i32"), 1), tile.lanes)
                left = [f.binary("xor", value, mask) for mask in vectors[:masks]] or [value]
                for v, column in enumerate(vectors[masks:]):
                    number = r * tile.vectors + v
                    x = left[v % len(left)]
                    result[number] = tile.instruction.add(f, instructions, x, column, result[number])
            return result

        return f.loop(low, high, 1, step, tuple(sums), rolled=True)

    sums = some(0, unmasked, panel, 0, [begin(v) for v in range(tile.vectors)] * tile.rows)
    if not tile.instruction.saturates:
        return sums
    second = f.at(panel, f.mul(unmasked, tile.width), "i32")
    sums = some(unmasked, same, second, 1, sums)
    third = f.at(second, f.mul(f.sub(same, unmasked), tile.width + tile.lanes), "i32")
    return some(same, every, third, tile.vectors, sums)


def _index(f: Function, at: Value) -> Value:
    """The number that lies there."""
    return f.convert("sext", f.load("i32", at), "i64")


QUAD_CONV = Kernel("byte-convolution", _understand, _schedules, _arguments, _build, _declines)
