"""The numbers of a program's plans in one array: those that depend on sizes are written by native code (`runtime.plan_code`), the
others stand there before. Equal sizes are one number, so that there are few: a new size finds them, and all else of plans, outside
the caches.

Of all versions of a step each is a *slot*.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from fusewise.ir.size import Size, size_of
from fusewise.ir.types import TensorType
from fusewise.lower.program import SIZES, Buffer, KernelCode, NativeStep, Port, Program, StepVersions
from fusewise.records import record
from fusewise.runtime.plan_code import PLAN, PlanWriter
from fusewise.runtime.sizes import SymbolReader

__all__ = ["Numbers", "native_slots", "numbers_of", "plan_kernel"]


@record(frozen=True)
class Numbers:
    """Where what stands among the numbers of a plan, and `template`, those that are the same in all.

    `offsets`: of the arguments of all slots, in bytes, a step's own sizes counted from where all numbers begin; `nbytes`: of each
    buffer, and of all numbers; `starts`: where each buffer begins in the arena, 0 for what lies elsewhere and for the numbers;
    `contents`: by buffer; `total`: what the arena takes; `outputs`: what the outputs do; `shapes`: by output, or none; `chosen`: by
    native step, one behind the other, its slot, or the number of slots where there is nothing to do; `symbols`: what they are.
    """

    template: np.ndarray
    offsets: tuple[int, ...]
    nbytes: tuple[int, ...]
    starts: tuple[int, ...]
    contents: Mapping[int, tuple[int, ...]]
    total: int
    outputs: int
    shapes: tuple[tuple[int, ...] | None, ...]
    chosen: slice
    symbols: tuple[int, ...]

    @property
    def digest(self) -> int:
        """Tells layouts apart: code that was made for one must not meet another."""
        parts = (self.offsets, self.nbytes, self.starts, self.contents, self.total, self.outputs, self.shapes)
        return zlib.crc32(repr((self.template.size, *parts, self.chosen, self.symbols)).encode())


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
        self._where: dict[int | str, int] = {}
        self._native = list(native_slots(program))
        slots = [slot for _, _, found in self._native for slot in found]
        self._slots = len(slots)
        own = self._own_sizes(slots)
        offsets = self._row(chain.from_iterable(map(_offsets, slots, own)))
        nbytes = tuple(map(self._extent, program.buffers))
        everything = self._more([0]).start
        outputs = self._place(sum(b.nbytes for b in program.buffers if b.kind in ("output", "host")))
        contents = {k: self._row(buffer.contents) for k, buffer in enumerate(program.buffers) if buffer.kind == "sizes"}
        places = [(b.place, self._place(b.nbytes)) if b.kind == "arena" else None for b in program.buffers]
        tenants = dict.fromkeys(place for place in places if place is not None)
        self._arena = {tenant: self._more([0]).start for tenant in tenants}
        total, nowhere = self._more([0]).start, self._place(0)
        starts = [nowhere if place is None else self._arena[place] for place in places]
        shapes = tuple(None if dims is None else self._row(dims) for dims in map(_dims_in_memory, program.outputs))
        chosen = self._more([first for first, _ in self._firsts()])
        symbols = self._row(map(size_of, program.symbols))
        template = np.array([0 if isinstance(size, Size) else size for size in self._all], np.int64)
        template[everything] = 8 * template.size
        self.numbers = Numbers(
            template,
            offsets,
            (*nbytes, everything),
            (*starts, nowhere),
            contents,
            total,
            outputs,
            shapes,
            chosen,
            symbols,
        )

    def _more(self, sizes: Sequence[int]) -> slice:
        """Positions of these numbers, one behind the other."""
        start = len(self._all)
        self._all.extend(sizes)
        return slice(start, len(self._all))

    def _own_sizes(self, slots: Sequence[NativeStep]) -> list[int]:
        """Where the sizes begin that each slot's kernel reads; equal ones are there once."""
        found: dict[tuple[int | str, ...], int] = {}
        keys = [tuple(map(_written, slot.sizes)) for slot in slots]
        for key, slot in zip(keys, slots, strict=True):
            if key not in found:
                start = found[key] = self._more(slot.sizes).start
                for k, one in enumerate(key):
                    self._where.setdefault(one, start + k)
        return [found[key] for key in keys]

    def _place(self, size: int) -> int:
        """The position of a number."""
        key = _written(size)
        position = self._where.get(key)
        if position is None:
            position = self._where[key] = self._more([size]).start
        return position

    def _extent(self, buffer: Buffer) -> int:
        """The position of how many bytes a buffer has; of a constant's its own, since that is known when it is packed."""
        return self._more([buffer.nbytes]).start if buffer.kind == "constant" else self._place(buffer.nbytes)

    def _row(self, sizes: Iterable[int]) -> tuple[int, ...]:
        return tuple(map(self._place, sizes))

    def _firsts(self) -> Iterator[tuple[int, NativeStep | StepVersions]]:
        """Of each native step the number of its first slot."""
        first = 0
        for _, step, found in self._native:
            yield first, step
            first += len(found)

    @property
    def _required(self) -> list[int]:
        """Positions of the sizes that must not be below 0."""
        *nbytes, _ = self.numbers.nbytes
        shapes = chain.from_iterable(shape for shape in self.numbers.shapes if shape is not None)
        return sorted({k for k in (*nbytes, *shapes) if isinstance(self._all[k], Size)})

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
            *(f"{position}" for position in (*self._required, *self._arena.values(), self.numbers.total)),
            *(f"{place} {nbytes}" for place, nbytes in self._arena),
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
        for position in self._required:
            at[position] = writer.call("nonnegative", at[position])
        for position, size in enumerate(self._all):
            if isinstance(size, Size):
                writer.store(position, at[position])
        tenants = [(at[nbytes], place) for place, nbytes in self._arena]
        writer.lay_out([*self._arena.values()], numbers.total, tenants)
        for position, (first, step) in zip(
            range(numbers.chosen.start, numbers.chosen.stop), self._firsts(), strict=True
        ):
            if isinstance(step, StepVersions):
                versions = [(conditions, first + k) for k, (conditions, _) in enumerate(step.versions)]
                writer.choose(position, step.extent, versions, self._slots)
        return writer.text(numbers.digest)


def _written(size: int) -> int | str:
    """A key, the same wherever a program is read again: sizes compare by what they are."""
    return str(size) if isinstance(size, Size) else size


def _offsets(slot: NativeStep, own: int) -> Iterator[int]:
    """Of the arguments; a step's own sizes are counted from where all numbers begin."""
    return (8 * own + place.offset if place.buffer == SIZES else place.offset for place in slot.arguments)


def _dims_in_memory(port: Port) -> tuple[int, ...] | None:
    """The shape of an output that is an array of known shape in memory."""
    return port.type.dims if port.buffer >= 0 and isinstance(port.type, TensorType) and port.type.is_static else None
