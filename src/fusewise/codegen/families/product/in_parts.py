"""Floats as sums of two bfloat16, which a matrix unit multiplies in their place.

    x = hi + lo + rest,  hi = x rounded to bfloat16,  lo = x - hi rounded to it,  |lo| <= 2^-8 |x|,  |rest| <= 2^-16 |x|
    x * y  =  hi * hi' + hi * lo' + lo * hi' + what is left out: lo * lo', and x or y times a rest, at most 3 * 2^-16 |x * y|

What is left out has either sign, so it adds up much less than products do.

The unit takes subnormal numbers for zeros and gives none. So it multiplies rows, and right operands, whose largest magnitude is
within `LEAST` and `MOST`, or 0: parts and their products are then normal numbers, and sums finite. Another row or right operand
(of an infinity or NaN, too) is odd: it is kept as plain floats, which take the same room, and that is noted with it. Its products
are added up in float32. Each row is judged by itself, and right operands as a whole, so that results do not depend on the tiles.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusewise.codegen.llvm.registers import splat
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import Instruction, MatrixForm, multiply_add, neighbours
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.packing import panels
from fusewise.codegen.target import InstructionSet
from fusewise.records import record

__all__ = ["NOTE_BYTES", "FloatSums", "is_in_parts", "is_odd", "magnitude", "pack_in_parts", "split"]

LEAST, MOST = 2.0**-50, 2.0**50
"""Between them a product of parts is above 2^-124, and 2^26 products add up to less than the largest float."""

NOTE_BYTES = 4
"""Of what is noted of a right operand, or a row: an int32, 0 where it is in parts."""

_HALF, _UPPER, _MAGNITUDE = 0x8000, 0xFFFF0000, 0x7FFFFFFF


def is_in_parts(instruction: Instruction) -> bool:
    """Do several numbers stand for one of an operand?"""
    return instruction.matrix is not None and instruction.matrix.parts > 1


def split(f: Function, x: Value) -> tuple[Value, Value]:
    """Both parts of floats of a usual magnitude or less, as bits. One that is nearer to 0 than to any bfloat16 has the smallest for
    its second part: an infinity times it is one."""

    def rounded(value: Value) -> Value:
        return f.binary("add", f.convert("bitcast", value, "i32"), splat(f, _HALF, value, "i32"))

    upper = rounded(x)
    high = f.convert("bitcast", f.binary("and", upper, splat(f, _UPPER, x, "i32")), "float")
    parts = (upper, rounded(f.fsub(x, high)))
    first, second = (f.convert("trunc", f.binary("lshr", part, splat(f, 16, x, "i32")), "i16") for part in parts)
    size = f.binary("and", f.convert("bitcast", x, "i32"), splat(f, _MAGNITUDE, x, "i32"))
    below = f.binary("sub", size, splat(f, 1, x, "i32"))
    tiny = f.compare("icmp ult", below, splat(f, _HALF - 1, x, "i32"))
    return first, f.binary("or", second, f.convert("zext", tiny, "i16"))


def magnitude(f: Function, x: Value, most: Value) -> Value:
    """The largest magnitudes so far, as bits of floats, of which infinities and NaN are the largest."""
    bits = f.binary("and", f.convert("bitcast", x, "i32"), splat(f, _MAGNITUDE, x, "i32"))
    return f.intrinsic("umax", bits, most)


def is_odd(f: Function, most: Value) -> Value:
    """As int32, whether the largest of these magnitudes is beyond what is multiplied in parts."""
    largest = f.intrinsic("vector.reduce.umax", most, result="i32") if most.lanes > 1 else most
    least, beyond = (int(np.float32(end).view(np.int32)) for end in (LEAST, MOST))
    above = f.compare("icmp ugt", f.binary("sub", largest, f.constant(least, "i32")), f.constant(beyond - least, "i32"))
    some = f.compare("icmp ne", largest, f.constant(0, "i32"))
    return f.convert("zext", f.binary("and", above, some), "i32")


def pack_in_parts(matrices: np.ndarray, tile: Tile, depth: int) -> np.ndarray:
    """Constants [..., steps, columns] in panels of so many stored lanes, and behind all of them the note of them; as int32."""
    missing = ((0, 0),) * (matrices.ndim - 2) + ((0, depth - matrices.shape[-2]), (0, 0))
    plain = panels(np.pad(matrices.astype(np.float32, copy=False), missing), tile.lanes, tile.vectors)
    bits = plain.view(np.uint32)
    size = bits & _MAGNITUDE
    most = size.max(initial=0)
    odd = most != 0 and ((most < np.float32(LEAST).view(np.uint32)) or (most > np.float32(MOST).view(np.uint32)))
    if odd:
        return np.append(bits.view(np.int32), np.int32(1))
    upper = (bits + _HALF) & np.uint32(_UPPER)
    lower = (plain - upper.view(np.float32)).view(np.uint32) + _HALF
    lower |= np.where((size > 0) & (size < _HALF), np.uint32(1 << 16), np.uint32(0))
    form = tile.instruction.matrix
    assert form is not None
    parts = [_in_lanes((part >> 16).astype(np.uint16), tile.instruction, form) for part in (upper, lower)]
    return np.append(np.stack(parts, -3), np.int32(0))


def _in_lanes(part: np.ndarray, instruction: Instruction, form: MatrixForm) -> np.ndarray:
    """A part [..., steps, columns] in lanes: [..., block, step of it, columns]."""
    lanes = neighbours(part, -2, instruction.terms)
    return lanes.reshape(*lanes.shape[:-2], -1, form.steps, lanes.shape[-1])


@record(frozen=True)
class FloatSums:
    """What sums up in float32 over so many stored lanes, in a function under construction."""

    f: Function
    instructions: InstructionSet
    depth: int

    def add(
        self,
        tile: Tile,
        sums: Value,
        start: Sequence[Value],
        rows: tuple[Value, Int],
        columns: tuple[Value, int],
        right: Value,
    ) -> None:
        """Make sums in memory of `start` and the products of rows that are odd, or of all where the `right` operand is."""
        f, depth = self.f, self.depth
        whole = f.compare("icmp ne", right, f.constant(0, "i32"))

        def one_row(r: Value, _: Sequence[Value]) -> None:
            row = f.at(rows[0], f.mul(r, rows[1]), "i32")
            odd = f.compare("icmp ne", f.load("i32", f.at(row, depth, "i32")), f.constant(0, "i32"))

            def step(k: Value, totals: tuple[Value, ...]) -> list[Value]:
                x = f.splat(_left(f, tile.instruction, row, k, odd), tile.lanes)
                found = []
                for v, total in enumerate(totals):
                    y = _right(f, tile, f.at(columns[0], v * tile.lanes, "i32"), columns[1], k, whole)
                    found.append(multiply_add(f, self.instructions, x, y, total))
                return found

            def add() -> None:
                for v, total in enumerate(f.loop(0, depth, 1, step, start, rolled=True)):
                    f.store(total, f.at(sums, f.add(f.mul(r, tile.width), v * tile.lanes), tile.element))

            f.when(f.binary("or", odd, whole), add)

        f.loop(0, tile.rows, 1, one_row, rolled=True)


def _place(f: Function, instruction: Instruction, k: Value) -> tuple[Int, Int, Int]:
    """Of a step: its block's first stored lane, its lane in a part of the block, and its number in that lane."""
    form = instruction.matrix
    assert form is not None
    inside = f.urem(k, form.steps * instruction.terms)
    return f.sub(k, inside), f.udiv(inside, instruction.terms), f.urem(inside, instruction.terms)


