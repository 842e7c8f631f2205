"""Classical machine learning (`ai.onnx.ml`): tree ensembles, all rows and trees one level at a time; linear models and scalers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import numpy as np

from fusewise.ir.graph import Constant, Node
from fusewise.ops.plain.row import Other, Plain, PlainFunction
from fusewise.records import record

__all__ = [
    "CLASSIC",
    "COMPARE",
    "Forest",
    "classes_of",
    "ensemble_of",
    "forest_of",
    "listed",
    "made_once",
    "weights_of",
]


_DOMAIN = "ai.onnx.ml"

COMPARE = {
    "BRANCH_LEQ": np.less_equal,
    "BRANCH_LT": np.less,
    "BRANCH_GTE": np.greater_equal,
    "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal,
    "BRANCH_NEQ": np.not_equal,
}

_DEEPEST = 4096
"""Levels of a tree."""

_MOST_WEIGHTS = 1 << 24
"""Leaves times targets, of which a table is made."""


def listed(node: Node, name: str) -> list[Any] | None:
    """A list of numbers, as an attribute or, with `_as_tensor`, as a tensor in one."""
    found = node.attribute(name)
    if found is None:
        found = node.attribute(f"{name}_as_tensor")
    if isinstance(found, Constant):
        return list(found.array.reshape(-1).tolist())
    return None if found is None else list(found)


@record(frozen=True, slots=True)
class Forest:
    """The nodes of all trees by number: a leaf is its own child. `roots` [trees], the others [nodes]."""

    roots: np.ndarray
    features: np.ndarray
    splits: np.ndarray
    children: np.ndarray
    modes: tuple[str, ...]
    mode: np.ndarray
    missing: np.ndarray | None
    depth: int

    def leaves(self, data: np.ndarray) -> np.ndarray:
        """The leaf that each row of `data` [rows, features] ends at in each tree: [rows, trees]."""
        state = np.broadcast_to(self.roots, (len(data), len(self.roots)))
        flat = np.ascontiguousarray(data).reshape(-1)
        rows = np.arange(len(data))[:, None] * data.shape[1]
        holes = bool(np.isnan(flat).any())
        for _ in range(self.depth):
            found, split = flat.take(rows + self.features.take(state)), self.splits.take(state)
            if len(self.modes) == 1:
                taken = COMPARE[self.modes[0]](found, split)
            else:
                kinds = self.mode.take(state)
                taken = np.zeros(state.shape, bool)
                for number, mode in enumerate(self.modes):
                    taken |= (kinds == number) & COMPARE[mode](found, split)
            if holes:
                taken = np.where(np.isnan(found), False if self.missing is None else self.missing.take(state), taken)
            state = self.children.take(state * 2 + taken)
        return state


def forest_of(node: Node) -> tuple[Forest, dict[tuple[int, int], int]]:
    """The trees of a node in the form of lists, and the number of each (tree, node)."""
    trees, nodes = node.attribute("nodes_treeids"), node.attribute("nodes_nodeids")
    modes = list(node.attribute("nodes_modes"))
    number = {key: k for k, key in enumerate(zip(trees, nodes, strict=True))}
    if len(number) != len(trees):
        raise Other
    yes, no = node.attribute("nodes_truenodeids"), node.attribute("nodes_falsenodeids")
    children = np.repeat(np.arange(len(trees)), 2)
    parents: dict[int, int] = {}
    for k, (tree, mode) in enumerate(zip(trees, modes, strict=True)):
        if mode != "LEAF":
            children[2 * k], children[2 * k + 1] = number[tree, no[k]], number[tree, yes[k]]
            parents[number[tree, no[k]]] = parents[number[tree, yes[k]]] = k
    first: dict[int, int] = {}
    for k, tree in enumerate(trees):
        first.setdefault(tree, k)
    kinds = tuple(sorted({mode for mode in modes if mode != "LEAF"})) or ("BRANCH_LEQ",)
    if not set(kinds) <= set(COMPARE):
        raise Other
    tracks = node.attribute("nodes_missing_value_tracks_true")
    leaf = np.array([mode == "LEAF" for mode in modes])
    values = np.array(listed(node, "nodes_values"), np.float32)
    forest = Forest(
        np.array([first[tree] for tree in sorted(first)]),
        np.where(leaf, 0, np.array(node.attribute("nodes_featureids"))),
        values,
        children,
        kinds,
        np.array([kinds.index(mode) if mode != "LEAF" else 0 for mode in modes]),
        np.array(tracks, bool) if tracks and any(tracks) else None,
        _depth(children, list(first.values())),
    )
    return forest, number


def _depth(children: np.ndarray, roots: list[int]) -> int:
    """Levels below the roots; what goes round in a circle is not for NumPy."""
    state, depth = np.unique(np.array(roots)), 0
    inner = children[0::2] != np.arange(len(children) // 2)
    while (state := state[inner[state]]).size:
        state = np.unique(np.concatenate([children[2 * state], children[2 * state + 1]]))
        depth += 1
        if depth > min(len(children), _DEEPEST):
            raise Other
    return depth


def weights_of(node: Node, kind: str, count: int, number: dict[tuple[int, int], int], targets: int) -> np.ndarray:
    """What each node adds to each target [nodes, targets]."""
    trees, nodes, ids = (node.attribute(f"{kind}_{name}") for name in ("treeids", "nodeids", "ids"))
    if count * targets > _MOST_WEIGHTS:
        raise Other
    table = np.zeros((count, targets), np.float32)
    places = [number[key] for key in zip(trees, nodes, strict=True)]
    np.add.at(table, (places, list(ids)), np.array(listed(node, f"{kind}_weights"), np.float32))
    return table


def made_once(make: Callable[[], Any]) -> Callable[[], Any]:
    """Made when the first run asks: what cannot be is the evaluator's."""
    found: list[Any] = []

    def get() -> Any:
        if not found:
            try:
                found.append(make())
            except (KeyError, ValueError, TypeError, IndexError):
                raise Other from None
        return found[0]

    return get


