"""Floats as sums of two bfloat16, which a matrix unit multiplies in their place.

    x = hi + lo + rest,  hi = x rounded to bfloat16,  lo = x - hi rounded to it,  |lo| <= 2^-8 |x|,  |rest| <= 2^-16 |x|
    x * y  =  hi * hi' + hi * lo' + lo * hi' + what is left out: lo * lo', and x or y times a rest, at most 3 * 2^-16 |x * y|

What is left out has either sign, so it adds up much less than products do.

The unit takes subnormal numbers for zeros and gives none. So it multiplies rows, and right operands, whose largest magnitude is
within `LEAST` and `MOST`, or 0: parts and their products are then normal numbers, and sums finite. Another row or right operand
(of an infinity or NaN, too) is odd: it is kept as plain floats, which take the same room, and that is noted with it. Its products
are added up in float32. Each row is judged by itself, and right operands as a whole, so that results do not depend on the tiles.
All rows are odd that meet an odd right operand. Where odd rows may meet numbers below `TINY`, of which parts keep too little, a
constant right operand is there as plain floats, too, behind its note; another one is then odd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fusewise.codegen.llvm.registers import splat
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import Instruction, MatrixForm, multiply_add, neighbours
from fusewise.codegen.nest.tile import ReductionLoop, Tile
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.packing import panels
from fusewise.codegen.target import InstructionSet
from fusewise.records import record

__all__ = [
    "COPY_LANES",
    "IS_ODD",
    "NOTE_BYTES",
    "FloatSums",
    "is_in_parts",
    "is_odd",
    "magnitude",
    "pack_in_parts",
    "split",
    "without_tiny",
]

LEAST, MOST = 2.0**-50, 2.0**50
"""Between them a product of parts is above 2^-124, and 2^26 products add up to less than the largest float."""

TINY = 2.0**-110
"""Smaller parts have less than 16 bits: bfloat16 ends at 2^-133."""

NOTE_BYTES = 4
"""Of what is noted of a right operand, or a row: an int32, 0 where it is in parts, `IS_ODD`, or `HAS_COPY` where the same number is
there as a float, too."""

IS_ODD, HAS_COPY = 1, 2

COPY_LANES = 16
"""From the note to the copy, for it to begin with a cache line where panels do."""

_HALF, _UPPER, _MAGNITUDE = 0x8000, 0xFFFF0000, 0x7FFFFFFF


def is_in_parts(instruction: Instruction) -> bool:
    """Do several numbers stand for one of an operand?"""
    return instruction.matrix is not None and instruction.matrix.parts > 1


def split(f: Function, x: Value) -> tuple[Value, Value]:
    """Both parts of floats of a usual magnitude, as bits."""

    def rounded(value: Value) -> Value:
        return f.binary("add", f.convert("bitcast", value, "i32"), splat(f, _HALF, value, "i32"))

    upper = rounded(x)
    high = f.convert("bitcast", f.binary("and", upper, splat(f, _UPPER, x, "i32")), "float")
    parts = (upper, rounded(f.fsub(x, high)))
    first, second = (f.convert("trunc", f.binary("lshr", part, splat(f, 16, x, "i32")), "i16") for part in parts)
    return first, second


def magnitude(f: Function, x: Value) -> Value:
    """As bits of floats, of which infinities and NaN are the largest."""
    return f.binary("and", f.convert("bitcast", x, "i32"), splat(f, _MAGNITUDE, x, "i32"))


def without_tiny(f: Function, bits: Value) -> Value:
    """Magnitudes, those of numbers below `TINY` that are not 0 as what is odd."""
    tiny = f.compare(
        "icmp ult", f.binary("sub", bits, splat(f, 1, bits, "i32")), splat(f, _bits(TINY) - 1, bits, "i32")
    )
    return f.select(tiny, splat(f, _MAGNITUDE, bits, "i32"), bits)


def is_odd(f: Function, most: Value) -> Value:
    """As int32, whether the largest of these magnitudes is beyond what is multiplied in parts."""
    largest = f.intrinsic("vector.reduce.umax", most, result="i32") if most.lanes > 1 else most
    least, beyond = _bits(LEAST), _bits(MOST)
    above = f.compare("icmp ugt", f.binary("sub", largest, f.constant(least, "i32")), f.constant(beyond - least, "i32"))
    some = f.compare("icmp ne", largest, f.constant(0, "i32"))
    return f.convert("zext", f.binary("and", above, some), "i32")


def pack_in_parts(matrices: np.ndarray, tile: Tile, depth: int) -> np.ndarray:
    """Constants [..., steps, columns] as int32: panels of so many stored lanes, a note, and a copy of all if there is one."""
    missing = ((0, 0),) * (matrices.ndim - 2) + ((0, depth - matrices.shape[-2]), (0, 0))
    plain = panels(np.pad(matrices.astype(np.float32, copy=False), missing), tile.lanes, tile.vectors)
    bits = plain.view(np.uint32)
    sizes = bits & _MAGNITUDE
    most = sizes.max(initial=0)
    if most != 0 and not _bits(LEAST) <= most <= _bits(MOST):
        return np.append(bits.view(np.int32), np.int32(IS_ODD))
    upper = (bits + _HALF) & np.uint32(_UPPER)
    lower = (plain - upper.view(np.float32)).view(np.uint32) + _HALF
    form = tile.instruction.matrix
    assert form is not None
    parts = [_in_lanes((part >> 16).astype(np.uint16), tile.instruction, form) for part in (upper, lower)]
    stored = np.stack(parts, -3).reshape(-1)
    if not ((sizes != 0) & (sizes < _bits(TINY))).any():
        return np.append(stored, np.int32(0))
    note = np.zeros(COPY_LANES, np.int32)
    note[0] = HAS_COPY
    return np.concatenate([stored, note, bits.view(np.int32).reshape(-1)])


def _bits(number: float) -> int:
    return int(np.float32(number).view(np.int32))


def _in_lanes(part: np.ndarray, instruction: Instruction, form: MatrixForm) -> np.ndarray:
    """A part [..., steps, columns] in lanes: [..., block, step of it, columns]."""
    lanes = neighbours(part, -2, instruction.terms)
    return lanes.reshape(*lanes.shape[:-2], -1, form.steps, lanes.shape[-1])


@record(frozen=True)
class FloatSums:
    """What sums up in float32 over the stored lanes of `levels`, in a function under construction, through rows of which each has a
    note behind so many lanes of its `row`. At `note` is that of the right operand, so many lanes behind whose panels there may be a
    copy of each."""

    f: Function
    instructions: InstructionSet
    levels: tuple[ReductionLoop, ...]
    row: int
    note: Value
    behind: int

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
        f, (*outer, inner) = self.f, self.levels
        whole = f.compare("icmp ne", right, f.constant(0, "i32"))
        twice = f.compare("icmp eq", f.load("i32", self.note), f.constant(HAS_COPY, "i32"))
        first, pitch = f.select(twice, f.at(columns[0], self.behind, "i32"), columns[0]), columns[1]
        floats = f.binary("or", whole, twice)

        def one_row(r: Value, _: Sequence[Value]) -> None:
            row = f.at(rows[0], f.mul(r, rows[1]), "i32")

            def noted(run: _Run) -> Value:
                return f.load("i32", f.at(row, f.add(run.row, self.row), "i32"))

            def one_run(which: _Run, totals: Sequence[Value]) -> Sequence[Value]:
                before = f.mul(which.number, inner.extent)
                run = f.at(row, f.add(which.row, which.phase), "i32")
                odd = f.compare("icmp ne", noted(which), f.constant(0, "i32"))

                def step(k: Value, totals: tuple[Value, ...]) -> list[Value]:
                    x = f.splat(_left(f, tile.instruction, run, k, odd), tile.lanes)
                    found = []
                    for v, total in enumerate(totals):
                        column = f.at(first, v * tile.lanes, "i32")
                        y = _right(f, tile, column, pitch, f.i64(f.add(before, k)), floats)
                        found.append(multiply_add(f, self.instructions, x, y, total))
                    return found

                return f.loop(0, inner.extent if inner.high is None else inner.high, 1, step, totals, rolled=True)

            def add() -> None:
                for v, total in enumerate(_runs(f, outer, one_run, start)):
                    f.store(total, f.at(sums, f.add(f.mul(r, tile.width), v * tile.lanes), tile.element))

            none = [f.constant(0, "i32")]
            (odd,) = _runs(f, outer, lambda run, some: [f.binary("or", some[0], noted(run))], none)
            f.when(f.binary("or", f.compare("icmp ne", odd, f.constant(0, "i32")), whole), add)

        f.loop(0, tile.rows, 1, one_row, rolled=True)


@record(frozen=True)
class _Run:
    """Steps side by side: in which copied row they are, `phase` lanes from its first, and how many runs were before."""

    row: Int = 0
    phase: Int = 0
    number: Int = 0


def _runs(
    f: Function,
    levels: Sequence[ReductionLoop],
    emit: Callable[[_Run, Sequence[Value]], Sequence[Value]],
    start: Sequence[Value],
    run: _Run | None = None,
) -> Sequence[Value]:
    """What `emit(run, values)` makes of values, run by run of those that begin with one."""
    begun = _Run() if run is None else run
    if not levels:
        return emit(begun, start)
    level, *deeper = levels

    def one(k: Value, values: tuple[Value, ...]) -> Sequence[Value]:
        row = f.add(begun.row, f.mul(f.udiv(k, level.phases), level.stride))
        phase = f.add(begun.phase, f.mul(f.urem(k, level.phases), level.phase_stride))
        return _runs(f, deeper, emit, values, _Run(row, phase, f.add(f.mul(begun.number, level.extent), k)))

    return f.loop(0, level.extent, 1, one, start, rolled=True)


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
