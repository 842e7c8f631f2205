"""Local search: K plans, each changed by a random edit or a few at a time, the best K different ones kept.

As published, every plan is changed by one edit at a time; here that is an option.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fusewise.accel.problem import GroupCosts
from fusewise.accel.search.repair import Repair
from fusewise.accel.search.result import Result, SearchBudget
from fusewise.accel.search.run import EvaluatedPlan, Progress, Run, conclude
from fusewise.accel.search.space import Grouping, GroupingSpace
from fusewise.records import record

__all__ = ["LocalMoves", "local_search"]

_AGAIN = 0.35
"""How often an edited plan is edited once more before it is evaluated."""


@record(frozen=True)
class LocalMoves:
    """How local search moves: as many plans kept as there are `parents` (K), and each changed by so many `edits` before it is
    evaluated; by default one, and now and then a few."""

    parents: int = 10
    edits: int | None = None


def local_search(
    costs: GroupCosts,
    budget: SearchBudget,
    rng: np.random.Generator,
    repair: Repair | None = None,
    progress: Progress | None = None,
    *,
    moves: LocalMoves | None = None,
    starts: Sequence[Grouping] = (),
) -> Result:
    """The best plan found from random ones, or from `starts`. `repair` splits what does not fit, by default at random.

    `NoFeasiblePlan` when there is no operator to plan.
    """
    repair = repair or Repair(costs, seed=int(rng.integers(1 << 62)))
    parents, edits = (moves or LocalMoves()).parents, (moves or LocalMoves()).edits
    space, run = repair.space, Run(costs, budget, repair, progress)

    def steps() -> Iterator[None]:
        first = list(starts) or [space.random(rng) for _ in range(parents)]
        kept = _best(run.evaluate(first[: run.left(len(first))]), parents)
        yield
        while True:
            edited = [_edited(space, tried.groups, rng, edits) for tried in kept[: run.left(len(kept))]]
            kept = _best([*kept, *run.evaluate(edited)], parents)
            yield

    return conclude(run, steps())


def _edited(space: GroupingSpace, groups: Grouping, rng: np.random.Generator, edits: int | None) -> list[int]:
    """So many random edits; by default one, sometimes another on top, and so on: what only two edits together make better is
    found as well."""
    found, done = space.edited(groups, rng), 1
    while (rng.random() < _AGAIN) if edits is None else done < edits:
        found, done = space.edited(found, rng), done + 1
    return found


def _best(tried: list[EvaluatedPlan], number: int) -> list[EvaluatedPlan]:
    """The cheapest different plans of a list from old to new, in the same order; among equals the newer ones, so that a search
    on a plateau wanders."""
    kept: dict[frozenset[int], EvaluatedPlan] = {}
    for _, _, one in sorted((one.cost, -age, one) for age, one in enumerate(tried)):
        kept.setdefault(frozenset(one.groups), one)
        if len(kept) == number:
            break
    return list(kept.values())[::-1]
