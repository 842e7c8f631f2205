"""Occlusion hides one edge at a time."""

from __future__ import annotations

import random

import numpy as np
from tests.accel.gnn.untrained import CAPACITY, batch, literal, untrained
from tests.accel.pinned import pinned, random_group

from fusewise.accel.explain.occlusion import occlusion
from fusewise.accel.gnn.model import weights_of
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.lbdf import LBDF


def test_scores_are_the_verdicts_without_each_edge() -> None:
    classifier, network, rng = untrained(), pinned("squeezenet1_1"), random.Random(2)
    groups = [group for group in (random_group(network, rng) for _ in range(8)) if group.bit_count() > 1]
    found = occlusion(classifier)(GroupCosts(Problem(network, LBDF(), CAPACITY)), groups)
    for group, explanation in zip(groups, found, strict=True):
        block, (inside,) = batch(network, [group])
        assert [edge for edge, _ in explanation.scores] == list(inside)
        for number, (_, score) in enumerate(explanation.scores):
            shown = np.ones(len(inside))
            shown[number] = 0
            large, fits = literal(weights_of(classifier), block.x, block.edges, shown)
            assert np.isclose(score, fits - large, rtol=1e-3, atol=1e-3)
