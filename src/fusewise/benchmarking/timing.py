"""Trustworthy timing of several runtimes on one machine: blocks of runs, taken in turn, with quiet in between.

A runtime's idle workers spin for tens of milliseconds after its last run, on the cores the next runtime needs. So runs
come in short blocks of one runtime, the first run of a block is not counted (cold caches, workers just woken), and
before the next block the process must have gone quiet. Blocks alternate A B, B A, so that a slow drift of the machine
falls on both alike.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fusewise.runtime.collection import uncollected

__all__ = ["Clock", "Timing", "TimingBudget", "race", "settle"]


@dataclass(frozen=True, slots=True)
class TimingBudget:
    """How long to measure: at least `runs` and `seconds` for each runtime, but no round begins after `limit_seconds`.

    Runs are taken in blocks of `block_seconds`, and of at most `longest_block` runs; None is 20, or more of runs so short that
    waiting between blocks would take longer than they do.
    """

    runs: int = 50
    seconds: float = 3.0
    limit_seconds: float = 60.0
    warmup: int = 3
    block_seconds: float = 0.1
    longest_block: int | None = None


@dataclass(frozen=True, slots=True)
class Clock:
    """Wall time and the processor time of this process, in seconds, and how to wait."""

    wall: Callable[[], float] = time.perf_counter
    cpu: Callable[[], float] = time.process_time
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of single runs, in milliseconds, in the order they were taken."""

    samples_ms: tuple[float, ...]

    @property
    def p50_ms(self) -> float:
        return self.percentile(50)

    @property
    def p90_ms(self) -> float:
        return self.percentile(90)

    @property
    def min_ms(self) -> float:
        return min(self.samples_ms)

    def percentile(self, percent: float) -> float:
        """The value below which `percent` of the runs lie, interpolated between neighbours."""
        ordered = sorted(self.samples_ms)
        place = (len(ordered) - 1) * percent / 100
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


_STEP = 0.005
"""Seconds that are looked at to see whether a process is at rest."""

_LONGEST_BLOCK = 20

_LEAST_SECONDS = 0.05
"""A block of short runs takes so long at least: the wait before it takes a step, or tens of milliseconds where workers spin."""

_MOST_WARMUPS = 1000
"""The first run of all is slow, and says little of how long a short one is."""


def settle(clock: Clock, quiet: float = 0.2, step: float = _STEP, limit: float = 0.3) -> None:
    """Wait until this process uses less than `quiet` of one core over a step, at most `limit` seconds."""
    begin = clock.wall()
    while clock.wall() - begin < limit:
        wall, cpu = clock.wall(), clock.cpu()
        clock.sleep(step)
        if clock.cpu() - cpu < quiet * (clock.wall() - wall):
            return


def race(
    calls: Sequence[Callable[[], object]],
    budget: TimingBudget,
    clock: Clock | None = None,
    progress: Callable[[float], None] | None = None,
) -> tuple[Timing, ...]:
    """Time each call, interleaved in blocks; one `Timing` for each, in order.

    `progress` is told the finished share, 0 to 1, after each round.
    """
    clock = clock or Clock()
    lengths = [_block_length(call, budget, clock) for call in calls]
    samples: list[list[float]] = [[] for _ in calls]
    taken = [0.0] * len(calls)
    begin = clock.wall()
    backwards = False
    with _without_collection():
        while True:
            order = range(len(calls))
            for k in reversed(order) if backwards else order:
                settle(clock)
                calls[k]()
                block = list(_block(calls[k], lengths[k], clock))
                samples[k] += block
                taken[k] += sum(block) / 1e3
            backwards = not backwards
            share = _share(min(map(len, samples)), min(taken), budget, clock.wall() - begin)
            if progress is not None:
                progress(share)
            if share >= 1:
                break
    return tuple(Timing(tuple(found)) for found in samples)


def _block_length(call: Callable[[], object], budget: TimingBudget, clock: Clock) -> int:
    """Warm up, short runs for as long as a step, and choose how many runs make a block of the budgeted length."""
    settle(clock)
    shortest, runs, first = float("inf"), 0, clock.wall()
    while runs < max(1, budget.warmup) or (runs < _MOST_WARMUPS and clock.wall() - first < _STEP):
        begin = clock.wall()
        call()
        shortest, runs = min(shortest, clock.wall() - begin), runs + 1
    shortest = max(shortest, 1e-6)
    longest = budget.longest_block or max(_LONGEST_BLOCK, round(_LEAST_SECONDS / shortest))
    return max(2, min(longest, round(budget.block_seconds / shortest)))


def _block(call: Callable[[], object], length: int, clock: Clock) -> Iterator[float]:
    for _ in range(length):
        begin = clock.wall()
        call()
        yield (clock.wall() - begin) * 1e3


def _share(runs: int, seconds: float, budget: TimingBudget, elapsed: float) -> float:
    """How much of the budget is spent: the runtime that is furthest behind decides, unless time is up."""
    taken = runs / budget.runs if budget.runs else 1.0
    measured = seconds / budget.seconds if budget.seconds else 1.0
    return min(1.0, max(min(taken, measured), elapsed / budget.limit_seconds))


@contextmanager
def _without_collection() -> Iterator[None]:
    """No garbage collection inside the timed region."""
    gc.collect()
    with uncollected():
        yield
