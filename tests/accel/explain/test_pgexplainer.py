"""PGExplainer: it trains without touching the classifier, and scores edges by their two ends."""

from __future__ import annotations

import numpy as np
import torch
from tests.accel.gnn.untrained import CAPACITY, batch, untrained
from tests.accel.pinned import pinned

from fusewise.accel.bits import mask_of
from fusewise.accel.explain.pgexplainer import pgexplainer, train_pg
from fusewise.accel.gnn.engine import at_work
from fusewise.accel.gnn.model import weights_of
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.lbdf import LBDF

GROUPS = [mask_of(range(3, 12)), mask_of(range(20, 25)), mask_of(range(40, 52))]


@at_work(0)
def test_scores_are_the_logits_of_the_trained_network() -> None:
    classifier, network = untrained(), pinned("squeezenet1_1")
    before, threads, state = weights_of(classifier), torch.get_num_threads(), torch.get_rng_state()
    block = classifier.tensors(batch(network, GROUPS)[0])
    weights = train_pg(classifier, [block], epochs=3, seed=4)
    assert torch.get_num_threads() == threads and torch.equal(torch.get_rng_state(), state)
    assert all(np.array_equal(array, before[name]) for name, array in weights_of(classifier).items())
    again = train_pg(classifier, [block], epochs=3, seed=4)
    assert all(np.array_equal(array, again[name]) for name, array in weights.items())
    other = train_pg(classifier, [block], epochs=3, seed=5)
    assert not np.array_equal(other["0.weight"], weights["0.weight"])

    found = pgexplainer(classifier, weights)(GroupCosts(Problem(network, LBDF(), CAPACITY)), GROUPS)
    x = block.x
    with torch.no_grad():
        for layer in classifier.net.layers:
            known = layer(x, block.edges)
            x = known.relu()
    ends = np.concatenate([known[block.edges[0]].numpy(), known[block.edges[1]].numpy()], axis=1)
    hidden = np.maximum(0, ends @ weights["0.weight"].T + weights["0.bias"])
    expected = (hidden @ weights["2.weight"].T + weights["2.bias"])[:, 0]
    assert np.allclose([score for one in found for _, score in one.scores], expected, rtol=1e-3, atol=1e-4)
