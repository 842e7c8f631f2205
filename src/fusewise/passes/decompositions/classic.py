"""Operators of classical machine learning (`ai.onnx.ml`) by those of networks: scaling, encodings, linear models, kernels.

Results are float32 whatever the data are, unless an operator says otherwise. What only text or an option asks for that networks
have no operator for stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fusewise.ir.dtypes import FLOAT32, FLOAT64, INT64
from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["CLASSIC", "CLASSIC_DOMAIN", "classes_of", "labels_of"]

CLASSIC_DOMAIN = "ai.onnx.ml"

_WIDEST_TABLE = 1 << 16
"""Keys from the least to the largest of which a table is made."""

_MOST_PAIRS = 66
"""Of classes, whose scores are looked at on the host: of twelve."""


def _floats(call: Call, name: str) -> np.ndarray:
    return np.array(call.attribute(name) or (), np.float32)


def _fits(numbers: np.ndarray, x: TensorValue) -> bool:
    """One number, or one for each feature?"""
    return x.rank > 0 and numbers.size in (1, x.dims[-1])


def classes_of(call: Call) -> np.ndarray:
    """The labels of all classes, whole numbers or words; none where there are neither or both."""
    numbers = call.attribute("classlabels_int64s") or call.attribute("classlabels_ints") or ()
    words = call.attribute("classlabels_strings") or ()
    if numbers and words:
        return np.empty(0, np.int64)
    return np.array(words, object) if words else np.array(numbers, np.int64)


def labels_of(g: Notation, classes: np.ndarray, scores: TensorValue) -> TensorValue:
    """The label of each row's largest score."""
    return g.Gather(g.constant(classes), g.ArgMax(scores, axis=1, keepdims=0))


def _scaler(g: Notation, call: Call, x: TensorValue) -> TensorValue | None:
    offset, scale = _floats(call, "offset"), _floats(call, "scale")
    return (g.cast(x, FLOAT32) - offset) * scale if _fits(offset, x) and _fits(scale, x) else None


def _binarizer(g: Notation, call: Call, x: TensorValue) -> TensorValue:
    threshold = float(call.attribute("threshold", 0.0))
    wide = x if x.dtype.is_float else g.cast(x, FLOAT64)
    return g.cast(g.Greater(wide, threshold), x.dtype)


def _normalizer(g: Notation, call: Call, x: TensorValue) -> TensorValue | None:
    """A row stays as it is where it would be divided by zero. `MAX` is of the values, not of their magnitudes."""
    norm, data = call.attribute("norm", "MAX"), g.cast(x, FLOAT32)
    if norm not in ("MAX", "L1", "L2") or not 0 < x.rank < 3:
        return None
    if norm == "MAX":
        largest = g.ReduceMax(data, [-1], keepdims=1)
        return data / g.Where(g.Equal(largest, 0.0), 1.0, largest) if x.dims[-1] else data
    reduce = g.ReduceL1 if norm == "L1" else g.ReduceL2
    return data / g.Max(reduce(data, [-1], keepdims=1), 1e-30)


def _imputer(g: Notation, call: Call, x: TensorValue) -> TensorValue | None:
    integers = call.attribute("imputed_value_int64s")
    if x.dtype == INT64 and integers:
        found = np.array(integers, np.int64)
        missing = g.Equal(x, int(call.attribute("replaced_value_int64", 0)))
        return g.Where(missing, found, x) if _fits(found, x) else None
    imputed, replaced = _floats(call, "imputed_value_floats"), float(call.attribute("replaced_value_float", 0.0))
    if x.dtype != FLOAT32 or not _fits(imputed, x):
        return None
    missing = g.IsNaN(x) if np.isnan(replaced) else g.Equal(x, replaced)
    return g.Where(missing, imputed, x)


def _extractor(g: Notation, call: Call, x: TensorValue, places: TensorValue) -> TensorValue:
    return g.reshape(g.Gather(x, g.reshape(places, [places.size]), axis=-1), call.output().dims)


def _vectorizer(g: Notation, call: Call, *parts: TensorValue) -> TensorValue | None:
    widths = list(call.attribute("inputdimensions") or ())
    if [part.dims[-1] if part.rank == 2 else None for part in parts] != widths:
        return None
    return g.Concat(*(g.cast(part, FLOAT32) for part in parts), axis=1)


