"""Random search: plans drawn independently, the best kept. The weakest of the published searches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusewise.accel.problem import GroupCosts
from fusewise.accel.search.repair import Repair
from fusewise.accel.search.result import Result, SearchBudget
from fusewise.accel.search.run import Progress, Run, conclude

__all__ = ["random_search"]

_BATCH = 50


def random_search(
    costs: GroupCosts,
    budget: SearchBudget,
    rng: np.random.Generator,
    repair: Repair | None = None,
    progress: Progress | None = None,
) -> Result:
    """The best of `budget.plans` random plans. `repair` splits what does not fit, by default at random.

    `NoFeasiblePlan` when there is no operator to plan.
    """
    repair = repair or Repair(costs, seed=int(rng.integers(1 << 62)))
    run = Run(costs, budget, repair, progress)

    def steps() -> Iterator[None]:
        while True:
            run.evaluate([repair.space.random(rng) for _ in range(run.left(_BATCH))])
            yield

    return conclude(run, steps())
