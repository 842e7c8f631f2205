"""A program made runnable: machine code, memory and step tables; and the object a user runs.

`build` compiles (or fetches) the kernels, fills the constants, allocates the arena and writes every pointer that is known into
one array of kernel arguments. A run then only patches the pointers to the caller's arrays and launches: one native call for
each stretch of native steps, with host steps between.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fusewise.codegen.target import Target
from fusewise.errors import ResourceLimit, memory_full
from fusewise.ir.size import Size
from fusewise.lower.program import Buffer, HostStep, KernelCode, Program
from fusewise.records import record
from fusewise.runtime.arena import aligned_block
from fusewise.runtime.aside import Aside
from fusewise.runtime.feeds import Inputs, PortInfo, chosen_outputs, numbers_by_name, port_info
from fusewise.runtime.host import check_memory, host_target, worker_count
from fusewise.runtime.jit import Library, load
from fusewise.runtime.lane import Lane, StepTiming, Walk
from fusewise.runtime.lanes import LANES_A_CORE, Lanes
from fusewise.runtime.run_plan import Contents, HostMaker, RunPlan, run_plan_of
from fusewise.runtime.sizes import named
from fusewise.runtime.threads import process_number

if TYPE_CHECKING:  # a compiled model is opened without these
    from fusewise.runtime.cache import KernelCache
    from fusewise.runtime.compile import Helpers
    from fusewise.runtime.plans import Plans
    from fusewise.runtime.resident import Resident
    from fusewise.runtime.rounds import RoundPorts, Rounds
    from fusewise.runtime.specialist import Special, Specialist

__all__ = ["BuildFigures", "Contents", "Executable", "StepTiming", "Walk", "build", "build_special", "restored"]


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


def build(
    program: Program,
    *,
    threads: int | None = None,
    cache: Path | KernelCache | None = None,
    target: Target | None = None,
    helpers: Helpers | None = None,
    resident: Resident | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Executable:
    """Make `program` runnable on this machine.

    `threads` may lower the number of workers the program was sized for, not raise it. `cache` keeps compiled kernels, in a
    folder if that is given. `helpers` compile kernels, where they have been started or there are many.
    Constants and the arena lie in what is `resident`, or memory of their own beyond that; those that are byte for byte one of its
    `weights` are that one. `progress` is told of compiling, as kernels are done, of linking and of packing, with the share that is
    done. Raises `ResourceLimit` when the memory planned is more than this process may use.
    """
    from fusewise.runtime.cache import KernelCache
    from fusewise.runtime.constants import alike, arranged, filled, packers_for

    machine_target = host_target() if target is None else target
    workers = min(worker_count(threads), program.workers)
    check_memory(program.arena_bytes + _own_bytes(program, "host", "output"), "the model's intermediate results")
    store = KernelCache(cache) if isinstance(cache, Path) else cache
    begin, weights = time.perf_counter(), () if resident is None else resident.weights
    tell = progress or (lambda what, share: None)
    tell("compiling", 0.0)
    packers = packers_for(program.buffers, program.is_checked)
    own_kernels = (*program.kernels, *_plan_kernels(program))
    kernels = (*own_kernels, *packers)
    with Aside(
        partial(arranged, () if weights else program.buffers)
    ) as rest:  # a core is idle while the last kernel is compiled
        images, known = _images(
            kernels, machine_target, store, helpers, lambda done, total: tell("compiling", done / max(1, total))
        )
    compiled = time.perf_counter()
    tell("linking", 0.0)
    library = load(images, [*(kernel.symbol for kernel in kernels), *_plan_symbols(program)])
    linked = time.perf_counter()
    tell("packing", 0.0)
    if weights:
        constants = alike(program.buffers, library.addresses, weights, lambda: None, program.is_checked)
    else:
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
        host_bytes=_own_bytes(program, "host"),
        workers=workers,
    )
    symbols = tuple(kernel.symbol for kernel in own_kernels)
    kept = _without_sources(program, constants)
    contents = Contents(kept, symbols, tuple(images[: len(symbols)]), constants, machine_target)
    return _executable(contents, library, workers, resident, figures)


def build_special(
    program: Program,
    sizes: Mapping[str, int],
    known: Collection[np.ndarray],
    go_on: Callable[[], None],
    cache: KernelCache | None = None,
) -> Special:
    """What runs a program made for these `sizes` in the place of one for all sizes, made by this thread alone.

    Its constants are those `known` where these have the same bytes, and are packed one after the other. `go_on` is called often,
    and may raise. Raises `ResourceLimit` as `build` does.
    """
    from fusewise.runtime.compile import Helpers
    from fusewise.runtime.constants import alike, packers_for
    from fusewise.runtime.specialist import Special

    check_memory(program.arena_bytes + _own_bytes(program, "host", "output"), "the model's intermediate results")
    target = host_target()
    packers = packers_for(program.buffers, program.is_checked)
    with Helpers(1) as alone:
        images, _ = _images((*program.kernels, *packers), target, cache, alone, lambda done, total: go_on())
    symbols = tuple(kernel.symbol for kernel in program.kernels)
    library = load(images, [*symbols, *(kernel.symbol for kernel in packers)])
    constants = alike(program.buffers, library.addresses, known, go_on, program.is_checked)
    kept = _without_sources(program, constants)
    return Special(sizes, Contents(kept, symbols, (), constants, target), library, sum(map(len, images)))


def _own_bytes(program: Program, *kinds: str) -> int:
    """Bytes of the buffers of these kinds, of those whose size is known."""
    known = (one.nbytes for one in program.buffers if one.kind in kinds and not isinstance(one.nbytes, Size))
    return sum(known)


def _without_sources(program: Program, constants: Mapping[int, np.ndarray]) -> Program:
    """A program that has let go of the original constants and of whatever the kernels' builders hold."""
    buffers = tuple(_bare(one, constants.get(k)) for k, one in enumerate(program.buffers))
    return replace(program, buffers=buffers, kernels=())


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
    check_memory(program.arena_bytes + _own_bytes(program, "host", "output"), "the model's intermediate results")
    begin = time.perf_counter()
    library = load(list(contents.images), [*contents.symbols, *_plan_symbols(program)])
    figures = BuildFigures(
        kernels=len(contents.symbols),
        cached=len(contents.symbols),
        compile_ms=0.0,
        link_ms=(time.perf_counter() - begin) * 1e3,
        pack_ms=0.0,
        arena_bytes=program.arena_bytes,
        constant_bytes=sum(block.nbytes for block in contents.constants.values()),
        host_bytes=_own_bytes(program, "host"),
        workers=workers,
    )
    return _executable(contents, library, workers, resident, figures)


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


