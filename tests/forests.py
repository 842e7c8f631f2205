"""Trees that are grown at random, and rows for them, as lists of nodes as older operators of ONNX have them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from tests.whole import Case

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
"""The last is tried without missing values: ONNX Runtime takes these for unequal, the text for the branch that is stated."""


def forest(
    rng: np.random.Generator, trees: int, depth: int, features: int, modes: tuple[str, ...], tracks: bool
) -> Any:
    """Lists of nodes of trees that are grown at random, and their leaves as (tree, node)."""
    rows: dict[str, list[Any]] = {
        name: [] for name in "treeids nodeids featureids values modes truenodeids falsenodeids".split()
    }
    missing, leaves = [], []

    def grow(tree: int, node: int, below: int) -> int:
        """The next number that is free."""
        here = len(rows["treeids"])
        inner = below > 0 and rng.random() < 0.8
        mode = str(rng.choice(modes)) if inner else "LEAF"
        values = (tree, node, int(rng.integers(features)), float(rng.integers(-2, 3)), mode, 0, 0)
        for name, value in zip(rows, values, strict=True):
            rows[name].append(value)
        missing.append(int(tracks and rng.random() < 0.5))
        if not inner:
            leaves.append((tree, node))
            return node + 1
        after = grow(tree, node + 1, below - 1)
        rows["truenodeids"][here], rows["falsenodeids"][here] = node + 1, after
        return grow(tree, after, below - 1)

    for tree in range(trees):
        grow(tree, 0, depth)
    found = {f"nodes_{name}": values for name, values in rows.items()}
    found["nodes_missing_value_tracks_true"] = missing
    return found, leaves


def grid(rng: np.random.Generator, rows: int, features: int, holes: bool) -> np.ndarray:
    data = rng.integers(-3, 4, (rows, features)).astype(np.float32)
    data[rng.random(data.shape) < 0.1 * holes] = np.nan
    return data


_HOLDS = {
    "BRANCH_LEQ": lambda x, split: x <= split,
    "BRANCH_LT": lambda x, split: x < split,
    "BRANCH_GTE": lambda x, split: x >= split,
    "BRANCH_GT": lambda x, split: x > split,
    "BRANCH_EQ": lambda x, split: x == split,
    "BRANCH_NEQ": lambda x, split: x != split,
}


def reached(trees: dict[str, Any], row: np.ndarray) -> set[tuple[int, int]]:
    """The leaves, as (tree, node), that a row of features ends at, one comparison after another."""
    place = {key: k for k, key in enumerate(zip(trees["nodes_treeids"], trees["nodes_nodeids"], strict=True))}
    found = set()
    for tree in set(trees["nodes_treeids"]):
        node = 0
        while (mode := trees["nodes_modes"][k := place[tree, node]]) != "LEAF":
            x, split = row[trees["nodes_featureids"][k]], np.float32(trees["nodes_values"][k])
            holds = trees["nodes_missing_value_tracks_true"][k] if np.isnan(x) else _HOLDS[mode](x, split)
            node = trees["nodes_truenodeids" if holds else "nodes_falsenodeids"][k]
        found.add((tree, node))
    return found


@st.composite
def forests(draw: st.DrawFn) -> Case:
    """Sums and means of any trees, of one target or many, with and without missing values, for few rows and many."""
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    trees, targets, features = draw(st.integers(1, 11)), draw(st.sampled_from((1, 2, 3, 7, 16, 33, 70))), 4
    modes = draw(st.sampled_from((MODES, MODES[:2], *((mode,) for mode in MODES))))
    found, leaves = forest(rng, trees, draw(st.integers(0, 6)), features, modes, draw(st.booleans()))
    data = grid(rng, draw(st.sampled_from((1, 2, 3, 5, 8, 9, 16, 37))), features, draw(st.booleans()))
    count = draw(st.integers(1, 2 * len(leaves)))
    places, ids = rng.integers(0, len(leaves), count), rng.integers(0, targets, count)
    weights, mean = rng.integers(-9, 9, count) / 8, draw(st.booleans())
    base = draw(st.sampled_from((None, rng.integers(-9, 9, targets) / 8)))
    wanted = np.zeros((len(data), targets))
    for row, result in zip(data, wanted, strict=True):
        ends = reached(found, row)
        for place, target, weight in zip(places, ids, weights, strict=True):
            result[target] += weight * (leaves[place] in ends)
    wanted = wanted / (trees if mean else 1) + (0 if base is None else base)
    found |= {"target_treeids": [leaves[k][0] for k in places], "target_nodeids": [leaves[k][1] for k in places]}
    found |= {"target_ids": ids.tolist(), "target_weights": weights.tolist(), "n_targets": targets}
    found |= {"aggregate_function": "AVERAGE" if mean else "SUM"}
    if base is not None:
        found["base_values"] = base.tolist()
    return Case("TreeEnsembleRegressor", (data,), (wanted.astype(np.float32),), found, domain="ai.onnx.ml")
