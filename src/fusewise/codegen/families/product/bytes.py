"""Reductions of unsigned bytes with constant signed ones, four to a lane, that panels of weights list step by step.

The left operand is read as it lies, around its zero point z, which is taken out of the sums. They are then exactly

    sum (x - z) * w  =  sum x * w  -  z * sum w

Weights that were bytes before their zero point was taken away may need one bit more: what does not fit a byte is a step of its
own (`byte_products.bytes_of`). A panel lists the steps of the reduction, and for each where the rows have their four bytes
(`byte_products.stream`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fusewise.codegen.cost import bound
from fusewise.codegen.families.product.loops import Parts
from fusewise.codegen.families.product.places import Left, row_pointers
from fusewise.codegen.families.product.plan import Product, merged
from fusewise.codegen.families.product.tiles import lanes_for
from fusewise.codegen.instructions.byte_products import HEADER, bytes_of, stream
from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.llvm.plain import zero_point
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tile import Ahead, Panel, Tile
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.packing import packed, panels
from fusewise.codegen.target import InstructionSet, Target
from fusewise.codegen.view import OperandView
from fusewise.ir.dtypes import INT8, INT16, INT32, UINT8
from fusewise.lower.program import Packing
from fusewise.lower.task import Anchor
from fusewise.ops.expr import Expr, cast, const

__all__ = ["LEAST_LANES", "by_bytes", "byte_panels", "byte_tiles", "centred", "unsigned", "unsigned_zero"]

LEAST_LANES = 4
"""Fewest columns to a vector."""


def unsigned(element: Expr) -> Expr:
    """Signed bytes with 128 added; others as they are."""
    return cast(cast(element, INT16) + const(128, INT16), UINT8) if element.dtype == INT8 else element


def centred(element: Expr, zero: Expr | None) -> Expr:
    """Less the zero point, in 16 bits."""
    wide = cast(element, INT16)
    return wide if zero is None else wide - cast(zero, INT16)


def byte_tiles(product: Product, target: Target) -> list[Tile]:
    """Tiles that fit the registers, the one with the fewest estimated cycles first.

    Beside the sums there are the weights of a step and their masks, a row's bytes, products and ones.
    """
    height, lanes = product.height, lanes_for(target, product.columns)
    vectors = -(-product.columns // lanes)
    axes, figures = merged(product.rows), target.figures.integer

    def cycles(tile: Tile) -> float:
        r, v = tile.rows, tile.vectors
        crossing = len(axes) > 1 and (axes[-1].extent % r != 0 or height % r != 0)
        # loads cost beside products, and so do registers that are all in use and masks for a single vector
        step = bound(r * v, r + 2 * v, target.figures.tile, latency=0) + figures.load * (r + v)
        step *= figures.tight if r * v + 2 * v > target.registers - 3 else 1.0
        step *= target.figures.tile.narrow if v == 1 else 1.0
        once = figures.tile + figures.finish * r * v / (v & -v) + (2 * r if crossing else 0)
        return (step * product.depth + once) * -(-height // r) * -(-vectors // v)

    most = target.registers - 2
    sizes = [(r, v) for v in range(1, 5) for r in range(1, 9) if v <= vectors and r <= height and r * v + 2 * v <= most]
    return sorted((Tile(r, v, lanes, product.instruction) for r, v in sizes), key=cycles)


def byte_panels(
    weights: OperandView, what: str, arrange: Callable[[np.ndarray], np.ndarray], places: np.ndarray, tile: Tile
) -> Packing:
    """Weights as a panel lists them; `arrange` gives bytes as matrices of lanes, [..., depth, columns], and `places` [depth] says
    where a row has each."""
    whole = not tile.instruction.saturates

    def pack(array: np.ndarray) -> np.ndarray:
        parts = [panels(arrange(part), tile.lanes, tile.vectors) for part in bytes_of(array)]
        every = parts[0] if len(parts) == 1 else np.concatenate(parts, -2)
        return stream(every, np.tile(places, len(parts)), tile.lanes, tile.rows * tile.vectors, whole)

    panel = f"{tile.rows}x{tile.vectors}x{tile.lanes}"
    return packed(weights, f"quads {what} in panels {panel} at {places.tolist()}{' whole' if whole else ''}", pack)


def unsigned_zero(anchor: Anchor) -> Expr:
    """The zero point of the unsigned bytes."""
    given = zero_point(anchor)
    zero = const(0, INT32) if given is None else cast(given, INT32)
    is_signed = anchor.prologue[0] is not None and anchor.prologue[0].dtype == INT8
    return zero + const(128, INT32) if is_signed else zero


def by_bytes(elements: Elements, product: Product, tile: Tile, weights: Value, zero: Value, parts: Parts) -> Parts:
    """The loops with a reduction of what `byte_panels` lists at `weights`, of bytes around `zero`."""
    f = elements.function
    in_group = -(-product.columns // tile.width)

    def right(outer: Sequence[Int], group: Int, panel: Int, columns: Sequence[Int]) -> Panel:
        number = f.add(f.mul(group, in_group), panel)
        return Panel((f.at(weights, f.mul(number, HEADER), "i32"),), 0)

    def reduced(
        tile: Tile, row: Int, left: Left, panel: Panel, sums: Sequence[Value], _: Sequence[Ahead]
    ) -> Sequence[Value]:
        rows = row_pointers(f, product, tile, left, row)
        return _reduce(f, elements.instructions, tile, rows, weights, panel.columns[0], zero)

    return replace(parts, right=right, taps=reduced)


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