def _one_hot(g: Notation, call: Call, x: TensorValue) -> TensorValue | None:
    categories = call.attribute("cats_int64s")
    if not categories or not call.attribute("zeros", 1):
        return None
    whole = g.cast(x, INT64)
    return g.cast(g.Equal(g.Unsqueeze(whole, [-1]), np.array(categories, np.int64)), FLOAT32)


def _encoder(g: Notation, call: Call, x: TensorValue) -> TensorValue | None:
    """A table from the least key to the largest, with the default between them and at both ends."""
    keys, values, default = (
        call.attribute("keys_int64s"),
        call.attribute("values_int64s"),
        call.attribute("default_int64", -1),
    )
    kind: Any = np.int64
    if values is None:
        values, default, kind = call.attribute("values_floats"), call.attribute("default_float", -0.0), np.float32
    if not keys or not values or x.dtype != INT64:
        return None
    low, high = min(keys), max(keys)
    if high - low > _WIDEST_TABLE or low == -(2**63) or high == 2**63 - 1:
        return None
    table = np.full(high - low + 3, default, kind)
    table[np.array(keys[::-1]) - low + 1] = np.array(values[::-1], kind)
    return g.Gather(g.constant(table), g.Clip(x, low - 1, high + 1) - (low - 1))


def _scores(g: Notation, call: Call, x: TensorValue, targets: int) -> TensorValue | None:
    """x [rows, features] by the coefficients of each target, with its intercept."""
    weights, intercepts = _floats(call, "coefficients"), _floats(call, "intercepts")
    if x.rank != 2 or weights.size != targets * x.dims[1] or intercepts.size not in (0, targets):
        return None
    found = g.MatMul(g.cast(x, FLOAT32), np.ascontiguousarray(weights.reshape(targets, -1).T))
    return found + intercepts if intercepts.size else found


def _linear_regressor(g: Notation, call: Call, x: TensorValue) -> TensorValue | None:
    if call.attribute("post_transform", "NONE") != "NONE":
        return None
    return _scores(g, call, x, call.attribute("targets", 1))


def _linear_classifier(g: Notation, call: Call, x: TensorValue) -> tuple[TensorValue, ...] | None:
    classes, how = classes_of(call), call.attribute("post_transform", "NONE")
    if len(classes) < 2 or how not in ("NONE", "SOFTMAX", "LOGISTIC"):
        return None
    scores = _scores(g, call, x, len(classes))
    if scores is None:
        return None
    found = g.Softmax(scores, axis=1) if how == "SOFTMAX" else g.Sigmoid(scores) if how == "LOGISTIC" else scores
    return labels_of(g, classes, scores), found


def _kernel(g: Notation, call: Call, x: TensorValue, vectors: np.ndarray) -> TensorValue | None:
    """How alike each row of x [rows, features] and each of `vectors` are: [rows, vectors]."""
    gamma, coefficient, degree = (*(call.attribute("kernel_params") or ()), 0.0, 0.0, 0.0)[:3]
    kind = call.attribute("kernel_type", "LINEAR")
    if kind == "RBF":
        return g.Exp(g.ReduceSumSquare(g.Unsqueeze(x, [1]) - vectors[None], [2], keepdims=0) * -gamma)
    product = g.MatMul(x, np.ascontiguousarray(vectors.T))
    if kind == "LINEAR":
        return product
    moved = product * gamma + coefficient
    return g.Pow(moved, degree) if kind == "POLY" else g.Tanh(moved) if kind == "SIGMOID" else None


def _support_regressor(g: Notation, call: Call, x: TensorValue) -> TensorValue | None:
    vectors, weights, rho = (_floats(call, name) for name in ("support_vectors", "coefficients", "rho"))
    count = call.attribute("n_supports", 0)
    whole = x.rank == 2 and count > 0 and vectors.size == count * x.dims[1] and weights.size == count and rho.size == 1
    if not whole or call.attribute("one_class", 0) or call.attribute("post_transform", "NONE") != "NONE":
        return None
    alike = _kernel(g, call, g.cast(x, FLOAT32), vectors.reshape(count, -1))
    return None if alike is None else g.MatMul(alike, weights.reshape(-1, 1)) + rho


