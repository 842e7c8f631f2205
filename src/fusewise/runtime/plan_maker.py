"""Makes plans: two native calls, which compute every number that depends on sizes and fill the tables of a run with them.

What is the same for all sizes is made once: addresses of kernels and constants, tables of calls, and which argument lies in which
buffer.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, groupby

import numpy as np

from fusewise.ir.size import Size, evaluate
from fusewise.ir.types import TensorType
from fusewise.lower.fixed import fixed_host
from fusewise.lower.program import SIZES, HostStep, NativeStep, Port, Program, StepVersions
from fusewise.runtime.arena import OutputBlocks, SizedOutputs, address_of, aligned_block
from fusewise.runtime.crew import Crew
from fusewise.runtime.faults import faults_of
from fusewise.runtime.jit import Library
from fusewise.runtime.plan_code import FILL, FILL_SPEC, IDLE, PLAN
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
        self._contents = [k for k, kind in enumerate(self._kinds) if kind == "sizes"]
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
        counts = [len(slot.arguments) for slot in slots]
        buffers = [place.buffer for slot in slots for place in slot.arguments]
        tables = {
            "functions": [*(of_kernel[slot.kernel] for slot in slots), self._library.addresses[IDLE]],
            "starts": [*(8 * start for start in accumulate(counts, initial=0))],
            "flags": [*map(_flags, slots), 1],
            "argument_buffers": [len(self._kinds) if buffer == SIZES else buffer for buffer in buffers],
            "owners": [slot for slot, count in enumerate(counts) for _ in range(count)],
            "arena_buffers": [k for k, kind in enumerate(self._kinds) if kind == "arena"],
            "bases": [*map(self._base, range(len(self._kinds))), 0],
        }
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
        self._rows = step_table([row for _, row in rows]).words
        tables["row_steps"] = [row.function for _, row in rows]
        tables["versioned"] = [isinstance(self._program.steps[number], StepVersions) for number, _ in rows]
        self._tables = {name: np.array(found or [0], np.int64) for name, found in tables.items()}
        self._tables |= {"row_words": self._rows, "run": np.zeros(len(slots) + 1, np.uint8)}
        self._spec(len(slots), native + 1)

    def _base(self, buffer: int) -> int:
        """Where a buffer lies in all plans; 0 for one of the caller's."""
        block = self._blocks[buffer]
        if block is None:
            return 0 if self._kinds[buffer] in ("input", "output") else -1
        return address_of(block) or -1

    def _spec(self, slots: int, steps: int) -> None:
        """What native code reads to fill a plan's tables."""
        layout, rows, own = self.layout, len(self._rows), self._tables
        arguments = layout.offsets.stop - layout.offsets.start
        parts = {
            "slots": slots,
            "steps": steps,
            "buffers": len(self._kinds),
            "arguments": arguments,
            "rows": rows,
            "arenas": layout.arena.stop - layout.arena.start,
            "arena_offsets": layout.arena.start,
            "chosen": layout.chosen.start,
            "offsets": layout.offsets.start,
            "nbytes": layout.nbytes.start,
        }
        words = [parts[n] if n in parts else address_of(own[n[1:]]) if own[n[1:]].size else 0 for n in FILL_SPEC]
        self._spec_words, self._given = np.array(words, np.int64), np.zeros(max(1, 3 * arguments), np.int64)
        self._addresses = address_of(self._spec_words), rows, address_of(self._given)
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        fill = ctypes.CFUNCTYPE(word, pointer, pointer, pointer, pointer, pointer, word)
        self._native_fill = fill(self._library.addresses[FILL])

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
        blocks, bases = list(self._blocks), self._tables["bases"]
        for buffer in self._contents:
            block = blocks[buffer] = self._filled(numbers, buffer)
            bases[buffer] = address_of(block)
        nbytes = numbers[self.layout.nbytes]
        for buffer in self._sized:
            block = blocks[buffer] = aligned_block(int(nbytes[buffer]))
            bases[buffer] = address_of(block)
        words, calls = np.empty(max(1, self._tables["owners"].size), np.int64), np.empty(self._rows.shape, np.int64)
        patches = self._fill(numbers, words, calls, address_of(arena))
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
            patches,
            tuple([(b, SizedOutputs(made, tuple(numbers[part].tolist()))) for b, made, part in self._outputs]),
            self._parts_of(numbers, calls),
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

    def _fill(
        self, numbers: np.ndarray, words: np.ndarray, calls: np.ndarray, arena: int
    ) -> tuple[tuple[int, Sequence[tuple[int, int]]], ...]:
        """Write the arguments of all slots and the calls; what of the arguments points into the caller's arrays."""
        spec, rows, given = self._addresses
        count = self._native_fill(
            spec, address_of(numbers), address_of(words), address_of(calls) if rows else 0, given, arena
        )
        if count < 0:
            raise ValueError(f"an argument of kernel call {-1 - count} lies outside its buffer")
        found: dict[int, list[tuple[int, int]]] = {}
        triples = iter(self._given[:count].tolist())
        for buffer, place, offset in zip(triples, triples, triples, strict=True):
            found.setdefault(buffer, []).append((place, offset))
        return tuple(found.items())

    def _parts_of(self, numbers: np.ndarray, table: np.ndarray) -> tuple[Stretch | HostPart, ...]:
        """Calls, and host steps for these sizes."""
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
