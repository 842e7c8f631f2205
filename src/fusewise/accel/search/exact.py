"""Exact search: the plan of least cost, proven; where the network is too wide for a proof, a good plan and a bound.

The shortest path over ideals (`exact_path`) proves the optimum for networks that are nearly chains, which almost all are. It
stops at a number of steps. Then a plan is composed of groups that column generation finds (`exact_columns`), which also gives a
bound, mostly within some parts in a thousand. Where that cannot be, a plan is sampled, and the bound is what every plan must move
at least. A plan far from its bound is improved window by window (`exact_windows`), each solved exactly.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fusewise.accel.feasible import require_feasible
from fusewise.accel.problem import GroupCosts
from fusewise.accel.schemes.scheme import bytes_for
from fusewise.accel.search.exact_atoms import atoms_of, wake_of
from fusewise.accel.search.exact_columns import composed
from fusewise.accel.search.exact_layers import layered
from fusewise.accel.search.exact_orders import cut_order, drawn_order
from fusewise.accel.search.exact_path import Limit, LimitReached, Path, shortest_path
from fusewise.accel.search.exact_traffic import moved_once
from fusewise.accel.search.exact_windows import improved
from fusewise.accel.search.local import local_search
from fusewise.accel.search.result import Result, SearchBudget
from fusewise.accel.search.run import Progress

__all__ = ["STEPS", "compulsory_bound", "exact_search"]

STEPS = 250_000
"""Groups to try before the search for a proof is given up: a minute at most. No proof known needs more than 245,000."""

_BLIND_STEPS = 25_000
"""Of these, how many before a plan is looked for that tells which groups need not be tried, where groups are priced last."""

_PROOF_SHARE, _ORDERS_SHARE, _COLUMNS_SHARE, _CHOICE_SHARE = 0.15, 0.25, 0.75, 0.9
"""Of the seconds of a budget, the share that may go into the proof, and until when plans cut from orders, column generation, and
the choice of groups must be done."""

_LONG_PROOF_SHARE = 0.75
"""The share that may go into the proof where there is no column generation."""

_CHOICE_SECONDS = 30.0
"""For the choice of groups when the budget has no seconds."""

_ORDERS, _SAMPLED_PLANS, _SAMPLES = 4, 5000, 6
"""Orders that are cut to begin with; plans of a local search where none are composed, and how many searches there are at most."""

_LEAST = "what every plan must move at least"
"""How the bound is known that needs no search."""

_NEAR = 1.005
"""A plan within so many times its bound is not improved further."""

_QUICK_PLANS = 300
"""Plans of the local search that gives something to show while the proof is under way, where no order can be cut."""


def exact_search(
    costs: GroupCosts, budget: SearchBudget | None = None, progress: Progress | None = None, *, steps: int = STEPS
) -> Result:
    """The optimal plan, or the best found and a lower bound when `steps` or the budget's seconds do not suffice.

    Works for any objective that adds up over groups, does not fall when a group moves more bytes, and is not larger for two
    groups as one that moves as much as both. The budget's plans limit the windows solved after the proof was given up.
    `progress` is told the cost of the best plan known. `NoFeasiblePlan` when there is no operator to plan. Interrupted, it
    gives the best so far.
    """
    require_feasible(costs.problem)
    clock, limits, shown = _Clock(), budget or SearchBudget(), _Shown(costs, progress)
    share = _PROOF_SHARE if layered(costs.problem) else _LONG_PROOF_SHARE

    def stop() -> bool:
        shown.tell()
        return clock.past(limits, share)()

    limit, interrupted = Limit(steps, stop), False
    least: float = 0
    try:
        path, least = _proven(costs, limit, shown)
        if path is not None:
            cost = path.settled[path.goal][0]
            note = f"proven over {len(path.settled)} ideals and {path.transitions} groups"
            return _result(path.groups(path.goal), cost, cost, clock.seconds, note)
    except KeyboardInterrupt:
        interrupted = True
    best, note = shown.best(interrupted), f"no proof within {limit.taken} groups"
    best, moved, how = _composed(costs, best, limits, clock, progress) if not interrupted else (best, 0, _LEAST)
    bound = compulsory_bound(costs, moved)
    if least > bound:
        bound, how = least, "that of the path by bounds of its groups"
    if not interrupted and not best.interrupted and best.cost > _NEAR * bound:
        best = improved(costs, best, limits.plans, clock.past(limits, 1.0), progress)
    best = replace(best, interrupted=interrupted or best.interrupted)
    note = f"proven: the bound is {how}" if best.cost <= bound else f"{note}: the bound is {how}"
    return _ended(best, bound, clock.seconds, note)


def _composed(
    costs: GroupCosts, first: Result, limits: SearchBudget, clock: _Clock, progress: Progress | None
) -> tuple[Result, int, str]:
    """A plan no worse, composed by column generation or sampled; elements that every plan moves at least, and how that is known."""
    starts, rng, how = list[tuple[int, ...]](), np.random.default_rng(0), _LEAST

    def told() -> None:
        if progress is not None:
            progress(len(starts), min(first.cost, *map(costs.total, starts), math.inf))

    try:
        while len(starts) < _ORDERS and not clock.past(limits, _ORDERS_SHARE)():
            groups = cut_order(costs, drawn_order(costs.problem, rng))
            if groups is None:
                break
            starts.append(groups)
            told()
    except KeyboardInterrupt:
        return replace(_cheapest(first, costs, starts), interrupted=True), 0, how
    best, moved = _cheapest(first, costs, starts), 0
    try:
        stop, seconds = clock.past(limits, _COLUMNS_SHARE), clock.left(limits, _CHOICE_SHARE, _CHOICE_SECONDS)
        found = composed(costs, [first.groups, *starts], stop, seconds, told)
        moved, how = found.bound, "that of a linear programme" if found.bound else how
        best = replace(_cheapest(best, costs, [found.groups or best.groups]), interrupted=found.interrupted)
    except ImportError:
        how += "; a better one takes HiGHS (install fusewise[search])"
    if not moved and not best.interrupted:
        best = _sampled(costs, best, bool(starts), limits, clock, progress)
    return best, moved, how


def _sampled(
    costs: GroupCosts, best: Result, begin: bool, limits: SearchBudget, clock: _Clock, progress: Progress | None
) -> Result:
    """A plan no worse, by local search: from random plans first unless it is to `begin` with the best; then on from the best one,
    as long as that helps."""
    rng = np.random.default_rng(0)
    for turn in range(_SAMPLES):
        if clock.past(limits, _COLUMNS_SHARE)():
            break
        budget = SearchBudget(
            _SAMPLED_PLANS, None if limits.seconds is None else clock.left(limits, _COLUMNS_SHARE, 0.0)()
        )
        starts = [best.groups] if turn or begin else []
        found = local_search(costs, budget, rng, progress=progress, starts=starts)
        helped, best = (
            found.cost < best.cost,
            replace(_cheapest(found, costs, [best.groups]), interrupted=found.interrupted),
        )
        if best.interrupted or (turn and not helped):
            break
    return best


def _cheapest(best: Result, costs: GroupCosts, plans: Sequence[tuple[int, ...]]) -> Result:
    """The cheapest of several plans."""
    groups = min([best.groups, *plans], key=costs.total)
    cost = costs.total(groups)
    more = ((best.plans_evaluated, cost),) if cost < best.cost else ()
    return replace(best, groups=groups, cost=cost, history=(*best.history, *more))


def _ended(found: Result, bound: float, seconds: float, note: str) -> Result:
    """The plan with its bound."""
    bound = min(bound, found.cost)
    return replace(found, lower_bound=bound, optimal=found.cost == bound, seconds=seconds, notes=(note,))


def _proven(costs: GroupCosts, limit: Limit, shown: _Shown) -> tuple[Path | None, float]:
    """The path of the optimal plan, None when it takes too long; and what every plan costs at least, as far as that is known.

    Where groups are priced last, and there are many, it takes a good plan first, which bounds what is worth trying.
    """
    steps = limit.steps
    if layered(costs.problem) or not costs.in_bytes or steps is None or steps <= _BLIND_STEPS:
        return _proof(costs, limit)
    limit.steps = _BLIND_STEPS
    path, least = _proof(costs, limit)
    if path is not None or limit.taken <= _BLIND_STEPS or limit.hopeless:
        return path, least
    shown.offer(local_search(costs, SearchBudget(_SAMPLED_PLANS), np.random.default_rng(0), progress=shown.progress))
    limit.steps = steps
    path, more = _proof(costs, limit, shown.best().cost)
    return path, max(least, more)


def _proof(costs: GroupCosts, limit: Limit, at_most: float = math.inf) -> tuple[Path | None, float]:
    """As `_proven`, among the plans that cost `at_most` so much.

    First with fewer atoms (`wake_of`). When a group of that path does not fit with what runs in its wake, those operators
    become atoms of their own.
    """
    problem, least = costs.problem, 0.0
    wake = wake_of(costs) if costs.in_bytes else {}
    while True:
        path = Path(atoms_of(problem, wake))
        try:
            shortest_path(costs, limit, path, at_most)
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


def compulsory_bound(costs: GroupCosts, moved: int = 0) -> float:
    """What any plan costs at least: everything as one group that fits, weights once and only unavoidable tensors; or `moved`
    elements, when every plan is known to move as many."""
    problem, floor = costs.problem, costs.empty()
    least = max(moved_once(problem, problem.fuseable), bytes_for(moved, problem.scheme.bits))
    floor.dram_known[problem.fuseable] = least
    return floor.cost(problem.fuseable)


class _Clock:
    def __init__(self) -> None:
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    def past(self, budget: SearchBudget, share: float) -> Callable[[], bool]:
        """Has this share of the budget's seconds gone?"""
        return lambda: budget.seconds is not None and self.seconds >= share * budget.seconds

    def left(self, budget: SearchBudget, share: float, without: float) -> Callable[[], float]:
        """Seconds until this share of the budget's has gone; so many `without` any."""
        return lambda: without if budget.seconds is None else max(0.1, share * budget.seconds - self.seconds)