def classes_of(node: Node, integers: str, words: str) -> np.ndarray:
    labels = node.attribute(integers)
    if labels is not None:
        return np.array(labels, np.int64)
    return np.array(list(node.attribute(words)), object)


def _transformed(scores: Any, how: str) -> Any:
    if how == "NONE":
        return scores
    if how == "LOGISTIC":
        return (1 / (1 + np.exp(-scores))).astype(scores.dtype)
    if how == "SOFTMAX":
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)
    raise Other


def _how(node: Node) -> str:
    return str(node.attribute("post_transform", "NONE"))


def _tree_classifier(node: Node) -> PlainFunction:
    def make() -> tuple[Forest, np.ndarray, np.ndarray, bool]:
        forest, number = forest_of(node)
        classes = classes_of(node, "classlabels_int64s", "classlabels_strings")
        table = weights_of(node, "class", len(number), number, len(classes))
        return forest, table, classes, len(set(node.attribute("class_ids"))) == 1

    ready, how, base = made_once(make), _how(node), listed(node, "base_values")

    def run(data: Any) -> Any:
        forest, table, classes, binary = ready()
        if data.dtype.kind != "f" or data.ndim != 2 or len(classes) < 2 or (binary and len(classes) != 2):
            raise Other
        scores = table[forest.leaves(data)].sum(axis=1)
        if base is not None:
            scores = scores + np.array(base, np.float32)
        if binary:
            (own,) = set(node.attribute("class_ids"))
            if own != 0 and base is not None:
                raise Other
            score = scores[:, own]
            scores = np.stack([1 - score if how == "NONE" else -score, score], axis=1)
        return classes[np.argmax(scores, axis=1)], _transformed(scores, how)

    return run


