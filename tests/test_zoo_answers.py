"""Every zoo model compiles to native code and gives ONNX Runtime's answers."""

from __future__ import annotations

import numpy as np
import pytest

from fusewise import api
from fusewise.ir.graph import Graph
from fusewise.zoo.catalogue import MODELS, build

TOLERANCE = 1e-5
"""Largest difference over largest magnitude, float32 (both sides reassociate)."""


SEEDS = {row.name: (1,) for row in MODELS} | {"mobilenet_v1_ssd": (1, 0, 7)}
"""Seeds of the inputs of each model: more of that whose answers come nearest to the tolerance."""


def feeds_for(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    found: dict[str, np.ndarray] = {}
    for value in graph.inputs:
        kind = graph.tensor(value)
        if kind.dtype.is_float:
            found[value] = rng.standard_normal(kind.dims, dtype=np.float32)
        else:
            high = 2 if "mask" in value or "type" in value else 1000
            found[value] = rng.integers(0, high, kind.dims).astype(kind.dtype.numpy)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEDS)
def test_zoo_model_gives_the_same_answers(name: str) -> None:
    import onnxruntime

    graph = build(name)
    every = [feeds_for(graph, seed) for seed in SEEDS[name]]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    data = api.to_onnx(graph).SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    expected = [session.run(None, feeds) for feeds in every]
    del session, data
    # what follows from the data runs on the host
    model = api.compile(graph, strict="rcnn" not in name)
    for seed, feeds, answers in zip(SEEDS[name], every, expected, strict=True):
        for value, found, wanted in zip(graph.outputs, model.run(None, feeds), answers, strict=True):
            error = np.max(np.abs(found.astype(np.float64) - wanted)) / np.max(np.abs(wanted))
            print(f"{name} {value}, seed {seed}: relative error {error:.1e}")
            assert found.shape == wanted.shape
            assert error <= TOLERANCE
