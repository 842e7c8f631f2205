"""Weights that lie in words of 32 bits, several in each, as floats: integers as they are, or numbers of a table that they name."""

from __future__ import annotations

from collections.abc import Sequence

from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Value, vector
from fusewise.codegen.target import InstructionSet
from fusewise.ir.dtypes import DType
from fusewise.passes.packed_weights import TABLE_SIZE, UINT4
from fusewise.records import record

__all__ = ["TableAt", "first_bit", "in_table", "number", "table_at"]

TABLE_BITS = 4
"""Bits that an instruction picks a number from a table by; it looks at no others, of as many lanes as the table has numbers."""


@record(frozen=True)
class TableAt:
    """Sixteen floats: where they lie, and the vectors that they are in where an instruction picks from those."""

    pointer: Value
    parts: Sequence[Value]


def first_bit(dtype: DType, step: int) -> int:
    """Where the weight of a step lies in a word: four steps in its bytes, then the next four above them."""
    return 8 * (step % 4) + dtype.bits * (step // 4)


def number(f: Function, instructions: InstructionSet, dtype: DType, words: Value, step: int) -> Value:
    """The weights at a step of words that hold several, as floats."""
    bits, lanes, below = dtype.bits, words.lanes, first_bit(dtype, step)
    low = _from_bit(f, words, below)
    if bits <= TABLE_BITS and lanes == TABLE_SIZE and _has_wide(instructions):
        table = f.constants([_value(place, dtype) for place in range(1 << TABLE_BITS)], "float")
        return f.call_intrinsic("llvm.x86.avx512.permvar.sf.512", table.type, table, low)
    if dtype.kind == "int":
        above = 32 - bits - below
        high = f.binary("shl", words, f.constant(above, words.type)) if above else words
        return f.convert("sitofp", f.binary("ashr", high, f.constant(32 - bits, words.type)), "float")
    return f.convert("sitofp", f.binary("and", low, f.constant((1 << bits) - 1, words.type)), "float")


def _from_bit(f: Function, words: Value, below: int) -> Value:
    return f.binary("lshr", words, f.constant(below, words.type)) if below else words


def _value(bits: int, dtype: DType) -> float:
    """The number that the lowest of some bits are."""
    low = bits & ((1 << dtype.bits) - 1)
    is_negative = dtype.kind == "int" and low >> (dtype.bits - 1)
    return float(low - (1 << dtype.bits) if is_negative else low)


# --- tables -----------------------------------------------------------------------------------------------------------


def table_at(f: Function, instructions: InstructionSet, pointer: Value, lanes: int) -> TableAt:
    """A table of sixteen floats for words of so many lanes, to be asked for where a function begins."""
    is_picked = _picks(instructions, lanes)
    every = range(0, TABLE_SIZE if is_picked else 0, lanes)
    return TableAt(pointer, [f.load(vector("float", lanes), f.at(pointer, first)) for first in every])


def in_table(f: Function, instructions: InstructionSet, table: TableAt, words: Value, step: int) -> Value:
    """The numbers of a table that the codes of four bits at a step of words name."""
    lanes, below = words.lanes, first_bit(UINT4, step)
    kind, low = vector("float", lanes), _from_bit(f, words, below)
    if not table.parts:
        return _one_by_one(f, table, low)
    if lanes == TABLE_SIZE:
        return f.call_intrinsic("llvm.x86.avx512.permvar.sf.512", kind, table.parts[0], low)
    if lanes == 8:
        return _of_two(f, instructions, table.parts, words, below)
    return _of_bytes(f, table.parts, low)


def _picks(instructions: InstructionSet, lanes: int) -> bool:
    """Is there an instruction that picks from a table for all of so many lanes?"""
    if _is_x86(instructions):
        return lanes in (8, TABLE_SIZE) and lanes * 32 <= instructions.vector_bits
    return lanes == 4 and instructions.triple.startswith("aarch64")


def _of_two(f: Function, instructions: InstructionSet, parts: Sequence[Value], words: Value, below: int) -> Value:
    """From two vectors of eight floats: by one instruction, or from each and then one of the two, by the highest bit of a code."""
    kind, low = parts[0].type, _from_bit(f, words, below)
    if _has_wide(instructions):
        return f.call_intrinsic("llvm.x86.avx512.vpermi2var.ps.256", kind, parts[0], low, parts[1])
    first, second = (f.call_intrinsic("llvm.x86.avx2.permps", kind, part, low) for part in parts)
    above = 32 - TABLE_BITS - below
    high = f.binary("shl", words, f.constant(above, words.type)) if above else words
    return f.select(f.compare("icmp slt", high, f.constant(0, words.type)), second, first)


def _of_bytes(f: Function, parts: Sequence[Value], low: Value) -> Value:
    """From four vectors of four floats, by their bytes: a code's number lies from four times the code on."""
    codes = f.binary("and", low, f.constant(TABLE_SIZE - 1, low.type))
    first = f.binary("mul", codes, f.constant(0x04040404, low.type))
    places = f.bitcast(f.binary("add", first, f.constant(0x03020100, low.type)), vector("i8", 16))
    table = [f.bitcast(part, vector("i8", 16)) for part in parts]
    found = f.call_intrinsic("llvm.aarch64.neon.tbl4.v16i8", vector("i8", 16), *table, places)
    return f.bitcast(found, vector("float", 4))


def _one_by_one(f: Function, table: TableAt, low: Value) -> Value:
    codes = f.binary("and", low, f.constant(TABLE_SIZE - 1, low.type))
    if low.lanes == 1:
        return f.load("float", f.at(table.pointer, f.convert("zext", codes, "i64")))
    found = f.unset(vector("float", low.lanes))
    for lane in range(low.lanes):
        place = f.convert("zext", f.extract(codes, lane), "i64")
        found = f.insert(found, f.load("float", f.at(table.pointer, place)), lane)
    return found


def _has_wide(instructions: InstructionSet) -> bool:
    return instructions.vector_bits >= 512 and _is_x86(instructions)


def _is_x86(instructions: InstructionSet) -> bool:
    return instructions.triple.startswith("x86_64")
