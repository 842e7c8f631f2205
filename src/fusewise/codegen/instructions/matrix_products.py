"""Products of tiles by the matrix unit of x86 (AMX), and the same in other instructions, bit for bit.

A tile has 16 rows of 64 bytes. One of sums is 16 x 16; the left operand has 16 lanes of 4 bytes in a row, neighbours of the
reduction side by side, the right one 16 lanes of columns in each of 16 rows. What is computed is the operation that Intel publishes
(Software Developer's Manual, volume 2: TDPBF16PS, TDPFP16PS, TDPBSSD and its kin):

- Floats: for a sum, the even terms of all 16 lanes are added up by fused multiply-adds, one after the other from zero, and so are
  the odd ones; then odd is added to even, and that to the sum. Every step rounds to nearest even. Results that are subnormal
  become zeros of their sign, whatever the modes of the process; so do sums and bfloat16 that are given, but not float16.
- Bytes: all products are added to the sum, which wraps around in 32 bits.

A multiply-add is emulated in float64, which holds the product and never rounds a sum where it would matter: numbers of 24 and of at
most 22 bits that are too far apart for 53 are too far apart to reach half a step of the larger one. A result is subnormal, to the
instruction, if it would be with any number of exponents, which is not seen from it rounded. Which NaN comes of several is not said.
"""

from __future__ import annotations

from collections.abc import Callable

from fusewise.codegen.llvm.registers import splat, widen
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import MatrixForm, MatrixUnit, TileIn
from fusewise.codegen.nest.tree import Value, vector
from fusewise.codegen.target import InstructionSet
from fusewise.ir.dtypes import BFLOAT16, DType

__all__ = ["LANES", "PRODUCT_LATENCY", "ROWS", "STEPS", "has_tiles", "matrix_form", "of_bytes", "of_floats"]

ROWS, LANES, STEPS = 16, 16, 16
"""Of a tile: rows of sums, columns of them, and lanes of the reduction that are taken at once."""

PRODUCT_LATENCY = 52.0
"""Cycles until a product can be added to again: a guess until it is measured (`benchmarks.matrix_unit`). A product of 16 rows takes
16 cycles, by one a cycle; a load of 16 lines 8, by two; a store of them 16, by one."""

_CONFIGURATION = bytes([1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8])
"""What `ldtilecfg` reads: palette 1, then 64 bytes a row and 16 rows for each of the 8 tiles."""

_SMALLEST = 2.0**-126 - 2.0**-151
"""What is not smaller is rounded to a normal number, of float32's bits with any number of exponents."""

Emulate = Callable[[Function, InstructionSet, TileIn, TileIn, TileIn], None]


# --- the unit ---------------------------------------------------------------------------------------------------------


def has_tiles(extension: str) -> Callable[[InstructionSet, int], bool]:
    """Has a machine tiles, and this extension of them? Checked builds look at every access, which tiles do by themselves."""

    def has(instructions: InstructionSet, lanes: int) -> bool:
        return not instructions.sanitize and {"+amx-tile", f"+{extension}"} <= set(instructions.features.split(","))

    return has


def _done(f: Function, name: str, *operands: Value) -> None:
    f.call_intrinsic(f"llvm.x86.{name}", "void", *operands)


def _number(f: Function, register: int) -> Value:
    return f.constant(register, "i8")


def _begin(f: Function) -> None:
    name = "tile_configuration"
    known = any(table.name == name for table in f.module.tables)
    _done(f, "ldtilecfg", Value(f"@{name}", "ptr") if known else f.module.table(name, "i8", _CONFIGURATION))


AMX = MatrixUnit(
    registers=8,
    begin=_begin,
    end=lambda f: _done(f, "tilerelease"),
    zero=lambda f, number: _done(f, "tilezero", _number(f, number)),
    load=lambda f, number, tile: _done(f, "tileloadd64", _number(f, number), tile.pointer, f.i64(tile.pitch)),
    store=lambda f, number, tile: _done(f, "tilestored64", _number(f, number), tile.pointer, f.i64(tile.pitch)),
    cycles=16.0,
    load_cycles=8.0,
    store_cycles=16.0,
)
"""With the throughputs of the same manual."""


# --- the same by other instructions -----------------------------------------------------------------------------------


def _at(f: Function, tile: TileIn, row: Value) -> Value:
    return f.at(tile.pointer, f.mul(row, tile.pitch), "i8")


def _lane(f: Function, tile: TileIn, row: Value, step: Value, align: int) -> Value:
    """One of the left operand."""
    return f.load("i32", f.at(_at(f, tile, row), step, "i32"), align)


def _lanes(f: Function, tile: TileIn, step: Value, align: int) -> Value:
    """Those of the right operand at a step."""
    return f.load(vector("i32", LANES), _at(f, tile, step), align)


