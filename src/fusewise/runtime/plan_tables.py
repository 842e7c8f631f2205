"""The numbers of a program's plans in one array: those that depend on sizes are written by native code (`runtime.plan_code`), the
others stand there before.

Of all versions of a step each is a *slot*: the arguments of all slots lie one behind the other, whichever is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from fusewise.ir.size import Size, size_of
from fusewise.ir.types import TensorType
from fusewise.lower.program import SIZES, KernelCode, NativeStep, Port, Program, StepVersions
from fusewise.records import record
from fusewise.runtime.plan_code import PLAN, PlanWriter
from fusewise.runtime.sizes import SymbolReader

__all__ = ["Numbers", "native_slots", "numbers_of", "plan_kernel"]


@record(frozen=True)
class Numbers:
    """Where what stands among the numbers of a plan, and `template`, those that are the same in all.

    `offsets`: of each argument, in bytes; `nbytes`: of each buffer, and of all numbers; `contents`: by buffer, its part; `arena`:
    where each arena buffer begins; `total`: what all of these take; `outputs`: what the outputs do; `shapes`: by output, its part
    or none; `chosen`: by native step, its slot, or the number of slots where there is nothing to do; `symbols`: what they are.
    """

    template: np.ndarray
    offsets: slice
    nbytes: slice
    contents: Mapping[int, slice]
    arena: slice
    total: int
    outputs: int
    shapes: tuple[slice | None, ...]
    chosen: slice
    symbols: slice


def native_slots(program: Program) -> Iterator[tuple[int, NativeStep | StepVersions, tuple[NativeStep, ...]]]:
    """The native steps, with their numbers and slots."""
    for number, step in enumerate(program.steps):
        if isinstance(step, NativeStep):
            yield number, step, (step,)
        elif isinstance(step, StepVersions):
            yield number, step, tuple(one for _, one in step.versions)


def numbers_of(program: Program) -> Numbers:
    """The layout for a program."""
    return _Layout(program).numbers


def plan_kernel(program: Program) -> tuple[KernelCode, ...]:
    """The code of a program's plans; none for one without symbols."""
    if not program.symbols:
        return ()
    layout = _Layout(program)

    def build() -> str:
        return layout.written()

    return (KernelCode(PLAN, f"plan {layout.recipe}", build, level="quick"),)


class _Layout:
    """Gives positions to all numbers in order. Position 0 says whether a plan can be had."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._all: list[int] = [0]
        native = list(native_slots(program))
        self._native = native
        slots = [slot for _, _, found in native for slot in found]
        self._slots = len(slots)
        own: list[int] = []
        starts: list[int] = []
        for slot in slots:
            starts.append(len(own))
            own.extend(slot.sizes)
        sizes = self._part(own)
        self._own = [sizes.start + start for start in starts]
        offsets = self._part(list(chain.from_iterable(map(self._offsets, slots, self._own))))
        nbytes = self._part([*(buffer.nbytes for buffer in program.buffers), 0])
        outputs = self._part([sum(b.nbytes for b in program.buffers if b.kind in ("output", "host"))]).start
        contents = {
            k: self._part(buffer.contents) for k, buffer in enumerate(program.buffers) if buffer.kind == "sizes"
        }
        arena = self._part([0] * sum(buffer.kind == "arena" for buffer in program.buffers))
        total = self._part([0]).start
        shapes = tuple(None if dims is None else self._part(dims) for dims in map(_dims_in_memory, program.outputs))
        chosen = self._part([first for first, _ in self._firsts()])
        symbols = self._part([size_of(symbol) for symbol in program.symbols])
        template = np.array([0 if isinstance(size, Size) else size for size in self._all], np.int64)
        template[nbytes.stop - 1] = 8 * template.size
        self.numbers = Numbers(template, offsets, nbytes, contents, arena, total, outputs, shapes, chosen, symbols)

    def _part(self, sizes: Sequence[int]) -> slice:
        start = len(self._all)
        self._all.extend(sizes)
        return slice(start, len(self._all))

    def _offsets(self, slot: NativeStep, own: int) -> Iterator[int]:
        """Of the arguments; a step's own sizes are counted from where all numbers begin."""
        return (8 * own + place.offset if place.buffer == SIZES else place.offset for place in slot.arguments)

    def _firsts(self) -> Iterator[tuple[int, NativeStep | StepVersions]]:
        """Of each native step the number of its first slot."""
        first = 0
        for _, step, found in self._native:
            yield first, step
            first += len(found)

    @property
    def recipe(self) -> str:
        """Everything that the code depends on, as a text."""
        program = self._program
        parts = [
            *(f"{port.type} {port.contents}" for port in program.inputs),
            *map(str, program.symbols),
            *map(repr, ((s.low, s.high) for s in program.symbols)),
            *(f"{check.condition}" for check in program.checks),
            *map(str, self._all),
            *(f"{b.kind} {b.place}" for b in program.buffers),
            *(
                f"{step.extent}: {[[str(c) for c in conditions] for conditions, _ in step.versions]}"
                for _, step in self._firsts()
                if isinstance(step, StepVersions)
            ),
        ]
        return "; ".join(parts)

    def written(self) -> str:
        """The code."""
        program, numbers = self._program, self.numbers
        reader = SymbolReader(program.symbols, program.inputs, program.checks)
        writer = PlanWriter(reader.positions)
        for position, size in reader.dimensions:
            writer.require_equal(writer.dimension(position), writer.number(size))
        for condition in reader.conditions:
            writer.require(condition)
        at = {k: writer.number(size) for k, size in enumerate(self._all)}
        for position in (*range(numbers.nbytes.start, numbers.nbytes.stop - 1), *_places(numbers.shapes)):
            if isinstance(self._all[position], Size):
                at[position] = writer.call("nonnegative", at[position])
        for position, size in enumerate(self._all):
            if isinstance(size, Size):
                writer.store(position, at[position])
        arena = [(k, buffer) for k, buffer in enumerate(program.buffers) if buffer.kind == "arena"]
        writer.lay_out(
            range(numbers.arena.start, numbers.arena.stop),
            numbers.total,
            [(at[numbers.nbytes.start + k], buffer.place) for k, buffer in arena],
        )
        for position, (first, step) in zip(
            range(numbers.chosen.start, numbers.chosen.stop), self._firsts(), strict=True
        ):
            if isinstance(step, StepVersions):
                versions = [(conditions, first + k) for k, (conditions, _) in enumerate(step.versions)]
                writer.choose(position, step.extent, versions, self._slots)
        return writer.text()


def _places(parts: Sequence[slice | None]) -> Iterator[int]:
    return chain.from_iterable(range(part.start, part.stop) for part in parts if part is not None)


def _dims_in_memory(port: Port) -> tuple[int, ...] | None:
    """The shape of an output that is an array of known shape in memory."""
    return port.type.dims if port.buffer >= 0 and isinstance(port.type, TensorType) and port.type.is_static else None
