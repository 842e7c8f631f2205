"""Tables of forests: trees of one depth stand together, and all of each tree stands in one place."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.forests import MODES, forest

from fusewise.ir.graph import Node, attributes_of
from fusewise.ops.forests import NODE_WORDS, tables_of


@given(st.integers(0, 9999), st.integers(1, 9), st.integers(0, 6))
def test_trees_are_ordered_by_depth_and_each_is_in_one_place(seed: int, trees: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    found, leaves = forest(rng, trees, depth, 3, MODES, True)
    targets = {"target_treeids": [tree for tree, _ in leaves], "target_nodeids": [node for _, node in leaves]}
    values = [float(k) for k in range(len(leaves))]
    attributes = {**found, **targets, "target_ids": [0] * len(leaves), "target_weights": values, "n_targets": 1}
    tables = tables_of(Node("TreeEnsembleRegressor", ("x",), ("y",), attributes_of(**attributes), "ai.onnx.ml"))
    assert tables is not None
    assert sorted(tables.weights[:, 0]) == values
    assert (np.diff(tables.roots[:, 1]) >= 0).all()
    children, at = tables.nodes[:, 2:] // NODE_WORDS, np.arange(len(tables.nodes))
    for root, levels in tables.roots:
        state, seen = {int(root) // NODE_WORDS}, set[int]()
        for _ in range(levels + 1):
            seen |= state
            state = {int(child) for k in state for child in children[k]}
        assert state <= seen and all((children[k] == k).all() for k in state if k in children[k])
        assert sorted(seen) == list(at[min(seen) : min(seen) + len(seen)])
