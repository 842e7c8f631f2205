"""Rounds of a body as one table of calls: what a round gives lies where the next one reads it, and nobody does anything in between.

What is carried lies in two arrays by turns. What is gathered of all rounds is written where it stays, and what is scanned is read
where it lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fusewise.runtime.arena import address_of
from fusewise.runtime.rounds import RoundPorts
from fusewise.runtime.run_plan import RunPlan, Stretch
from fusewise.runtime.threads import StepTable, shared_pool

__all__ = ["most_rounds", "run_rounds"]

_MOST_WORDS = 1 << 18
"""Arguments and calls of all rounds together: 2 MiB, which stay in a cache."""


def most_rounds(plan: RunPlan) -> int:
    """How many rounds go together; 0 of what is not all native, or gives what is not an array of its own."""
    if len(plan.parts) != 1 or plan.checks is not None or not isinstance(plan.parts[0], Stretch):
        return 0
    made = {buffer for buffer, _ in plan.fresh}
    outputs = [port.buffer for port in plan.program.outputs]
    if any(buffer < 0 for buffer, _ in plan.ports) or set(outputs) != made or len(outputs) != len(made):
        return 0
    table = plan.parts[0].table
    return _MOST_WORDS // (len(plan.words) + table.words.size + 1)


def run_rounds(
    plan: RunPlan, values: Sequence[np.ndarray], ports: RoundPorts, lines: Sequence[np.ndarray], count: int
) -> tuple[list[np.ndarray], list[np.ndarray]] | None:
    """What is carried after `count` rounds, at most `most_rounds`, and what is gathered of them, [count, ...]; None where what is
    carried changes its shape.

    `values` are those of the first round, by input; of each of `lines`, C-contiguous, round k takes element k.
    """
    fresh, buffers = dict(plan.fresh), [port.buffer for port in plan.program.outputs]
    given = [buffer for buffer, _ in plan.ports]
    turns = np.arange(count)
    at = {buffer: np.full(count, address_of(value)) for buffer, value in zip(given, values, strict=True)}
    kept: list[Any] = []
    numbers = np.arange(count, dtype=np.int64) + (0 if ports.counter < 0 else int(values[ports.counter]))
    if ports.counter >= 0:
        at[given[ports.counter]] = address_of(numbers) + 8 * turns
    for place, line in zip(ports.elements, lines, strict=True):
        at[given[place]] = address_of(line) + (line.nbytes // max(1, len(line))) * turns
    states: list[tuple[np.ndarray, np.ndarray]] = []
    for place, result in ports.states:
        both = fresh[buffers[result]].array(), fresh[buffers[result]].array()
        if both[0].shape != values[place].shape or both[0].dtype != values[place].dtype:
            return None
        there = np.array([address_of(one) for one in both])[turns % 2]
        at[given[place]][1:], at[buffers[result]] = there[:-1], there
        states.append(both)
    gathered: list[np.ndarray] = []
    for result in ports.gathered:
        one = fresh[buffers[result]].array()
        every = np.empty((count, *one.shape), one.dtype)
        at[buffers[result]] = address_of(every) + one.nbytes * turns
        gathered.append(every)
    for buffer in fresh.keys() - at.keys():  # what nobody wants
        kept.append(fresh[buffer].array())
        at[buffer] = np.full(count, address_of(kept[-1]))
    _launch(plan, at, count)
    if plan.faults is not None:
        plan.faults.check()
    return [both[(count - 1) % 2] for both in states], gathered


def _launch(plan: RunPlan, at: Mapping[int, np.ndarray], count: int) -> None:
    """Make the calls of all rounds, where the caller's arrays are `at` these places by round."""
    (part,) = plan.parts
    assert isinstance(part, Stretch)
    own = np.frombuffer(plan.words, np.int64)
    words = np.tile(own, (count, 1))
    for buffer, patches in plan.patches:
        for number, offset in patches:
            words[:, number] = at[buffer] + offset
    calls = part.table.words
    table = np.tile(calls, (count, 1))
    moved = address_of(words) - address_of(own)
    table[:, 1] += np.repeat(moved + 8 * own.size * np.arange(count), len(calls))
    table[len(calls) - 1 :: len(calls), 2] |= 1  # the next round reads what all have written
    shared_pool().run(StepTable(table, address_of(table), len(table)), part.crew.size)
