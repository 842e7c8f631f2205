"""Tuning: measure what planning and code generation would otherwise estimate, and keep it only when the whole model gains.

Takes a cleaned graph, a database of measurements and some seconds. First the fusion planner asks for measured groups where the
table of mapping types leaves it to cost (DNNFusion, section 4.3). Then other ways to run each task take their turns inside the
running program: one program has every task run its second way, the next its third, and so on, each timed step by step in turn
with the default. Last, the programs made of the winners race the default program, and the fastest is the choice.

Every measurement is on disk before the next begins, so tuning may be interrupted and goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fusewise.benchmarking.inputs import random_feeds
from fusewise.benchmarking.timing import Clock, TimingBudget, race, settle
from fusewise.choices import keep_choice, kept_choice
from fusewise.errors import FusewiseError
from fusewise.fusion.cost import CostSource
from fusewise.ir.graph import Graph
from fusewise.lower.program import NativeStep
from fusewise.making import CompilationChoice, Making, generated, grouped
from fusewise.runtime.cache import source_digest
from fusewise.runtime.executable import Executable, StepTiming, build
from fusewise.runtime.measure import machine_name, measured, profiled
from fusewise.runtime.profile import ProfileDatabase

__all__ = ["tuned", "tuned_here"]

_GROUPS_SHARE, _WAYS_SHARE = 0.4, 0.85
"""Of the seconds, when to stop measuring groups, and ways to run tasks; the rest is for the race."""

_MOST_WAYS, _ROUNDS = 6, 7
_GAIN = 0.97
"""Another way must take less than this share of the first one's time, and so must a whole program."""

Progress = Callable[[str, float], None]


_UNTIMED: Mapping[str, Any] = {"default_ms": None, "tuned_ms": None}


