"""Forests of decision trees as tables of numbers, which a kernel goes down in."""

from __future__ import annotations

import numpy as np

from fusewise.ir.graph import Node
from fusewise.ops.plain.classic import COMPARE, Forest, ensemble_of, forest_of, listed, weights_of
from fusewise.ops.plain.row import Other
from fusewise.records import record

__all__ = ["MISSING_BIT", "MODE_BIT", "MOST_FEATURES", "NODE_WORDS", "ForestTables", "scores_of", "tables_of"]

NODE_WORDS = 4
MODE_BIT = 24
"""From which on the first word of a node has the number of its mode; a feature's number lies below."""
MISSING_BIT = 31
"""Of the first word of a node: does what is no number go where the comparison holds?"""
MOST_FEATURES = 1 << MODE_BIT

_MOST_NODES = 1 << 20
"""Of a forest whose tables become part of the code."""
_MOST_WEIGHTS = 1 << 22
"""Nodes times targets of one."""
_MOST_LEVELS = 1 << 28
"""Nodes times levels of one, all of which are looked at to tell how deep each tree is."""


@record(frozen=True)
class ForestTables:
    """Trees whose leaves add to targets.

    - `nodes` int32 [nodes, 4]: feature, mode and what becomes of missing values; the bits of the float32 that is compared with;
      the word where the child begins, false and true. A leaf is its own child, and has the number of its weights for a split.
    - `roots` int32 [trees, 2]: the word where the root begins, and how many levels are below it; trees of one depth stand together,
      and so do the nodes and leaves of each tree
    - `weights` float32 [leaves, targets]; `base` float32 [targets], added to what has been divided by `divisor`
    - `modes`: the names of comparisons, of which each holds for no missing value; `tracks`: has any node the missing bit?
    """

    nodes: np.ndarray
    roots: np.ndarray
    weights: np.ndarray
    base: np.ndarray | None
    divisor: int
    modes: tuple[str, ...]
    tracks: bool

    @property
    def features(self) -> int:
        """How many a row must have."""
        return int((self.nodes[:, 0] & (MOST_FEATURES - 1)).max()) + 1

    def leaves(self, data: np.ndarray) -> np.ndarray:
        """The number of the leaf that each row of `data` [rows, features] ends at in each tree: [rows, trees]."""
        words, rows = self.nodes.reshape(-1), np.arange(len(data))[:, None]
        state = np.broadcast_to(self.roots[:, 0], (len(data), len(self.roots)))
        for _ in range(self.roots[:, 1].max(initial=0)):
            first, split = words[state], words[state + 1].view(np.float32)
            found, mode = data[rows, first & (MOST_FEATURES - 1)], first >> MODE_BIT & 7
            taken = np.zeros(state.shape, bool)
            for number, name in enumerate(self.modes):
                taken |= (mode == number) & COMPARE[name](found, split)
            state = words[state + 2 + np.where(np.isnan(found), first < 0, taken)]
        return np.asarray(words[state + 1])


def scores_of(tables: ForestTables, data: np.ndarray) -> np.ndarray:
    """What the leaves of all trees add to each target: [rows, targets]."""
    found = tables.weights[tables.leaves(data)].sum(axis=1) / np.float32(tables.divisor)
    return np.asarray(found if tables.base is None else found + tables.base, np.float32)


def tables_of(node: Node) -> ForestTables | None:
    """The tables of a TreeEnsembleRegressor or TreeEnsemble; None for one with a transform behind it, another way to aggregate than
    a sum or mean, comparisons with sets, or trees that are none."""
    try:
        regressor = node.op == "TreeEnsembleRegressor"
        forest, weights, mean = (_regressor if regressor else _ensemble)(node)
        base = listed(node, "base_values") if regressor else None
        if base is not None and len(base) != weights.shape[1]:
            return None
        return _packed(forest, weights, None if base is None else np.array(base, np.float32), mean)
    except (Other, KeyError, ValueError, TypeError, IndexError, OverflowError):
        return None


def _regressor(node: Node) -> tuple[Forest, np.ndarray, bool]:
    how = node.attribute("aggregate_function", "SUM")
    if how not in ("SUM", "AVERAGE") or node.attribute("post_transform", "NONE") != "NONE":
        raise Other
    forest, number = forest_of(node)
    return forest, weights_of(node, "target", len(number), number, node.attribute("n_targets", 1)), how == "AVERAGE"


def _ensemble(node: Node) -> tuple[Forest, np.ndarray, bool]:
    how = node.attribute("aggregate_function", 1)
    if node.attribute("post_transform", 0) or how not in (0, 1):
        raise Other
    return *ensemble_of(node), how == 0


def _packed(forest: Forest, weights: np.ndarray, base: np.ndarray | None, mean: bool) -> ForestTables:
    count, own = len(forest.features), np.arange(len(forest.features))
    children, features = forest.children.reshape(count, 2), forest.features
    numbers = (features.min(initial=0), children.min(initial=0), forest.roots.min(initial=0))
    if not len(forest.roots) or count > _MOST_NODES or weights.shape[1] < 1 or min(numbers) < 0:
        raise Other
    if weights.size > _MOST_WEIGHTS or count * forest.depth > _MOST_LEVELS:
        raise Other
    if features.max() >= MOST_FEATURES or max(children.max(), forest.roots.max()) >= count:
        raise Other
    leaf = (children == own[:, None]).all(axis=1)
    if ((children == own[:, None]).any(axis=1) != leaf).any():
        raise Other
    below = np.zeros(count, np.int32)
    for _ in range(forest.depth):
        below = np.where(leaf, 0, 1 + below[children].max(axis=1))
    first = features.astype(np.uint32) | forest.mode.astype(np.uint32) << MODE_BIT
    if forest.missing is not None:
        first |= forest.missing.astype(np.uint32) << MISSING_BIT
    starts = forest.roots[np.argsort(below[forest.roots], kind="stable")]
    order = _by_trees(children, leaf, starts)
    place, leaf = np.empty(count, np.int64), leaf[order]
    place[order] = own
    nodes = np.empty((count, NODE_WORDS), np.int32)
    nodes[:, 0] = np.where(leaf, 0, first[order]).astype(np.uint32).view(np.int32)
    nodes[:, 1] = np.where(leaf, np.cumsum(leaf) - 1, forest.splits.astype(np.float32).view(np.int32)[order])
    nodes[:, 2:] = place[children[order]] * NODE_WORDS
    roots = np.stack((place[starts] * NODE_WORDS, below[starts]), axis=1).astype(np.int32)
    tracks = bool((nodes[:, 0] < 0).any())
    return ForestTables(nodes, roots, weights[order][leaf], base, len(roots) if mean else 1, forest.modes, tracks)


def _by_trees(children: np.ndarray, leaf: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """The nodes of the first tree, as they stood, of the second, and so on; behind them those that no tree has."""
    owner = np.full(len(leaf), len(roots))
    state, tree = roots, np.arange(len(roots))
    while state.size:
        state, first = np.unique(state, return_index=True)
        tree = tree[first]
        owner[state] = np.minimum(owner[state], tree)
        inner = ~leaf[state]
        state, tree = children[state[inner]].reshape(-1), np.repeat(tree[inner], 2)
    return np.argsort(owner, kind="stable")
