"""The classifier: its arithmetic against plain NumPy, blocks against single groups, weights there and back."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from tests.accel.gnn.untrained import batch, literal, untrained
from tests.accel.pinned import pinned, random_group

from fusewise.accel.gnn.engine import at_work
from fusewise.accel.gnn.model import SHIPPED, load, read_tensors, standard, weights_of
from fusewise.errors import UsageError


@at_work(0)
def test_logits_are_those_of_the_formula() -> None:
    classifier, network, rng = untrained(), pinned("squeezenet1_1"), random.Random(1)
    groups = [random_group(network, rng) for _ in range(12)]
    block, inside = batch(network, groups)
    found = classifier.logits(block)
    for number, edges in enumerate(inside):
        own = block.edges[:, block.edge_graph == number] - np.flatnonzero(block.graph == number)[0]
        expected = literal(weights_of(classifier), block.x[block.graph == number], own, np.ones(len(edges)))
        assert np.allclose(found[number], expected, rtol=1e-4, atol=1e-4)


@at_work(0)
def test_weights_come_back() -> None:
    classifier = untrained()
    again = load(weights_of(classifier))
    block = batch(pinned("squeezenet1_1"), [7 << 3])[0]
    assert np.array_equal(again.logits(block), classifier.logits(block))
    assert not any(parameter.requires_grad for parameter in again.net.parameters())


@at_work(0)
def test_flags_are_not_standardised() -> None:
    """An operator that training saw once must not look a hundred times stranger than it is; one it never saw says nothing."""
    block = batch(pinned("mobilenet_v2"), [(1 << 40) - 1])[0]
    mean, scale = standard(block.x)
    flags, vary = np.isin(block.x, (0, 1)).all(axis=0), block.x.std(axis=0) > 0
    assert (mean[:22] == 0).all() and (scale[:22][vary[:22]] == 1).all() and flags[:22].all()
    assert np.isinf(scale[~vary]).all() and np.isfinite(scale[vary]).all()
    spread = ((block.x - mean) / scale)[:, 22:].std(axis=0)
    assert np.allclose(spread[spread > 0], 1, atol=1e-3)


@at_work(0)
def test_unknown_and_broken_weights_are_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no trained weights for scheme 'tiles'; known are lbdf, brr"):
        read_tensors("tiles", "pg")
    with pytest.raises(UsageError, match="cannot be read"):
        read_tensors("lbdf", "pg", path=tmp_path / "none.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"not weights")
    with pytest.raises(UsageError, match="cannot be read"):
        read_tensors("lbdf", "pg", path=tmp_path / "broken.safetensors")
    with pytest.raises(UsageError, match="hold nothing for 'seeds'"):
        read_tensors("lbdf", "seeds")


@at_work(0)
def test_shipped_weights_are_small() -> None:
    sizes = [
        sum(a.nbytes for part in ("classifier", "pg", "rg") for a in read_tensors(s, part).values()) for s in SHIPPED
    ]
    assert sum(sizes) < 2_000_000
