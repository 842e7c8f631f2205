"""A program made runnable: machine code, memory and step tables; and the object a user runs.

`build` compiles (or fetches) the kernels, fills the constants, allocates the arena and writes every pointer that is known into
one array of kernel arguments. A run then only patches the pointers to the caller's arrays and launches: one native call for
each stretch of native steps, with host steps between.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fusewise.codegen.target import Target
from fusewise.errors import memory_full
from fusewise.ir.types import TensorType
from fusewise.lower.program import Buffer, HostStep, KernelCode, NativeStep, Program
from fusewise.records import record
from fusewise.runtime.arena import Outputs, RunMemory, address_of, aligned_block
from fusewise.runtime.aside import Aside
from fusewise.runtime.crew import Crew
from fusewise.runtime.faults import Faults, faults_of
from fusewise.runtime.feeds import Inputs, PortInfo, chosen_outputs, port_info
from fusewise.runtime.host import check_memory, host_target, worker_count
from fusewise.runtime.jit import Library, load
from fusewise.runtime.results import Results
from fusewise.runtime.threads import CallRow, StepTable, shared_pool, step_table
from fusewise.runtime.turns import Turns

if TYPE_CHECKING:  # a compiled model is opened without these
    from fusewise.runtime.cache import KernelCache
    from fusewise.runtime.checks import Checks
    from fusewise.runtime.compile import Helpers
    from fusewise.runtime.hoststep import HostCall
    from fusewise.runtime.resident import Resident
    from fusewise.runtime.stages import HostStage

__all__ = ["BuildFigures", "Contents", "Executable", "StepTiming", "Walk", "build", "restored"]

Walk = Callable[[StepTable, Sequence[int]], None]
"""Makes the calls of a table, every worker's share of one before the next; the second argument has the step of each call, by its
number in the program."""


@record(frozen=True)
class BuildFigures:
    """What a build did. `link_ms` is loading machine code, `pack_ms` filling constants; `cached` kernels were not compiled."""

    kernels: int
    cached: int
    compile_ms: float
    link_ms: float
    pack_ms: float
    arena_bytes: int
    constant_bytes: int
    host_bytes: int
    workers: int


@record(frozen=True, slots=True)
class StepTiming:
    """One step of one run. Times are nanoseconds of the monotonic clock; `shares` has when each worker began its
    own share of the work, and when it ended. A step that runs in strips ends when it would have without others between.

    `step` counts the program's steps, `group` is the group it runs, `native` tells kernels from host steps.
    """

    step: int
    label: str
    group: int
    native: bool
    start_ns: int
    end_ns: int
    shares: tuple[tuple[int, int], ...]


@record(frozen=True)
class _Stretch:
    """Consecutive native steps: the calls, of each call the number of its step in the program, and who makes them."""

    table: StepTable
    steps: tuple[int, ...]
    crew: Crew


@record(frozen=True)
class _Machine:
    """Everything `Executable` runs on.

    `patches` lists, per input or output buffer, (argument number, byte offset); `fresh` makes the arrays of the
    outputs that have memory of their own.
    """

    program: Program
    library: Library
    memory: tuple[np.ndarray | None, ...]
    arguments: np.ndarray
    patches: Mapping[int, tuple[tuple[int, int], ...]]
    fresh: tuple[tuple[int, Outputs], ...]
    parts: tuple[_Stretch | tuple[int, HostCall | HostStage], ...]
    workers: int
    faults: Faults | None
    checks: Checks | None


@record(frozen=True)
class Contents:
    """What an executable is made of, to be written to a file: `images` has the object file of each kernel of `symbols`.

    The program has no constants' data and no kernels any more; `constants` are theirs as packed, by buffer.
    """

    program: Program
    symbols: tuple[str, ...]
    images: tuple[bytes, ...]
    constants: Mapping[int, np.ndarray]
    target: Target


def build(
    program: Program,
    *,
    threads: int | None = None,
    cache: Path | KernelCache | None = None,
    target: Target | None = None,
    helpers: Helpers | None = None,
    resident: Resident | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Executable:
    """Make `program` runnable on this machine.

    `threads` may lower the number of workers the program was sized for, not raise it. `cache` keeps compiled kernels, in a
    folder if that is given. `helpers` compile kernels, where they have been started or there are many.
    Constants and the arena lie in what is `resident`, or memory of their own beyond that. `progress(done, total)` is called as
    kernels are compiled. Raises `ResourceLimit` when the memory planned is more than this process may use.
    """
    from fusewise.runtime.cache import KernelCache
    from fusewise.runtime.constants import arranged, filled, packers_for

    machine_target = host_target() if target is None else target
    workers = min(worker_count(threads), program.workers)
    own = [buffer for buffer in program.buffers if buffer.kind in ("host", "output")]
    check_memory(program.arena_bytes + sum(buffer.nbytes for buffer in own), "the model's intermediate results")
    store = KernelCache(cache) if isinstance(cache, Path) else cache
    begin = time.perf_counter()
    packers = packers_for(program.buffers, program.is_checked)
    kernels = (*program.kernels, *packers)
    with Aside(partial(arranged, program.buffers)) as rest:  # a core is idle while the last kernel is compiled
        images, known = _images(kernels, machine_target, store, helpers, progress)
    compiled = time.perf_counter()
    library = load(images, [kernel.symbol for kernel in kernels])
    linked = time.perf_counter()
    made = filled(program.buffers, library.addresses, workers, resident, program.is_checked)
    constants = {**rest.result(), **made}
    packed = time.perf_counter()
    figures = BuildFigures(
        kernels=len(program.kernels),
        cached=sum(known[: len(program.kernels)]),
        compile_ms=(compiled - begin) * 1e3,
        link_ms=(linked - compiled) * 1e3,
        pack_ms=(packed - linked) * 1e3,
        arena_bytes=program.arena_bytes,
        constant_bytes=sum(block.nbytes for block in constants.values()),
        host_bytes=sum(buffer.nbytes for buffer in program.buffers if buffer.kind == "host"),
        workers=workers,
    )
    symbols = tuple(kernel.symbol for kernel in program.kernels)
    # Let go of the original constants and of whatever the kernels' builders hold.
    kept = replace(
        program, buffers=tuple(_bare(one, constants.get(k)) for k, one in enumerate(program.buffers)), kernels=()
    )
    contents = Contents(kept, symbols, tuple(images[: len(symbols)]), constants, machine_target)
    return Executable(contents, _machine(contents, library, workers, resident), figures)


def _bare(buffer: Buffer, packed: np.ndarray | None) -> Buffer:
    """A buffer without what it is filled from; a constant is as large as it is `packed`."""
    return replace(buffer, data=None, packing=None, nbytes=buffer.nbytes if packed is None else packed.nbytes)


def restored(contents: Contents, threads: int | None = None, resident: Resident | None = None) -> Executable:
    """An executable from its contents: machine code is linked, memory allocated, nothing compiled or packed.

    The arena lies in what is `resident`, or memory of its own.

    Raises `ResourceLimit` as `build` does, and `FusewiseError` when the code cannot be linked.
    """
    program = contents.program
    workers = min(worker_count(threads), program.workers)
    own = sum(buffer.nbytes for buffer in program.buffers if buffer.kind in ("host", "output"))
    check_memory(program.arena_bytes + own, "the model's intermediate results")
    begin = time.perf_counter()
    library = load(list(contents.images), list(contents.symbols))
    figures = BuildFigures(
        kernels=len(contents.symbols),
        cached=len(contents.symbols),
        compile_ms=0.0,
        link_ms=(time.perf_counter() - begin) * 1e3,
        pack_ms=0.0,
        arena_bytes=program.arena_bytes,
        constant_bytes=sum(block.nbytes for block in contents.constants.values()),
        host_bytes=sum(buffer.nbytes for buffer in program.buffers if buffer.kind == "host"),
        workers=workers,
    )
    return Executable(contents, _machine(contents, library, workers, resident), figures)


def _images(
    kernels: tuple[KernelCode, ...],
    target: Target,
    store: KernelCache | None,
    helpers: Helpers | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[list[bytes], list[bool]]:
    """The object file of every kernel, and whether it came from the cache."""
    from fusewise.runtime.compile import compile_many

    keys = [f"{kernel.symbol}\n{kernel.key}" for kernel in kernels]
    known = {} if store is None else store.fetch(keys, target)
    missing = [number for number, key in enumerate(keys) if key not in known]
    missing.sort(key=lambda number: kernels[number].effort, reverse=True)
    if missing:
        made = compile_many([kernels[k] for k in missing], target, helpers=helpers, progress=progress)
        known = {**known, **{keys[k]: image for k, image in zip(missing, made, strict=True)}}
    if missing and store is not None:
        store.store({key: known[key] for key in keys}, {keys[k] for k in missing}, target)
    new = set(missing)
    return [known[key] for key in keys], [number not in new for number in range(len(keys))]


def _allocate(
    program: Program, constants: Mapping[int, np.ndarray], resident: Resident | None
) -> tuple[np.ndarray | None, ...]:
    """Memory of every buffer as flat bytes; None for those the caller brings, of which a checked program has copies."""
    if program.is_checked:
        from fusewise.runtime.checks import guarded_memory

        return guarded_memory(program, constants)
    arena = (aligned_block if resident is None else resident.take)(program.arena_bytes)
    arena.fill(0)

    def memory_of(number: int, buffer: Buffer) -> np.ndarray | None:
        if buffer.kind == "arena":
            return arena[buffer.offset : buffer.offset + buffer.nbytes]
        if buffer.kind in ("host", "fault"):
            block = aligned_block(buffer.nbytes)
            block.fill(0)
            return block
        return constants.get(number)

    return tuple(memory_of(number, buffer) for number, buffer in enumerate(program.buffers))


def _machine(contents: Contents, library: Library, workers: int, resident: Resident | None) -> _Machine:
    """Memory, and step tables, split at host steps, over one array of argument pointers."""
    program = contents.program
    memory = _allocate(program, contents.constants, resident)
    checks = _checks(program, memory)
    native = [step for step in program.steps if isinstance(step, NativeStep)]
    places = [place for step in native for place in step.arguments]
    arguments, at = _pointers(native, memory, checks)
    patches: dict[int, list[tuple[int, int]]] = {}
    for number, place in enumerate(places):
        if memory[place.buffer] is None:
            patches.setdefault(place.buffer, []).append((number, place.offset))
    parts: list[_Stretch | tuple[int, HostCall | HostStage]] = []
    rows: list[tuple[int, CallRow]] = []
    hosted: list[tuple[int, HostStep, HostCall]] = []
    for number, step in enumerate(program.steps):
        if isinstance(step, NativeStep):
            address = library.addresses[contents.symbols[step.kernel]]
            rows.append((number, CallRow(address, next(at), step.barrier, pieces=step.pieces)))
            continue
        if rows:
            parts.append(_stretch(program, rows, workers))
        rows = []
        from fusewise.runtime.hoststep import host_call  # takes more along than most models need

        hosted.append((number, step, host_call(step, program, library.addresses, workers, build)))
        if number + 1 == len(program.steps) or isinstance(program.steps[number + 1], NativeStep):
            from fusewise.runtime.stages import staged

            parts.extend(staged(hosted, program, workers, build))
            hosted = []
    if rows:
        parts.append(_stretch(program, rows, workers))
    fixed = {buffer: tuple(found) for buffer, found in patches.items()}
    fresh = {
        port.buffer: (port.buffer, Outputs(port.type.dims, port.type.dtype.numpy))
        for port in program.outputs
        if port.buffer >= 0 and program.buffers[port.buffer].kind == "output" and isinstance(port.type, TensorType)
        if memory[port.buffer] is None
    }
    return _Machine(
        program,
        library,
        memory,
        arguments,
        fixed,
        tuple(fresh.values()),
        tuple(parts),
        workers,
        faults_of(program, memory),
        checks,
    )


def _checks(program: Program, memory: tuple[np.ndarray | None, ...]) -> Checks | None:
    """Of a checked program."""
    if not program.is_checked:
        return None
    from fusewise.runtime.checks import Checks

    return Checks(program, memory)


def _pointers(
    steps: Sequence[NativeStep], memory: tuple[np.ndarray | None, ...], checks: Checks | None
) -> tuple[np.ndarray, Iterator[int]]:
    """The arguments of all steps one behind the other, and where those of each begin. Those that are checked have the address of
    their table in front."""
    bases = [0 if block is None else address_of(block) for block in memory]
    before = [[]] * len(steps) if checks is None else [[table] for table in checks.addresses]
    words = [
        [*first, *(bases[p.buffer] + p.offset for p in s.arguments)] for first, s in zip(before, steps, strict=True)
    ]
    arguments = np.array([word for line in words for word in line] or [0], np.int64)
    ends = accumulate((8 * len(line) for line in words), initial=address_of(arguments))
    return arguments, (end + 8 * len(first) for end, first in zip(ends, before, strict=False))


def _stretch(program: Program, rows: Sequence[tuple[int, CallRow]], workers: int) -> _Stretch:
    """Consecutive calls; those of two steps that are tiled depth-first as `NativeStep.strips` says."""
    found: list[tuple[int, CallRow]] = []
    for number, row in rows:
        step = program.steps[number]
        assert isinstance(step, NativeStep)
        before = program.steps[number - 1] if found else None
        if isinstance(before, NativeStep) and before.strips:
            strips, (first, above) = before.strips, found.pop()
            for strip in range(strips):
                found.append((first, above._replace(barrier=False, part=strip, parts=strips)))
                if strip >= 2:
                    meet = strip == strips - 1  # its first and last strip read what other workers have made
                    found.append((number, row._replace(barrier=meet, part=strip - 1, parts=strips)))
            found.append((number, row._replace(barrier=False, part=0, parts=strips)))
            found.append((number, row._replace(part=strips - 1, parts=strips)))
        else:
            found.append((number, row))
    return _Stretch(step_table([row for _, row in found]), tuple(number for number, _ in found), Crew(workers))


class Executable:
    """A compiled model. `run` may be called from any number of threads; runs of one executable take turns."""

    def __init__(self, contents: Contents, machine: _Machine, figures: BuildFigures) -> None:
        self.contents = contents
        self.figures = figures
        self._machine = machine
        self._words = machine.arguments.data
        self._inputs = Inputs(machine.program.inputs)
        self._results = Results(machine.program)
        self._all = range(len(machine.program.outputs))
        self._ports = [(port.buffer, port.name) for port in machine.program.inputs]
        given = {buffer for buffer, _ in (*self._ports, *machine.fresh)}
        self._patches = [(buffer, patches) for buffer, patches in machine.patches.items() if buffer in given]
        self._turns: dict[int, Turns] = {}

    def get_inputs(self) -> list[PortInfo]:
        """Name, shape and type of each input."""
        return [port_info(port) for port in self._machine.program.inputs]

    def get_outputs(self) -> list[PortInfo]:
        """Name, shape and type of each output."""
        return [port_info(port) for port in self._machine.program.outputs]

    @property
    def workers(self) -> int:
        """Threads a run uses."""
        return self._machine.workers

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """The named outputs (all for None) for the given inputs; arrays are the caller's for as long as they are held.

        Inputs may be anything NumPy can read in place. Raises `UsageError` for names, dtypes or shapes that do not fit,
        `InvalidData` for indices that are out of bounds.
        """
        wanted = self._all if output_names is None else chosen_outputs(self._machine.program.outputs, output_names)
        return self._run(self._inputs.accepted(feeds), wanted, None)

    def run_with_timings(
        self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]
    ) -> tuple[list[Any], list[StepTiming]]:
        """As `run`, with what each step took."""
        wanted = chosen_outputs(self._machine.program.outputs, output_names)
        values = self._inputs.accepted(feeds)
        timings: list[StepTiming] = []
        return self._run(values, wanted, timings), timings

    def run_in_order(self, values: Sequence[Any]) -> list[Any]:
        """All outputs for a value of each input, in order; else as `run`."""
        return self._run(self._inputs.in_order(values), self._all, None)

    def run_by(self, walk: Walk, feeds: Mapping[str, Any]) -> list[Any]:
        """All outputs as `run` gives them, where `walk` makes the calls of native steps: for tools that look at each by itself."""
        return self._run(self._inputs.accepted(feeds), chosen_outputs(self._machine.program.outputs, None), None, walk)

    def _turn(self) -> Turns:
        """Turns of this process: a forked child must not wait for a thread that only its parent has."""
        process = os.getpid()
        return self._turns.get(process) or self._turns.setdefault(process, Turns("the model is run"))

    def _run(
        self, values: list[Any], wanted: Sequence[int], timings: list[StepTiming] | None, walk: Walk | None = None
    ) -> list[Any]:
        """The `wanted` outputs. `ResourceLimit` where memory is full."""
        try:
            with self._turn():
                return self._computed(values, wanted, timings, walk)
        except MemoryError as error:
            raise memory_full("the model runs", error) from error

    def _computed(
        self, values: list[Any], wanted: Sequence[int], timings: list[StepTiming] | None, walk: Walk | None
    ) -> list[Any]:
        machine, program = self._machine, self._machine.program
        if machine.checks is not None:
            machine.checks.begin(values)
        caller: dict[int, np.ndarray] = {}
        objects: dict[str, Any] = dict(program.objects)
        for (buffer, name), value in zip(self._ports, values, strict=True):
            if buffer >= 0:
                caller[buffer] = value
            else:
                objects[name] = value
        for buffer, outputs in machine.fresh:
            caller[buffer] = outputs.array()
        words = self._words
        for buffer, patches in self._patches:
            base = address_of(caller[buffer])
            for number, offset in patches:
                words[number] = base + offset
        moving = RunMemory(machine.memory, caller)
        for part in machine.parts:
            if isinstance(part, _Stretch):
                if walk is None:
                    self._launch(part, timings)
                else:
                    walk(part.table, part.steps)
                if machine.checks is not None:
                    machine.checks.check()
                if machine.faults is not None:
                    machine.faults.check()
            else:
                _call(part, moving, objects, timings)
        return self._results.taken(wanted, moving, objects)

    def _launch(self, part: _Stretch, timings: list[StepTiming] | None) -> None:
        workers = self._machine.workers
        if timings is None:
            if workers == 1:
                shared_pool().run(part.table, 1)
                return
            begin = time.monotonic_ns()
            shared_pool().run(part.table, part.crew.size)
            part.crew.took(begin, time.monotonic_ns())
            return
        clock = np.zeros((part.table.count, workers, 2), np.int64)
        shared_pool().run(part.table, workers, clock)
        calls = np.array(part.steps)
        for number in dict.fromkeys(part.steps):
            step, rows = self._machine.program.steps[number], clock[calls == number]
            begun = rows[0, :, 0]
            shares = tuple(zip(begun.tolist(), (begun + (rows[:, :, 1] - rows[:, :, 0]).sum(0)).tolist(), strict=True))
            label = step.label if isinstance(step, NativeStep) else ""
            last = max(end for _, end in shares)
            timings.append(StepTiming(number, label, step.group, True, int(begun.min()), last, shares))


def _call(
    part: tuple[int, HostCall | HostStage], moving: RunMemory, objects: dict[str, Any], timings: list[StepTiming] | None
) -> None:
    number, call = part
    if timings is None:
        call.run(moving, objects)
    else:
        start = time.monotonic_ns()
        call.run(moving, objects)
        end = time.monotonic_ns()
        timings.append(StepTiming(number, call.label, call.group, False, start, end, ((start, end),)))