def _tree_regressor(node: Node) -> PlainFunction:
    targets, how = node.attribute("n_targets", 1), node.attribute("aggregate_function", "SUM")

    def make() -> tuple[Forest, np.ndarray]:
        forest, number = forest_of(node)
        return forest, weights_of(node, "target", len(number), number, targets)

    ready, base = made_once(make), listed(node, "base_values")

    def run(data: Any) -> Any:
        forest, table = ready()
        if data.dtype != np.float32 or data.ndim != 2 or _how(node) != "NONE" or (targets > 1 and how[0] == "M"):
            raise Other
        each = table[forest.leaves(data)]
        if how in ("SUM", "AVERAGE"):
            found = each.sum(axis=1) / np.float32(len(forest.roots) if how == "AVERAGE" else 1)
        else:
            found = each.min(axis=1) if how == "MIN" else each.max(axis=1)
        return found if base is None else found + np.array(base, np.float32)

    return run


_KINDS = tuple(COMPARE)
"""Of branches, by their number in TreeEnsemble."""


def _array(node: Node, name: str) -> Any:
    found = node.attribute(name)
    return found.array if isinstance(found, Constant) else np.array(found)


def ensemble_of(node: Node) -> tuple[Forest, np.ndarray]:
    """The trees of a node in the form of inner nodes and leaves, which come behind them, and what each adds to each target."""
    modes, weights = _array(node, "nodes_modes").astype(int), _array(node, "leaf_weights")
    inner, leaves, targets = len(modes), len(weights), node.attribute("n_targets", 1)
    if modes.max(initial=0) >= len(_KINDS) or (inner + leaves) * targets > _MOST_WEIGHTS or weights.dtype != np.float32:
        raise Other
    children = np.repeat(np.arange(inner + leaves), 2)
    for side, branch in enumerate(("false", "true")):
        places, ends = (
            np.array(node.attribute(f"nodes_{branch}nodeids")),
            np.array(node.attribute(f"nodes_{branch}leafs")),
        )
        children[side : 2 * inner : 2] = np.where(ends, places + inner, places)
    whole = np.zeros(inner + leaves, int)
    features, splits, tracks = whole.copy(), whole.astype(np.float32), node.attribute("nodes_missing_value_tracks_true")
    features[:inner], splits[:inner] = node.attribute("nodes_featureids"), _array(node, "nodes_splits")
    mode, missing, roots = whole.copy(), whole.astype(bool), np.array(node.attribute("tree_roots"))
    mode[:inner], missing[:inner] = modes, tracks or False
    table = np.zeros((inner + leaves, targets), np.float32)
    np.add.at(table, (inner + np.arange(leaves), list(node.attribute("leaf_targetids"))), weights)
    kinds = tuple(sorted(set(modes.tolist())))
    mode = np.searchsorted(kinds, np.where(np.isin(mode, kinds), mode, kinds[0]))
    depth = _depth(children, roots.tolist())
    names = tuple(_KINDS[kind] for kind in kinds)
    return Forest(roots, features, splits, children, names, mode, missing if missing.any() else None, depth), table


def _tree_ensemble(node: Node) -> PlainFunction:
    ready, how = made_once(lambda: ensemble_of(node)), node.attribute("aggregate_function", 1)

    def run(data: Any) -> Any:
        forest, table = ready()
        if data.dtype != np.float32 or data.ndim != 2 or node.attribute("post_transform", 0) or how > 1:
            raise Other
        found = table[forest.leaves(data)].sum(axis=1)
        return found / np.float32(len(forest.roots)) if how == 0 else found

    return run


def _linear_scores(node: Node, data: Any, targets: int) -> Any:
    if data.dtype.kind not in "fiu" or data.ndim != 2:
        raise Other
    data = data if data.dtype == np.float64 else data.astype(np.float32)
    weights = np.array(node.attribute("coefficients"), data.dtype).reshape(targets, -1)
    intercepts = node.attribute("intercepts")
    scores = data @ weights.T
    return scores if intercepts is None else scores + np.array(intercepts, data.dtype)


