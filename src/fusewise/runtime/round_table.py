"""Rounds of a body as one table of calls: what a round gives lies where the next one reads it, and nobody does anything in between.

What is carried lies in two arrays by turns. What is gathered of all rounds is written where it stays, and what is scanned is read
where it lies. Each round has a condition of its own, which all workers look at before the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fusewise.runtime.arena import address_of
from fusewise.runtime.rounds import RoundPorts, Rounds
from fusewise.runtime.run_plan import RunPlan, Stretch
from fusewise.runtime.threads import STEP_WORDS, EndRow, StepTable, shared_pool

__all__ = ["run_rounds"]

_MOST_WORDS = 1 << 18
"""Arguments and calls of all rounds together: 2 MiB, which stay in a cache."""

_TIMED_ROUNDS = 8
"""Made by one worker to know whether several are worth it."""

_MOST_BYTES = 1 << 26
"""Gathered of all rounds together: memory is taken before it is known whether they come."""


def run_rounds(
    plan: RunPlan, values: Sequence[np.ndarray], ports: RoundPorts, lines: Sequence[np.ndarray], count: int
) -> Rounds | None:
    """Rounds in one call, at most `count` and as many as a table holds; None where these are less than two, where not all is
    native, and where what is carried changes its shape.

    `values` are those of the first round, by input; of each of `lines`, C-contiguous, round k takes element k.
    """
    if plan.whole is None:
        return None
    fresh, buffers = dict(plan.fresh), [port.buffer for port in plan.program.outputs]
    states = _states(ports, values, [fresh[buffer] for buffer in buffers])
    single = [fresh[buffers[result]]() for result in ports.gathered]
    crew = _stretch(plan).crew
    most = _TIMED_ROUNDS if crew.for_rounds is None else _most_rounds(plan)
    count = min(count, most, _MOST_BYTES // max(1, sum(one.nbytes for one in single)))
    if states is None or count < 2:
        return None
    given, turns = [buffer for buffer, _ in plan.ports], np.arange(count)
    at: dict[int, int | np.ndarray] = {b: address_of(value) for b, value in zip(given, values, strict=True)}
    if ports.counter >= 0:
        numbers = turns + int(values[ports.counter])
        at[given[ports.counter]] = address_of(numbers) + 8 * turns
    for place, line in zip(ports.elements, lines, strict=True):
        at[given[place]] = address_of(line) + (line.nbytes // max(1, len(line))) * turns

    def carried(place: int, result: int, there: np.ndarray) -> None:
        at[buffers[result]] = there
        if place >= 0:
            before = np.empty(count, np.int64)
            before[0], before[1:] = at[given[place]], there[:-1]
            at[given[place]] = before

    odd = turns & 1
    for (place, result), both in zip(ports.states, states, strict=True):
        one, other = map(address_of, both)
        carried(place, result, one + (other - one) * odd)
    every = [np.empty((count, *one.shape), one.dtype) for one in single]
    for result, first, line in zip(ports.gathered, single, every, strict=True):
        at[buffers[result]] = address_of(line) + first.nbytes * turns
    going = np.ones(count, np.uint8)
    if ports.condition is not None:
        carried(*ports.condition, address_of(going) + turns)
    unwanted = {buffer: fresh[buffer]() for buffer in fresh.keys() - at.keys()}
    at |= {buffer: address_of(array) for buffer, array in unwanted.items()}
    took = _launch(plan, at, None if ports.condition is None else address_of(going), count)
    if plan.faults is not None:
        plan.faults.check()
    last = int(going.argmin())
    made = count if going[last] else last + 1
    if crew.for_rounds is None:
        crew.took_alone(took / (made * _stretch(plan).table.count))
    return Rounds([both[(made - 1) % 2] for both in states], [one[:made] for one in every], made, bool(going[made - 1]))


def _most_rounds(plan: RunPlan) -> int:
    return _MOST_WORDS // (len(plan.words) + _stretch(plan).table.words.size + STEP_WORDS)


def _stretch(plan: RunPlan) -> Stretch:
    assert plan.whole is not None
    return plan.whole


def _states(
    ports: RoundPorts, values: Sequence[np.ndarray], outputs: Sequence[Callable[[], np.ndarray]]
) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """Two arrays for each state; None where one changes its shape, or the condition is not one byte."""
    if ports.condition is not None and outputs[ports.condition[1]]().nbytes != 1:
        return None
    found = []
    for place, result in ports.states:
        both = outputs[result](), outputs[result]()
        if place >= 0 and (both[0].shape != values[place].shape or both[0].dtype != values[place].dtype):
            return None
        found.append(both)
    return found


def _launch(plan: RunPlan, at: Mapping[int, int | np.ndarray], going: int | None, count: int) -> int:
    """Make the calls of all rounds, where the caller's arrays are `at` these places by round; after each, that round's byte at
    `going`, if this is not None, says whether there is another. Nanoseconds that it took."""
    part = _stretch(plan)
    own = np.frombuffer(plan.words, np.int64)
    words = np.empty((count, own.size), np.int64)
    words[:] = own
    for buffer, number, offset in plan.patches:
        words[:, number] = at[buffer] + offset
    calls, turns = part.table.words, np.arange(count)
    table = np.empty((count, len(calls) + (going is not None), STEP_WORDS), np.int64)
    table[:, : len(calls)] = calls
    moved = address_of(words) - address_of(own)
    table[:, : len(calls), 1] += (moved + 8 * own.size * turns)[:, None]
    table[:, len(calls) - 1, 2] |= 1  # the next round reads what all have written
    if going is not None:
        table[:, -1] = EndRow(0).words
        table[:, -1, 1] = going + turns
    rows = count * table.shape[1]
    begin = time.perf_counter_ns()
    shared_pool().run(StepTable(table, address_of(table), rows), part.crew.for_rounds or 1)
    return time.perf_counter_ns() - begin
