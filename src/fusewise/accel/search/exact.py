"""Exact search: the plan of least cost, proven; where the network is too wide for a proof, a good plan and a bound.

The shortest path over ideals (`exact_path`) proves the optimum for networks that are nearly chains, which almost all are. It
stops at a number of steps. Then a plan is composed of groups that column generation finds (`exact_compose`) and improved window by
window (`exact_windows`), each solved exactly; the bound is that of a linear programme (`exact_bound`), or what every plan must move
at least.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fusewise.accel.bits import bits_of
from fusewise.accel.feasible import require_feasible
from fusewise.accel.problem import Costs
from fusewise.accel.search.exact_atoms import atoms_of, wake_of
from fusewise.accel.search.exact_bound import cut_bound, cuts_of
from fusewise.accel.search.exact_compose import composed
from fusewise.accel.search.exact_orders import cut_order, drawn_order
from fusewise.accel.search.exact_path import Limit, LimitReached, Path, growth_of, shortest_path
from fusewise.accel.search.exact_windows import improved
from fusewise.accel.search.local import local_search
from fusewise.accel.search.result import Budget, Result
from fusewise.accel.search.run import Progress

__all__ = ["STEPS", "compulsory_bound", "exact_search"]

STEPS = 120_000
"""Groups to try before the search for a proof is given up: some seconds. No proof known needs more than 71,000."""

_PROOF_SHARE, _BOUND_SHARE, _ORDERS_SHARE, _COMPOSED_SHARE = 0.2, 0.4, 0.5, 0.85
"""Of the seconds of a budget, the share that may go into the proof, and until when the bound, plans cut from orders, and a composed
plan must be done."""

_ORDERS, _SAMPLED_PLANS = 12, 5000
"""Orders that are cut, and plans of a local search, to begin with."""

_QUICK_PLANS = 300
"""Plans of the local search that gives something to show while the proof is under way, where no order can be cut."""


def exact_search(
    costs: Costs, budget: Budget | None = None, progress: Progress | None = None, *, steps: int = STEPS
) -> Result:
    """The optimal plan, or the best found and a lower bound when `steps` or the budget's seconds do not suffice.

    Works for any objective that adds up over groups, does not fall when a group moves more bytes, and is not larger for two
    groups as one that moves as much as both. The budget's plans limit the windows solved after the proof was given up.
    `progress` is told the cost of the best plan known. `NoFeasiblePlan` when there is no operator to plan. Interrupted, it
    gives the best so far.
    """
    require_feasible(costs.problem)
    clock, limits, shown = _Clock(), budget or Budget(), _Shown(costs, progress)

    def stop() -> bool:
        shown.tell()
        return limits.seconds is not None and clock.seconds >= _PROOF_SHARE * limits.seconds

    def stop_bound() -> bool:
        return limits.seconds is not None and clock.seconds >= _BOUND_SHARE * limits.seconds

    limit, interrupted = Limit(steps, stop), False
    least: float = 0
    try:
        path, least = _proof(costs, limit)
        if path is not None:
            cost = path.settled[path.goal][0]
            note = f"proven over {len(path.settled)} ideals and {path.transitions} groups"
            return _result(path.groups(path.goal), cost, cost, clock.seconds, note)
    except KeyboardInterrupt:
        interrupted = True
    best, note = shown.best(interrupted), f"no proof within {limit.taken} groups"
    bound, how, ended = _bound(costs, stop_bound, shown, interrupted or best.interrupted)
    if least > bound:
        bound, how = least, "that of the path by bounds of its groups"
    if ended:
        best = replace(best, interrupted=True)
    else:
        best = _improved(costs, best, limits, clock, progress)
    return _ended(best, bound, clock.seconds, f"{note}: the bound is {how}")


def _improved(costs: Costs, first: Result, limits: Budget, clock: _Clock, progress: Progress | None) -> Result:
    """A plan no worse: the best of a local search from orders that are cut, then composed of many groups, then window by window."""

    def left(share: float) -> Callable[[], bool]:
        return lambda: limits.seconds is not None and clock.seconds >= share * limits.seconds

    def shown(best: Result) -> None:
        if progress is not None:
            progress(best.plans_evaluated, best.cost)

    starts, rng = list[tuple[int, ...]](), np.random.default_rng(0)
    try:
        while len(starts) < _ORDERS and not left(_ORDERS_SHARE)():
            groups = cut_order(costs, drawn_order(costs.problem, rng))
            if groups is None:
                break
            starts.append(groups)
            if progress is not None:
                progress(len(starts), min(first.cost, *map(costs.total, starts)))
    except KeyboardInterrupt:
        return replace(_cheapest(costs, first, starts), interrupted=True)
    plans = [*starts, first.groups] if starts else []
    best = local_search(costs, Budget(_SAMPLED_PLANS), rng, progress=progress, starts=plans)
    best = replace(_cheapest(costs, best, [first.groups]), interrupted=best.interrupted)
    if best.interrupted:
        return best
    found, interrupted = composed(costs, [best.groups, *starts], left(_COMPOSED_SHARE), lambda: shown(best))
    best = replace(_cheapest(costs, best, [] if found is None else [found]), interrupted=interrupted)
    return best if interrupted else improved(costs, best, limits.plans, left(1.0), progress)


def _cheapest(costs: Costs, best: Result, plans: Sequence[tuple[int, ...]]) -> Result:
    """The cheapest of several plans."""
    groups = min([best.groups, *plans], key=costs.total)
    cost = costs.total(groups)
    more = ((best.plans_evaluated, cost),) if cost < best.cost else ()
    return replace(best, groups=groups, cost=cost, history=(*best.history, *more))


def _ended(found: Result, bound: float, seconds: float, note: str) -> Result:
    """The plan with its bound."""
    bound = min(bound, found.cost)
    return replace(found, lower_bound=bound, optimal=found.cost == bound, seconds=seconds, notes=(note,))


def _bound(costs: Costs, stop: Callable[[], bool], shown: _Shown, interrupted: bool) -> tuple[float, str, bool]:
    """What every plan costs at least, where that is from, and whether the user has had enough."""
    more, how, cuts = [0.0], "what every plan must move at least", None if interrupted else cuts_of(costs.problem)

    def told(elements: float) -> None:
        more.append(elements)
        shown.tell()

    try:
        if cuts is not None:
            cut_bound(cuts, stop, told)
    except ImportError:
        how += "; a better one takes SciPy (install fusewise[search])"
    except KeyboardInterrupt:
        interrupted = True
    if more[-1]:
        how = "that of a linear programme"
    return compulsory_bound(costs, math.floor(more[-1])), how, interrupted


def _proof(costs: Costs, limit: Limit) -> tuple[Path | None, float]:
    """The path of the optimal plan, None when it takes too long; and what every plan costs at least, as far as that is known.

    First with fewer atoms (`wake_of`). When a group of that path does not fit with what runs in its wake, those operators
    become atoms of their own.
    """
    problem, least = costs.problem, 0.0
    wake = wake_of(problem) if costs.in_bytes else {}
    while True:
        path = Path(atoms_of(problem, wake))
        try:
            shortest_path(costs, limit, path)
        except LimitReached:
            return None, max(least, path.least)
        loose = 0
        for group in path.groups(path.goal):
            if not costs.fits(group):
                loose |= group
        if not loose:
            return path, path.least
        least = max(least, path.least)
        wake = {v: before for v, before in wake.items() if not loose >> v & 1}


def compulsory_bound(costs: Costs, cut: int = 0) -> float:
    """What any plan costs at least: everything as one group that fits, weights once and only unavoidable tensors, and `cut`
    elements that every plan moves beside those."""
    problem, growth, floor = costs.problem, growth_of(costs.problem), costs.empty()
    for node in bits_of(problem.fuseable):
        growth.push(node)
    floor.dram_known[problem.fuseable] = (growth.least + cut) * problem.scheme.bits // 8
    return floor.cost(problem.fuseable)


class _Clock:
    def __init__(self) -> None:
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started


class _Shown:
    """The best plan known while the proof is under way: one order cut where it is best, or a quick sample, when somebody first
    asks."""

    def __init__(self, costs: Costs, progress: Progress | None) -> None:
        self._costs, self._progress = costs, progress
        self._found: Result | None = None

    def best(self, interrupted: bool = False) -> Result:
        """The plan; without fusion when there was no time for any."""
        if self._found is None:
            problem, rng = self._costs.problem, np.random.default_rng(0)
            groups = None if interrupted else cut_order(self._costs, drawn_order(problem, rng))
            if groups is None and not interrupted:
                self._found = local_search(self._costs, Budget(_QUICK_PLANS), rng)
                return self._found
            groups = groups or problem.ordered(problem.singletons())
            assert groups is not None
            self._found = _result(groups, self._costs.total(groups), None, 0.0, "")
        return self._found

    def tell(self) -> None:
        """Report it."""
        if self._progress is not None:
            found = self.best()
            self._progress(found.plans_evaluated, found.cost)


def _result(groups: tuple[int, ...], cost: float, bound: float | None, seconds: float, note: str) -> Result:
    """A plan, proven when there is a bound."""
    return Result(
        groups=groups,
        cost=cost,
        lower_bound=bound,
        optimal=bound is not None,
        plans_evaluated=1,
        history=((1, cost),),
        rectified=0,
        invalid=0,
        seconds=seconds,
        interrupted=False,
        notes=(note,),
    )
