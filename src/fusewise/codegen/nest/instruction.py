"""An instruction that a reduction is made of, as a row: what it multiplies and adds, and how it is written.

One instruction takes a vector of the left operand, one of the right, and a vector of sums. A lane of an operand holds one, two,
four or eight neighbours of the reduction, its terms; to the sum in that lane is added what their products add up to:

    sum[lane]  +=  sum over terms k of  left[lane][k] * right[lane][k]

An outer product takes several rows of the left operand at a time, a lane for each, and adds to the sums of all of them, which lie
row behind row in one register:

    sum[row][lane]  +=  sum over terms k of  left[row][k] * right[lane][k]

An instruction of a matrix unit multiplies tiles: several rows by several lanes, and several lanes of the reduction at once, so that
operands and sums lie in memory (`MatrixForm`).

Here are the rows that every machine has, others in `instructions.table`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.nest.types import computed, memory_type
from fusewise.codegen.target import InstructionSet
from fusewise.ir.dtypes import FLOAT32, FLOAT64, DType
from fusewise.records import record

__all__ = [
    "FMA_LATENCY",
    "FUSED",
    "FUSED_DOUBLE",
    "Emit",
    "Instruction",
    "MatrixForm",
    "MatrixUnit",
    "TileIn",
    "fused_of",
    "in_flight",
    "multiply_add",
    "neighbours",
]

FMA_LATENCY = 4.3
"""Cycles until a fused multiply-add can be added to again, on current x86-64 and AArch64 cores: 4, and a little, since no
schedule hits it exactly. What takes several terms is priced as if it were one."""

LAYOUTS = {1: "single", 2: "pairs", 4: "quads", 8: "octets"}
"""What the neighbours of a reduction that share a lane are called, by how many there are."""

Emit = Callable[[Function, InstructionSet, Value, Value, Value], Value]
"""`emit(f, instructions, a, b, total)`: total + the products of `a` and `b`, lane by lane; of an outer product, of each lane of `a`
with all of `b`."""

Some = TypeVar("Some", bound=InstructionSet)


def in_flight(instructions: InstructionSet) -> int:
    """Registers for products on their way to be added, where a machine does not fuse."""
    return 0 if instructions.fma else 4


def _none(instructions: InstructionSet) -> int:
    return 0


@record(frozen=True)
class TileIn:
    """Where a tile lies: `pointer` to its first row, and as many bytes from a row to the next as `pitch`."""

    pointer: Value
    pitch: Int


@record(frozen=True)
class MatrixUnit:
    """A part of the processor that multiplies tiles, which it keeps in `registers` of its own, numbered from 0, and how that is
    written.

    - `begin(f)` and `end(f)` stand around the tiles of a call of a kernel.
    - `zero(f, number)`, `load(f, number, tile)` and `store(f, number, tile)`: whole tiles.
    - `cycles` of a product of two tiles, `load_cycles` of a load and `store_cycles` of a store, of a core's throughput.
    """

    registers: int
    begin: Callable[[Function], None]
    end: Callable[[Function], None]
    zero: Callable[[Function, int], None]
    load: Callable[[Function, int, TileIn], None]
    store: Callable[[Function, int, TileIn], None]
    cycles: float
    load_cycles: float
    store_cycles: float


@record(frozen=True)
class MatrixForm:
    """What makes an instruction one of a matrix unit:

        sum[row][lane]  +=  sum over steps s and terms k of  left[row][s][k] * right[s][lane][k]

    - `steps`: lanes of the reduction that it takes, side by side in a row of the left operand, behind each other in a panel.
    - `parts`: how many numbers stand for one, in each operand; `products` are those of them that are added up, in this order.
      Behind `steps` lanes of one part lie those of the next. Their type is `part`, where it is not the operands' own.
    - `multiply(f, sums, left, right)` writes it for registers of the `unit`.
    - `emulate(f, instructions, sums, left, right)` writes it for tiles in memory, with the same results.
    """

    steps: int
    unit: MatrixUnit
    multiply: Callable[[Function, int, int, int], None]
    emulate: Callable[[Function, InstructionSet, TileIn, TileIn, TileIn], None]
    parts: int = 1
    products: tuple[tuple[int, int], ...] = ((0, 0),)
    part: DType | None = None


@record(frozen=True)
class Instruction:
    """One row.

    - `left`, `right`: the types of what is multiplied, `sum` of what is added up in a lane.
    - `lane`: the neighbours of a reduction in one lane of an operand as one element, the first in the lowest bits; `terms` is how
      many there are.
    - `rows`: of an outer product, how many it takes, two to a power; `lanes`: of the right operand, where only so many will do.
    - `has(instructions, lanes)`: does a machine have it, for so many?
    - `emit` writes it; `emulate` writes it with other instructions, where there is a way.
    - `in_flight(instructions)`: registers beside the tile that products take on their way to the sums; `apart(instructions)`:
      those that operands take which are taken apart.
    - `latency`: cycles until a sum can be added to again.
    - `saturates`: sums of two products have 16 bits, so weights are split (`byte_products.split`).
    - `matrix`: it is one of a matrix unit. Then `emit` and `emulate` are not used.
    - `short`: the type of 16 bits that constant panels hold, where they are widened as they are read.
    """

    name: str
    left: DType
    right: DType
    sum: DType
    has: Callable[[InstructionSet, int], bool]
    emit: Emit
    emulate: Emit | None = None
    lane: DType = FLOAT32
    terms: int = 1
    rows: int = 1
    lanes: int = 0
    in_flight: Callable[[InstructionSet], int] = in_flight
    apart: Callable[[InstructionSet], int] = _none
    latency: float = FMA_LATENCY
    saturates: bool = False
    matrix: MatrixForm | None = None
    short: DType | None = None

    def __repr__(self) -> str:
        """Its name, which is what keys of code say of it."""
        return self.name

    @property
    def element(self) -> str:
        """The LLVM type of a sum."""
        return computed(self.sum)

    @property
    def stored(self) -> DType | None:
        """What constant panels hold, where that is not of the type of the sums."""
        return self.lane if self.terms > 1 else self.short

    @property
    def panel_bytes(self) -> int:
        """What a lane of the right operand takes in a panel."""
        return self.sum.itemsize if self.stored is None else self.stored.itemsize

    @property
    def panel_element(self) -> str:
        """An LLVM type of that size, which panels are addressed by."""
        if self.stored is None or self.panel_bytes == self.sum.itemsize:
            return self.element
        return memory_type(self.stored)

    @property
    def is_exact(self) -> bool:
        """Are sums the same in every order?"""
        return self.sum.is_integer

    @property
    def steps(self) -> int:
        """Stored lanes of the reduction that are taken at once, all parts of them."""
        return 1 if self.matrix is None else self.matrix.steps * self.matrix.parts

    @property
    def layout(self) -> str:
        """What the terms of a lane are called."""
        return LAYOUTS[self.terms]

    def is_native(self, instructions: InstructionSet) -> bool:
        """Does a machine have it, for its widest vectors?"""
        return self.has(instructions, instructions.lanes)

    def add(self, f: Function, instructions: InstructionSet, a: Value, b: Value, total: Value) -> Value:
        """total + the products of `a` and `b`, by the instruction or by what stands for it, see `Emit`."""
        write = self.emit if self.emulate is None or self.has(instructions, b.lanes) else self.emulate
        return write(f, instructions, a, b, total)

    def registers(self, instructions: InstructionSet, lanes: int) -> int:
        """Registers that the sums of one take, of so many lanes of the right operand; those of a matrix unit are one of its own."""
        if self.matrix is not None:
            return 1
        return max(1, -(-self.rows * lanes * self.sum.bits // instructions.vector_bits))

    def pack(self, array: np.ndarray, axis: int) -> np.ndarray:
        """A constant with as many neighbours along an axis in one element as there are terms; what is missing is zeros."""
        return array if self.terms == 1 else neighbours(array, axis, self.terms)

    def room(self, target: Some) -> Some:
        """A machine with the registers that are left for tiles."""
        if self.matrix is not None:
            return replace(target, registers=self.matrix.unit.registers)
        apart = self.apart(target)
        return replace(target, registers=target.registers - apart) if apart else target


def neighbours(array: np.ndarray, axis: int, terms: int) -> np.ndarray:
    """So many neighbours along an axis as one integer, the first in its lowest bits; those that are missing are zeros."""
    moved = np.moveaxis(array, axis, -1)
    missing = -moved.shape[-1] % terms
    if missing:
        moved = np.pad(moved, ((0, 0),) * (moved.ndim - 1) + ((0, missing),))
    joined = np.ascontiguousarray(moved).view(np.dtype(f"i{terms * array.itemsize}"))
    return np.moveaxis(joined, -1, axis)


def _has_fused(instructions: InstructionSet, lanes: int) -> bool:
    return instructions.fma


def _fused(f: Function, instructions: InstructionSet, a: Value, b: Value, total: Value) -> Value:
    return f.fma(a, b, total)


def _apart(f: Function, instructions: InstructionSet, a: Value, b: Value, total: Value) -> Value:
    return f.fadd(f.fmul(a, b), total)


def multiply_add(f: Function, instructions: InstructionSet, a: Value, b: Value, c: Value) -> Value:
    """a * b + c of floats, fused where the machine can."""
    return FUSED.add(f, instructions, a, b, c)


FUSED = Instruction("fma", FLOAT32, FLOAT32, FLOAT32, _has_fused, _fused, _apart)
"""Of what travels as float32, the narrow floats included."""

FUSED_DOUBLE = replace(FUSED, name="fma64", left=FLOAT64, right=FLOAT64, sum=FLOAT64, lane=FLOAT64)


def fused_of(dtype: DType) -> Instruction:
    """The multiply-add that floats of a type are reduced with."""
    return FUSED_DOUBLE if dtype == FLOAT64 else FUSED
