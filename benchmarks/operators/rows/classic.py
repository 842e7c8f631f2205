"""Operators of classical machine learning: one sample, and a batch of a thousand."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.operators.row import Row, ids, words, x

_DOMAIN = "ai.onnx.ml"
_FEATURES = 32
_ROWS = ((x(1, _FEATURES),), (x(1000, _FEATURES),))


def _numbers(count: int, seed: int = 0) -> list[float]:
    return [float(v) for v in np.random.default_rng(seed).uniform(-1, 1, count).astype(np.float32)]


def _forest(trees: int, depth: int) -> dict[str, Any]:
    """The attributes of TreeEnsemble: full trees, nodes numbered from the root down, features and splits by chance."""
    rng, inner, leaves = np.random.default_rng(0), 2**depth - 1, 2**depth
    last = 2 ** (depth - 1) - 1
    below = [2 * n + 1 if n < last else 2 * (n - last) for n in range(inner)]
    trues = [tree * (inner if n < last else leaves) + below[n] for tree in range(trees) for n in range(inner)]
    falses = [place + 1 for place in trues]
    at_end = [int(n >= last) for _ in range(trees) for n in range(inner)]
    return {
        "tree_roots": [tree * inner for tree in range(trees)],
        "nodes_featureids": [int(f) for f in rng.integers(0, _FEATURES, trees * inner)],
        "nodes_modes": np.zeros(trees * inner, np.uint8),
        "nodes_splits": rng.uniform(-1, 1, trees * inner).astype(np.float32),
        "nodes_truenodeids": trues,
        "nodes_falsenodeids": falses,
        "nodes_trueleafs": at_end,
        "nodes_falseleafs": at_end,
        "leaf_targetids": [0] * (trees * leaves),
        "leaf_weights": rng.uniform(-1, 1, trees * leaves).astype(np.float32),
        "n_targets": 1,
    }


_SUPPORT = {
    "kernel_type": "RBF",
    "kernel_params": [0.1, 0.0, 3.0],
    "support_vectors": _numbers(100 * _FEATURES, 1),
    "rho": [0.1],
}


def _row(op: str, attributes: dict[str, Any] | None = None, sizes: Any = _ROWS, outputs: int = 1) -> Row:
    return Row(op, sizes, attributes or {}, outputs, _DOMAIN)


CLASSIC: tuple[Row, ...] = (
    _row("ArrayFeatureExtractor", sizes=tuple((*row, ids(_FEATURES, 1, 8)) for row in _ROWS)),
    _row("Binarizer", {"threshold": 0.5}),
    _row(
        "CategoryMapper",
        {"cats_strings": ["Monday", "tuesday", "x1"], "cats_int64s": [1, 2, 3], "default_int64": -1},
        ((words(8),), (words(1000),)),
    ),
    _row(
        "FeatureVectorizer", {"inputdimensions": [_FEATURES, 8]}, tuple((x(n, _FEATURES), x(n, 8)) for n in (1, 1000))
    ),
    _row("Imputer", {"imputed_value_floats": [0.5] * _FEATURES, "replaced_value_float": float("nan")}),
    _row(
        "LabelEncoder",
        {"keys_int64s": list(range(100)), "values_int64s": list(range(100, 200)), "default_int64": -1},
        ((ids(120, 8),), (ids(120, 10000),)),
    ),
    _row(
        "LinearClassifier",
        {
            "coefficients": _numbers(10 * _FEATURES),
            "intercepts": _numbers(10),
            "classlabels_ints": list(range(10)),
            "post_transform": "SOFTMAX",
        },
        outputs=2,
    ),
    _row("LinearRegressor", {"coefficients": _numbers(_FEATURES), "intercepts": [0.5], "targets": 1}),
    _row("Normalizer", {"norm": "L2"}),
    _row("OneHotEncoder", {"cats_int64s": list(range(20)), "zeros": 1}, ((ids(20, 1, 4),), (ids(20, 1000, 4),))),
    _row("Scaler", {"scale": _numbers(_FEATURES), "offset": _numbers(_FEATURES, 2)}),
    _row(
        "SVMClassifier",
        {**_SUPPORT, "coefficients": _numbers(100), "vectors_per_class": [50, 50], "classlabels_ints": [0, 1]},
        outputs=2,
    ),
    _row("SVMRegressor", {**_SUPPORT, "coefficients": _numbers(100), "n_supports": 100}),
    _row("TreeEnsemble", _forest(100, 6)),
    _row("ZipMap", {"classlabels_int64s": list(range(_FEATURES))}),
)