def _plan_kernels(program: Program) -> tuple[KernelCode, ...]:
    """The code of a program's plans, behind its kernels."""
    if not program.symbols:
        return ()
    from fusewise.runtime.plan_tables import plan_kernel

    return plan_kernel(program)


def _plan_symbols(program: Program) -> tuple[str, ...]:
    """What that has beside its own symbol."""
    if not program.symbols:
        return ()
    from fusewise.runtime.plan_code import FILL, IDLE, LAYOUT

    return (FILL, IDLE, LAYOUT)


def _executable(
    contents: Contents, library: Library, workers: int, resident: Resident | None, figures: BuildFigures
) -> Executable:
    def parts(addresses: Mapping[str, int], program: Program) -> HostMaker:
        from fusewise.runtime.stages import HostParts  # takes more along than most models need

        return HostParts(program, addresses, workers, build)

    program = contents.program
    if program.symbols:
        from fusewise.runtime.plans import Plans

        arena = aligned_block(0) if resident is None else resident.take(program.arena_bytes)
        plans = Plans(contents, library, workers, arena, parts)

        def other_plans() -> Plans:
            return plans.beside(Plans(contents, library, 1, aligned_block(0), parts))

        return Executable(contents, plans, figures, other_plans)
    arena = (aligned_block if resident is None else resident.take)(0 if program.is_checked else program.arena_bytes)
    arena.fill(0)
    host = partial(parts, library.addresses)

    def other_plan() -> RunPlan:
        check_memory(program.arena_bytes + _own_bytes(program, "output"), "another thread's intermediate results")
        memory = aligned_block(program.arena_bytes)
        memory.fill(0)
        return run_plan_of(contents, library, 1, memory, host)

    return Executable(contents, run_plan_of(contents, library, workers, arena, host), figures, other_plan)


