"""How long launches of a program take on its device, by the device's own clock."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from fusewise.codegen.gpu.program import GpuStep
from fusewise.records import record
from fusewise.runtime.gpu.driver import Driver, Launch
from fusewise.runtime.gpu.executable import GpuExecutable

__all__ = ["REPEATS", "LaunchTime", "chain_time", "chain_times", "launch_times", "replay_times"]

REPEATS = 20
"""Launches in a row that are timed as one: a single one takes less than it takes to give it to the device."""


@record(frozen=True, slots=True)
class LaunchTime:
    """What a launch takes: the number of its step, whom it is for and how it does it, and microseconds with what a launch costs
    inside a graph."""

    step: int
    label: str
    way: str
    us: float


def chain_time(driver: Driver, launches: Sequence[Launch], repeats: int = REPEATS, rounds: int = 5) -> float:
    """The median of `chain_times`."""
    return median(chain_times(driver, launches, repeats, rounds))


def chain_times(driver: Driver, launches: Sequence[Launch], repeats: int, rounds: int) -> list[float]:
    """Microseconds of `launches` in a row, one waiting for the other, in each of some rounds of a graph that has them `repeats`
    times. Their operands are in the device's cache where they fit in it."""
    chain = [*launches] * repeats
    graph = driver.graph(chain, list(pairwise(range(len(chain)))))
    try:
        graph.launch()  # the first launch of a graph also brings it to the device
        return [us / repeats for us in driver.timed([graph.launch] * rounds)]
    finally:
        driver.synchronise()
        graph.close()


def launch_times(model: GpuExecutable, repeats: int = REPEATS, rounds: int = 5) -> list[LaunchTime]:
    """The time of each launch of a model that has run, by itself and in the order of its steps. What lies in the model's memory
    afterwards is of no use but to be overwritten by its next run."""
    found = []
    for number, launch in model.launches.items():
        step = model.program.steps[number]
        assert isinstance(step, GpuStep)
        us = chain_time(model.driver, [launch], repeats, rounds)
        found.append(LaunchTime(number, step.label, model.program.kernels[step.kernel].way, us))
    return found


def replay_times(model: GpuExecutable, count: int) -> list[float]:
    """Microseconds of each of `count` runs in a row of a model that has run, on what lies on the device already."""
    model.replay()
    return model.driver.timed([model.replay] * count)
