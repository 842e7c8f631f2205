"""Splitting by explanation against the algorithm written down literally, and splitting at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.accel.pinned import pinned, random_group

from fusewise.accel.bits import is_connected
from fusewise.accel.estimate import objective_named
from fusewise.accel.explain.candidates import EdgeShare, candidates
from fusewise.accel.explain.explainer import Edge, Explainer, Explanation, one_by_one
from fusewise.accel.explain.heuristics import CONTROLS, all_edges
from fusewise.accel.hardware import hardware_named
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.schemes.scheme import Scheme
from fusewise.accel.search.space import GroupingSpace
from fusewise.accel.split.bounds import GroupBounds
from fusewise.accel.split.cut import Cutter
from fusewise.accel.split.random import random_splitter
from fusewise.accel.split.recursive import ASKING, RecursiveSplitter
from fusewise.accel.split.splitter import Splitting
from fusewise.errors import UsageError

NETWORKS = ("mobilenet_v2", "squeezenet1_1", "efficientnet_b0", "inception_v3")


def setting(name: str, *, brr: bool = False, number: int = 25, most: int = 30) -> tuple[GroupCosts, list[int]]:
    """A problem and groups of it that do not fit."""
    costs = GroupCosts(Problem(pinned(name), BRR() if brr else LBDF(), 128 << 10))
    rng, found = random.Random(name), []
    while len(found) < number:
        group = random_group(costs.problem.network, rng, most, costs.problem.fuseable)
        if not costs.fits(group):
            found.append(group)
    return costs, found


def check_parts(costs: GroupCosts, splitting: Splitting) -> None:
    """The parts make up the group, fit, hang together, and each reads only from those before it."""
    network, done = costs.problem.network, 0
    for part in splitting.parts:
        assert costs.fits(part) and is_connected(network.neighbours, part) and not part & done
        done |= part
        assert not any(network.ancestors[v] & splitting.group & ~done for v in range(len(network)) if done >> v & 1)
    assert done == splitting.group


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("brr", [False, True])
def test_parts_are_legal_however_they_were_found(name: str, brr: bool) -> None:
    costs, groups = setting(name, brr=brr, number=12)
    splitters = [random_splitter(costs, 1)]
    for asking in ASKING:
        splitters += [
            RecursiveSplitter(costs, CONTROLS[control](1), EdgeShare(0.1, 1), asking=asking)
            for control in ("random", "smallest", "all")
        ]
    for split in splitters:
        found = split(groups)
        assert [splitting.group for splitting in found] == groups
        for splitting in found:
            check_parts(costs, splitting)


EdgesOf = Callable[[int], tuple[Edge, ...]]


def literal(costs: GroupCosts, group: int, edges_of: EdgesOf) -> list[int] | None:
    """Algorithm 1 line by line, its recursion and all, without memory or bounds; None where a part has no edge left."""
    first, second, third = [], [], []
    for split in sorted(Cutter(costs.problem.network, group).cuts(edges_of(group))):
        if costs.fits(split.before) and costs.fits(split.after):
            first.append(split)
        elif costs.fits(split.before) or costs.fits(split.after):
            second.append(split)
        else:
            third.append(split)
    if first:
        return list(min(first, key=costs.total))
    if second:
        valid = [(half, split) for split in second for half in split if costs.fits(half)]
        most = max(half.bit_count() for half, _ in valid)
        held, split = next((half, split) for half, split in valid if half.bit_count() == most)
        rest = literal(costs, sum(split) - held, edges_of)
        return None if rest is None else [held, *rest] if held == split.before else [*rest, held]
    found = []
    for split in third:
        halves = [literal(costs, half, edges_of) for half in split]
        if halves[0] is not None and halves[1] is not None:
            found.append(halves[0] + halves[1])
    return min(found, key=costs.total, default=None)


CASES = [("all", 1.0), ("smallest", 0.3), ("random", 0.1), ("spread", 0.2)]


def edges_asked(costs: GroupCosts, group: int, explain: Explainer, share: EdgeShare, asking: str) -> EdgesOf:
    """The edges of any part of a group: those of its own explanation, or what it holds of the group's."""

    def anew(part: int) -> tuple[Edge, ...]:
        return candidates(costs.problem.network, explain(costs, [part])[0], share)

    first = anew(group)
    return anew if asking == "anew" else lambda part: tuple((u, v) for u, v in first if part >> u & part >> v & 1)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("control, part", CASES)
@pytest.mark.parametrize("asking", ASKING)
def test_the_algorithm_is_the_published_one(name: str, control: str, part: float, asking: str) -> None:
    costs, groups = setting(name, number=15, most=20)
    share, explain = EdgeShare(part, 1), CONTROLS[control](5)
    for splitting in RecursiveSplitter(costs, explain, share, asking=asking)(groups):
        expected = literal(costs, splitting.group, edges_asked(costs, splitting.group, explain, share, asking))
        once = literal(costs, splitting.group, edges_asked(costs, splitting.group, explain, share, "once"))
        assert splitting.rectified == (expected is not None) and splitting.rectified_once == (once is not None)
        assert splitting.candidates == candidates(costs.problem.network, explain(costs, [splitting.group])[0], share)
        if expected is not None:
            assert costs.total(splitting.parts) == costs.total(expected)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from((*NETWORKS, "resnet50")), st.integers(0, 10**6), st.sampled_from(("dram", "energy", "latency")))
