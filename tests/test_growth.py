"""Work grows with a model as its nodes do, in every shape of graph, and no shape is too deep for Python's stack."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx.reference
import pytest
from benchmarks.growth import CASES, model_of

from fusewise import api
from fusewise.codegen.assemble import generate
from fusewise.codegen.legalize import legalized
from fusewise.fusion.plan import PLANNERS, plan
from fusewise.runtime.host import host_target
from fusewise.trace import Trace

MOST_GROWTH = 2.4
"""Calls of Python functions with twice the nodes: a part that grows with the square soon makes it three or four."""


def calls(case: str, n: int, how: str) -> int:
    """Calls of Python functions from a model in memory to its program."""
    model, count = model_of(case, n), 0

    def called(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        trace = Trace()
        graph = legalized(api.load(model), host_target(), trace)
        program = generate(plan(graph, trace, how).partition, host_target(), trace)
    finally:
        sys.setprofile(before)
    assert program.steps
    return count


@pytest.mark.parametrize("case", CASES)
def test_work_grows_as_the_model_does(case: str) -> None:
    few, many = calls(case, 100, "dnnfusion"), calls(case, 200, "dnnfusion")
    assert many < MOST_GROWTH * few


@pytest.mark.parametrize("case", ["chain", "residual", "parts", "movement"])
@pytest.mark.parametrize("how", ["published", "patterns"])
def test_work_of_other_planners_grows_as_the_model_does(case: str, how: str) -> None:
    few, many = calls(case, 100, how), calls(case, 200, how)
    assert many < MOST_GROWTH * few


@pytest.mark.parametrize("case", ["chain", "residual", "total", "largest"])
@pytest.mark.parametrize("how", PLANNERS)
def test_deep_and_wide_graphs_have_right_answers(case: str, how: str) -> None:
    model = model_of(case, 400)
    feeds = {
        value.name: np.random.default_rng(k).standard_normal(
            [d.dim_value for d in value.type.tensor_type.shape.dim], np.float32
        )
        for k, value in enumerate(model.graph.input)
    }
    (expected,) = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    (found,) = api.compile(model, cache=False, fusion=how).run(None, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case, kernels", [("slices", 2), ("parts", 2), ("concat", 1), ("products", 2)])
def test_what_is_alike_shares_its_kernel(case: str, kernels: int) -> None:
    trace = Trace()
    graph = legalized(api.load(model_of(case, 80)), host_target(), trace)
    assert len(generate(plan(graph, trace).partition, host_target(), trace).kernels) <= kernels