class _Shown:
    """The best plan known while the proof is under way: one order cut where it is best, or a quick sample, when somebody first
    asks."""

    def __init__(self, costs: GroupCosts, progress: Progress | None) -> None:
        self._costs, self.progress = costs, progress
        self._found: Result | None = None

    def offer(self, found: Result) -> None:
        """A plan that somebody found; `KeyboardInterrupt` when the user interrupted that."""
        if self._found is None or found.cost < self._found.cost:
            self._found = replace(found, interrupted=False)
        if found.interrupted:
            raise KeyboardInterrupt

    def best(self, interrupted: bool = False) -> Result:
        """The plan; without fusion when there was no time for any."""
        if self._found is None:
            problem, rng = self._costs.problem, np.random.default_rng(0)
            groups = None if interrupted else cut_order(self._costs, drawn_order(problem, rng))
            if groups is None and not interrupted:
                self._found = local_search(self._costs, SearchBudget(_QUICK_PLANS), rng)
                return self._found
            groups = groups or problem.ordered(problem.singletons())
            assert groups is not None
            self._found = _result(groups, self._costs.total(groups), None, 0.0, "")
        return self._found

    def tell(self) -> None:
        """Report it."""
        if self.progress is not None:
            found = self.best()
            self.progress(found.plans_evaluated, found.cost)


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
        rectified_once=0,
        invalid=0,
        seconds=seconds,
        interrupted=False,
        notes=(note,),
    )
