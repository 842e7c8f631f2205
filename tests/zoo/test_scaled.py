"""Architectures at any size: each runs, keeps sensible figures, and grows with its scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusewise.errors import UsageError
from fusewise.ir.verify import verify
from fusewise.zoo.scaled import SCALED, Scale, scaled


@pytest.mark.parametrize("kind", SCALED)
def test_each_runs(kind: str, run_reference: Any) -> None:
    graph = scaled(kind)
    verify(graph)
    rng = np.random.default_rng(0)
    feeds = {
        name: rng.standard_normal(graph.tensor(name).dims, dtype=np.float32)
        if graph.tensor(name).dtype.is_float
        else np.ones(graph.tensor(name).dims, np.int64)
        for name in graph.inputs
    }
    (found,) = run_reference(graph, feeds)
    assert all(np.isfinite(value).all() and value.std() > 0 for value in found)
    deeper = scaled(kind, Scale(depth=2))
    assert len(deeper.nodes) > len(graph.nodes)


def test_a_seed_is_a_model() -> None:
    assert scaled("resnet", seed=3).constants == scaled("resnet", seed=3).constants
    assert scaled("resnet", seed=3).constants != scaled("resnet", seed=4).constants


def test_nearest_names() -> None:
    with pytest.raises(UsageError, match="no scaled architecture 'resnt'; did you mean 'resnet'"):
        scaled("resnt")
