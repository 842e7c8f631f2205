"""Explainers by name: all of them explain, and what is wrong is said in a sentence."""

from __future__ import annotations

import sys

import pytest
from tests.accel.gnn.untrained import CAPACITY
from tests.accel.pinned import pinned

from fusewise.accel.bits import mask_of
from fusewise.accel.explain.candidates import Share, candidates
from fusewise.accel.explain.catalogue import EXPLAINERS, LEARNED, explainer_named
from fusewise.accel.explain.explainer import edges_inside
from fusewise.accel.problem import Costs, Problem
from fusewise.accel.schemes.catalogue import scheme_named
from fusewise.errors import UsageError

GROUPS = [mask_of(range(3, 12)), mask_of([30]), mask_of(range(20, 25))]


@pytest.mark.parametrize("scheme", ["lbdf", "brr"])
@pytest.mark.parametrize("name", EXPLAINERS)
def test_every_explainer_explains(name: str, scheme: str) -> None:
    network = pinned("squeezenet1_1")
    costs = Costs(Problem(network, scheme_named(scheme), CAPACITY))
    found = explainer_named(name, scheme, seed=3)(costs, GROUPS)
    assert [one.group for one in found] == GROUPS
    for one in found:
        assert {edge for edge, _ in one.scores} <= set(edges_inside(network, one.group))
        assert set(candidates(network, one, Share(0.3, 1))) <= set(edges_inside(network, one.group))
    assert found[0].scores and not found[1].scores
    assert tuple(explainer_named(name, scheme, seed=3)(costs, GROUPS)) == tuple(found)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match="no explainer called 'salience'; did you mean 'saliency'"):
        explainer_named("salience", "lbdf")


@pytest.mark.parametrize("package", ["torch", "torch_geometric", "safetensors"])
def test_without_the_extra_it_says_what_to_install(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for name in LEARNED:
        with pytest.raises(UsageError, match=rf"'{name}' needs the package '{package}'; install fusewise\[explain\]"):
            explainer_named(name, "lbdf")
    assert explainer_named("random", "lbdf") is not None