class Executable:
    """A compiled model. `run` may be called from any number of threads: up to two for each core run at the same time, each in
    memory of its own (`runtime.lanes`), where the program is native as a whole and no limit of memory is set; else they take turns.
    """

    device = "cpu"
    """What it runs on, as users write it."""

    def __init__(
        self, contents: Contents, plan: RunPlan | Plans, figures: BuildFigures, beside: Callable[[], RunPlan | Plans]
    ) -> None:
        """`beside` makes a plan in other memory."""
        self.contents = contents
        self.figures = figures
        program = contents.program
        self._plans = None if isinstance(plan, RunPlan) else plan
        self._given = tuple(map(named, program.inputs)) if program.symbols else program.inputs
        self._made = tuple(map(named, program.outputs)) if program.symbols else program.outputs
        self._inputs = Inputs(self._given, () if self._plans is None else self._plans.shaped)
        self._lane = Lane(plan, figures.workers, len(program.outputs))
        self._all = self._lane.all
        self._numbers = numbers_by_name(self._made)
        self._own_bytes = _own_bytes(program, "host", "output")
        self._beside = beside
        self._lanes: dict[int, Lanes] = {}
        self.memory_limit: int | None = None

    def get_inputs(self) -> list[PortInfo]:
        """Name, shape and type of each input."""
        return [port_info(port) for port in self._given]

    def get_outputs(self) -> list[PortInfo]:
        """Name, shape and type of each output."""
        return [port_info(port) for port in self._made]

    @property
    def program(self) -> Program:
        """What it runs."""
        return self.contents.program

    @property
    def is_whole(self) -> bool:
        """Is all of it native?"""
        return not any(isinstance(step, HostStep) for step in self.contents.program.steps)

    @property
    def workers(self) -> int:
        """Threads a run uses."""
        return self.figures.workers

    def limit_memory(self, nbytes: int | None) -> None:
        """Allow no more than so many bytes for constants, intermediate results and outputs together, whatever the sizes of a run.
        `ResourceLimit` where that is too little for any."""
        if nbytes is None:
            return
        figures = self.figures
        planned = figures.constant_bytes + (0 if self._plans is not None else figures.arena_bytes + self._own_bytes)
        if planned > nbytes:
            raise ResourceLimit(
                f"the model's weights, intermediate results and outputs take {planned:,} bytes, more than the {nbytes:,} "
                "allowed: use a higher limit of memory, or smaller input shapes"
            )
        self.memory_limit = nbytes
        if self._plans is not None:
            self._plans.limit_memory(nbytes)

    def specialize(self, specialist: Specialist) -> None:
        """Have sizes that keep coming back run by programs of their own. Nothing to a program without symbols, which has one size.

        Its thread works as long as somebody has this executable, or until it is closed.
        """
        if self._plans is not None:
            self._plans.specialist = specialist
            weakref.finalize(self, specialist.stop).atexit = False

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """The named outputs (all for None) for the given inputs; arrays are the caller's for as long as they are held.

        Inputs may be anything NumPy can read in place. Raises `UsageError` for names, dtypes or shapes that do not fit,
        `InvalidData` for indices that are out of bounds.
        """
        wanted = self._all if output_names is None else chosen_outputs(self._numbers, output_names)
        return self._run(self._inputs.accepted(feeds), wanted, None)

    def run_into(self, feeds: Mapping[str, Any], into: Mapping[str, np.ndarray | None]) -> list[Any]:
        """As `run`, of the outputs that `into` names, each written into the array given for it, which is returned; None for a new
        one. An array that shares memory with an input is written when the run is over. `UsageError` for one of another shape or
        type, or that cannot be written to in place."""
        from fusewise.runtime.written_into import copied_into, writable_in_place

        wanted = chosen_outputs(self._numbers, tuple(into))
        values = self._inputs.accepted(feeds)
        given = writable_in_place([(number, self._made[number]) for number in wanted], tuple(into.values()), values)
        return copied_into(self._run(values, wanted, None, into=given), into)

    def run_with_timings(
        self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]
    ) -> tuple[list[Any], list[StepTiming]]:
        """As `run`, with what each step took."""
        wanted = chosen_outputs(self._numbers, output_names)
        values = self._inputs.accepted(feeds)
        timings: list[StepTiming] = []
        return self._run(values, wanted, timings), timings

    def run_in_order(self, values: Sequence[Any]) -> list[Any]:
        """All outputs for a value of each input, in order; else as `run`."""
        return self._run(self._inputs.in_order(values), self._all, None)

    def run_by(self, walk: Walk, feeds: Mapping[str, Any]) -> list[Any]:
        """All outputs as `run` gives them, where `walk` makes the calls of native steps: for tools that look at each by itself."""
        return self._run(self._inputs.accepted(feeds), self._all, None, walk)

    def run_rounds(
        self, values: Sequence[Any], ports: RoundPorts, lines: Sequence[np.ndarray], count: int
    ) -> Rounds | None:
        """Of a body of a loop, at most `count` rounds in one call (`runtime.round_table`); None where they cannot be had so."""
        from fusewise.runtime.round_table import run_rounds

        given = self._inputs.in_order(values)
        try:
            with self.lanes.first.turn:
                return run_rounds(self.lanes.first.plan_for(given), given, ports, lines, count)
        except MemoryError as error:
            raise memory_full("the model runs", error) from error

    @property
    def lanes(self) -> Lanes:
        """Those of this process."""
        process = process_number()
        return self._lanes.get(process) or self._lanes.setdefault(process, self._new_lanes())

    def _new_lanes(self) -> Lanes:
        first = self._lane if not self._lanes else self._lane.again()
        program = self.contents.program
        alone = not self.is_whole or program.is_checked or program.growth is not None or self.memory_limit is not None
        return Lanes(
            first, 1 if alone else LANES_A_CORE * worker_count(None), lambda: Lane(self._beside(), 1, len(self._all))
        )

    def _run(
        self,
        values: list[Any],
        wanted: Sequence[int],
        timings: list[StepTiming] | None,
        walk: Walk | None = None,
        into: Mapping[int, np.ndarray] | None = None,
    ) -> list[Any]:
        """The `wanted` outputs, by number those `into` arrays that are there. `ResourceLimit` where memory is full."""
        try:
            lanes = self.lanes
            lane = lanes.take() if timings is None and walk is None else lanes.take_first()
            try:
                if lane.plans is None or lane.plans.specialist is None:
                    return lane.computed(values, wanted, timings, walk, into)
                begin = time.monotonic_ns()
                results = lane.computed(values, wanted, timings, walk, into)
                lane.plans.ran(time.monotonic_ns() - begin)
                return results
            finally:
                lanes.leave(lane)
        except MemoryError as error:
            raise memory_full("the model runs", error) from error
