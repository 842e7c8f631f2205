"""GNNExplainer in blocks: a group's explanation is its own."""

from __future__ import annotations

import numpy as np
import torch
from tests.accel.gnn.untrained import CAPACITY, batch, untrained
from tests.accel.pinned import pinned

from fusewise.accel.bits import mask_of
from fusewise.accel.explain.explainer import edges_inside
from fusewise.accel.explain.gnnexplainer import gnnexplainer
from fusewise.accel.gnn.engine import at_work
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.lbdf import LBDF

GROUPS = [mask_of(range(3, 12)), mask_of(range(20, 25)), mask_of([30]), mask_of(range(40, 52))]


def costs() -> GroupCosts:
    return GroupCosts(Problem(pinned("squeezenet1_1"), LBDF(), CAPACITY))


@at_work(0)
def test_a_block_gives_what_each_group_alone_gives() -> None:
    explain = gnnexplainer(untrained(), epochs=20)
    together = explain(costs(), GROUPS)
    for group, explanation in zip(GROUPS, together, strict=True):
        assert tuple(edge for edge, _ in explanation.scores) == edges_inside(pinned("squeezenet1_1"), group)
        (alone,) = explain(costs(), [group])
        assert np.allclose([s for _, s in alone.scores], [s for _, s in explanation.scores], rtol=1e-3)


@at_work(0)
def test_a_single_group_is_explained_as_pytorch_geometric_does() -> None:
    """Started from the same mask, the masks agree with an independent descent on the published loss."""
    classifier, group = untrained(), GROUPS[0]
    (found,) = gnnexplainer(classifier, seed=5, epochs=30)(costs(), [group])
    block, (inside,) = batch(pinned("squeezenet1_1"), [group])
    given = classifier.tensors(block)
    start = np.random.default_rng([5, group]).normal(0, np.sqrt(2 / group.bit_count()), len(inside))
    mask = torch.tensor(start, dtype=torch.float32, requires_grad=True)
    label = classifier.net(given.x, given.edges, given.graph, 1).argmax(dim=1)
    adam = torch.optim.Adam([mask], lr=0.01)
    for epoch in range(30):
        share = mask.sigmoid()
        loss = torch.nn.functional.cross_entropy(classifier.net(given.x, given.edges, given.graph, 1, share), label)
        if epoch:
            loss = loss + 0.005 * share.sum()
            loss = loss - (share * share.log() + (1 - share) * (1 - share).log()).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    expected = mask.detach().sigmoid().numpy()
    assert np.allclose([score for _, score in found.scores], expected, atol=2e-3)


@at_work(0)
def test_the_seed_decides() -> None:
    one, same, other = (gnnexplainer(untrained(), seed=s, epochs=3)(costs(), GROUPS) for s in (0, 0, 1))
    assert one == same
    assert one != other


@at_work(0)
def test_no_mask_stays_behind() -> None:
    classifier = untrained()
    block = batch(pinned("squeezenet1_1"), GROUPS)[0]
    before = classifier.logits(block)
    gnnexplainer(classifier, epochs=3)(costs(), GROUPS)
    assert np.array_equal(classifier.logits(block), before)
