"""Random search, local search and NSGA-II: right plans, the same for the same seed, stopped when they should be."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from tests.accel.pinned import OPTIMA, pinned, pinned_graph

from fusewise.accel.check import check
from fusewise.accel.estimate import objective_named
from fusewise.accel.explain.candidates import EdgeShare
from fusewise.accel.explain.heuristics import CONTROLS
from fusewise.accel.hardware import hardware_named
from fusewise.accel.plan import plan_of
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.schemes.scheme import Scheme
from fusewise.accel.search.catalogue import search_named
from fusewise.accel.search.local import LocalMoves, local_search
from fusewise.accel.search.nsga2 import nsga2_search
from fusewise.accel.search.random_search import random_search
from fusewise.accel.search.repair import Repair
from fusewise.accel.search.result import Result, SearchBudget
from fusewise.accel.search.space import Grouping, GroupingSpace
from fusewise.accel.split.recursive import RecursiveSplitter
from fusewise.errors import NoFeasiblePlan, UsageError

Search = Callable[..., Result]
SEARCHES: dict[str, Search] = {"random": random_search, "local": local_search, "nsga2": nsga2_search}
CHIP = hardware_named("edge-128k")


def costs_of(name: str, scheme: Scheme | None = None, kib: int = 128) -> GroupCosts:
    return GroupCosts(Problem(pinned(name), scheme or LBDF(), kib << 10))


def repair_of(costs: GroupCosts, control: str, part: float = 0.1) -> Repair:
    return Repair(costs, RecursiveSplitter(costs, CONTROLS[control](5), EdgeShare(part, 1), seed=6))


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("scheme", [LBDF(), BRR()], ids=["lbdf", "brr"])
@pytest.mark.parametrize("control", [None, "smallest", "all"])
def test_plans_pass_the_check(search: Search, scheme: Scheme, control: str | None) -> None:
    costs = costs_of("squeezenet1_1", scheme)
    repair = repair_of(costs, control) if control else None
    found = search(costs, SearchBudget(95), np.random.default_rng(1), repair)
    plan = plan_of(costs, found.groups, CHIP)
    check(plan, pinned_graph("squeezenet1_1"))
    assert [sum(1 << v for v in group.operators) for group in plan.groups] == list(
        costs.problem.ordered(found.groups) or ()
    )
    assert found.plans_evaluated == 95 and found.cost == costs.total(found.groups)
    assert not found.interrupted and not found.optimal and found.lower_bound is None
    plans, best = zip(*found.history, strict=True)
    assert (
        list(plans) == sorted(set(plans)) and list(best) == sorted(set(best), reverse=True) and best[-1] == found.cost
    )
    assert found.invalid > 0
    assert found.rectified == (found.invalid if control else 0)
    assert found.rectified_once == {None: 0, "all": found.invalid}.get(control, found.rectified_once) <= found.invalid


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_the_seed_alone_decides(search: Search) -> None:
    def run(seed: int) -> Result:
        costs = costs_of("mobilenet_v2")
        return search(costs, SearchBudget(120), np.random.default_rng(seed), repair_of(costs, "random"))

    np.random.seed(1)  # noqa: NPY002 - nobody must draw from the generator that all share
    one = run(3)
    np.random.seed(2)  # noqa: NPY002
    two = run(3)
    assert (one.groups, one.history, one.invalid, one.rectified) == (
        two.groups,
        two.history,
        two.invalid,
        two.rectified,
    )
    assert run(4).history != one.history


def optimum_bytes(name: str, kib: int) -> float:
    return float(OPTIMA["optimum_kib"][name][OPTIMA["buffers_kib"].index(kib)]) * 1024


@pytest.mark.parametrize("name, kib", [("squeezenet1_1", 128), ("mobilenet_v2", 128), ("resnet18", 256)])
def test_searches_come_near_the_optimum_and_never_below(name: str, kib: int) -> None:
    optimum = optimum_bytes(name, kib)
    gaps = {}
    for label, search in SEARCHES.items():
        costs = costs_of(name, kib=kib)
        gaps[label] = (
            search(costs, SearchBudget(800), np.random.default_rng(0), repair_of(costs, "smallest", 0.3)).cost / optimum
            - 1
        )
    assert min(gaps.values()) > -1e-4, "the pinned optima are rounded to a tenth of a KiB"
    assert gaps["local"] < 0.05 and gaps["nsga2"] < 0.05


@pytest.mark.parametrize(
    "seed", [0, 1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_local_search_on_efficientnet_b3_is_within_one_per_cent(seed: int) -> None:
    optimum = optimum_bytes("efficientnet_b3", 256)
    found = local_search(costs_of("efficientnet_b3", kib=256), SearchBudget(5000), np.random.default_rng(seed))
    assert found.plans_evaluated == 5000 and found.cost < 1.01 * optimum


def test_local_search_takes_plans_to_start_from() -> None:
    costs = costs_of("mobilenet_v2")
    good = local_search(costs, SearchBudget(800), np.random.default_rng(0))
    found = local_search(
        costs, SearchBudget(20), np.random.default_rng(1), starts=[good.groups, costs.problem.singletons()]
    )
    assert found.history[0] == (1, good.cost) and found.cost <= good.cost and found.plans_evaluated == 20


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_an_interrupted_search_gives_the_best_so_far(search: Search) -> None:
    costs = costs_of("squeezenet1_1")
    seen = []

    def progress(plans: int, best: float) -> None:
        seen.append((plans, best))
        if plans >= 60:
            raise KeyboardInterrupt

    found = search(costs, SearchBudget(), np.random.default_rng(0), None, progress)
    assert found.interrupted and 60 <= found.plans_evaluated < 200
    assert seen[-1] == (found.plans_evaluated, found.cost)
    check(plan_of(costs, found.groups, CHIP), pinned_graph("squeezenet1_1"))


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_interrupted_before_the_first_plan_nothing_is_fused(search: Search) -> None:
    def interrupted(groups: object) -> None:
        raise KeyboardInterrupt

    costs = costs_of("squeezenet1_1")
    found = search(costs, SearchBudget(10), np.random.default_rng(0), Repair(costs, interrupted))  # type: ignore[arg-type]
    assert found.interrupted and found.plans_evaluated == 0
    assert set(found.groups) == set(costs.problem.singletons())


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_seconds_end_a_search(search: Search) -> None:
    found = search(costs_of("squeezenet1_1"), SearchBudget(seconds=0.0), np.random.default_rng(0))
    assert not found.interrupted and 0 < found.plans_evaluated <= 50


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_budgets_smaller_than_a_step_are_kept(search: Search) -> None:
    for plans in (1, 7):
        assert search(costs_of("resnet18"), SearchBudget(plans), np.random.default_rng(0)).plans_evaluated == plans


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_any_objective_can_be_minimised(search: Search) -> None:
    for name in ("energy", "latency"):
        costs = GroupCosts(Problem(pinned("resnet18"), LBDF(), 128 << 10), objective_named(name, CHIP))
        found = search(costs, SearchBudget(60), np.random.default_rng(0))
        assert found.cost == pytest.approx(costs.total(found.groups), rel=1e-12)
        assert found.cost < costs.total(costs.problem.singletons())


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_nothing_to_plan_is_said(search: Search) -> None:
    with pytest.raises(NoFeasiblePlan, match="smallest buffer"):
        search(GroupCosts(Problem(pinned("resnet18"), LBDF(), 100)), SearchBudget(10), np.random.default_rng(0))


def test_without_pymoo_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymoo.algorithms.moo.nsga2", None)
    with pytest.raises(UsageError, match=r"fusewise\[search\]"):
        nsga2_search(costs_of("resnet18"), SearchBudget(10), np.random.default_rng(0))


def test_more_parents_and_other_populations_are_allowed() -> None:
    for search in (partial(local_search, moves=LocalMoves(parents=4)), partial(nsga2_search, population=6)):
        assert search(costs_of("resnet18"), SearchBudget(40), np.random.default_rng(0)).plans_evaluated == 40


def test_local_search_makes_as_many_edits_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """By one edit each, the published move; by three; or now and then a few."""
    made, edited = [0], GroupingSpace.edited

    def counted(self: GroupingSpace, groups: Grouping, rng: np.random.Generator) -> list[int]:
        made[0] += 1
        return edited(self, groups, rng)

    monkeypatch.setattr(GroupingSpace, "edited", counted)
    for edits in (1, 3):
        made[0] = 0
        search_named("local", edits=edits)(
            costs := costs_of("resnet18"), SearchBudget(110), np.random.default_rng(0), Repair(costs), None
        )
        assert made[0] == 100 * edits
    made[0] = 0
    local_search(costs_of("resnet18"), SearchBudget(110), np.random.default_rng(0))
    assert 110 < made[0] < 250


def test_edits_are_refused_where_they_mean_nothing() -> None:
    with pytest.raises(UsageError, match="nsga2 search takes no edits"):
        search_named("nsga2", edits=1)
    with pytest.raises(UsageError, match="by 1 edit or more"):
        search_named("local", edits=0)
