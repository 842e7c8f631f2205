"""Outer products of AArch64: two rows by two columns, four bfloat16 or eight bytes to a lane of 64 bits.

An instruction of integers adds all products to the sums, which wrap around. That of bfloat16 (BFMMLA, as FPCR.EBF is 0, which
no system changes) is defined by Arm ("Arm Architecture Reference Manual for A-profile", FEAT_BF16) in steps that each round: of
either pair of a lane both products, their sum, and that added to the sum in the register. Rounding is to odd: what is not exact is
cut off and its last bit set, what is beyond the largest number is infinite; subnormal numbers are zeros, given or found. What
stands for it elsewhere gives the same bits, whichever NaN. A sum of two float32 is rounded so by way of float64 and what that lost.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from fusewise.codegen.llvm.registers import splat
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import Emit
from fusewise.codegen.nest.tree import Value, vector
from fusewise.codegen.target import InstructionSet
from fusewise.ir.dtypes import DType

__all__ = ["OUTER_LANES", "add_outer_bfloats", "add_outer_bfloats_apart", "add_outer_bytes", "has_outer", "outer_bytes"]

OUTER_LANES = 2
"""Rows and columns."""

_PAIRS = tuple(product(range(OUTER_LANES), range(OUTER_LANES)))
"""Row and column of every sum."""


def has_outer(feature: str) -> Callable[[InstructionSet, int], bool]:
    """Is it an AArch64 with these instructions?"""

    def has(instructions: InstructionSet, lanes: int) -> bool:
        is_arm = instructions.triple.startswith(("aarch64", "arm64"))
        return is_arm and f"+{feature}" in instructions.features.split(",")

    return has


def _spread(f: Function, a: Value, b: Value) -> tuple[Value, Value]:
    """The lanes of rows and columns for each sum."""
    rows, columns = zip(*_PAIRS, strict=True)
    return f.shuffle(a, a, rows), f.shuffle(b, b, columns)


# --- bytes ------------------------------------------------------------------------------------------------------------


def add_outer_bytes(name: str) -> Emit:
    """By an instruction of this name."""

    def add(f: Function, instructions: InstructionSet, a: Value, b: Value, total: Value) -> Value:
        bytes_ = vector("i8", 16)
        intrinsic = f"llvm.aarch64.neon.{name}.v4i32.v16i8"
        return f.call_intrinsic(intrinsic, total.type, total, f.bitcast(a, bytes_), f.bitcast(b, bytes_))

    return add


def outer_bytes(left: DType, right: DType) -> Emit:
    """The same by shifts."""

    def byte(f: Function, lanes: Value, k: int, dtype: DType) -> Value:
        first = f.binary("shl", lanes, splat(f, 56 - 8 * k, lanes, "i64"))
        shifted = f.binary("ashr" if dtype.kind == "int" else "lshr", first, splat(f, 56, lanes, "i64"))
        return f.convert("trunc", shifted, "i32")

    def add(f: Function, instructions: InstructionSet, a: Value, b: Value, total: Value) -> Value:
        x, y = _spread(f, a, b)
        for k in range(8):
            total = f.binary("add", total, f.binary("mul", byte(f, x, k, left), byte(f, y, k, right)))
        return total

    return add


# --- bfloat16 ---------------------------------------------------------------------------------------------------------


def add_outer_bfloats(f: Function, instructions: InstructionSet, a: Value, b: Value, total: Value) -> Value:
    """By the instruction."""
    halves = vector("bfloat", 8)
    return f.call_intrinsic("llvm.aarch64.neon.bfmmla", total.type, total, f.bitcast(a, halves), f.bitcast(b, halves))


def add_outer_bfloats_apart(f: Function, instructions: InstructionSet, a: Value, b: Value, total: Value) -> Value:
    """The same in float64."""
    x, y = _spread(f, a, b)
    total = _bounded(f, f.convert("fpext", total, "double"), total)
    for pair in range(2):
        products = (_product(f, x, y, 2 * pair + k) for k in range(2))
        total = _sum(f, total, _sum(f, *products))
    return total


def _bits(f: Function, x: Value) -> Value:
    return f.convert("bitcast", x, "i32")


def _bounded(f: Function, wide: Value, short: Value) -> Value:
    """A float64 as float32, which is `short` but where it is subnormal or beyond the largest number."""
    size = f.intrinsic("fabs", wide)
    sign = f.binary("and", _bits(f, short), splat(f, 0x80000000, wide, "i32"))
    infinite = f.binary("or", sign, splat(f, 0x7F800000, wide, "i32"))
    tiny = f.compare("fcmp olt", size, splat(f, 2.0**-126, wide, "double"))
    huge = f.compare("fcmp oge", size, splat(f, 2.0**128, wide, "double"))
    found = f.select(tiny, sign, f.select(huge, infinite, _bits(f, short)))
    return f.convert("bitcast", found, "float")


def _product(f: Function, x: Value, y: Value, k: int) -> Value:
    """Of the bfloat16 number k in each lane, which has at most 16 bits."""

    def term(lanes: Value) -> Value:
        shifted = f.binary("lshr", f.binary("shl", lanes, splat(f, 48 - 16 * k, lanes, "i64")), splat(f, 32, x, "i64"))
        upper = f.binary("and", f.convert("trunc", shifted, "i32"), splat(f, 0xFFFF0000, x, "i32"))
        short = f.convert("bitcast", upper, "float")
        return f.convert("fpext", _bounded(f, f.convert("fpext", short, "double"), short), "double")

    wide = f.fmul(term(x), term(y))
    return _bounded(f, wide, f.convert("fptrunc", wide, "float"))


def _sum(f: Function, x: Value, y: Value) -> Value:
    """x + y, rounded to odd: float64 gives the sum and what it lost of it."""
    a, b = f.convert("fpext", x, "double"), f.convert("fpext", y, "double")
    wide = f.fadd(a, b)
    part = f.fsub(wide, a)
    lost = f.fadd(f.fsub(a, f.fsub(wide, part)), f.fsub(b, part))
    short = f.convert("fptrunc", wide, "float")
    back, zero = f.convert("fpext", short, "double"), splat(f, 0.0, x, "double")
    farther = f.compare("fcmp ogt", f.intrinsic("fabs", back), f.intrinsic("fabs", wide))
    less = f.compare("fcmp olt", f.fmul(lost, wide), zero)
    just_below = f.binary("and", f.compare("fcmp oeq", back, wide), less)
    is_beyond = f.convert("zext", f.binary("or", farther, just_below), "i32")
    inexact = f.binary("or", f.compare("fcmp one", back, wide), f.compare("fcmp one", lost, zero))
    cut = f.binary("or", f.binary("sub", _bits(f, short), is_beyond), f.convert("zext", inexact, "i32"))
    return _bounded(f, f.select(less, _nearer(f, wide), wide), f.convert("bitcast", cut, "float"))


def _nearer(f: Function, wide: Value) -> Value:
    """The float64 before one that is not zero, seen from it."""
    bits = f.binary("sub", f.bitcast(wide, vector("i64", wide.lanes)), splat(f, 1, wide, "i64"))
    return f.bitcast(bits, wide.type)
