"""What forests ask (`ai.onnx.ml`): every branch leads on to a node of its tree and none back to where it came from, every weight
belongs to a node and a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fusewise.ir.graph import Constant
from fusewise.ops.validity.use import Use

__all__ = ["lists_of_nodes", "roots_and_leaves"]

_NONE = -1
"""In place of a child that a node does not have."""


def lists_of_nodes(use: Use) -> str:
    """The nodes of all trees as lists, each with the numbers of its tree and itself."""
    names = ("treeids", "nodeids", "featureids", "modes", "truenodeids", "falsenodeids")
    lists = [use.attribute(f"nodes_{name}") for name in names]
    if any(found is None or len(found) != len(lists[0]) for found in lists):
        return ""
    trees, own, features, modes, *ends = lists
    numbers = {key: k for k, key in enumerate(zip(trees, own, strict=True))}
    if len(numbers) < len(trees):
        tree, node = next(key for k, key in enumerate(zip(trees, own, strict=True)) if numbers[key] != k)
        return f"its attributes have node {node} of tree {tree} twice"
    children = np.full((len(trees), 2), _NONE)
    width = use.extent(0, -1)
    for k, (tree, node, mode) in enumerate(zip(trees, own, modes, strict=True)):
        if mode == "LEAF":
            continue
        for side, end in enumerate(ends):
            children[k, side] = numbers.get((tree, end[k]), _NONE)
            if children[k, side] == _NONE:
                return f"node {node} of tree {tree} leads to node {end[k]}, which that tree does not have"
        wrong = _feature(features[k], width)
        if wrong:
            return f"node {node} of tree {tree} {wrong}"
    circle = _circle(children)
    if circle is not None:
        return f"node {own[circle]} of tree {trees[circle]} leads back to itself; trees must have no circles"
    return _weights(use, numbers)


def _weights(use: Use, numbers: Mapping[tuple[int, int], int]) -> str:
    """Is what weights are added to there, and where they come from?"""
    labels = max(len(use.attribute(f"classlabels_{kind}") or ()) for kind in ("int64s", "strings"))
    for kind, count in (("class", max(2, labels)), ("target", use.attribute("n_targets") or 1)):
        trees, nodes, ids = (use.attribute(f"{kind}_{name}") or () for name in ("treeids", "nodeids", "ids"))
        if not len(trees) == len(nodes) == len(ids):
            return ""
        for tree, node, number in zip(trees, nodes, ids, strict=True):
            if (tree, node) not in numbers:
                return f"its attributes have a weight of node {node} of tree {tree}, which is not there"
            if not 0 <= number < count:
                return f"node {node} of tree {tree} adds to {kind} {number}; there are {count}, counted from 0"
    return ""


def roots_and_leaves(use: Use) -> str:
    """Inner nodes and leaves apart, as TreeEnsemble has them."""
    places = (
        *("tree_roots", "nodes_featureids", "nodes_truenodeids", "nodes_trueleafs"),
        *("nodes_falsenodeids", "nodes_falseleafs", "leaf_targetids"),
    )
    lists = [np.array(_listed(use, name), np.int64) for name in places]
    roots, features, yes, yes_ends, no, no_ends, targets = lists
    inner, leaves, width = len(features), len(targets), use.extent(0, -1)
    if any(len(found) != inner for found in (yes, yes_ends, no, no_ends)):
        return f"its lists of nodes do not have one length, as that of nodes_featureids, which is {inner}"
    for name in ("nodes_splits", "nodes_modes"):
        if len(_listed(use, name)) != inner:
            return f"its attribute {name} has {len(_listed(use, name))} items; there are {inner} nodes"
    if len(_listed(use, "leaf_weights")) != leaves:
        return f"its attribute leaf_weights has {len(_listed(use, 'leaf_weights'))} items; there are {leaves} leaves"
    for found, ends in ((yes, yes_ends), (no, no_ends)):
        outside = np.flatnonzero((found < 0) | (found >= np.where(ends != 0, leaves, inner)))
        if len(outside):
            what = "leaf" if ends[outside[0]] else "node"
            return f"node {outside[0]} leads to {what} {found[outside[0]]}, which is not there"
    if ((roots < 0) | (roots >= max(1, inner))).any():
        return f"its attribute tree_roots must have numbers of nodes, from 0 to {inner - 1}"
    wrong = next(filter(None, (_feature(int(feature), width) for feature in features)), "")
    count = use.attribute("n_targets") or 1
    if wrong or ((targets < 0) | (targets >= count)).any():
        return f"one of its nodes {wrong}" if wrong else f"a leaf adds to a target that is not among its {count}"
    circle = _circle(
        np.stack([np.where(ends != 0, _NONE, found) for found, ends in ((yes, yes_ends), (no, no_ends))], 1)
    )
    return "" if circle is None else f"node {circle} leads back to itself; trees must have no circles"


def _listed(use: Use, name: str) -> Sequence[Any] | np.ndarray:
    found = use.attribute(name)
    return found.array.reshape(-1) if isinstance(found, Constant) else () if found is None else found


def _feature(number: int, width: int | None) -> str:
    if number < 0 or (isinstance(width, int) and number >= width):
        return f"compares feature {number}, but a row of the data has {'no such' if width is None else width}"
    return ""


def _circle(children: np.ndarray) -> int | None:
    """A node of a circle, if there is one, of the children [nodes, 2] of nodes."""
    to = children[children != _NONE]
    waiting = np.bincount(to, minlength=len(children))
    ready = np.flatnonzero(waiting == 0)
    while len(ready):
        below = children[ready]
        below = below[below != _NONE]
        np.subtract.at(waiting, below, 1)
        ready = np.unique(below[waiting[below] == 0])
    left = np.flatnonzero(waiting)
    if not len(left):
        return None
    inside = np.isin(children, left) & (waiting > 0)[:, None]
    parent = {int(child): int(node) for node, side in np.argwhere(inside) for child in (children[node, side],)}
    node, seen = int(left[0]), set[int]()
    while node not in seen:
        seen.add(node)
        node = parent[node]
    return node