def _support_classifier(g: Notation, call: Call, x: TensorValue) -> tuple[TensorValue, ...] | None:
    """Every two classes vote by the sign of their score; two classes alone have the score and its opposite."""
    classes, sizes = classes_of(call), call.attribute("vectors_per_class") or ()
    vectors, weights, rho = (_floats(call, name) for name in ("support_vectors", "coefficients", "rho"))
    count, total = len(classes), sum(sizes)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    fits = len(sizes) == count and weights.size == (count - 1) * total and rho.size == len(pairs)
    if count < 2 or not total or not fits or x.rank != 2 or vectors.size != total * x.dims[1]:
        return None
    likely = [_floats(call, name).size for name in ("prob_a", "prob_b")]
    has_own = _has_own_vectors(call, vectors, len(pairs)) or len(pairs) > _MOST_PAIRS
    if call.attribute("post_transform", "NONE") != "NONE" or (any(likely) and (likely != 2 * [len(pairs)] or has_own)):
        return None
    alike = _kernel(g, call, g.cast(x, FLOAT32), vectors.reshape(total, -1))
    if alike is None:
        return None
    of_class = np.repeat(np.arange(count), sizes)
    each = weights.reshape(count - 1, total)
    columns = [np.where(of_class == i, each[j - 1], np.where(of_class == j, each[i], 0)) for i, j in pairs]
    scores = g.MatMul(alike, np.stack(columns, 1).astype(np.float32)) + rho
    if any(likely):
        return _probable(g, call, scores, pairs)
    votes = np.array([[(c == i) - (c == j) for c in range(count)] for i, j in pairs], np.float32)
    second = np.array([sum(c == j for _, j in pairs) for c in range(count)], np.float32)
    found = g.MatMul(g.cast(g.Greater(scores, 0.0), FLOAT32), votes) + second
    return labels_of(g, classes, found), g.Concat(-scores, scores, axis=1) if count == 2 else scores


def _has_own_vectors(call: Call, vectors: np.ndarray, pairs: int) -> bool:
    """Is it as `_probable` writes it?"""
    linear = call.attribute("kernel_type", "LINEAR") == "LINEAR"
    return linear and vectors.size == pairs**2 and np.array_equal(vectors.reshape(pairs, pairs), np.eye(pairs))


def _probable(
    g: Notation, call: Call, scores: TensorValue, pairs: Sequence[tuple[int, int]]
) -> tuple[TensorValue, ...]:
    """Labels and probabilities of the scores of pairs: what is left of the operator, which goes on until it is near enough. Each
    pair has one vector, which is its score's and belongs to its first class."""
    count = len(call.attribute("vectors_per_class"))
    coefficients = np.zeros((count - 1, len(pairs)), np.float32)
    coefficients[[j - 1 for _, j in pairs], range(len(pairs))] = 1
    return g.several(
        "ai.onnx.ml.SVMClassifier",
        2,
        scores,
        kernel_type="LINEAR",
        support_vectors=np.eye(len(pairs), dtype=np.float32).reshape(-1).tolist(),
        vectors_per_class=[count - 1 - i for i in range(count)],
        coefficients=coefficients.reshape(-1).tolist(),
        rho=[0.0] * len(pairs),
        **{name: call.attribute(name) for name in ("prob_a", "prob_b", "classlabels_ints", "classlabels_strings")},
    )


CLASSIC: tuple[Decomposition, ...] = (
    row("ArrayFeatureExtractor", _extractor),
    row("Binarizer", _binarizer),
    row("FeatureVectorizer", _vectorizer),
    row("Imputer", _imputer),
    row("LabelEncoder", _encoder),
    row("LinearClassifier", _linear_classifier),
    row("LinearRegressor", _linear_regressor),
    row("Normalizer", _normalizer),
    row("OneHotEncoder", _one_hot),
    row("SVMClassifier", _support_classifier),
    row("SVMRegressor", _support_regressor),
    row("Scaler", _scaler),
)
