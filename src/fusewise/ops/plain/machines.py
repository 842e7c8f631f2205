"""Support vector machines that classify (`ai.onnx.ml`), with probabilities of classes coupled from those of pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from fusewise.ir.graph import Node
from fusewise.ops.plain.classic import classes_of, made_once
from fusewise.ops.plain.row import Other, Plain

__all__ = ["MACHINES", "coupled"]

_CERTAIN = 1e-7
"""A class is as probable beside another at least, and one minus this at most."""

_MOST_ROUNDS = 100

_MOST_FACTORS = 16
"""Of a power."""


def coupled(pairs: np.ndarray) -> np.ndarray:
    """Probabilities of classes [rows, classes] of those of each beside each other [rows, classes, classes].

    The second method of Wu, Lin and Weng (Probability estimates for multi-class classification by pairwise coupling, 2004), a class
    after another, to within the error that LIBSVM stops at: where it stops is part of the answer.
    """
    rows, count, _ = pairs.shape
    own = np.arange(count)
    likely = np.ascontiguousarray(pairs.transpose(1, 2, 0))  # rows last: each step is of one class in all of them
    matrix = -likely * likely.transpose(1, 0, 2)
    matrix[own, own] = (likely**2).sum(axis=0) - likely[own, own] ** 2
    both, found = np.full((2, count, rows), 1 / count), np.empty((count, rows))
    left, going = np.arange(rows), np.ones(rows, bool)
    for _ in range(max(_MOST_ROUNDS, count)):
        p, slopes = both
        np.einsum("ijr,jr->ir", matrix, p, out=slopes)
        whole = np.einsum("ir,ir->r", p, slopes)
        far = going & (np.abs(slopes - whole).max(axis=0, initial=0) >= 0.005 / count)
        ended = going & ~far
        found[:, left[ended]] = p[:, ended]
        going = far
        many = np.count_nonzero(going)
        if not many:
            return found.T
        if 2 * many < going.size:
            left, both, matrix, whole = left[going], both[..., going], matrix[..., going], whole[going]
            going = np.ones(many, bool)
        _come_nearer(both, matrix, whole)
    found[:, left[going]] = both[0][:, going]
    return found.T


def _come_nearer(both: np.ndarray, matrix: np.ndarray, whole: np.ndarray) -> None:
    """One step for each class, in place: `both` are probabilities and slopes [classes, rows], `whole` their products [rows]."""
    p, slopes = both
    for k in range(len(p)):
        step = (whole - slopes[k]) / matrix[k, k]
        slopes += step * matrix[k]
        p[k] += step
        both /= 1 + step
        whole = np.einsum("ir,ir->r", p, slopes)


def _alike(node: Node, data: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The kernel of each row and each of `vectors`: [rows, vectors]."""
    gamma, coefficient, degree = (*(node.attribute("kernel_params") or ()), 0.0, 0.0, 0.0)[:3]
    kind, product = node.attribute("kernel_type", "LINEAR"), data @ vectors.T
    if kind == "RBF":
        squares = (data**2).sum(axis=1)[:, None] + (vectors**2).sum(axis=1) - 2 * product
        return np.asarray(np.exp(-gamma * squares))
    if kind == "POLY":
        moved = gamma * product + coefficient
        if degree == int(degree) and 0 < degree <= _MOST_FACTORS:  # a hundred times as fast as NumPy's powers
            return np.asarray(reduce(np.multiply, [moved] * int(degree)))
        return np.asarray(moved**degree)
    return np.asarray(np.tanh(gamma * product + coefficient) if kind == "SIGMOID" else product)


def _classifier(node: Node) -> Callable[..., Any]:
    """With probabilities: every two classes vote by the sign of their score, which also says how probable the first is."""

    def make() -> tuple[np.ndarray, ...]:
        vectors, weights, rho, a, b = (
            np.array(node.attribute(name) or (), float)
            for name in ("support_vectors", "coefficients", "rho", "prob_a", "prob_b")
        )
        classes = classes_of(node, "classlabels_ints", "classlabels_strings")
        sizes, count = np.array(node.attribute("vectors_per_class") or (), int), len(classes)
        first, second = np.triu_indices(count, 1)
        total = int(sizes.sum())
        fits = len(sizes) == count > 1 and len(rho) == len(a) == len(b) == len(first) and total > 0
        if not fits or node.attribute("post_transform", "NONE") != "NONE":
            raise Other
        each, of_class = weights.reshape(count - 1, total), np.repeat(np.arange(count), sizes)
        columns = [
            np.where(of_class == i, each[j - 1], np.where(of_class == j, each[i], 0))
            for i, j in zip(first, second, strict=True)
        ]
        return classes, vectors.reshape(total, -1), np.stack(columns, 1), rho, a, b, first, second

    ready = made_once(make)

    def run(data: Any) -> Any:
        classes, vectors, columns, rho, a, b, first, second = ready()
        if data.dtype.kind not in "fiu" or data.ndim != 2 or data.shape[1] != vectors.shape[1]:
            raise Other
        rows, count = len(data), len(classes)
        own = np.eye(count)
        scores = _alike(node, data.astype(np.float32).astype(float), vectors) @ columns + rho
        votes = np.where(scores > 0, 1.0, 0.0) @ (own[first] - own[second]) + own[second].sum(axis=0)
        likely = np.clip(1 - 1 / (1 + np.exp(-(scores * a + b))), _CERTAIN, 1 - _CERTAIN)
        pairs = np.zeros((rows, count, count))
        pairs[:, first, second], pairs[:, second, first] = likely, 1 - likely
        return classes[votes.argmax(axis=1)], coupled(pairs).astype(np.float32)

    return run


MACHINES: tuple[Plain, ...] = (Plain("SVMClassifier", 1, _classifier, domain="ai.onnx.ml"),)
