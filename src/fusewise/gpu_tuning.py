"""Tuning on a GPU: other kernels than the analytic choice take their turns, timed by the device's clock, and stay when all gain.

One program has every task run by its second candidate, the next by its third, and so on; each kernel is timed in turn with the
task's first one. What is known without running it is not run: a candidate that Triton refuses, that wants more shared memory than a
block has, or that spills. Last, the program of the winners races the default program, and must give the same answers.

Every measurement is on disk before the next begins, so tuning may be interrupted and goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from fusewise.benchmarking.accuracy import relative_error, tolerance_of
from fusewise.benchmarking.inputs import random_feeds
from fusewise.choices import choice_under, gpu_key, keep_under
from fusewise.codegen.gpu.choose import MOST_CANDIDATES
from fusewise.codegen.gpu.kernel import GpuKernel, task_of
from fusewise.codegen.gpu.program import GpuProgram
from fusewise.errors import FusewiseError
from fusewise.ir.graph import Graph
from fusewise.making import CompilationChoice, GpuMaking, gpu_planned
from fusewise.runtime.cache import KernelCache, source_digest
from fusewise.runtime.gpu.compile import TritonCompiler
from fusewise.runtime.gpu.driver import Cubin, DeviceLost, Driver, Launch
from fusewise.runtime.gpu.executable import GpuExecutable
from fusewise.runtime.gpu.measure import gpu_name
from fusewise.runtime.gpu.timing import chain_time, replay_times
from fusewise.runtime.measure import machine_name
from fusewise.runtime.profile import ProfileDatabase

__all__ = ["gpu_kept", "gpu_tuned"]

_WAYS_SHARE = 0.85
"""Of the seconds, when to stop measuring kernels; the rest is for the race."""
_ROUNDS, _REPLAYS = 3, 20
_GAIN = 0.97
"""A candidate must take less than this share of the first one's time, and so must a whole program."""

Progress = Callable[[str, float], None]


def gpu_kept(folder: Path, graph: Graph, making: GpuMaking, device: str) -> CompilationChoice | None:
    """What earlier tuning chose for this graph on the GPU that calls itself `device`, if it did."""
    database = ProfileDatabase(folder, machine_name(), wait_seconds=1.0)
    return choice_under(database, gpu_key(graph, making, device)) if database.begun else None


def _untold(what: str, share: float) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class GpuTuning:
    """What tuning has: a device, a compiler, what was measured before, where cubins are kept, how long it may take, and who is
    told."""

    driver: Driver
    compiler: TritonCompiler
    database: ProfileDatabase
    store: KernelCache | None
    seconds: float
    progress: Progress = _untold


def gpu_tuned(graph: Graph, making: GpuMaking, tuning: GpuTuning) -> CompilationChoice:
    """Measure and choose, on random inputs; the choice is kept, and never slower than the default.

    Raises what `gpu_planned`, `TritonCompiler.compile` and `GpuExecutable` raise for the default program.
    """
    key = gpu_key(graph, making, tuning.driver.name)
    known = choice_under(tuning.database, key)
    if known is None:
        keep_under(tuning.database, key, CompilationChoice())
    found = _Tuner(graph, making, tuning, random_feeds(graph)).chosen(known)
    keep_under(tuning.database, key, found)
    return found


@dataclass(frozen=True)
class _Made:
    """A program on the device that has run once, and by task what it is run by: kernels, a launch of each with how many there are,
    and the most memory that a thread of them has beside its registers."""

    model: GpuExecutable
    kernels: Mapping[str, tuple[GpuKernel, ...]]
    launches: Mapping[str, tuple[tuple[Launch, int], ...]]
    stack: Mapping[str, int]
    answers: Sequence[Any]


