"""What all sampling searches share: plans are proposed, repaired and counted, the best is kept, and the search stops in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from fusewise.accel.feasible import require_feasible
from fusewise.accel.problem import GroupCosts
from fusewise.accel.search.repair import Repair
from fusewise.accel.search.result import Result, SearchBudget
from fusewise.accel.search.space import Grouping

__all__ = ["EvaluatedPlan", "Progress", "Run", "conclude"]

Progress = Callable[[int, float], None]
"""Called now and then with the number of plans evaluated and the best cost so far."""

DEFAULT_PLANS = 5000
"""Plans to evaluate when a budget has no limit at all: these searches have no end of their own."""


class EvaluatedPlan(NamedTuple):
    """A plan that was evaluated."""

    cost: float
    groups: tuple[int, ...]


class Run:
    """The state of one search: what it may spend, what it spent, the best so far."""

    def __init__(
        self, costs: GroupCosts, budget: SearchBudget, repair: Repair, progress: Progress | None = None
    ) -> None:
        require_feasible(costs.problem)
        self.costs, self.budget, self.repair, self.progress = costs, budget, repair, progress
        self.evaluated = 0
        self.history: list[tuple[int, float]] = []
        self.best: EvaluatedPlan | None = None
        self._prices: dict[int, float] = {}
        self._started = time.perf_counter()
        self._plans = budget.plans if budget != SearchBudget() else DEFAULT_PLANS

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    @property
    def spent(self) -> bool:
        """Is the budget used up?"""
        over = self.budget.seconds is not None and self.seconds >= self.budget.seconds
        return over or (self._plans is not None and self.evaluated >= self._plans)

    def left(self, wanted: int) -> int:
        """How many of `wanted` plans may still be evaluated."""
        return wanted if self._plans is None else min(wanted, self._plans - self.evaluated)

    def evaluate(self, groupings: Sequence[Grouping]) -> list[EvaluatedPlan]:
        """Repair groupings into plans and price them; every one counts, a repeated one too."""
        found = [EvaluatedPlan(self._total(plan), plan) for plan in self.repair(groupings)]
        for tried in found:
            self.evaluated += 1
            if self.best is None or tried.cost < self.best.cost:
                self.best = tried
                self.history.append((self.evaluated, tried.cost))
        if self.progress is not None and self.best is not None:
            self.progress(self.evaluated, self.best.cost)
        return found

    def _total(self, plan: Sequence[int]) -> float:
        """`GroupCosts.total`, with prices at hand: neighbouring plans share nearly all groups."""
        prices = self._prices
        try:
            return sum(map(prices.__getitem__, plan))
        except KeyError:
            prices.update((group, self.costs.cost(group)) for group in plan if group not in prices)
            return sum(map(prices.__getitem__, plan))

    def result(self, *, interrupted: bool, notes: Sequence[str] = ()) -> Result:
        """What came of it; before the first plan was evaluated, that is the plan without fusion."""
        repair = self.repair
        if self.best is None:
            plan = repair.space.ordered(self.costs.problem.singletons())
            self.best = EvaluatedPlan(self.costs.total(plan), plan)
        return Result(
            groups=self.best.groups,
            cost=self.best.cost,
            lower_bound=None,
            optimal=False,
            plans_evaluated=self.evaluated,
            history=tuple(self.history),
            rectified=repair.rectified,
            rectified_once=repair.rectified_once,
            invalid=repair.invalid,
            seconds=self.seconds,
            interrupted=interrupted,
            notes=tuple(notes),
        )


def conclude(run: Run, steps: Iterator[None]) -> Result:
    """Take steps until they end or the budget is used up; the best so far when the user interrupts."""
    interrupted = False
    try:
        for _ in steps:
            if run.spent:
                break
    except KeyboardInterrupt:
        interrupted = True
    return run.result(interrupted=interrupted)
