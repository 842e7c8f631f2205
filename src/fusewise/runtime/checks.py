"""The runtime's side of a checked build: guarded memory, tables of what kernels may touch, and what they touched beside it.

Every buffer is a block of its own. What nobody has written yet holds bytes 0xFF, which are NaN in every type of floats, so that
what is read too early shows in the answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fusewise.lower.program import Extent, NativeStep, Place, Program
from fusewise.runtime.access import AccessTable, Range
from fusewise.runtime.arena import RunMemory, address_of
from fusewise.runtime.guarded import guarded_block

__all__ = ["Checks", "guarded_memory"]

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
    """Tables for the native steps of a program, in order."""

    def __init__(self, program: Program, memory: Sequence[np.ndarray | None]) -> None:
        self._program, self._memory = program, memory
        self._steps = [step for step in program.steps if isinstance(step, NativeStep)]
        self._tables = [
            AccessTable(
                [self._range(place, extent) for place, extent in zip(step.arguments, step.extents, strict=True)]
            )
            for step in self._steps
        ]

        self._written = {
            place.buffer
            for step in self._steps
            for place, extent in zip(step.arguments, step.extents, strict=True)
            if extent.writes and program.buffers[place.buffer].kind == "input"
        }

    @property
    def addresses(self) -> list[int]:
        """Where the table of each native step lies."""
        return [table.address for table in self._tables]

    def _range(self, place: Place, extent: Extent) -> Range:
        block = self._memory[place.buffer]
        assert block is not None, "a checked build has all memory of its own"
        base = address_of(block)
        start = base + place.offset
        end = base + block.size if extent.high < 0 else start + extent.high
        name = f"{extent.argument} ({extent.value!r})" if extent.value else extent.argument
        return Range(name, start + extent.low, end, extent.writes)

    def begin(self, values: Sequence[Any]) -> None:
        """Before a run: its inputs where kernels read them, and in all other memory what shows that nobody wrote it."""
        for buffer, block in zip(self._program.buffers, self._memory, strict=True):
            if block is not None and buffer.kind in ("arena", "host", "output"):
                block.fill(_POISON)
        memory = RunMemory(tuple(self._memory), {})
        for port, value in zip(self._program.inputs, values, strict=True):
            if port.buffer >= 0 and value.size:
                memory.view(Place(port.buffer), port.type)[...] = value  # type: ignore[arg-type]  # buffers are tensors

    def end(self, values: Sequence[Any]) -> None:
        """After a run: what kernels have written to its inputs, where the caller has them."""
        for port, value in zip(self._program.inputs, values, strict=True):
            if port.buffer in self._written:
                value[...] = RunMemory(tuple(self._memory), {}).view(Place(port.buffer), port.type)  # type: ignore[arg-type]

    def check(self) -> None:
        """Raise `AccessOutside` for the first step that touched what it may not."""
        for step, table in zip(self._steps, self._tables, strict=True):
            table.require(f"node {step.label!r}, kernel {step.way!r}")
