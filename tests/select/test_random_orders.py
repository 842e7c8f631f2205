"""Every pass alone, and random orders with repetitions: they end, and the answers stay."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fusewise.benchmarking.accuracy import TOLERANCES
from fusewise.benchmarking.inputs import random_feeds
from fusewise.frontend.onnx_export import to_model
from fusewise.ir.graph import Graph
from fusewise.outcomes import blocks_of
from fusewise.passes.published import step_named, step_names
from fusewise.select.pipeline import FUSIONS, Pipeline
from fusewise.select.sequence import Outcome, run_pipeline
from fusewise.zoo.scaled import Scale, scaled
from fusewise.zoo.styles import styled

MODELS: dict[str, Callable[[], Graph]] = {
    "resnet": lambda: scaled("resnet", Scale(size=24)),
    "bottlenecks as TensorFlow has them": lambda: styled(scaled("resnet_bottleneck", Scale(size=24)), "tensorflow"),
    "mobilenet as TensorFlow has it": lambda: styled(scaled("mobilenet", Scale(size=24)), "tensorflow"),
    "efficientnet": lambda: scaled("efficientnet", Scale(size=24)),
    "ssd as MXNet has it": lambda: styled(scaled("ssd", Scale(size=24)), "mxnet"),
    "inception": lambda: scaled("inception", Scale(size=24)),
    "unet": lambda: scaled("unet", Scale(size=24)),
    "bert with sizes computed": lambda: scaled("bert", Scale(size=12), decomposed=True),
    "gpt as MXNet has it": lambda: styled(scaled("gpt", Scale(size=12)), "mxnet"),
    "vit as TensorFlow has it": lambda: styled(scaled("vit", Scale(size=24)), "tensorflow"),
}

EACH, LONGEST = 50, 14
TOLERANCE = {"exact": 1e-5, "reassociating": 1e-4, "approximate": 2e-2}
"""Largest difference over largest magnitude, float32. Exact passes leave the arithmetic to ONNX Runtime's own kernels."""


def answers(graph: Graph, feeds: dict[str, Any]) -> list[np.ndarray]:
    """ONNX Runtime's, optimisations off; the reference evaluator's for an Attention that it does not know."""
    import onnxruntime
    from onnx.reference import ReferenceEvaluator
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    model = to_model(graph)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, feeds))
    except (state.Fail, state.NotImplemented, state.InvalidGraph, state.RuntimeException):
        return list(ReferenceEvaluator(model).run(None, feeds))


class Checker:
    """A model, its answers, and the graphs whose answers were compared already."""

    def __init__(self, name: str) -> None:
        self.graph = MODELS[name]()
        self.feeds = random_feeds(self.graph, 3)
        self.expected = answers(self.graph, self.feeds)
        self.seen = set[str]()

    def check(self, outcome: Outcome) -> None:
        if outcome.key in self.seen:
            return
        self.seen.add(outcome.key)
        graph = outcome.graph
        assert (graph.inputs, graph.outputs) == (self.graph.inputs, self.graph.outputs)
        classes = {step_named(run.name).numeric_class for run in outcome.runs if run.changed} | {"exact"}
        limit = max(TOLERANCE[kind] for kind in classes)
        if any(run.changed and run.name == "ToMixedPrecision" for run in outcome.runs):
            limit = TOLERANCES["bfloat16"]
        for a, b in zip(self.expected, answers(graph, self.feeds), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            assert np.max(np.abs(a - b)) <= limit * np.max(np.abs(a)), outcome.effective.passes


@pytest.mark.parametrize("name", MODELS)
def test_orders(name: str) -> None:
    checker, rng = Checker(name), random.Random(name)
    for step in step_names():
        checker.check(run_pipeline(Pipeline(step, (step,), approximate=True), checker.graph))
    for _ in range(EACH):
        passes = tuple(rng.choices(step_names(), k=rng.randint(2, LONGEST)))
        pipeline = Pipeline("drawn", passes, rng.choice(FUSIONS), rng.random() < 0.2, rng.random() < 0.3)
        checker.check(run_pipeline(pipeline, checker.graph, blocks=rng.choice((None, blocks_of))))
    assert len(checker.seen) > 10
