"""Forests that lead nowhere, or back to where they came from, are refused; others are let pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.forests import MODES, forest

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.ops.validity.table import fault
from fusewise.ops.validity.use import Use


def asked(op: str, attributes: dict[str, Any], features: int = 3) -> str:
    node = Node(op, ("x",), ("y",), attributes_of(**attributes), "ai.onnx.ml")
    return fault(Use(node, (TensorType(FLOAT32, (4, features)),), (None,), 5 if op == "TreeEnsemble" else 1))


def regressor(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    found, leaves = forest(rng, 3, 5, 3, MODES, True)
    weights = [1.0] * len(leaves)
    places = {"target_treeids": [tree for tree, _ in leaves], "target_nodeids": [node for _, node in leaves]}
    return {**found, **places, "target_ids": [0] * len(leaves), "target_weights": weights, "n_targets": 1}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9999), st.sampled_from(["truenodeids", "falsenodeids"]), st.data())
def test_a_branch_that_leads_up_or_nowhere_is_named(seed: int, side: str, data: st.DataObject) -> None:
    attributes = regressor(seed)
    assert asked("TreeEnsembleRegressor", attributes) == ""
    inner = [k for k, mode in enumerate(attributes["nodes_modes"]) if mode != "LEAF"]
    if not inner:
        return
    k = data.draw(st.sampled_from(inner))
    tree, ends = attributes["nodes_treeids"][k], attributes[f"nodes_{side}"]
    ends[k] = 0  # the root, which every node is below
    assert f"of tree {tree} leads back to itself" in asked("TreeEnsembleRegressor", attributes)
    ends[k] = 999
    assert "leads to node 999, which that tree does not have" in asked("TreeEnsembleRegressor", attributes)


@pytest.mark.parametrize(
    "changed, told",
    [
        ({"nodes_nodeids": [0, 1, 1]}, "node 1 of tree 0 twice"),
        ({"nodes_featureids": [3, 0, 0]}, "compares feature 3, but a row of the data has 3"),
        ({"nodes_featureids": [-1, 0, 0]}, "compares feature -1"),
        ({"target_nodeids": [5, 2]}, "a weight of node 5 of tree 0"),
        ({"target_ids": [0, 2]}, "adds to target 2; there are 1"),
    ],
)
def test_lists_that_do_not_fit_each_other(changed: dict[str, Any], told: str) -> None:
    attributes = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.0] * 3,
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
    }
    assert asked("TreeEnsembleRegressor", attributes) == ""
    assert told in asked("TreeEnsembleRegressor", attributes | changed)


@pytest.mark.parametrize(
    "changed, told",
    [
        ({"nodes_truenodeids": [0, 0], "nodes_trueleafs": [0, 1]}, "node 0 leads back to itself"),
        ({"nodes_truenodeids": [1, 0], "nodes_falseleafs": [1, 0]}, "leads back to itself"),
        ({"nodes_truenodeids": [7, 0]}, "node 0 leads to node 7"),
        ({"nodes_falsenodeids": [0, 9]}, "node 1 leads to leaf 9"),
        ({"tree_roots": [2]}, "tree_roots must have numbers of nodes, from 0 to 1"),
        ({"leaf_targetids": [0, 1, 0]}, "not among its 1"),
        ({"nodes_featureids": [0, 8]}, "compares feature 8"),
        ({"leaf_weights": Constant(np.ones(2, np.float32))}, "leaf_weights has 2 items; there are 3 leaves"),
        ({"nodes_falsenodeids": [0]}, "do not have one length"),
    ],
)
def test_inner_nodes_and_leaves_apart(changed: dict[str, Any], told: str) -> None:
    attributes = {
        "tree_roots": [0],
        "nodes_featureids": [0, 1],
        "nodes_splits": Constant(np.zeros(2, np.float32)),
        "nodes_modes": Constant(np.zeros(2, np.uint8)),
        "nodes_truenodeids": [1, 0],
        "nodes_trueleafs": [0, 1],
        "nodes_falsenodeids": [2, 1],
        "nodes_falseleafs": [1, 1],
        "leaf_targetids": [0, 0, 0],
        "leaf_weights": Constant(np.ones(3, np.float32)),
        "n_targets": 1,
    }
    assert asked("TreeEnsemble", attributes) == ""
    assert told in asked("TreeEnsemble", attributes | changed)
