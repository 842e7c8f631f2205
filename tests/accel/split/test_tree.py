"""The tree of splits: what a reader is shown adds up to what the splitter did."""

from __future__ import annotations

import random

from tests.accel.pinned import pinned, random_group

from fusewise.accel.explain.candidates import EdgeShare
from fusewise.accel.explain.catalogue import explainer_named
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.split.random import random_splitter
from fusewise.accel.split.recursive import RecursiveSplitter
from fusewise.accel.split.splitter import Splitting
from fusewise.accel.split.tree import kept, parts_of


def test_leaves_are_the_parts_and_halves_make_up_what_was_split() -> None:
    network = pinned("mobilenet_v2")
    costs, rng = GroupCosts(Problem(network, LBDF(), 64 << 10)), random.Random(3)
    groups = [group for group in (random_group(network, rng, 24) for _ in range(60)) if not costs.fits(group)]
    assert len(groups) > 10
    by_edges = RecursiveSplitter(costs, explainer_named("smallest", "lbdf"), EdgeShare(0.3))
    for splitting in (*by_edges(groups), *random_splitter(costs, 1)(groups)):
        parts = [*parts_of(network, splitting)]
        assert parts[0].depth == 0 and parts[0].group == splitting.group
        assert sorted(part.group for part in parts if part.step is None) == sorted(splitting.parts)
        for at, part in enumerate(parts):
            below = [
                other
                for k, other in enumerate(parts[at + 1 :], at + 1)
                if other.depth == part.depth + 1 and all(between.depth > part.depth for between in parts[at + 1 : k])
            ]
            assert part.step is None or part.group == sum(other.group for other in below)


def test_only_what_stands_in_the_plan_is_kept() -> None:
    inner, outer, gone = (
        Splitting(0b11, (1, 2), True, True),
        Splitting(0b111, (1, 2, 4), True, True),
        Splitting(0b1100, (4, 8), True, True),
    )
    later = Splitting(0b110000, (16, 32), False, False)
    assert kept([later, inner, outer, gone], (1, 2, 4, 16, 32)) == (outer, later)