class _Tuner:
    """One graph, and what is measured of it."""

    def __init__(self, graph: Graph, making: GpuMaking, tuning: GpuTuning, feeds: Mapping[str, Any]) -> None:
        self._graph, self._making, self._tuning, self._feeds = graph, making, tuning, feeds
        self._begin = time.monotonic()

    def chosen(self, known: CompilationChoice | None) -> CompilationChoice:
        """The fastest of the default, the winners together, and what was `known`."""
        with ExitStack() as held:
            default = self._made(CompilationChoice(), held)
            for number in range(1, MOST_CANDIDATES):
                if not self._time_left("measuring kernels"):
                    break
                self._measure(default, number)
            ways = {digest: number for digest in default.kernels if (number := self._best(digest))}
            rivals = [CompilationChoice(None, one) for one in (ways, {} if known is None else dict(known.ways)) if one]
            best = CompilationChoice()
            for rival in rivals if len(rivals) < 2 or rivals[0] != rivals[1] else rivals[:1]:
                self._tuning.progress("comparing", 0.9)
                best = self._raced(best, default, rival)
            return best

    def _time_left(self, what: str) -> bool:
        spent = time.monotonic() - self._begin
        self._tuning.progress(what, min(1.0, spent / max(self._tuning.seconds, 1e-9)))
        return spent < _WAYS_SHARE * self._tuning.seconds

    def _made(self, choice: CompilationChoice, held: ExitStack) -> _Made:
        program = gpu_planned(self._graph, self._making, choice=choice).program
        cubins = self._tuning.compiler.compile(
            program.kernels, self._making.device, contracted=not self._making.exact, store=self._tuning.store
        )
        model = held.enter_context(GpuExecutable(program, self._tuning.driver, cubins))
        answers = model.run(None, self._feeds)
        stack: dict[str, int] = {}
        for kernel, cubin in zip(program.kernels, cubins, strict=True):
            stack[task_of(kernel)] = max(cubin.stack_bytes, stack.get(task_of(kernel), 0))
        return _Made(model, _by_task(program), _launches(model), stack, answers)

    # --- one candidate of each task ---------------------------------------------------------------------------------------

    def _measure(self, default: _Made, number: int) -> None:
        """Time candidate `number` of every task that has one and was not asked before, in turn with its first."""
        database = self._tuning.database
        asked = [digest for digest in default.kernels if database.lookup(self._key(digest, number)) is None]
        asked = self._sound(default, asked, number)
        if not asked:
            return
        with ExitStack() as held:
            try:
                other = self._made(CompilationChoice(None, dict.fromkeys(asked, number)), held)
            except DeviceLost:
                raise
            except FusewiseError as error:
                self._refuse(asked, number, str(error))
                return
            for digest in asked:
                if not self._time_left("measuring kernels"):
                    return
                pair = default.launches[digest], other.launches[digest]
                times: tuple[list[float], list[float]] = ([], [])
                for _ in range(_ROUNDS):
                    for launches, found in zip(pair, times, strict=True):
                        found.append(
                            1e3 * sum(chain_time(self._tuning.driver, [one]) * count for one, count in launches)
                        )
                key = self._key(digest, number)
                database.record(key, times[1], other.kernels[digest][0].way)
                database.record(f"{key}|beside", times[0], default.kernels[digest][0].way)

    def _sound(self, default: _Made, asked: Sequence[str], number: int) -> list[str]:
        """Those tasks whose candidate is another kernel that compiles, fits and does not spill; why not is kept for the others."""
        if not asked:
            return []
        choice = CompilationChoice(None, dict.fromkeys(asked, number))
        kernels = _by_task(gpu_planned(self._graph, self._making, choice=choice).program)
        there = [
            digest for digest in asked if _text(kernels.get(digest, ())) not in ((), _text(default.kernels[digest]))
        ]
        self._refuse([digest for digest in asked if digest not in there], number, "there is no other kernel")
        sound = []
        for digest, cubins in zip(there, self._compiled([kernels[digest] for digest in there]), strict=True):
            if isinstance(cubins, str):
                self._refuse([digest], number, cubins)
            elif max(one.stack_bytes for one in cubins) > default.stack[digest]:
                self._refuse([digest], number, "it spills")
            else:
                sound.append(digest)
        return sound

    def _compiled(self, some: Sequence[Sequence[GpuKernel]]) -> Iterator[Sequence[Cubin] | str]:
        """The cubins of each task's kernels, or why there are none."""

        def one(kernels: Sequence[GpuKernel]) -> Sequence[Cubin] | str:
            try:
                return self._tuning.compiler.compile(
                    kernels, self._making.device, contracted=not self._making.exact, store=self._tuning.store
                )
            except FusewiseError as error:
                return str(error)

        with ThreadPoolExecutor(max(1, len(some)), "fusewise-tuning") as threads:
            return iter(list(threads.map(one, some)))

    def _refuse(self, digests: Sequence[str], number: int, why: str) -> None:
        for digest in digests:
            self._tuning.database.fail(self._key(digest, number), why, "a kernel for a GPU")

    def _best(self, digest: str) -> int:
        """The number of the candidate that takes the least of the first one's time, as both were measured in turn."""
        best, least = 0, _GAIN
        for number in range(1, MOST_CANDIDATES):
            key = self._key(digest, number)
            found, beside = self._tuning.database.lookup(key), self._tuning.database.lookup(f"{key}|beside")
            if found is None or beside is None or found.median_ns is None or beside.median_ns is None:
                continue
            if found.median_ns < least * beside.median_ns:
                best, least = number, found.median_ns / beside.median_ns
        return best

    def _key(self, digest: str, number: int) -> str:
        how = (self._making.device.name, self._making.precision, self._making.exact)
        return f"gpu way|{digest}|{number}|{how}|{gpu_name(self._tuning.driver.name)}|{source_digest()}"

    # --- the whole program ------------------------------------------------------------------------------------------------

    def _raced(self, best: CompilationChoice, default: _Made, rival: CompilationChoice) -> CompilationChoice:
        """The rival with its times if it is faster than the default and than the `best` so far, and gives the same answers."""
        with ExitStack() as held:
            try:
                other = self._made(rival, held)
            except DeviceLost:
                raise
            except FusewiseError:
                return best
            pairs = zip(other.answers, default.answers, strict=True)
            if not all(relative_error(a, b) <= tolerance_of(b) for a, b in pairs):
                return best
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(_ROUNDS):
                for made, found in zip((default, other), times, strict=True):
                    found += replay_times(made.model, _REPLAYS)
        before, after = (median(found) / 1e3 for found in times)
        wins = after < _GAIN * before and min(times[1]) < _GAIN * min(times[0])
        if wins and (best.tuned_ms is None or after < best.tuned_ms):
            return CompilationChoice(None, rival.ways, before, after)
        return best if best.default_ms is not None else CompilationChoice(default_ms=before)


def _by_task(program: GpuProgram) -> dict[str, tuple[GpuKernel, ...]]:
    """By the digest of their task a program's kernels."""
    found: dict[str, tuple[GpuKernel, ...]] = {}
    for kernel in program.kernels:
        if digest := task_of(kernel):
            found[digest] = (*found.get(digest, ()), kernel)
    return found


def _text(kernels: Sequence[GpuKernel]) -> tuple[object, ...]:
    """What machine code they become."""
    return tuple((kernel.source, kernel.warps, kernel.stages) for kernel in kernels)


def _launches(model: GpuExecutable) -> dict[str, tuple[tuple[Launch, int], ...]]:
    """By task one launch of each of its kernels, and how many there are: a recurrence has one for each of its steps."""
    seen: dict[int, list[Launch]] = {}
    for number, launch in model.launches.items():
        seen.setdefault(getattr(model.program.steps[number], "kernel", -1), []).append(launch)
    found: dict[str, tuple[tuple[Launch, int], ...]] = {}
    for number, launches in seen.items():
        if digest := task_of(model.program.kernels[number]):
            found[digest] = (*found.get(digest, ()), (launches[0], len(launches)))
    return found
