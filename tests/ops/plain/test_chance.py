"""Random numbers: their distributions, types and shapes, and what a seed does."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fusewise

MANY = 40_000


def run(op: str, operand: np.ndarray | None = None, **attributes: object) -> list[np.ndarray]:
    """The answers of two runs of one compiled model."""
    ports = []
    if operand is not None:
        ports = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(operand.dtype), operand.shape)]
    node = helper.make_node(op, ["x"] if ports else [], ["y"], **attributes)
    graph = helper.make_graph([node], "chance", ports, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    compiled = fusewise.compile(model, threads=1)
    return [compiled.run(None, {} if operand is None else {"x": operand})[0] for _ in range(2)]


def near(found: float, expected: float, deviation: float) -> None:
    """An average of `MANY` numbers lies within five of its standard errors."""
    assert abs(found - expected) < 5 * deviation / np.sqrt(MANY)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
@pytest.mark.parametrize("like", [False, True])
def test_normal(dtype: int, like: bool) -> None:
    wanted = helper.tensor_dtype_to_np_dtype(dtype)
    given = {"mean": 0.5, "scale": 2.0, "seed": 3.0}
    operand = np.zeros((MANY // 4, 4), wanted) if like else None
    y, again = run(
        "RandomNormalLike" if like else "RandomNormal",
        operand,
        **given,
        **({} if like else {"shape": [MANY // 4, 4], "dtype": dtype}),
    )
    assert y.dtype == wanted and y.shape == (MANY // 4, 4)
    np.testing.assert_array_equal(y, again)
    z = (y.astype(np.float64) - 0.5) / 2
    near(z.mean(), 0, 1)
    near((z**2).mean(), 1, np.sqrt(2))
    near((z**4).mean(), 3, np.sqrt(96))
    near((np.abs(z) < 1).mean(), 0.682689, 0.4654)
    near((z[:, :-1] * z[:, 1:]).mean() / np.sqrt(3 / 4), 0, 2)


@pytest.mark.parametrize("like", [False, True])
def test_uniform(like: bool) -> None:
    operand = np.zeros(MANY, np.float32) if like else None
    given = {"low": -1.0, "high": 3.0, "seed": 1.5, **({} if like else {"shape": [MANY]})}
    y, _ = run("RandomUniformLike" if like else "RandomUniform", operand, **given)
    assert y.dtype == np.float32 and y.min() >= -1 and y.max() < 3
    counts, _ = np.histogram(y, 16, (-1, 3))
    assert ((counts - MANY / 16) ** 2 / (MANY / 16)).sum() < 45  # chi squared of 15 degrees, one time in ten thousand


def test_bernoulli() -> None:
    chance = np.repeat(np.array([0.0, 0.25, 0.5, 1.0], np.float32), MANY).reshape(4, MANY)
    y, _ = run("Bernoulli", chance, seed=2.0, dtype=TensorProto.BOOL)
    assert y.dtype == bool and not y[0].any() and y[3].all()
    for row, p in zip(y, chance[:, 0], strict=True):
        near(row.mean(), float(p), 0.5 + 1e-9)


def test_multinomial() -> None:
    chance = np.array([[0.1, 0.2, 0.0, 0.7], [1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25]])
    with np.errstate(divide="ignore"):
        y, _ = run(
            "Multinomial", (np.log(chance) + 7).astype(np.float32), sample_size=MANY, seed=4.0, dtype=TensorProto.INT64
        )
    assert y.dtype == np.int64 and y.shape == (3, MANY)
    for row, expected in zip(y, chance, strict=True):
        for outcome, p in enumerate(expected):
            near((row == outcome).mean(), float(p), np.sqrt(p * (1 - p)) + 1e-9)


def test_without_a_seed_runs_differ_and_seeds_differ() -> None:
    first, second = run("RandomNormal", shape=[8])
    assert (first != second).any()
    (one, _), (other, _) = (run("RandomNormal", shape=[8], seed=seed) for seed in (0.25, 0.5))
    assert (one != other).any()
