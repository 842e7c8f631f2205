"""The runtime's side of a checked build: guarded memory, tables of what kernels may touch, and what they touched beside it.

Every buffer is a block of its own. What nobody has written yet holds bytes 0xFF, which are NaN in every type of floats, so that
what is read too early shows in the answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fusewise.codegen.llvm.checked import FAULT, HEADER, RANGE_WORDS
from fusewise.errors import AccessOutside
from fusewise.lower.program import Extent, NativeStep, Place, Program
from fusewise.runtime.arena import Memory, address_of
from fusewise.runtime.guarded import guarded_block

__all__ = ["Checks", "guarded_memory"]

_SINK_BYTES = 1 << 14
"""Memory for accesses that went wrong: more than any vector, behind any masked part of one."""

_POISON = 0xFF


def guarded_memory(program: Program, constants: Mapping[int, np.ndarray]) -> tuple[np.ndarray | None, ...]:
    """A block for every buffer, with the constants in theirs."""
    blocks = []
    for number, buffer in enumerate(program.buffers):
        given = constants.get(number)
        block = guarded_block(buffer.nbytes if given is None else given.nbytes)
        if given is not None and given.nbytes:
            block[:] = given[: block.size]
        blocks.append(block)
    return tuple(blocks)


class Checks:
    """Tables for the native steps of a program, in order; see `codegen.llvm.checked` for what is in one."""

    def __init__(self, program: Program, memory: Sequence[np.ndarray | None]) -> None:
        self._program, self._memory = program, memory
        self._sink = guarded_block(_SINK_BYTES)
        self._steps = [step for step in program.steps if isinstance(step, NativeStep)]
        self._tables = [self._table(step) for step in self._steps]

    @property
    def addresses(self) -> list[int]:
        """Where the table of each native step lies."""
        return [address_of(table) for table in self._tables]

    def _table(self, step: NativeStep) -> np.ndarray:
        table = np.zeros(HEADER + RANGE_WORDS * len(step.extents), np.int64)
        table[HEADER - 2 : HEADER] = address_of(self._sink), len(step.extents)
        for k, (place, extent) in enumerate(zip(step.arguments, step.extents, strict=True)):
            begin, end = self._range(place, extent)
            table[HEADER + RANGE_WORDS * k :][:RANGE_WORDS] = begin, end, extent.writes
        return table

    def _range(self, place: Place, extent: Extent) -> tuple[int, int]:
        block = self._memory[place.buffer]
        assert block is not None, "a checked build has all memory of its own"
        base = address_of(block)
        start = base + place.offset
        return start + extent.low, base + block.size if extent.high < 0 else start + extent.high

    def begin(self, values: Sequence[Any]) -> None:
        """Before a run: its inputs where kernels read them, and in all other memory what shows that nobody wrote it."""
        for buffer, block in zip(self._program.buffers, self._memory, strict=True):
            if block is not None and buffer.kind in ("arena", "host", "output"):
                block.fill(_POISON)
        memory = Memory(tuple(self._memory), {})
        for port, value in zip(self._program.inputs, values, strict=True):
            if port.buffer >= 0 and value.size:
                memory.view(Place(port.buffer), port.type)[...] = value  # type: ignore[arg-type]  # buffers are tensors

    def check(self) -> None:
        """Raise `AccessOutside` for the first step that touched what it may not, and forget it."""
        wrong = [(step, table) for step, table in zip(self._steps, self._tables, strict=True) if table[0]]
        said = [self._sentence(step, dict(zip(FAULT, table.tolist(), strict=False))) for step, table in wrong]
        for _, table in wrong:
            table[: len(FAULT)] = 0
        if said:
            raise AccessOutside(said[0])

    def _sentence(self, step: NativeStep, found: Mapping[str, int]) -> str:
        did = "writes" if found["writes"] else "reads"
        ranges = [self._range(place, extent) for place, extent in zip(step.arguments, step.extents, strict=True)]
        number = found["argument"]
        if number < 0:
            apart = [max(begin - found["address"], found["address"] - end, 0) for begin, end in ranges]
            number = apart.index(min(apart))
        extent, (begin, end) = step.extents[number], ranges[number]
        what = f"{extent.argument} ({extent.value!r})" if extent.value else extent.argument
        much = f"{max(0, end - begin)}{' and is not to be written' if found['writes'] > extent.writes else ''}"
        return (
            f"node {step.label!r}, kernel {step.way!r}: {did} {found['nbytes']} bytes at byte {found['address'] - begin} of its "
            f"operand {what}, which has {much}: a fault of this program; please report it"
        )
