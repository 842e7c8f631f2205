"""Packs a right operand that is only known at run time into panels, as `codegen.packing` does for constants.

Keys of an attention are stored with the depth as the fastest axis; square blocks of them are transposed in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewise.codegen.families.product.places import column_at
from fusewise.codegen.families.product.plan import Product
from fusewise.codegen.llvm.registers import widen
from fusewise.codegen.llvm.square import transposed
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import InstructionSet

__all__ = ["repack", "repacked_elements"]


def repacked_elements(product: Product, tile: Tile) -> int:
    """Elements of the packed right operand of one outer index."""
    return -(-product.columns // tile.width) * tile.width * product.depth


def repack(
    f: Function,
    instructions: InstructionSet,
    product: Product,
    tile: Tile,
    source: Value,
    strides: tuple[int, int],
    scratch: Value,
) -> None:
    """Copy the operand at `source`, [depth, columns] with these strides, to `scratch` as [panel][depth][vector][lane]."""
    panel_elements, (depth_stride, column_stride) = product.depth * tile.width, strides
    in_blocks = depth_stride == 1 and 1 < tile.lanes <= min(product.depth, product.columns)

    def one_panel(p: Value, _: Sequence[Value]) -> None:
        for v in range(tile.vectors):
            column = column_at(product, tile, p, v, f)
            to = f.at(scratch, f.add(f.mul(p, panel_elements), v * tile.lanes), tile.element)
            start = f.at(source, f.mul(column, column_stride), memory_type(product.dtype))
            if in_blocks:
                _blocks(f, instructions, product, tile, start, column_stride, to)
            elif column_stride == 1 and tile.lanes <= product.columns:
                _vectors(f, instructions, product, tile, start, depth_stride, to)
            else:
                _elements(f, instructions, product, tile, start, strides, to)

    f.loop(0, -(-product.columns // tile.width), 1, one_panel, rolled=True)


def _vectors(
    f: Function, instructions: InstructionSet, product: Product, tile: Tile, start: Value, depth_stride: int, to: Value
) -> None:
    stored = memory_type(product.dtype)

    def step(k: Value, _: Sequence[Value]) -> None:
        raw = f.load(vector(stored, tile.lanes), f.at(start, f.mul(k, depth_stride), stored))
        f.store(widen(f, instructions, raw, product.dtype), f.at(to, f.mul(k, tile.width), tile.element))

    f.loop(0, product.depth, 1, step, rolled=True)


def _elements(
    f: Function,
    instructions: InstructionSet,
    product: Product,
    tile: Tile,
    start: Value,
    strides: tuple[int, int],
    to: Value,
) -> None:
    stored, (depth_stride, column_stride) = memory_type(product.dtype), strides
    count = min(tile.lanes, product.columns)

    def step(k: Value, _: Sequence[Value]) -> None:
        for lane in range(tile.lanes):
            where = f.at(to, f.add(f.mul(k, tile.width), lane), tile.element)
            if lane >= count:
                f.store(f.constant(0.0, tile.element), where)
                continue
            offset = f.add(f.mul(k, depth_stride), lane * column_stride)
            f.store(widen(f, instructions, f.load(stored, f.at(start, offset, stored)), product.dtype), where)

    f.loop(0, product.depth, 1, step, rolled=True)


def _blocks(
    f: Function, instructions: InstructionSet, product: Product, tile: Tile, start: Value, column_stride: int, to: Value
) -> None:
    lanes, stored = tile.lanes, memory_type(product.dtype)

    def block(k: Value, _: Sequence[Value]) -> None:
        at: Int = k if product.depth % lanes == 0 else f.minimum(k, product.depth - lanes)
        columns = [
            widen(
                f,
                instructions,
                f.load(vector(stored, lanes), f.at(start, f.add(at, lane * column_stride), stored)),
                product.dtype,
            )
            for lane in range(lanes)
        ]
        for number, row in enumerate(transposed(f, columns)):
            f.store(row, f.at(to, f.mul(f.add(at, number), tile.width), tile.element))

    f.loop(0, product.depth, lanes, block, rolled=True)
