"""Support vector machines with probabilities agree with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ops.plain.test_classic import by_onnx_runtime, nobody

from fusewise.ir.graph import Node, attributes_of
from fusewise.ops.plain.machines import coupled
from fusewise.ops.plain.table import plain_evaluator


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("count, kernel", [(2, "RBF"), (3, "POLY"), (5, "SIGMOID"), (4, "LINEAR")])
def test_probabilities_of_classes(count: int, kernel: str, words: bool) -> None:
    rng = np.random.default_rng(count)
    sizes = [int(n) for n in rng.integers(1, 5, count)]
    total, pairs = sum(sizes), count * (count - 1) // 2
    floats = {
        "support_vectors": rng.uniform(-1, 1, 3 * total),
        "coefficients": rng.uniform(-1, 1, (count - 1) * total),
        "rho": rng.uniform(-0.2, 0.2, pairs),
        "prob_a": rng.uniform(-4, -1, pairs),
        "prob_b": rng.uniform(-0.5, 0.5, pairs),
        "kernel_params": [0.7, 0.3, 2.0],
    }
    attributes = {name: [float(v) for v in np.float32(values)] for name, values in floats.items()}
    classes = (
        {"classlabels_strings": list("edcba"[:count])} if words else {"classlabels_ints": list(range(9, 9 - count, -1))}
    )
    attributes |= {"kernel_type": kernel, "vectors_per_class": sizes, **classes}
    data = rng.uniform(-2, 2, (40, 3)).astype(np.float32)
    run = plain_evaluator(
        Node("SVMClassifier", ("x",), ("label", "scores"), attributes_of(**attributes), "ai.onnx.ml"), 1, nobody
    )
    assert run is not None
    labels, scores = run(data)
    expected = by_onnx_runtime("SVMClassifier", data, 2, **attributes)
    np.testing.assert_array_equal(labels, expected[0])
    np.testing.assert_allclose(scores, expected[1], atol=1e-5)


def one_row(pairs: np.ndarray) -> np.ndarray:
    """As LIBSVM couples the probabilities of one row, number by number."""
    count = len(pairs)
    q = -pairs * pairs.T
    for k in range(count):
        q[k, k] = sum(pairs[j, k] ** 2 for j in range(count) if j != k)
    p = np.full(count, 1 / count)
    for _ in range(max(100, count)):
        qp = q @ p
        whole = p @ qp
        if np.abs(qp - whole).max() < 0.005 / count:
            break
        for k in range(count):
            step = (whole - qp[k]) / q[k, k]
            p[k] += step
            whole = (whole + step * (step * q[k, k] + 2 * qp[k])) / (1 + step) ** 2
            qp = (qp + step * q[k]) / (1 + step)
            p /= 1 + step
    return p


@given(st.integers(2, 6), st.integers(0, 40), st.integers(0, 2**32 - 1), st.sampled_from([0.3, 1.0, 6.0]))
def test_rows_are_coupled_as_each_by_itself(count: int, rows: int, seed: int, spread: float) -> None:
    """Some are near enough at once, some after many rounds, and stay as they were then."""
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(count, 1)
    likely = np.clip(1 / (1 + np.exp(spread * rng.standard_normal((rows, len(first))))), 1e-7, 1 - 1e-7)
    pairs = np.zeros((rows, count, count))
    pairs[:, first, second], pairs[:, second, first] = likely, 1 - likely
    expected = np.array([one_row(row) for row in pairs]).reshape(rows, count)
    np.testing.assert_allclose(coupled(pairs), expected, atol=1e-9)


def test_classes_that_are_alike_beside_each_other_are_equally_probable() -> None:
    np.testing.assert_allclose(coupled(np.full((2, 3, 3), 0.5)), np.full((2, 3), 1 / 3))
