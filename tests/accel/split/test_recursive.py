"""Splitting by explanation against the algorithm written down literally, and splitting at random."""

from __future__ import annotations

import random

import pytest
from tests.accel.pinned import pinned, random_group

from fusewise.accel.bits import is_connected
from fusewise.accel.explain.candidates import Share, candidates
from fusewise.accel.explain.explainer import Edge, Explainer, Explanation, one_by_one
from fusewise.accel.explain.heuristics import CONTROLS, all_edges
from fusewise.accel.problem import Costs, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.split.cut import Cutter
from fusewise.accel.split.random import random_splitter
from fusewise.accel.split.recursive import RecursiveSplitter
from fusewise.accel.split.splitter import Splitting

NETWORKS = ("mobilenet_v2", "squeezenet1_1", "efficientnet_b0", "inception_v3")


def setting(name: str, *, brr: bool = False, number: int = 25, most: int = 30) -> tuple[Costs, list[int]]:
    """A problem and groups of it that do not fit."""
    costs = Costs(Problem(pinned(name), BRR() if brr else LBDF(), 128 << 10))
    rng, found = random.Random(name), []
    while len(found) < number:
        group = random_group(costs.problem.network, rng, most, costs.problem.fuseable)
        if not costs.fits(group):
            found.append(group)
    return costs, found


def check_parts(costs: Costs, splitting: Splitting) -> None:
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
    for again in (False, True):
        splitters += [
            RecursiveSplitter(costs, CONTROLS[control](1), Share(0.1, 1), again=again)
            for control in ("random", "smallest", "all")
        ]
    for split in splitters:
        found = split(groups)
        assert [splitting.group for splitting in found] == groups
        for splitting in found:
            check_parts(costs, splitting)


def literal(costs: Costs, group: int, edges: tuple[Edge, ...], root: bool) -> tuple[list[int], bool] | None:
    """The three categories in plain words; None where no edge is left."""
    inside = [edge for edge in edges if group >> edge[0] & 1 and group >> edge[1] & 1]
    splits = sorted(set(Cutter(costs.problem.network, group).cuts(inside)))
    if not splits:
        return None

    def value(split: tuple[int, int]) -> float:
        return costs.cost(split[0]) + costs.cost(split[1])

    def solved(half: int) -> tuple[list[int], bool] | None:
        return ([half], True) if costs.fits(half) else literal(costs, half, edges, False)

    both = [s for s in splits if costs.fits(s[0]) and costs.fits(s[1])]
    one = [s for s in splits if costs.fits(s[0]) != costs.fits(s[1])]
    if both:
        followed = [min(both, key=value)]
    elif one:
        followed = [max(one, key=lambda s: max(h.bit_count() for h in s if costs.fits(h)))]
    else:
        followed = splits if root else [min(splits, key=value)]
    best = None
    for split in followed:
        left, right = solved(split[0]), solved(split[1])
        if left and right:
            parts = left[0] + right[0]
            if best is None or costs.total(parts) < costs.total(best[0]):
                best = parts, True
    return best


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("control, part", [("all", 1.0), ("smallest", 0.3), ("random", 0.1), ("spread", 0.2)])
def test_the_algorithm_is_the_published_one(name: str, control: str, part: float) -> None:
    costs, groups = setting(name)
    share, explain = Share(part, 1), CONTROLS[control](5)
    rectified = 0
    for splitting in RecursiveSplitter(costs, explain, share)(groups):
        edges = candidates(costs.problem.network, explain(costs, [splitting.group])[0], share)
        expected = literal(costs, splitting.group, edges, root=True)
        assert splitting.rectified == (expected is not None)
        assert splitting.candidates == edges
        if expected is not None:
            rectified += 1
            assert costs.total(splitting.parts) == costs.total(expected[0])
            assert all(step.edge in edges for step in splitting.steps)
    assert control != "all" or rectified == len(groups)


def test_explaining_every_part_again_always_succeeds() -> None:
    """Any edge gives a legal split, so chance is needed only when there is no edge at all."""
    costs, groups = setting("mobilenet_v2", number=40)
    once = RecursiveSplitter(costs, CONTROLS["random"](2), Share(0.1, 1))(groups)
    again = RecursiveSplitter(costs, CONTROLS["random"](2), Share(0.1, 1), again=True)(groups)
    assert all(splitting.rectified for splitting in again)
    assert 0 < sum(splitting.rectified for splitting in once) < len(groups)


def test_without_an_explanation_chance_decides_and_nothing_is_rectified() -> None:
    costs, groups = setting("mobilenet_v2", number=5)
    silent: Explainer = one_by_one(lambda costs, group: Explanation(group, ()))
    for splitting in RecursiveSplitter(costs, silent)(groups):
        check_parts(costs, splitting)
        assert not splitting.rectified and not splitting.candidates
        assert all(step.edge is None for step in splitting.steps)


def test_a_group_is_split_the_same_way_in_any_company() -> None:
    costs, groups = setting("efficientnet_b0", number=10)
    for make in (
        lambda: RecursiveSplitter(costs, all_edges(), again=True),
        lambda: RecursiveSplitter(costs, CONTROLS["random"](3), Share(0.1, 1), seed=4),
        lambda: random_splitter(costs, 4),
    ):
        together = make()(groups)
        assert [make()([group])[0] for group in groups] == list(together)


def test_steps_form_the_tree_from_the_group_to_its_parts() -> None:
    costs, groups = setting("efficientnet_b0", number=10)
    for splitting in RecursiveSplitter(costs, CONTROLS["smallest"](0), Share(0.2, 1))(groups):
        open_ends = {splitting.group}
        for step in splitting.steps:
            open_ends.remove(step.group)
            open_ends |= {step.before, step.after}
            if step.edge is not None:
                assert step.category == 3 - costs.fits(step.before) - costs.fits(step.after)
        if splitting.rectified:
            assert open_ends == set(splitting.parts)