def tuned_here(
    folder: Path,
    graph: Graph,
    making: Making,
    seconds: float,
    warn: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> CompilationChoice:
    """As `tuned`, on random inputs, with what is known of this machine in the cache `folder`."""
    database = ProfileDatabase(folder, machine_name(), warn, wait_seconds=5.0)
    return tuned(graph, making, database, seconds, random_feeds(graph), cache=folder, progress=progress or _untold)


def _untold(what: str, share: float) -> None:
    """Progress that nobody watches."""


def tuned(
    graph: Graph,
    making: Making,
    database: ProfileDatabase,
    seconds: float,
    feeds: Mapping[str, Any],
    *,
    cache: Path | None = None,
    progress: Progress = _untold,
) -> CompilationChoice:
    """Measure for about `seconds` and choose; what is chosen is kept in the database, and never slower than the default.

    `feeds` are inputs to run on. Until the race is over the choice on record is the one of before, or the default, so that an
    interruption leaves the model no slower than it was.
    """
    known = kept_choice(database, graph, making)
    if known is None:
        keep_choice(database, graph, making, CompilationChoice())
    time_left = _Allowance(time.monotonic(), seconds, progress)
    bench = _Workbench(graph, making, database, feeds, cache)
    default = bench.made(CompilationChoice())
    build_s = time.monotonic() - time_left.begin
    costs = CostSource(
        profiled(database, making.workers),
        measured(database, making.workers),
        lambda: time_left.before(_GROUPS_SHARE, "measuring groups"),
    )
    planned = tuple(group.nodes for group in grouped(graph, making, making.trace, None, costs).partition.groups)
    regrouped = None if planned == default.groups else bench.tried(CompilationChoice(planned))
    groups = None if regrouped is None else planned
    faster = bench.faster_ways(default if regrouped is None else regrouped, time_left, build_s)
    del regrouped  # another copy of the weights
    rivals = [
        CompilationChoice(None, faster),
        CompilationChoice(groups, faster),
        *([] if known is None else [replace(known, **_UNTIMED)]),
    ]
    rivals = [rival for k, rival in enumerate(rivals) if not rival.is_default and rival not in rivals[:k]]
    found = CompilationChoice()
    for k, rival in enumerate(rivals):
        progress("comparing", k / len(rivals))
        found, default = bench.raced(found, default, rival, seconds)
    keep_choice(database, graph, making, found)
    return found


@dataclass(frozen=True)
class _Allowance:
    """The seconds there are."""

    begin: float
    seconds: float
    progress: Progress

    def before(self, share: float, what: str, needed: float = 0.0) -> bool:
        """Will less than this share of the time be over in `needed` seconds? Tells what is being done."""
        spent = time.monotonic() - self.begin
        self.progress(what, min(1.0, spent / max(self.seconds, 1e-9)))
        return spent + needed < share * self.seconds


@dataclass(frozen=True)
class _Made:
    """A program that runs, with what its steps are: the digest of the task, and how it is run."""

    model: Executable
    groups: tuple[tuple[int, ...], ...]
    steps: Mapping[int, tuple[str, str, str]]


@dataclass(frozen=True)
class _Workbench:
    """One graph, and everything needed to build and run programs of it."""

    graph: Graph
    making: Making
    database: ProfileDatabase
    feeds: Mapping[str, Any]
    cache: Path | None

    def made(self, choice: CompilationChoice) -> _Made:
        trace = self.making.trace
        groups = grouped(self.graph, self.making, trace, choice)
        program = generated(groups, self.making, trace, choice)
        steps = {
            number: (program.kernels[step.kernel].task, step.way, step.label)
            for number, step in enumerate(program.steps)
            if isinstance(step, NativeStep)
        }
        model = build(program, threads=self.making.workers, cache=self.cache)
        return _Made(model, tuple(group.nodes for group in groups.partition.groups), steps)

    def tried(self, choice: CompilationChoice) -> _Made | None:
        """The program of a choice that may turn out not to be possible; then None."""
        try:
            return self.made(choice)
        except FusewiseError:
            return None

    def faster_ways(self, first: _Made, time_left: _Allowance, needed: float) -> dict[str, int]:
        """For each task the fastest of its ways, where that is not the first; measured as long as there is time.

        `needed` is how many seconds another program may take to build and measure, until it is known.
        """
        digests = dict.fromkeys(digest for digest, _, _ in first.steps.values())
        for number in range(1, _MOST_WAYS):
            asked = [digest for digest in digests if self.database.lookup(self._way_key(digest, number)) is None]
            if not asked or not time_left.before(_WAYS_SHARE, "measuring kernels", needed):
                break
            begin = time.monotonic()
            self._measure_ways(first, asked, number, time_left)
            needed = time.monotonic() - begin
        return {digest: number for digest in digests if (number := self._best_way(digest))}

    def _measure_ways(self, first: _Made, asked: Sequence[str], number: int, time_left: _Allowance) -> None:
        """Run every asked task its other way, in turn with the first, and keep what the steps of each took."""
        choice = CompilationChoice(first.groups, dict.fromkeys(asked, number))
        try:
            other = self.made(choice)
        except FusewiseError as error:
            for digest in asked:
                self.database.fail(self._way_key(digest, number), str(error), "a way to run a task")
            return
        times: list[dict[str, list[float]]] = [{}, {}]
        for done in range(_ROUNDS):
            if done > 1 and not time_left.before(1.0, "measuring kernels"):
                break
            for made, found in zip((first, other), times, strict=True):
                settle(Clock())
                made.model.run(None, self.feeds)
                for digest, taken in _by_task(made, made.model.run_with_timings(None, self.feeds)[1]).items():
                    found.setdefault(digest, []).append(taken)
        ways = [{digest: f"{label}: {way}" for digest, way, label in made.steps.values()} for made in (first, other)]
        for digest in asked:
            key = self._way_key(digest, number)
            if ways[0][digest] == ways[1].get(digest, ways[0][digest]):
                self.database.fail(key, "there is no other way", ways[0][digest])
                continue
            self.database.record(key, _faster_half(times[1][digest]), ways[1][digest])
            self.database.record(f"{key}|beside", _faster_half(times[0][digest]), ways[0][digest])

    def _best_way(self, digest: str) -> int:
        """The number of the way that takes the least of the first way's time, as both were measured in turn."""
        best, least = 0, _GAIN
        for number in range(1, _MOST_WAYS):
            key = self._way_key(digest, number)
            found, beside = self.database.lookup(key), self.database.lookup(f"{key}|beside")
            if found is None or beside is None or found.median_ns is None or beside.median_ns is None:
                continue
            if found.median_ns < least * beside.median_ns:
                best, least = number, found.median_ns / beside.median_ns
        return best

    def raced(
        self, best: CompilationChoice, champion: _Made, rival: CompilationChoice, seconds: float
    ) -> tuple[CompilationChoice, _Made]:
        """The faster of two, with its program: the rival only if it is by median and by minimum."""
        challenger = self.tried(rival)
        if challenger is None:
            return best, champion
        calls = [partial(made.model.run, None, self.feeds) for made in (champion, challenger)]
        share = max(0.3, seconds * (1 - _WAYS_SHARE) / 2)
        old, new = race(calls, TimingBudget(runs=10, seconds=share, limit_seconds=max(3.0, 4 * share)))
        wins = new.p50_ms < _GAIN * old.p50_ms and new.min_ms < _GAIN * old.min_ms
        default_ms = old.p50_ms if best.default_ms is None else best.default_ms
        kept = rival if wins else best
        tuned_ms = min(old.p50_ms, new.p50_ms) if wins or not best.is_default else None
        return replace(kept, default_ms=default_ms, tuned_ms=tuned_ms), challenger if wins else champion

    def _way_key(self, digest: str, number: int) -> str:
        return f"way|{digest}|{number}|{self.making.workers}|{machine_name()}|{source_digest()}"


def _faster_half(samples: Sequence[float]) -> list[float]:
    """What the rest of the machine has disturbed least: it only ever adds."""
    return sorted(samples)[: len(samples) // 2 + 1]


def _by_task(made: _Made, timings: Iterable[StepTiming]) -> dict[str, float]:
    """Nanoseconds that the steps of each task took together."""
    found: dict[str, float] = {}
    for timing in timings:
        if timing.native:
            digest = made.steps[timing.step][0]
            found[digest] = found.get(digest, 0.0) + timing.end_ns - timing.start_ns
    return found
