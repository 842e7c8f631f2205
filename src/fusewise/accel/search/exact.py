"""Exact search: the plan of least cost, proven; where the network is too wide for a proof, a good plan and a bound.

The shortest path over ideals (`exact_path`) proves the optimum for networks that are nearly chains, which almost all are. It
stops at a number of steps. Then a sampled plan is improved window by window (`exact_windows`), each solved exactly, and the bound
is what every plan must move at least.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from fusewise.accel.bits import bits_of
from fusewise.accel.feasible import require_feasible
from fusewise.accel.problem import Costs
from fusewise.accel.schemes.scheme import bytes_for
from fusewise.accel.search.exact_atoms import atoms_of
from fusewise.accel.search.exact_path import Limit, LimitReached, Path, growth_of, shortest_path
from fusewise.accel.search.exact_windows import improved
from fusewise.accel.search.result import Budget, Result
from fusewise.accel.search.run import Progress

__all__ = ["STEPS", "compulsory_bound", "exact_search"]

STEPS = 1_500_000
"""Groups to try before the search for a proof is given up: about half a minute."""

_PROOF_SHARE = 0.6
"""Of the seconds of a budget, the share that may go into the proof."""


def exact_search(
    costs: Costs, budget: Budget | None = None, progress: Progress | None = None, *, steps: int = STEPS
) -> Result:
    """The optimal plan, or the best found and a lower bound when `steps` or the budget's seconds do not suffice.

    Works for any objective that adds up over groups, does not fall when a group moves more bytes, and is not larger for two
    groups as one that moves as much as both. The budget's plans limit the windows solved after the proof was given up.
    `NoFeasiblePlan` when there is no operator to plan. Interrupted, it gives the best so far.
    """
    require_feasible(costs.problem)
    clock, limits = _Clock(), budget or Budget()
    path = Path(atoms_of(costs.problem))

    def stop() -> bool:
        if progress is not None:
            progress(0, path.settled[path.farthest][0])
        return limits.seconds is not None and clock.seconds >= _PROOF_SHARE * limits.seconds

    interrupted = False
    try:
        shortest_path(costs, Limit(steps, stop), path)
    except LimitReached:
        pass
    except KeyboardInterrupt:
        interrupted = True
    if path.goal in path.settled:
        return _proven(path, clock)
    return _unproven(costs, limits, progress, path, clock, interrupted)


def compulsory_bound(costs: Costs) -> float:
    """What any plan costs at least: everything as one group that fits, weights once and only unavoidable tensors."""
    problem, growth, floor = costs.problem, growth_of(costs.problem), costs.empty()
    for node in bits_of(problem.fuseable):
        growth.push(node)
    floor.dram_known[problem.fuseable] = bytes_for(growth.least, problem.scheme.bits)
    return floor.cost(problem.fuseable)


class _Clock:
    def __init__(self) -> None:
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started


def _proven(path: Path, clock: _Clock) -> Result:
    cost = path.settled[path.goal][0]
    return Result(
        groups=path.groups(path.goal),
        cost=cost,
        lower_bound=cost,
        optimal=True,
        plans_evaluated=1,
        history=((1, cost),),
        rectified=0,
        invalid=0,
        seconds=clock.seconds,
        interrupted=False,
        notes=(f"proven over {len(path.settled)} ideals and {path.transitions} groups",),
    )


def _unproven(
    costs: Costs, limits: Budget, progress: Progress | None, path: Path, clock: _Clock, interrupted: bool
) -> Result:
    bound = compulsory_bound(costs)
    done = path.atoms.operators(path.farthest)
    rest = [1 << node for node in bits_of(costs.problem.fuseable & ~done)]
    groups = costs.problem.ordered([*path.groups(path.farthest), *rest])
    assert groups is not None
    cost = costs.total(groups)
    first = Result(groups, cost, bound, cost == bound, 1, ((1, cost),), 0, 0, clock.seconds, interrupted)
    note = f"no proof within {path.transitions} groups: the bound is what every plan must move at least"
    if not interrupted:
        left: Callable[[], bool] = lambda: limits.seconds is not None and clock.seconds >= limits.seconds  # noqa: E731
        first = improved(costs, first, limits.plans, left, progress)
    bound = min(bound, first.cost)
    return replace(first, lower_bound=bound, optimal=first.cost == bound, seconds=clock.seconds, notes=(note,))
