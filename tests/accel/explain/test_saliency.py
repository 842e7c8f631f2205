"""Saliency is the slope of the verdict, as differences show it."""

from __future__ import annotations

import numpy as np
import torch
from tests.accel.gnn.untrained import CAPACITY, batch, untrained
from tests.accel.pinned import pinned

from fusewise.accel.bits import mask_of
from fusewise.accel.explain.saliency import saliency
from fusewise.accel.gnn.engine import at_work
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.lbdf import LBDF


@at_work(0)
def test_scores_are_the_slopes_of_the_margin() -> None:
    classifier, network = untrained(), pinned("squeezenet1_1")
    groups = [mask_of(range(3, 12)), mask_of(range(20, 25))]
    found = saliency(classifier)(GroupCosts(Problem(network, LBDF(), CAPACITY)), groups)
    for group, explanation in zip(groups, found, strict=True):
        block, (inside,) = batch(network, [group])
        given = classifier.tensors(block)
        net = classifier.net.double()
        try:
            for number, edge in enumerate(inside):
                margins = []
                for step in (-1e-6, 1e-6):
                    weight = torch.ones(len(inside), dtype=torch.float64)
                    weight[number] += step
                    logits = net(given.x.double(), given.edges, given.graph, 1, weight)[0]
                    margins.append(float(logits[0] - logits[1]))
                slope = abs(margins[1] - margins[0]) / 2e-6
                assert np.isclose(dict(explanation.scores)[edge], slope, rtol=1e-2, atol=1e-5)
        finally:
            net.float()
