"""Steps of optimisers, natively, against the text's pseudo code in float64."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import fusewise

DOMAIN = "ai.onnx.preview.training"
KEPT = {"Adagrad": 1, "Adam": 2, "Momentum": 1}


def model(op: str, arrays: list[np.ndarray], **attributes: object) -> onnx.ModelProto:
    tensors = (len(arrays) - 2) // (2 + KEPT[op])
    reads, writes = (
        [f"{stem}{k}" for k in range(n)] for stem, n in (("x", len(arrays)), ("y", tensors * (1 + KEPT[op])))
    )
    kinds = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in arrays]
    ports = [
        helper.make_tensor_value_info(name, kind, array.shape)
        for name, kind, array in zip(reads, kinds, arrays, strict=True)
    ]
    results = [helper.make_tensor_value_info(name, kinds[2], None) for name in writes]
    graph = helper.make_graph(
        [helper.make_node(op, reads, writes, domain=DOMAIN, **attributes)], "step", ports, results
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)], ir_version=10
    )


def adagrad(r, t, x, g, h, *, norm_coefficient, decay_factor, epsilon):  # type: ignore[no-untyped-def]
    g = norm_coefficient * x + g
    h = h + g * g
    return x - r / (1 + t * decay_factor) * g / (np.sqrt(h) + epsilon), h


def adam(r, t, x, g, v, h, *, norm_coefficient, norm_coefficient_post, alpha, beta, epsilon):  # type: ignore[no-untyped-def]
    g = norm_coefficient * x + g
    v, h = alpha * v + (1 - alpha) * g, beta * h + (1 - beta) * g * g
    r = r * np.sqrt(1 - beta**t) / (1 - alpha**t) if t > 0 else r
    return (1 - norm_coefficient_post) * (x - r * v / (np.sqrt(h) + epsilon)), v, h


def momentum(r, t, x, g, v, *, norm_coefficient, alpha, beta, mode):  # type: ignore[no-untyped-def]
    g = norm_coefficient * x + g
    v = alpha * v + (beta if t > 0 else 1) * g
    return x - r * (g + alpha * v if mode == b"nesterov" else v), v


STEPS = {
    "Adagrad": (adagrad, ({"norm_coefficient": 0.0, "decay_factor": 0.5, "epsilon": 0.25},)),
    "Adam": (
        adam,
        ({"norm_coefficient": 0.125, "norm_coefficient_post": 0.25, "alpha": 0.75, "beta": 0.5, "epsilon": 0.125},),
    ),
    "Momentum": (
        momentum,
        tuple(
            {"norm_coefficient": 0.5, "alpha": 0.75, "beta": 0.25, "mode": mode} for mode in (b"standard", b"nesterov")
        ),
    ),
}


@pytest.mark.parametrize("op", sorted(STEPS))
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_a_step_of_several_tensors(op: str, data: st.DataObject) -> None:
    step, choices = STEPS[op]
    dtype, kept = data.draw(st.sampled_from((np.float32, np.float64))), KEPT[op]
    shapes = data.draw(st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=3))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    tensors = [rng.uniform(0.1, 1, shape).astype(dtype) for _ in range(2 + kept) for shape in shapes]
    rate, steps = np.array(0.25, dtype), np.array(data.draw(st.integers(0, 3)), np.int64)
    scalar = data.draw(st.booleans())
    given_ = [x if scalar else x.reshape(1) for x in (rate, steps)]
    attributes = data.draw(st.sampled_from(choices))
    found = fusewise.compile(model(op, [*given_, *tensors], **attributes), threads=1, strict=True).run(
        None, {f"x{k}": array for k, array in enumerate((*given_, *tensors))}
    )
    n = len(shapes)
    for k in range(n):
        parts = (tensors[k + n * j].astype(np.float64) for j in range(2 + kept))
        for j, expected in enumerate(step(float(rate), int(steps), *parts, **attributes)):
            assert found[k + n * j].dtype == dtype
            np.testing.assert_allclose(found[k + n * j], expected, rtol=0, atol=1e-6 if dtype == np.float32 else 1e-14)
