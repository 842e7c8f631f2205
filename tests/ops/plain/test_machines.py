"""Support vector machines with probabilities agree with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
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


def test_classes_that_are_alike_beside_each_other_are_equally_probable() -> None:
    np.testing.assert_allclose(coupled(np.full((2, 3, 3), 0.5)), np.full((2, 3), 1 / 3))
