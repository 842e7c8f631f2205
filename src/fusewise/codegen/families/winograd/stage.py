"""Inputs of few channels set side by side, for the first convolution of a network, of stride 2 over three planes.

A pixel of the stage holds the channels of all phases: with stride 2, those of 2 x 2 input pixels. They fill a vector, so that a
tile is transformed as any other. The stage holds the rows that one row of tiles spans, and is filled when the first tile of a
row is transformed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from fusewise.codegen.families.winograd.input import Transform
from fusewise.codegen.families.winograd.plan import WinogradPlan
from fusewise.codegen.llvm.registers import widen
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.nest.types import memory_type
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.size import greatest, least

__all__ = ["emit_staged_tile"]


def emit_staged_tile(transform: Transform, stage: Value, tile: Int, is_first: Value, target: Value) -> None:
    """Transform one tile, as `emit_input_tile` does; fill the `stage` before the first tile of a strip and of a row.

    Tiles come in order, and memory of the stage that no input pixel belongs to is zero.
    """
    f, plan = transform.a.f, transform.plan
    n, depth, row, column, _ = plan.grid.locate(f, tile)
    begins = f.binary("or", is_first, f.compare("icmp eq", f.add(column, 0), 0))
    f.when(begins, lambda: _fill(transform, stage, n, depth, row))
    first = f.at(stage, f.mul(column, plan.form.columns.tile * plan.row_pitch))

    def lines(j: Value) -> list[Value]:
        here = f.at(first, f.mul(j, plan.row_pitch))
        return [f.at(here, k * plan.stage_columns * plan.row_pitch) for k in range(plan.form.rows.span)]

    transform.emit(plan.row_pitch, FLOAT32, lines, target, lambda c: c)


def _fill(transform: Transform, stage: Value, n: Int, depth: Int, tile_row: Int) -> None:
    """Copy the input rows of a row of tiles as floats; those outside are zeros."""
    f, plan = transform.a.f, transform.plan
    planes, data = plan.planes, plan.planes.shape.data
    rows, columns, pitch = planes.rows, planes.columns, plan.row_pitch
    dtype, stored = planes.shape.dtype, memory_type(planes.shape.dtype)
    slice_at = f.mul(depth, planes.slices.stride * planes.strides[0])
    offset = f.add(f.add(data.offset, f.mul(n, data.strides[0])), slice_at)

    def row(k: Value, _: Sequence[Value]) -> None:
        first = f.mul(f.add(f.mul(tile_row, plan.form.rows.tile), k), rows.stride)
        there = f.at(stage, f.mul(k, plan.stage_columns * pitch))
        for r in range(rows.stride):
            height = f.add(first, r - rows.before)
            inside = f.compare("icmp ult", f.add(height, 0), rows.extent)
            begin = f.at(transform.source, f.add(offset, f.mul(height, planes.strides[1])), stored)
            lines = [
                f.select(inside, f.at(begin, c * data.strides[1], stored), transform.zeros)
                for c in range(planes.shape.inputs)
            ]

            def copy(j: Int, s: int, r: int = r, lines: list[Value] = lines) -> None:
                skip = f.mul(f.add(f.mul(j, columns.stride), s - columns.before), planes.strides[2])
                pixel = f.at(there, f.add(f.mul(j, pitch), (r * columns.stride + s) * planes.shape.inputs))
                for c, line in enumerate(lines):
                    value = widen(f, transform.a.instructions, f.load(stored, f.at(line, skip, stored)), dtype)
                    f.store(value, f.at(pixel, c))

            def all_phases(j: Value, _: Sequence[Value]) -> None:
                for s in range(columns.stride):
                    copy(j, s)

            if planes.free:
                _free_columns(f, plan, copy)
                continue
            whole, edges = _columns(plan)
            f.loop(whole.start, whole.stop, 1, all_phases, rolled=True)
            for j, s in edges:
                copy(j, s)

    f.loop(0, plan.form.rows.span, 1, row, rolled=True)


def _free_columns(f: Function, plan: WinogradPlan, copy: Callable[[Int, int], None]) -> None:
    """`copy` the phases of every column of the stage that are in the input, where it is not known how wide that is."""
    axis = plan.planes.columns
    low = least(-(-axis.before // axis.stride), plan.stage_columns)
    high = greatest(low, least(plan.stage_columns, (axis.extent + axis.before) // axis.stride))

    def whole(j: Value, _: Sequence[Value]) -> None:
        for s in range(axis.stride):
            copy(j, s)

    def edge(j: Value, _: Sequence[Value]) -> None:
        for s in range(axis.stride):
            at = f.add(f.mul(j, axis.stride), s - axis.before)
            f.when(f.compare("icmp ult", at, axis.extent), lambda s=s: copy(j, s))  # type: ignore[misc]

    f.loop(low, high, 1, whole, rolled=True)
    f.loop(0, low, 1, edge, rolled=True)
    f.loop(high, plan.stage_columns, 1, edge, rolled=True)


def _columns(plan: WinogradPlan) -> tuple[range, list[tuple[int, int]]]:
    """The columns of the stage whose phases are all in the input; and column and phase of the others that are."""
    axis = plan.planes.columns
    low = -(-axis.before // axis.stride)
    high = max(low, min(plan.stage_columns, (axis.extent + axis.before) // axis.stride))
    others = product([*range(min(low, plan.stage_columns)), *range(high, plan.stage_columns)], range(axis.stride))
    edges = [(j, s) for j, s in others if 0 <= j * axis.stride + s - axis.before < axis.extent]
    return range(low, high), edges
