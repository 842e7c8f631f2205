"""Explainers by name: all of them explain, and what is wrong is said in a sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.accel.gnn.untrained import CAPACITY
from tests.accel.pinned import pinned

from fusewise.accel.bits import mask_of
from fusewise.accel.explain.candidates import EdgeShare, candidates
from fusewise.accel.explain.catalogue import EXPLAINERS, LEARNED, explainer_named
from fusewise.accel.explain.explainer import edges_inside
from fusewise.accel.gnn.model import read_tensors
from fusewise.accel.gnn.regenerate import write
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.catalogue import scheme_named
from fusewise.errors import UsageError

GROUPS = [mask_of(range(3, 12)), mask_of([30]), mask_of(range(20, 25))]


@pytest.mark.parametrize("scheme", ["lbdf", "brr"])
@pytest.mark.parametrize("name", EXPLAINERS)
def test_every_explainer_explains(name: str, scheme: str) -> None:
    network = pinned("squeezenet1_1")
    costs = GroupCosts(Problem(network, scheme_named(scheme), CAPACITY))
    found = explainer_named(name, scheme, seed=3)(costs, GROUPS)
    assert [one.group for one in found] == GROUPS
    for one in found:
        assert {edge for edge, _ in one.scores} <= set(edges_inside(network, one.group))
        assert set(candidates(network, one, EdgeShare(0.3, 1))) <= set(edges_inside(network, one.group))
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


def test_weights_of_another_form_are_refused(tmp_path: Path) -> None:
    """As files of other releases have it: a part that is there, but not as this release lays it out."""
    path = tmp_path / "old.safetensors"
    parts = {part: read_tensors("lbdf", part) for part in ("classifier", "rg")}
    parts["rg"]["generator.sets.weight"] = parts["rg"]["generator.sets.weight"][:, :2]
    write({f"{part}.{name}": array for part, own in parts.items() for name, array in own.items()}, path)
    with pytest.raises(
        UsageError, match=r"the weights .*old.safetensors do not fit the explainer 'rg'.*train them anew"
    ):
        explainer_named("rg", "lbdf", weights=path)
    write({f"classifier.{name}": array[:1] for name, array in parts["classifier"].items()}, path)
    with pytest.raises(UsageError, match="do not fit the explainer 'saliency'"):
        explainer_named("saliency", "lbdf", weights=path)
