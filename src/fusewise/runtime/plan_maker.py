"""Makes plans: one native call, which computes every number that depends on sizes, and a few operations on arrays.

What is the same for all sizes is made once: addresses of kernels and constants, tables of calls, and which argument lies in which
buffer.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import numpy as np

from fusewise.ir.size import Size, evaluate
from fusewise.ir.types import TensorType
from fusewise.lower.fixed import fixed_host
from fusewise.lower.program import SIZES, HostStep, NativeStep, Port, Program, StepVersions
from fusewise.runtime.arena import OutputBlocks, SizedOutputs, address_of, aligned_block
from fusewise.runtime.crew import Crew
from fusewise.runtime.faults import faults_of
from fusewise.runtime.jit import Library
from fusewise.runtime.plan_code import IDLE, PLAN
from fusewise.runtime.plan_tables import native_slots, numbers_of
from fusewise.runtime.results import Results
from fusewise.runtime.run_plan import (
    Contents,
    HostMaker,
    HostPart,
    RunPlan,
    Stretch,
    objects_at,
    ports_of,
    stretch_rows,
)
from fusewise.runtime.sound import place_fault
from fusewise.runtime.threads import STEP_WORDS, CallRow, StepTable, step_table

__all__ = ["PlanMaker"]

_EMPTY = np.empty(0, np.uint8)


class PlanMaker:
    """Of a program with symbols: `numbers` for the dimensions of inputs, and from these and an arena a plan."""

    def __init__(
        self, contents: Contents, library: Library, workers: int, host: Callable[[Program], HostMaker]
    ) -> None:
        program = self._program = contents.program
        self._library, self._workers, self._host = library, workers, host
        self._maker: HostMaker | None = None
        self.layout = numbers_of(program)
        self._compute = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.addresses[PLAN])
        self._kinds = [buffer.kind for buffer in program.buffers]
        self._blocks = [self._block(k, contents) for k in range(len(program.buffers))]
        self._bases = np.array([0 if block is None else address_of(block) for block in (*self._blocks, None)], np.int64)
        self._arena = np.flatnonzero([kind == "arena" for kind in self._kinds])
        self._contents = np.flatnonzero([kind == "sizes" for kind in self._kinds])
        self._inputs = ports_of(program)
        self._sized = [k for k, b in enumerate(program.buffers) if b.kind == "host" and self._blocks[k] is None]
        self._steps(contents)
        self._ports()

        self._faults = faults_of(program, self._blocks)
        are_sized = any(not isinstance(one, np.ndarray) for _, one in program.objects)
        self._objects = () if are_sized else objects_at(program.objects, {})

    # --- what is made once --------------------------------------------------------------------------------------------

    def _block(self, number: int, contents: Contents) -> np.ndarray | None:
        """Memory of its own of a buffer, whatever sizes are."""
        buffer = self._program.buffers[number]
        if buffer.kind == "constant":
            return contents.constants[number]
        if buffer.kind not in ("fault", "host") or isinstance(buffer.nbytes, Size):
            return None
        block = aligned_block(buffer.nbytes)
        block.fill(0)
        return block

    def _steps(self, contents: Contents) -> None:
        """Tables of all slots, and one behind them of a step that has nothing to do; calls, with slots in place of addresses."""
        slots = [slot for _, _, found in native_slots(self._program) for slot in found]
        of_kernel = [self._library.addresses[symbol] for symbol in contents.symbols]
        functions = [of_kernel[slot.kernel] for slot in slots]
        self._functions = np.array([*functions, self._library.addresses[IDLE]], np.int64)
        counts = np.array([len(slot.arguments) for slot in slots], np.int64)
        starts = np.cumsum(counts) - counts
        self._starts = np.array([*(8 * starts), 0], np.int64)
        self._flags = np.array([*(_flags(slot) for slot in slots), 1], np.int64)
        buffers = [place.buffer for slot in slots for place in slot.arguments]
        self._buffers = np.array(buffers, np.int64)
        self._buffers[self._buffers == SIZES] = len(self._kinds)
        self._owners = np.repeat(np.arange(len(slots)), counts)
        of_caller = np.array([kind in ("input", "output") for kind in self._kinds] + [False], bool)
        self._patched = np.flatnonzero(of_caller[self._buffers])
        self._parts: list[tuple[slice, tuple[int, ...]] | list[tuple[int, HostStep]]] = []
        rows: list[tuple[int, CallRow]] = []
        native = -1
        for hosted, group in groupby(enumerate(self._program.steps), lambda row: isinstance(row[1], HostStep)):
            if hosted:
                self._parts.append([(number, step) for number, step in group if isinstance(step, HostStep)])
                continue
            calls = []
            for number, step in group:
                native += 1
                barrier, pieces = (step.barrier, step.pieces) if isinstance(step, NativeStep) else (True, 1)
                calls.append((number, CallRow(native, 0, barrier, pieces=pieces)))
            found = stretch_rows(self._program, calls)
            part = slice(len(rows), len(rows) + len(found))
            self._parts.append((part, tuple(number for number, _ in found)))
            rows += found
        self._table = step_table([row for _, row in rows]).words
        self._native = self._table[:, 0].copy()
        versions = [isinstance(self._program.steps[number], StepVersions) for number, _ in rows]
        self._versioned = np.flatnonzero(versions)

    def _ports(self) -> None:
        program = self._program
        self._outputs: list[tuple[int, OutputBlocks, slice]] = []
        self._kept: list[int] = []
        for number, port in enumerate(program.outputs):
            part = self.layout.shapes[number]
            if part is None:
                continue
            assert isinstance(port.type, TensorType)
            if self._kinds[port.buffer] != "output":
                self._kept.append(number)
            elif all(port.buffer != buffer for buffer, _, _ in self._outputs):
                self._outputs.append((port.buffer, OutputBlocks(port.type.dtype.numpy), part))
        self._results = None if self._kept else Results(program.outputs, program.buffers)
        hosts = [step for step in program.steps if isinstance(step, HostStep)]
        seen = [place for step in hosts for _, place, _ in (*step.reads, *step.writes) if place is not None]
        self._viewed = {place.buffer for place in seen} | {program.outputs[k].buffer for k in self._kept}

    # --- what is made for each plan -------------------------------------------------------------------------------------

    def numbers(self, dims: Iterable[int]) -> np.ndarray:
        """All numbers for the dimensions of inputs, one behind the other; the first number is 0 if they are sound."""
        found, given = self.layout.template.copy(), array("q", dims)
        self._compute(given.buffer_info()[0], address_of(found))
        return found

    def plan(self, numbers: np.ndarray, arena: np.ndarray) -> RunPlan:
        """The plan of these numbers, in an arena that is large enough. `ValueError` for an argument outside its buffer."""
        layout = self.layout
        bases, blocks = self._bases.copy(), list(self._blocks)
        bases[-1] = address_of(numbers)
        bases[self._arena] = numbers[layout.arena] + address_of(arena)
        for buffer in self._contents.tolist():
            block = blocks[buffer] = self._filled(numbers, buffer)
            bases[buffer] = address_of(block)
        nbytes = numbers[layout.nbytes]
        for buffer in self._sized:
            block = blocks[buffer] = aligned_block(int(nbytes[buffer]))
            bases[buffer] = address_of(block)
        words = self._words(numbers, nbytes, bases)
        for buffer in self._viewed:
            if self._kinds[buffer] == "arena":
                start = int(bases[buffer]) - address_of(arena)
                blocks[buffer] = arena[start : start + int(nbytes[buffer])]
        return RunPlan(
            self._program,
            self._library,
            self._inputs,
            tuple(blocks),
            words.data,
            self._patches(numbers),
            tuple([(b, SizedOutputs(made, tuple(numbers[part].tolist()))) for b, made, part in self._outputs]),
            self._parts_of(numbers, words),
            self._results or self._results_of(numbers),
            None if self._faults is None else self._faults.at(lambda size: evaluate(size, self._values(numbers))),
            numbers=numbers,
            objects=self._objects or objects_at(self._program.objects, self._values(numbers)),
        )

    def _values(self, numbers: np.ndarray) -> dict[str, int]:
        """The symbols' values by name."""
        return dict(
            zip([symbol.name for symbol in self._program.symbols], numbers[self.layout.symbols].tolist(), strict=True)
        )

    def _filled(self, numbers: np.ndarray, buffer: int) -> np.ndarray:
        """The contents of a buffer that are known in terms of sizes, as bytes."""
        found = numbers[self.layout.contents[buffer]]
        narrow = self._program.buffers[buffer].nbytes < 8 * found.size
        return (found.astype(np.int32) if narrow else found).view(np.uint8)

    def _words(self, numbers: np.ndarray, nbytes: np.ndarray, bases: np.ndarray) -> np.ndarray:
        """The arguments of all slots."""
        offsets = numbers[self.layout.offsets]
        ends = nbytes[self._buffers]
        outside = (offsets < 0) | (offsets > ends)
        if outside.any():
            run = np.isin(self._owners, numbers[self.layout.chosen])
            if (outside & run).any():
                step = int(self._owners[np.flatnonzero(outside & run)[0]])
                raise ValueError(f"an argument of kernel call {step} lies outside its buffer")
        words: np.ndarray = bases[self._buffers] + offsets
        return words

    def _patches(self, numbers: np.ndarray) -> tuple[tuple[int, Sequence[tuple[int, int]]], ...]:
        """Which arguments of what is run point into the caller's arrays."""
        run = np.zeros(self._functions.size, bool)
        run[numbers[self.layout.chosen]] = True
        places = self._patched[run[self._owners[self._patched]]]
        offsets = numbers[self.layout.offsets][places].tolist()
        found: dict[int, list[tuple[int, int]]] = {}
        for buffer, place, offset in zip(self._buffers[places].tolist(), places.tolist(), offsets, strict=True):
            found.setdefault(buffer, []).append((place, offset))
        return tuple(found.items())

    def _parts_of(self, numbers: np.ndarray, words: np.ndarray) -> tuple[Stretch | HostPart, ...]:
        """Calls with addresses, and host steps for these sizes."""
        slots = numbers[self.layout.chosen][self._native]
        table = self._table.copy()
        table[:, 0] = self._functions[slots]
        table[:, 1] = self._starts[slots] + address_of(words)
        table[self._versioned, 2] = self._flags[slots[self._versioned]]
        at = address_of(table) if table.size else 0
        parts: list[Stretch | HostPart] = []
        for part in self._parts:
            if isinstance(part, list):
                values = self._values(numbers)
                self._maker = self._maker or self._host(self._program)
                steps = [(k, fixed_host(step, values)) for k, step in part]
                self._require_inside([step for _, step in steps], numbers[self.layout.nbytes])
                parts.extend(self._maker(steps))
                continue
            rows, calls = part
            rows_of = StepTable(table[rows], at + 8 * STEP_WORDS * rows.start, len(calls))
            parts.append(Stretch(rows_of, calls, Crew(self._workers)))
        return tuple(parts)

    @staticmethod
    def _require_inside(steps: Sequence[HostStep], nbytes: np.ndarray) -> None:
        """Raise `ValueError` for an operand of host steps, whose sizes are known, outside its buffer."""
        for step in steps:
            for name, place, kind in (*step.reads, *step.writes):
                if place is not None and isinstance(kind, TensorType):
                    fault = place_fault(name, place, kind, int(nbytes[place.buffer]))
                    if fault:
                        raise ValueError(fault)

    def _results_of(self, numbers: np.ndarray) -> Results:
        """Where outputs lie in memory of the program's own, with their types."""
        outputs = list(self._program.outputs)
        for number in self._kept:
            port, part = outputs[number], self.layout.shapes[number]
            assert isinstance(port.type, TensorType) and part is not None
            kind = TensorType(port.type.dtype, tuple(numbers[part].tolist()))
            outputs[number] = Port(port.name, kind, port.buffer)
        return Results(outputs, self._program.buffers)


def _flags(step: NativeStep) -> int:
    """The word of a call that says how it is made (`runtime.threads`)."""
    return step.pieces << 32 | step.barrier