def test_no_split_costs_less_than_its_bound(name: str, seed: int, objective: str) -> None:
    """Whatever the scheme and the objective, for splits at random and by every edge."""
    rng, chip = random.Random(seed), hardware_named("edge-128k")
    scheme: Scheme = BRR() if seed % 2 else LBDF(bits=rng.choice((4, 8, 16)))
    costs = GroupCosts(Problem(pinned(name), scheme, 64 << 10), objective_named(objective, chip))
    group = random_group(costs.problem.network, rng, 25, costs.problem.fuseable)
    bound = GroupBounds(costs)
    for splitter in (random_splitter(costs, seed), RecursiveSplitter(costs, all_edges())):
        (splitting,) = splitter([group])
        assert costs.fits(group) or len(splitting.parts) > 1
        assert costs.total(splitting.parts) >= bound(group) * (1 - 1e-12)


def test_the_third_category_is_followed_at_every_level() -> None:
    """Groups of random plans need several splits whose halves do not fit, one below the other; few parts are looked at."""
    costs = GroupCosts(Problem(pinned("mobilenet_v2"), LBDF(), 128 << 10))
    space, rng, asked = GroupingSpace(costs.problem), np.random.default_rng(1), list[int]()
    plans = [space.ordered(space.random(rng)) for _ in range(40)]
    groups = list(dict.fromkeys(group for plan in plans for group in plan if not costs.fits(group)))
    explain, share = CONTROLS["random"](1), EdgeShare(0.1, 1)

    def recorded(costs: GroupCosts, groups: Sequence[int]) -> Sequence[Explanation]:
        asked.extend(groups)
        return explain(costs, groups)

    splittings = RecursiveSplitter(costs, recorded, share)(groups)
    deep = [one for one in splittings if any(step.category == 3 and step.group != one.group for step in one.steps)]
    assert len(deep) > 5 and len(asked) == len(set(asked)) < 5 * len(groups)
    for one in [one for one in deep if one.group.bit_count() < 24]:
        expected = literal(costs, one.group, edges_asked(costs, one.group, explain, share, "anew"))
        assert expected is not None and costs.total(expected) == costs.total(one.parts)


def test_explaining_every_part_anew_always_succeeds() -> None:
    """Any edge gives a legal split, so chance is needed only when there is no edge at all."""
    costs, groups = setting("mobilenet_v2", number=40)
    once = RecursiveSplitter(costs, CONTROLS["random"](2), EdgeShare(0.1, 1), asking="once")(groups)
    anew = RecursiveSplitter(costs, CONTROLS["random"](2), EdgeShare(0.1, 1))(groups)
    assert all(splitting.rectified for splitting in anew)
    assert [splitting.rectified for splitting in once] == [splitting.rectified_once for splitting in anew]
    assert 0 < sum(splitting.rectified for splitting in once) < len(groups)


def test_without_an_explanation_chance_decides_and_nothing_is_rectified() -> None:
    costs, groups = setting("mobilenet_v2", number=5)
    silent: Explainer = one_by_one(lambda costs, group: Explanation(group, ()))
    for splitting in RecursiveSplitter(costs, silent)(groups):
        check_parts(costs, splitting)
        assert not splitting.rectified and not splitting.rectified_once and not splitting.candidates
        assert all(step.edge is None for step in splitting.steps)


def test_a_group_is_split_the_same_way_in_any_company() -> None:
    costs, groups = setting("efficientnet_b0", number=10)
    for make in (
        lambda: RecursiveSplitter(costs, all_edges()),
        lambda: RecursiveSplitter(costs, CONTROLS["random"](3), EdgeShare(0.1, 1), seed=4, asking="once"),
        lambda: random_splitter(costs, 4),
    ):
        together = make()(groups)
        assert [make()([group])[0] for group in groups] == list(together)


def test_another_way_to_ask_is_refused() -> None:
    with pytest.raises(UsageError, match="anew or once, not 'always'"):
        RecursiveSplitter(setting("mobilenet_v2", number=1)[0], all_edges(), asking="always")


def test_steps_form_the_tree_from_the_group_to_its_parts() -> None:
    costs, groups = setting("efficientnet_b0", number=10)
    for splitting in RecursiveSplitter(costs, CONTROLS["smallest"](0), EdgeShare(0.2, 1))(groups):
        open_ends = {splitting.group}
        for step in splitting.steps:
            open_ends.remove(step.group)
            open_ends |= {step.before, step.after}
            if step.edge is not None:
                assert step.category == 3 - costs.fits(step.before) - costs.fits(step.after)
        if splitting.rectified:
            assert open_ends == set(splitting.parts)
