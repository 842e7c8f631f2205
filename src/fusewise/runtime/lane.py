"""Where a program runs: memory of its own, and what a run does in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fusewise.lower.program import Program
from fusewise.records import record
from fusewise.runtime.arena import RunMemory, address_of
from fusewise.runtime.run_plan import HostPart, RunPlan, Stretch
from fusewise.runtime.threads import StepTable, shared_pool
from fusewise.runtime.turns import Turns
from fusewise.runtime.written_into import put_in_place

if TYPE_CHECKING:  # a compiled model is opened without it
    from fusewise.runtime.plans import Plans

__all__ = ["Lane", "StepTiming", "Walk"]

Walk = Callable[[StepTable, Sequence[int]], None]
"""Makes the calls of a table, every worker's share of one before the next; the second argument has the step of each call, by its
number in the program."""


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


class Lane:
    """A program's plans, with memory of their own. Used by one thread at a time, whose `turn` it is; where it `is_crowded`, that
    thread alone makes the run."""

    def __init__(self, plan: RunPlan | Plans, workers: int, outputs: int) -> None:
        """`workers` make a run at most, of a program with so many `outputs`."""
        self.plan = plan if isinstance(plan, RunPlan) else None
        self.plans = None if isinstance(plan, RunPlan) else plan
        self.workers = workers
        self.all = range(outputs)
        self.turn = Turns("the model is run")
        self.is_crowded = False

    def again(self) -> Lane:
        """The same lane in a forked child, which must not wait for a thread that only its parent has."""
        plan = self.plan or self.plans
        assert plan is not None
        return Lane(plan, self.workers, len(self.all))

    def plan_for(self, values: Sequence[Any]) -> RunPlan:
        """What a run on these inputs goes by."""
        if self.plan is not None:
            return self.plan
        assert self.plans is not None
        return self.plans.plan(values)

    def computed(
        self,
        values: list[Any],
        wanted: Sequence[int],
        timings: list[StepTiming] | None,
        walk: Walk | None,
        into: Mapping[int, np.ndarray] | None,
    ) -> list[Any]:
        """The `wanted` outputs, by number those `into` arrays that are there."""
        plan = self.plan
        if plan is None:
            assert self.plans is not None
            plan = self.plans.plan(values)
        every = wanted is self.all
        if plan.whole is not None and walk is None and into is None and (every or len(set(wanted)) == len(wanted)):
            made = self._between(plan, plan.whole, values, timings)
            return made if every else [made[number] for number in wanted]
        program = plan.program
        if plan.checks is not None:
            plan.checks.begin(values)
        caller: dict[int, np.ndarray] = {}
        objects: dict[str, Any] = dict(plan.objects)
        words, at = plan.words, {}
        for number, (buffer, name) in enumerate(plan.ports):
            if buffer >= 0:
                caller[buffer] = value = values[number]
                at[buffer] = address_of(value)
            else:
                objects[name] = values[number]
        for buffer, array in plan.fresh:
            caller[buffer] = one = array()
            at[buffer] = address_of(one)
        if into is not None:
            put_in_place(program.outputs, into, caller, plan.fresh)
            at |= {buffer: address_of(caller[buffer]) for buffer, _ in plan.fresh}
        for buffer, number, offset in plan.patches:
            words[number] = at[buffer] + offset
        moving = RunMemory(plan.memory, caller)
        for part in plan.parts:
            if isinstance(part, Stretch):
                if walk is None:
                    self._launch(part, program, timings)
                else:
                    walk(part.table, part.steps)
                if plan.checks is not None:
                    plan.checks.check()
                if plan.faults is not None:
                    plan.faults.check()
            else:
                _call(part, moving, objects, timings)
        if plan.checks is not None:
            plan.checks.end(values)
        return plan.results.taken(wanted, moving, objects)

    def _between(
        self, plan: RunPlan, whole: Stretch, values: list[Any], timings: list[StepTiming] | None
    ) -> list[np.ndarray]:
        """All outputs of a program that is one stretch, for arrays: a run of a few microseconds is mostly what is here."""
        words, made = plan.words, []
        at: dict[int, int] = {}
        for number, (buffer, _) in enumerate(plan.ports):
            at[buffer] = address_of(values[number])
        for buffer, array in plan.fresh:
            made.append(one := array())
            at[buffer] = address_of(one)
        for buffer, number, offset in plan.patches:
            words[number] = at[buffer] + offset
        if timings is None and whole.crew.is_short:
            shared_pool().run(whole.table, 1)
        else:
            self._launch(whole, plan.program, timings)
        if plan.faults is not None:
            plan.faults.check()
        return made

    def _launch(self, part: Stretch, program: Program, timings: list[StepTiming] | None) -> None:
        workers = self.workers
        if timings is None:
            if workers == 1 or part.crew.is_short or self.is_crowded:
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
            step, rows = program.steps[number], clock[calls == number]
            begun = rows[0, :, 0]
            shares = tuple(zip(begun.tolist(), (begun + (rows[:, :, 1] - rows[:, :, 0]).sum(0)).tolist(), strict=True))
            last = max(end for _, end in shares)
            timings.append(StepTiming(number, step.label, step.group, True, int(begun.min()), last, shares))


def _call(part: HostPart, moving: RunMemory, objects: dict[str, Any], timings: list[StepTiming] | None) -> None:
    number, call = part
    if timings is None:
        call.run(moving, objects)
    else:
        start = time.monotonic_ns()
        call.run(moving, objects)
        end = time.monotonic_ns()
        timings.append(StepTiming(number, call.label, call.group, False, start, end, ((start, end),)))
