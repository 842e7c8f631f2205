"""The machine that code is generated for, as data: vector width, register count, caches, features.

Kernels read this and never ask the host, so code for another machine can be generated and inspected anywhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fusewise.codegen.machine.figures import MeasuredFigures
from fusewise.codegen.machine.processors import PROCESSORS
from fusewise.records import record

__all__ = [
    "FIRST_LEVEL",
    "LINE_BYTES",
    "MATRIX_TARGET",
    "SECOND_LEVEL",
    "TARGETS",
    "InstructionSet",
    "Target",
    "whole_lines",
]

LINE_BYTES = 64
"""Bytes of a cache line, on every processor that code is generated for."""

FIRST_LEVEL, SECOND_LEVEL = 3, 2
"""The cache levels nearest to the processor, as instructions that fetch number them."""


def whole_lines(nbytes: int) -> int:
    """So many bytes, rounded up to whole cache lines."""
    return -(-nbytes // LINE_BYTES) * LINE_BYTES


FEW_REGISTERS = 16
"""What x86 has up to AVX2. What is done for few was measured on a Zen 3."""


@record(frozen=True)
class InstructionSet:
    """What code can be made of: all of a machine that emitted text depends on.

    `vector_bits` is the widest float vector worth using, `registers` how many such registers there are. With `sanitize` every
    load and store of the code looks whether it is within its operands. `name` is for people.
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bits: int
    registers: int
    fma: bool = True
    sanitize: bool = False

    @property
    def lanes(self) -> int:
        """float32 elements in one vector register."""
        return self.vector_bits // 32

    @property
    def has_few_registers(self) -> bool:
        """Are register tiles so small that they are soon done?"""
        return self.registers <= FEW_REGISTERS

    @property
    def key(self) -> str:
        """What compiled code depends on, beside the task and its schedule."""
        how = "|sanitize" if self.sanitize else ""
        return f"{self.triple}|{self.cpu}|{self.features}|{self.vector_bits}|{self.registers}|{self.fma}{how}"


@record(frozen=True)
class Target(InstructionSet):
    """A CPU, for schedules to be made for: its instructions, and how fast what is. Emitted code knows the former only; what
    it would ask of the rest is a field of its schedule.

    `multiply_bits` is how many bits of multiply-adds a core begins in a cycle, in at most two instructions; 0 stands for two
    of the widest vectors. Where it is one, vectors of half the width are as fast.

    `adds_apart`: additions have units of their own, beside those that multiply. `workers` is how many workers code is planned
    for; it is right for any number.
    """

    l1_bytes: int = 32 * 1024
    l2_bytes: int = 512 * 1024
    l3_bytes: int = 16 * 1024 * 1024
    multiply_bits: int = 0
    adds_apart: bool = True
    workers: int = 2
    figures: MeasuredFigures = MeasuredFigures()

    def with_figures(self, **groups: Any) -> Target:
        """The same with other `figures`, by the names of their groups."""
        return replace(self, figures=replace(self.figures, **groups))

    @property
    def instructions(self) -> InstructionSet:
        """What emitted code may know."""
        return InstructionSet(
            self.name,
            self.triple,
            self.cpu,
            self.features,
            self.vector_bits,
            self.registers,
            self.fma,
            self.sanitize,
        )

    def multiplies(self, bits: int) -> int:
        """Multiply-adds of vectors of so many bits that a core begins in a cycle: 1 or 2."""
        return max(1, min(2, (self.multiply_bits or 2 * self.vector_bits) // max(1, bits)))

    @property
    def multiplies_once(self) -> bool:
        """Does a core begin one multiply-add of the widest vectors in a cycle, and has it many registers?"""
        return self.multiplies(self.vector_bits) == 1 and not self.has_few_registers


TARGETS: tuple[Target, ...] = (
    Target("avx512", "x86_64-unknown-linux-gnu", "x86-64-v4", "", 512, 32, l2_bytes=1024 * 1024),
    Target("avx2", "x86_64-unknown-linux-gnu", "x86-64-v3", "", 256, 16),
    Target("sse2", "x86_64-unknown-linux-gnu", "x86-64", "", 128, 16, fma=False),
    Target("neon", "aarch64-unknown-linux-gnu", "generic", "", 128, 32),
)
"""Generic targets, for inspection and tests; the runtime describes the host itself."""

MATRIX_TARGET = Target(
    "amx",
    "x86_64-unknown-linux-gnu",
    "sapphirerapids",
    "+amx-bf16,+amx-int8,+amx-tile,+avx512bf16,+avx512vnni,+f16c",
    512,
    32,
    l2_bytes=2 * 1024 * 1024,
    adds_apart=PROCESSORS["sapphirerapids"].adds_apart,
).with_figures(overhead=PROCESSORS["sapphirerapids"].overhead)
"""A Sapphire Rapids, the first with a matrix unit, for inspection and for tests that read its code."""
