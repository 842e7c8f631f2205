"""NSGA-II over the edges of the graph, through pymoo: DRAM traffic against use of the buffer.

A plan is a bit per edge, cut or kept; groups are what hangs together by kept edges, repaired. Crossing takes the cuts before
a place of the topological order from one parent and those after it from the other; mutation is one random edit of the
plan (`GroupingSpace.edited`). Objectives are the cost and the largest buffer need, the latter to be large; the cheapest
plan is the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fusewise.accel.problem import GroupCosts
from fusewise.accel.search.repair import Repair
from fusewise.accel.search.result import Result, SearchBudget
from fusewise.accel.search.run import EvaluatedPlan, Progress, Run, conclude
from fusewise.accel.search.space import GroupingSpace
from fusewise.errors import UsageError

__all__ = ["nsga2_search"]


def nsga2_search(
    costs: GroupCosts,
    budget: SearchBudget,
    rng: np.random.Generator,
    repair: Repair | None = None,
    progress: Progress | None = None,
    *,
    population: int = 10,
) -> Result:
    """The cheapest plan that a population of `population` (K) plans came upon. `repair` splits what does not fit, by default
    at random.

    `UsageError` without pymoo, `NoFeasiblePlan` when there is no operator to plan.
    """
    repair = repair or Repair(costs, seed=int(rng.integers(1 << 62)))
    space, run = repair.space, Run(costs, budget, repair, progress)
    if not space.edges:
        run.evaluate([costs.problem.singletons()])
        return run.result(interrupted=False, notes=("No two operators can be fused, so there is one plan only.",))
    algorithm = _algorithm(space, population, rng)

    def steps() -> Iterator[None]:
        while (asked := algorithm.ask()) is not None and len(asked):
            cuts = asked.get("X")[: run.left(len(asked))]
            tried = run.evaluate([space.grouping(cut) for cut in cuts])
            if len(tried) < len(asked):
                return
            asked.set("X", np.array([space.keys(one.groups) for one in tried]))
            _tell(algorithm, asked, np.array([_objectives(costs, one) for one in tried]))
            yield

    return conclude(run, steps())


def _objectives(costs: GroupCosts, tried: EvaluatedPlan) -> tuple[float, float]:
    return tried.cost, -float(max(map(costs.buffer_bytes, tried.groups)))


def _tell(algorithm: Any, asked: Any, values: np.ndarray) -> None:
    """Hand objectives, float64 (n, 2), back to pymoo."""
    from pymoo.core.evaluator import Evaluator
    from pymoo.problems.static import StaticProblem

    Evaluator().eval(StaticProblem(algorithm.problem, F=values), asked)
    algorithm.tell(infills=asked)


def _algorithm(space: GroupingSpace, population: int, rng: np.random.Generator) -> Any:
    """pymoo's NSGA-II with operators of ours, which draw from `rng` alone."""
    try:
        from pymoo.algorithms.moo.nsga2 import NSGA2
        from pymoo.core.crossover import Crossover
        from pymoo.core.mutation import Mutation
        from pymoo.core.problem import Problem
        from pymoo.core.termination import NoTermination
    except ImportError as error:
        raise UsageError(
            'NSGA-II runs through pymoo: pip install "fusewise[search]", or use another search.'
        ) from error

    class Crossing(Crossover):  # type: ignore[misc]
        def _do(self, problem: Any, parents: np.ndarray, *args: object, **options: object) -> np.ndarray:
            """(2, pairs, E) bool to the same."""
            children = parents.copy()
            places = rng.integers(1, parents.shape[2], size=(parents.shape[1],), endpoint=True).tolist()
            for pair, place in enumerate(places):
                children[:, pair, place:] = parents[::-1, pair, place:]
            return children

    class PlanEdit(Mutation):  # type: ignore[misc]
        def _do(self, problem: Any, cuts: np.ndarray, *args: object, **options: object) -> np.ndarray:
            """(n, E) bool to the same."""
            return np.array([space.keys(space.edited(space.ordered(space.grouping(cut)), rng)) for cut in cuts])

    first: Sequence[np.ndarray] = [space.keys(space.random(rng)) for _ in range(population)]
    algorithm = NSGA2(
        pop_size=population,
        sampling=np.array(first),
        crossover=Crossing(2, 2),
        mutation=PlanEdit(),
        eliminate_duplicates=True,
    )
    bits = Problem(n_var=len(space.edges), n_obj=2, xl=0, xu=1, vtype=bool)
    algorithm.setup(bits, termination=NoTermination(), seed=int(rng.integers(1 << 31)))
    return algorithm