def _left(f: Function, instruction: Instruction, row: Value, k: Value, plain: Value) -> Value:
    """A number of a row."""
    form = instruction.matrix
    assert form is not None
    block, lane, term = _place(f, instruction, k)

    def part(number: int) -> Value:
        stored = f.load("i32", f.at(row, f.add(f.add(block, lane), number * form.steps), "i32"))
        return _term(f, stored, term)

    return f.select(plain, f.load("float", f.at(row, k)), f.fadd(part(0), part(1)))


def _right(f: Function, tile: Tile, column: Value, pitch: int, k: Value, plain: Value) -> Value:
    """A step of a vector of columns."""
    form = tile.instruction.matrix
    assert form is not None
    block, lane, term = _place(f, tile.instruction, k)

    def stored(at: Int, kind: str) -> Value:
        return f.load(f"<{tile.lanes} x {kind}>", f.at(column, f.mul(at, pitch), "i32"))

    first = f.add(block, lane)
    high, low = (_term(f, stored(f.add(first, n * form.steps), "i32"), term) for n in range(2))
    return f.select(plain, stored(k, "float"), f.fadd(high, low))


def _term(f: Function, stored: Value, term: Int) -> Value:
    """A bfloat16 of each lane, as a float."""
    shift = f.convert("trunc", f.i64(f.sub(16, f.mul(term, 16))), "i32")
    bits = f.binary("shl", stored, f.splat(shift, stored.lanes))
    return f.convert("bitcast", f.binary("and", bits, splat(f, _UPPER, stored, "i32")), "float")