def _without_subnormals(f: Function, x: Value) -> Value:
    """Floats, those that are subnormal as zeros of their sign."""
    bits = f.convert("bitcast", x, "i32")
    exponent = f.binary("and", bits, splat(f, 0x7F800000, x, "i32"))
    sign = f.binary("and", bits, splat(f, 0x80000000, x, "i32"))
    none = f.compare("icmp eq", exponent, splat(f, 0, x, "i32"))
    return f.convert("bitcast", f.select(none, sign, bits), "float")


def _both(f: Function, instructions: InstructionSet, lane: Value, dtype: DType) -> tuple[Value, Value]:
    """The even and the odd term of lanes, as float64."""
    sixteen = splat(f, 16, lane, "i32")
    found = []
    for bits in (lane, f.binary("lshr", lane, sixteen)):
        x = widen(f, instructions, f.convert("trunc", bits, "i16"), dtype)
        found.append(f.convert("fpext", _without_subnormals(f, x) if dtype == BFLOAT16 else x, "double"))
    return found[0], found[1]


def _multiply_add(f: Function, a: Value, b: Value, total: Value) -> Value:
    """a * b + total, of float64 that are float32 or less, as float32."""
    wide = f.fadd(f.fmul(a, b), f.convert("fpext", total, "double"))
    short = f.convert("fptrunc", wide, "float")
    sign = f.binary("and", f.convert("bitcast", short, "i32"), splat(f, 0x80000000, wide, "i32"))
    tiny = f.compare("fcmp olt", f.intrinsic("fabs", wide), splat(f, _SMALLEST, wide, "double"))
    return f.select(tiny, f.convert("bitcast", sign, "float"), short)


def of_floats(dtype: DType) -> Emulate:
    """Products of bfloat16 or float16, two to a lane."""

    def emulate(f: Function, instructions: InstructionSet, sums: TileIn, left: TileIn, right: TileIn) -> None:
        kind = vector("float", LANES)

        def step(s: Value, row: Value, totals: tuple[Value, ...]) -> tuple[Value, ...]:
            a = _both(f, instructions, _lane(f, left, row, s, dtype.itemsize), dtype)
            b = _both(f, instructions, _lanes(f, right, s, dtype.itemsize), dtype)
            return tuple(
                _multiply_add(f, f.splat(x, LANES), y, total) for x, y, total in zip(a, b, totals, strict=True)
            )

        def one(row: Value, _: tuple[Value, ...]) -> None:
            zeros = [f.constant(0.0, kind)] * 2
            even, odd = f.loop(0, STEPS, 1, lambda s, totals: step(s, row, totals), zeros, rolled=True)
            place = _at(f, sums, row)
            added = _without_subnormals(f, f.fadd(even, odd))
            total = f.fadd(_without_subnormals(f, f.load(kind, place)), added)
            f.store(_without_subnormals(f, total), place)

        f.loop(0, ROWS, 1, one, rolled=True)

    return emulate


def _byte(f: Function, lane: Value, k: int, dtype: DType) -> Value:
    """One of the four of a lane, in 32 bits."""
    first = f.binary("shl", lane, splat(f, 24 - 8 * k, lane, "i32"))
    return f.binary("ashr" if dtype.kind == "int" else "lshr", first, splat(f, 24, lane, "i32"))


def of_bytes(left_dtype: DType, right_dtype: DType) -> Emulate:
    """Products of bytes, four to a lane."""

    def emulate(f: Function, instructions: InstructionSet, sums: TileIn, left: TileIn, right: TileIn) -> None:
        def step(s: Value, row: Value, total: Value) -> tuple[Value]:
            a, b = _lane(f, left, row, s, 1), _lanes(f, right, s, 1)
            for k in range(4):
                x = f.splat(_byte(f, a, k, left_dtype), LANES)
                total = f.binary("add", total, f.binary("mul", x, _byte(f, b, k, right_dtype)))
            return (total,)

        def one(row: Value, _: tuple[Value, ...]) -> None:
            place = _at(f, sums, row)
            start = f.load(vector("i32", LANES), place)
            (total,) = f.loop(0, STEPS, 1, lambda s, totals: step(s, row, totals[0]), (start,), rolled=True)
            f.store(total, place)

        f.loop(0, ROWS, 1, one, rolled=True)

    return emulate


def matrix_form(name: str, emulate: Emulate) -> MatrixForm:
    """An instruction of the unit, by its name."""

    def multiply(f: Function, sums: int, left: int, right: int) -> None:
        _done(f, name, *(_number(f, register) for register in (sums, left, right)))

    return MatrixForm(STEPS, AMX, multiply, emulate)
