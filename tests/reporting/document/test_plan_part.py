"""The report's part about a plan: what it says of a boundary is true of the costs, and its options do what they promise."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import fusewise
from fusewise.accel.bits import mask_of
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.planning import Planning
from fusewise.reporting.document.plan import plan_part
from fusewise.words import bytes_of

SETTINGS: tuple[dict[str, Any], ...] = (
    {"search": "exact", "buffer": "128KiB"},
    {"search": "local", "plans": 60, "buffer": "128KiB", "explainer": "smallest"},
    {"search": "local", "plans": 60, "scheme_options": {"granularity": "row"}},
    {"search": "local", "plans": 40, "scheme": "brr", "objective": "energy"},
)


@pytest.fixture(scope="module", params=SETTINGS, ids=lambda one: "-".join(map(str, one.values())))
def found(request: pytest.FixtureRequest) -> Planning:
    return fusewise.plan("zoo:squeezenet1_1", progress=lambda what, share: None, **request.param)


def union_of(found: Planning, row: dict[str, Any]) -> int:
    groups = [mask_of(group.operators) for group in found.plan.groups]
    ends = ((row["before"], row["producer"]), (row["after"], row["consumer"]))
    return mask_of(()) | groups_or_alone(groups, ends[0]) | groups_or_alone(groups, ends[1])


def groups_or_alone(groups: list[int], end: tuple[int | None, int]) -> int:
    return 1 << end[1] if end[0] is None else groups[end[0]]


def test_figures_are_the_plans(found: Planning) -> None:
    told = plan_part(found)
    assert json.loads(json.dumps(told)) == told
    names = [operator.name for operator in found.plan.network.operators]
    assert [[*group["nodes"]] for group in told["groups"]] == [[*group.operators] for group in found.plan.groups]
    assert sum(group["dram_bytes"] for group in told["groups"]) == told["summary"]["dram_bytes"]
    assert len(told["boundaries"]) == len(found.boundaries) and len(told["splittings"]) == len(found.splittings)
    assert all(names[one["node"]] == one["name"] for one in told["excluded"])


def test_the_course_falls_to_the_cost(found: Planning) -> None:
    course = plan_part(found)["course"]
    seconds, plans, costs = zip(*course, strict=True)
    assert list(seconds) == sorted(seconds) and list(plans) == sorted(plans)
    assert list(costs) == sorted(costs, reverse=True) and costs[-1] == found.result.cost


def test_options_make_room(found: Planning) -> None:
    """The buffer that is named holds both sides as one, and none smaller does; a finer step and another scheme do, too."""
    problem, options = found.costs.problem, set()
    for row in plan_part(found)["boundaries"]:
        if row["option"] is None or row["reason"] not in ("too large", "excluded"):
            continue
        union = union_of(found, row)
        if row["reason"] == "excluded":
            alone = [
                1 << row[end] for end, group in (("producer", "before"), ("consumer", "after")) if row[group] is None
            ]
            union = max(alone, key=found.costs.buffer_bytes)
        word, value = row["option"].split()
        options.add(word)
        if word == "--buffer":
            least = bytes_of(value)
            assert GroupCosts(Problem(problem.network, problem.scheme, least)).fits(union)
            assert row["needs_bytes"] == least - 1 == found.costs.buffer_bytes(union)
        else:
            finer = replace(problem.scheme, granularity="pixel")  # type: ignore[type-var]
            assert value == "granularity=pixel"
            assert GroupCosts(Problem(problem.network, finer, problem.capacity)).fits(union)
    assert options


def test_parts_of_a_split_cover_it(found: Planning) -> None:
    for one in plan_part(found)["splittings"]:
        leaves = [node for part in one["parts"] if not part["split"] for node in part["nodes"]]
        assert sorted(leaves) == sorted(one["nodes"]) and one["parts"][0]["depth"] == 0