def _linear_classifier(node: Node) -> PlainFunction:
    how = _how(node)

    def run(data: Any) -> Any:
        classes = classes_of(node, "classlabels_ints", "classlabels_strings")
        count = len(node.attribute("coefficients")) // max(1, data.shape[-1])
        if count != len(classes) or count < 2:
            raise Other
        found = _transformed(_linear_scores(node, data, count), how)
        return classes[np.argmax(found, axis=1)], found

    return run


def _linear_regressor(node: Node) -> PlainFunction:
    def run(data: Any) -> Any:
        if _how(node) != "NONE":
            raise Other
        return _linear_scores(node, data, node.attribute("targets", 1))

    return run


def _scaler(node: Node) -> PlainFunction:
    offset, scale = (np.array(node.attribute(name, ()), np.float32) for name in ("offset", "scale"))

    def run(data: Any) -> Any:
        if data.dtype != np.float32 or not offset.size or not scale.size:
            raise Other
        return (data - offset) * scale

    return run


def _normalizer(node: Node) -> PlainFunction:
    norm = node.attribute("norm", "MAX")

    def run(data: Any) -> Any:
        if data.dtype != np.float32 or data.ndim != 2:
            raise Other
        if norm == "MAX":  # of the values, not of their magnitudes
            size = data.max(axis=1, keepdims=True)
            return data / np.where(size == 0, np.float32(1), size)
        squares = (data * data).sum(axis=1, keepdims=True)
        size = np.abs(data).sum(axis=1, keepdims=True) if norm == "L1" else np.sqrt(squares)
        return data / np.maximum(size, np.float32(1e-30))

    return run


def _binarizer(node: Node) -> PlainFunction:
    return lambda data: (data > node.attribute("threshold", 0.0)).astype(data.dtype)


def _extractor(node: Node) -> PlainFunction:
    def run(data: Any, places: Any) -> Any:
        found = data[..., places.reshape(-1)]
        return found.reshape(1, -1) if data.ndim == 1 else found

    return run


def _zip_map(node: Node) -> PlainFunction:
    """A dictionary for each row, which is what it gives out."""

    ready = made_once(lambda: classes_of(node, "classlabels_int64s", "classlabels_strings").tolist())

    def run(data: Any) -> Any:
        classes = ready()
        rows = data.reshape(1, -1) if data.ndim == 1 else data
        if rows.ndim != 2 or rows.shape[1] != len(classes):
            raise Other
        if 0 < len(classes) < len(rows):
            return _by_columns(classes, rows)
        return list(map(dict, map(zip, repeat(classes), rows.tolist())))

    return run


def _by_columns(classes: list[Any], rows: Any) -> list[dict[Any, Any]]:
    """The same dictionaries, of which many get one key after another: 64 of two in a third of the time."""
    (first, *keys), (column, *columns) = classes, rows.T.tolist()
    found = [{first: value} for value in column]
    for key, column in zip(keys, columns, strict=True):
        for row, value in zip(found, column, strict=True):
            row[key] = value
    return found


CLASSIC: tuple[Plain, ...] = (
    Plain("ArrayFeatureExtractor", 1, _extractor, domain=_DOMAIN),
    Plain("Binarizer", 1, _binarizer, domain=_DOMAIN),
    Plain("LinearClassifier", 1, _linear_classifier, domain=_DOMAIN),
    Plain("LinearRegressor", 1, _linear_regressor, domain=_DOMAIN),
    Plain("Normalizer", 1, _normalizer, domain=_DOMAIN),
    Plain("Scaler", 1, _scaler, domain=_DOMAIN),
    Plain("TreeEnsemble", 5, _tree_ensemble, domain=_DOMAIN),
    Plain("TreeEnsembleClassifier", 1, _tree_classifier, domain=_DOMAIN),
    Plain("TreeEnsembleRegressor", 1, _tree_regressor, domain=_DOMAIN),
    Plain("ZipMap", 1, _zip_map, domain=_DOMAIN),
)
