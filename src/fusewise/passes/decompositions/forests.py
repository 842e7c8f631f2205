"""Tree ensembles by operators of networks: all rows and trees go down one level at a time.

state [rows, trees] = children[2 * state + (x[row, feature[state]] <= split[state])]        as often as trees are deep
result [rows, targets] = sum over trees of weight[state]
"""

from __future__ import annotations

import numpy as np

from fusewise.ir.dtypes import FLOAT32, INT64
from fusewise.ir.graph import Node
from fusewise.ops.plain.classic import Forest, ensemble_of, forest_of, listed, weights_of
from fusewise.ops.plain.row import Other
from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["FORESTS"]

_DEEPEST = 24
"""Levels that are written out."""

_BRANCHES = {
    "BRANCH_LEQ": "LessOrEqual",
    "BRANCH_LT": "Less",
    "BRANCH_GTE": "GreaterOrEqual",
    "BRANCH_GT": "Greater",
    "BRANCH_EQ": "Equal",
}


def _leaves(g: Notation, forest: Forest, x: TensorValue) -> TensorValue | None:
    """The leaf that each row of x [rows, features] ends at in each tree: [rows, trees]."""
    if len(forest.modes) > 1 or forest.modes[0] not in _BRANCHES or forest.depth > _DEEPEST:
        return None
    if not len(forest.roots) or forest.features.max(initial=0) >= x.dims[1] or forest.features.min(initial=0) < 0:
        return None
    features, children = (g.constant(table.astype(np.int64)) for table in (forest.features, forest.children))
    splits, compare = g.constant(forest.splits.astype(np.float32)), getattr(g, _BRANCHES[forest.modes[0]])
    missing = None if forest.missing is None else g.constant(forest.missing)
    state = g.constant(np.tile(forest.roots.astype(np.int64), (x.dims[0], 1)))
    for _ in range(forest.depth):
        found = g.GatherElements(x, g.Gather(features, state), axis=1)
        taken = compare(found, g.Gather(splits, state))  # false for what is missing
        if missing is not None:
            taken = g.Or(taken, g.And(g.IsNaN(found), g.Gather(missing, state)))
        state = g.Gather(children, state * 2 + g.cast(taken, INT64))
    return state


def _summed(g: Notation, forest: Forest, table: np.ndarray, x: TensorValue) -> TensorValue | None:
    """What the leaves of all trees add to each target: [rows, targets]."""
    if x.rank != 2 or x.dtype != FLOAT32 or 0 in x.dims:
        return None
    leaves = _leaves(g, forest, x)
    return None if leaves is None else g.ReduceSum(g.Gather(g.constant(table), leaves), [1], keepdims=0)


def _ensemble(g: Notation, call: Call, x: TensorValue) -> TensorValue | None:
    how = call.attribute("aggregate_function", 1)
    if call.attribute("post_transform", 0) or how > 1:
        return None
    try:
        forest, table = ensemble_of(call.node)
    except (Other, ValueError, TypeError, IndexError):
        return None
    found = _summed(g, forest, table, x)
    return found if found is None or how else found / float(len(forest.roots))


def _named(node: Node, name: str, default: str) -> str:
    value = node.attribute(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def _regressor(g: Notation, call: Call, x: TensorValue) -> TensorValue | None:
    node, targets = call.node, call.attribute("n_targets", 1)
    how = _named(node, "aggregate_function", "SUM")
    if how not in ("SUM", "AVERAGE") or _named(node, "post_transform", "NONE") != "NONE":
        return None
    try:
        forest, number = forest_of(node)
        table = weights_of(node, "target", len(number), number, targets)
    except (Other, KeyError, ValueError, TypeError, IndexError):
        return None
    found, base = _summed(g, forest, table, x), listed(node, "base_values")
    if found is None:
        return None
    found = found / float(len(forest.roots)) if how == "AVERAGE" else found
    return found if base is None else found + np.array(base, np.float32)


def _classifier(g: Notation, call: Call, x: TensorValue) -> tuple[TensorValue, ...] | None:
    node, classes = call.node, list(call.attribute("classlabels_int64s") or ())
    ids, how = list(call.attribute("class_ids") or ()), _named(node, "post_transform", "NONE")
    if len(classes) < 2 or how not in ("NONE", "SOFTMAX", "LOGISTIC"):
        return None
    base = np.array(listed(node, "base_values") or [0.0] * len(classes), np.float32)
    one_sided = len(set(ids)) == 1
    if one_sided and (len(classes) != 2 or ids[0] != 0 or base.any()):
        return None
    try:
        forest, number = forest_of(node)
        table = weights_of(node, "class", len(number), number, len(classes))
    except (Other, KeyError, ValueError, TypeError, IndexError):
        return None
    if one_sided:  # the one score is that of the second class, and what it lacks that of the first
        table = np.stack((-table[:, 0], table[:, 0]), axis=1)
        base = np.array([how == "NONE", 0], np.float32)
    found = _summed(g, forest, table, x)
    if found is None or base.shape != (len(classes),):
        return None
    scores = found + base if base.any() else found
    labels = g.Gather(g.constant(np.array(classes, np.int64)), g.ArgMax(scores, axis=1, keepdims=0))
    return labels, g.Softmax(scores, axis=1) if how == "SOFTMAX" else g.Sigmoid(scores) if how == "LOGISTIC" else scores


FORESTS: tuple[Decomposition, ...] = (
    row("TreeEnsemble", _ensemble),
    row("TreeEnsembleClassifier", _classifier),
    row("TreeEnsembleRegressor", _regressor),
)
