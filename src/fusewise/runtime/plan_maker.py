"""Makes plans: two native calls, which compute every number that depends on sizes and fill the tables of a run with them.

What is the same for all sizes is made once: addresses of kernels and constants, tables of calls, and which argument lies in which
buffer. Between two runs all of it has left the caches, so a new size reads and writes as little as it can, and its plan is written
where one was that nobody goes by any more.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, groupby

import numpy as np

from fusewise.ir.size import Size, evaluate
from fusewise.ir.types import TensorType
from fusewise.lower.fixed import fixed_host
from fusewise.lower.program import SIZES, HostStep, NativeStep, Port, Program, StepVersions
from fusewise.records import record
from fusewise.runtime.arena import OutputBlocks, SizedOutputs, address_of, aligned_block
from fusewise.runtime.crew import Crew
from fusewise.runtime.faults import Faults, faults_of
from fusewise.runtime.jit import Library
from fusewise.runtime.plan_code import FILL, FILL_SPEC, IDLE, LAYOUT, PLAN
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
    whole_stretch,
    words_of,
)
from fusewise.runtime.sound import place_fault
from fusewise.runtime.threads import STEP_WORDS, CallRow, StepTable, step_table

__all__ = ["PlanMaker", "PlanTables"]


@record(eq=False, slots=True)
class PlanTables:
    """Memory that a plan is written into. From `address` on lie its `numbers`, the kernels' arguments and the calls of its
    `stretches`, all in `block`; `outputs` have the shapes of those with memory of their own."""

    block: np.ndarray
    address: int
    numbers: memoryview
    stretches: tuple[Stretch, ...]
    outputs: tuple[SizedOutputs, ...]


class PlanMaker:
    """Of a program with symbols: a plan is `begun` with the numbers for so many `dims` of inputs, and finished in an arena.

    `ValueError` for code that was made for other numbers.
    """

    def __init__(
        self, contents: Contents, library: Library, workers: int, dims: int, host: Callable[[Program], HostMaker]
    ) -> None:
        program = self._program = contents.program
        self._library, self._workers, self._host = library, workers, host
        self._maker: HostMaker | None = None
        self.layout = numbers_of(program)
        if ctypes.CFUNCTYPE(ctypes.c_int64)(library.addresses[LAYOUT])() != self.layout.digest:
            raise ValueError("the code for its sizes was made for others")
        self._compute = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.addresses[PLAN])
        self._symbols = [(one.name, k) for one, k in zip(program.symbols, self.layout.symbols, strict=True)]
        self._kinds = [buffer.kind for buffer in program.buffers]
        self._memory = tuple(self._block(k, contents) for k in range(len(program.buffers)))
        self._contents = [k for k, kind in enumerate(self._kinds) if kind == "sizes"]
        self._sized = [k for k, b in enumerate(program.buffers) if b.kind == "host" and self._memory[k] is None]
        self._steps(contents)
        self._ports()
        self._spare: list[RunPlan] = []
        self._dims = array("q", [0] * max(1, dims))
        self._dims_at, _ = self._dims.buffer_info()
        self._faults = faults_of(program, self._memory)
        are_sized = any(not isinstance(one, np.ndarray) for _, one in program.objects)
        hosted = any(isinstance(part, list) for part in self._parts)
        self._is_plain = not (are_sized or hosted or self._contents or self._sized or self._viewed or self._kept)

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
        """Tables of all slots, and one behind them of a step that has nothing to do; and the calls."""
        native = list(native_slots(self._program))
        slots = [slot for _, _, found in native for slot in found]
        functions = [self._library.addresses[contents.symbols[slot.kernel]] for slot in slots]
        ends = list(accumulate((len(slot.arguments) for slot in slots), initial=0))
        words = list(accumulate((max(len(slot.arguments) for slot in found) for _, _, found in native), initial=0))
        places = [place for slot in slots for place in slot.arguments]
        buffers = [len(self._kinds) if place.buffer == SIZES else place.buffer for place in places]
        layout, idle = self.layout, self._library.addresses[IDLE]
        rows = self._rows_of({number: 8 * word for (number, _, _), word in zip(native, words, strict=False)}, contents)
        changing = {number: k for k, number in enumerate(rows) if isinstance(self._program.steps[number], StepVersions)}
        calls = [(changing.get(number, -1), word) for (number, _, _), word in zip(native, words, strict=False)]
        flags = map(_flags, slots)
        own: dict[str, np.ndarray] = {
            "bases": np.array([*map(self._base, range(len(self._kinds))), 0], np.int64),
            "spans": np.array([*zip(layout.starts, layout.nbytes, strict=True)], np.int32),
            "calls": np.array(calls, np.int32),
            "slots": np.array([*zip(functions, flags, ends, ends[1:], strict=False), (idle, 1, 0, 0)], np.int64),
            "arguments": np.array([*zip(buffers, layout.offsets, strict=True)], np.int32),
            "patches": np.zeros(3 * (words[-1] + 1), np.int64),
        }
        start, stop = layout.template.size, layout.template.size + max(1, words[-1])
        self._words = slice(start, stop)
        self._template = np.concatenate([layout.template, np.zeros(stop - start, np.int64), self._calls.reshape(-1)])
        counts = {
            "steps": len(native),
            "own": len(self._kinds),
            "chosen": layout.chosen.start,
            "words": start,
            "table": stop,
        }
        spec = [address_of(own[n[1:]]) if n[0] == "*" and own[n[1:]].size else counts.get(n, 0) for n in FILL_SPEC]
        self._own = own | {"spec": np.array(spec, np.int64)}
        self._bases, self._patches = own["bases"], own["patches"].reshape(-1, 3)
        self._in_arena = np.array([k for k, kind in enumerate(self._kinds) if kind == "arena"], np.int64)
        fill = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
        self._fill = partial(fill(self._library.addresses[FILL]), address_of(self._own["spec"]))

    def _rows_of(self, words: Mapping[int, int], contents: Contents) -> list[int]:
        """Find the parts of a run, and the calls of all, with functions where there are no versions and in the place of addresses
        how many bytes from the first the arguments of a step begin (`words`); of each call the number of its step."""
        addresses = self._library.addresses
        self._parts: list[tuple[slice, tuple[int, ...]] | list[tuple[int, HostStep]]] = []
        rows: list[tuple[int, CallRow]] = []
        for hosted, group in groupby(enumerate(self._program.steps), lambda row: isinstance(row[1], HostStep)):
            if hosted:
                self._parts.append([(number, step) for number, step in group if isinstance(step, HostStep)])
                continue
            calls = []
            for number, step in group:
                call = CallRow(0, words[number], barrier=True)
                if isinstance(step, NativeStep):
                    function = addresses[contents.symbols[step.kernel]]
                    call = CallRow(function, words[number], step.barrier, pieces=step.pieces)
                calls.append((number, call))
            found = stretch_rows(self._program, calls)
            self._parts.append((slice(len(rows), len(rows) + len(found)), tuple(number for number, _ in found)))
            rows += found
        self._calls = step_table([row for _, row in rows]).words
        return [number for number, _ in rows]

    def _base(self, buffer: int) -> int:
        """Where a buffer lies in all plans; 0 for one of the caller's."""
        block = self._memory[buffer]
        if block is None:
            return 0 if self._kinds[buffer] in ("input", "output") else -1
        return address_of(block) or -1

    def _ports(self) -> None:
        program = self._program
        self._outputs: list[tuple[int, OutputBlocks]] = []
        self._shapes: list[tuple[int, ...]] = []
        self._kept: list[int] = []
        for number, port in enumerate(program.outputs):
            part = self.layout.shapes[number]
            if part is None:
                continue
            assert isinstance(port.type, TensorType)
            if self._kinds[port.buffer] != "output":
                self._kept.append(number)
            elif all(port.buffer != buffer for buffer, _ in self._outputs):
                self._outputs.append((port.buffer, OutputBlocks(port.type.dtype.numpy)))
                self._shapes.append(part)
        hosts = [step for step in program.steps if isinstance(step, HostStep)]
        seen = [place for step in hosts for _, place, _ in (*step.reads, *step.writes) if place is not None]
        self._viewed = {place.buffer for place in seen} | {program.outputs[k].buffer for k in self._kept}

    # --- what is made for each plan -------------------------------------------------------------------------------------

    def begun(self, dims: Iterable[int]) -> RunPlan:
        """A plan with all numbers for the dimensions of inputs, one behind the other; the first number is 0 if they are sound. The
        same one until it is finished."""
        if not self._spare:
            self._spare.append(self._new_plan())
        plan, given = self._spare[-1], self._dims
        for k, dim in enumerate(dims):
            given[k] = dim
        self._compute(self._dims_at, self.tables_of(plan).address)
        return plan

    def reuse(self, plan: RunPlan) -> None:
        """Nobody goes by a plan any more: it may become one for other sizes."""
        if plan.tables is not None:
            if not self._is_plain:
                plan.memory, plan.parts, plan.objects = self._memory, (), ()
            self._spare.append(plan)

    def move(self, arena: np.ndarray) -> None:
        """From here on plans lie in this arena, which is not held."""
        self._bases[self._in_arena] = address_of(arena)

    @staticmethod
    def tables_of(plan: RunPlan) -> PlanTables:
        """Of a plan that was made here."""
        assert isinstance(plan.tables, PlanTables)
        return plan.tables

    def finish(self, plan: RunPlan, arena: np.ndarray) -> None:
        """Fill the tables of a plan whose numbers are sound, in the arena where plans lie, which is large enough. `ValueError` for
        an argument outside its buffer."""
        self._spare.clear()
        tables = self.tables_of(plan)
        numbers = tables.numbers
        if not self._is_plain:
            self._finish_objects(plan, arena)
        count = self._fill(tables.address)
        if count < 0:
            raise ValueError(f"an argument of kernel call {-1 - count} lies outside its buffer")
        plan.patches = self._patches[:count].tolist()
        for output, part in zip(tables.outputs, self._shapes, strict=True):
            output.shape = tuple([numbers[k] for k in part])
        for stretch in tables.stretches:
            stretch.crew.forget()

    def _finish_objects(self, plan: RunPlan, arena: np.ndarray) -> None:
        """Write the objects of a plan that depend on sizes: of programs with host steps, and with results that are no arrays of
        their own."""
        numbers = self.tables_of(plan).numbers
        values = _values(self._symbols, numbers)
        plan.memory = self._own_memory(numbers, arena)
        plan.parts = self._parts_of(self.tables_of(plan), values)
        plan.results = self._results_of(numbers)
        plan.whole = whole_stretch(self._program, plan.parts, plan.fresh)
        plan.objects = objects_at(self._program.objects, values)

    def _new_plan(self) -> RunPlan:
        """A plan with what is the same in all."""
        program, words = self._program, self._words
        block = aligned_block(self._template.nbytes).view(np.int64)
        block[:] = self._template
        address, calls = address_of(block), block[words.stop :].reshape(-1, STEP_WORDS)
        calls[:, 1] += address + 8 * words.start
        stretches = []
        for part in self._parts:
            if isinstance(part, tuple):
                rows, steps = part
                at = address + 8 * (words.stop + STEP_WORDS * rows.start)
                stretches.append(
                    Stretch(StepTable(calls[rows], at, len(steps)), steps, Crew(self._workers, len(steps)))
                )
        numbers = block[: words.start].data
        outputs = tuple(SizedOutputs(blocks) for _, blocks in self._outputs)
        return RunPlan(
            program,
            self._library,
            ports_of(program),
            self._memory,
            block[words].data,
            (),
            tuple((buffer, one.array) for (buffer, _), one in zip(self._outputs, outputs, strict=True)),
            tuple(stretches),
            Results(program.outputs, program),
            self._faults_by(numbers),
            tables=PlanTables(block, address, numbers, tuple(stretches), outputs),
            objects=objects_at(program.objects, {}) if self._is_plain else (),
            whole=whole_stretch(program, stretches, self._outputs) if self._is_plain else None,
        )

    def _faults_by(self, numbers: memoryview) -> Faults | None:
        """What kernels find wrong, told by the numbers of a plan."""
        values = partial(_values, self._symbols, numbers)
        return None if self._faults is None else self._faults.at(lambda size: evaluate(size, values()))

    def _own_memory(self, numbers: memoryview, arena: np.ndarray) -> tuple[np.ndarray | None, ...]:
        """Memory of buffers as `RunPlan` has it, with that of buffers which are this plan's own, or are looked at in it."""
        found, layout = list(self._memory), self.layout
        own = {buffer: self._filled(numbers, buffer) for buffer in self._contents}
        own |= {buffer: aligned_block(numbers[layout.nbytes[buffer]]) for buffer in self._sized}
        for buffer, block in own.items():
            found[buffer], self._bases[buffer] = block, address_of(block)
        for buffer in self._viewed:
            if self._kinds[buffer] == "arena":
                start = numbers[layout.starts[buffer]]
                found[buffer] = arena[start : start + numbers[layout.nbytes[buffer]]]
        return tuple(found)

    def _filled(self, numbers: memoryview, buffer: int) -> np.ndarray:
        """The contents of a buffer that are known in terms of sizes, as bytes."""
        found = [numbers[k] for k in self.layout.contents[buffer]]
        return words_of(found, self._program.buffers[buffer].nbytes).view(np.uint8)

    def _parts_of(self, tables: PlanTables, values: Mapping[str, int]) -> tuple[Stretch | HostPart, ...]:
        """Calls, and host steps for these sizes."""
        parts: list[Stretch | HostPart] = []
        stretches = iter(tables.stretches)
        for part in self._parts:
            if isinstance(part, tuple):
                parts.append(next(stretches))
                continue
            self._maker = self._maker or self._host(self._program)
            steps = [(k, fixed_host(step, values)) for k, step in part]
            self._require_inside([step for _, step in steps], tables.numbers)
            parts.extend(self._maker(steps))
        return tuple(parts)

    def _require_inside(self, steps: Sequence[HostStep], numbers: memoryview) -> None:
        """Raise `ValueError` for an operand of host steps, whose sizes are known, outside its buffer."""
        for step in steps:
            for name, place, kind in (*step.reads, *step.writes):
                if place is not None and isinstance(kind, TensorType):
                    fault = place_fault(name, place, kind, numbers[self.layout.nbytes[place.buffer]])
                    if fault:
                        raise ValueError(fault)

    def _results_of(self, numbers: memoryview) -> Results:
        """Where outputs lie in memory of the program's own, with their types."""
        outputs = list(self._program.outputs)
        for number in self._kept:
            port, part = outputs[number], self.layout.shapes[number]
            assert isinstance(port.type, TensorType) and part is not None
            kind = TensorType(port.type.dtype, tuple(numbers[k] for k in part))
            outputs[number] = Port(port.name, kind, port.buffer)
        return Results(outputs, self._program)


def _values(symbols: Sequence[tuple[str, int]], numbers: memoryview) -> dict[str, int]:
    """The symbols' values by name, of which each has its position."""
    return {name: numbers[k] for name, k in symbols}


def _flags(step: NativeStep) -> int:
    """The word of a call that says how it is made (`runtime.threads`)."""
    return step.pieces << 32 | step.barrier
