"""Random graphs give the same answers unfused, fused by fixed patterns and fused by mapping types.

Most are checked on the lowered work, interpreted in float64: that is where fusion could go wrong. A part runs as machine code.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from tests.fusion.graphs import feeds_for, model_of, random_graph

from fusewise.benchmarking.accuracy import TOLERANCES
from fusewise.codegen.assemble import generate
from fusewise.fusion.plan import PLANNERS, plan
from fusewise.ir.dtypes import FLOAT32, FLOAT64
from fusewise.lower.interpret import interpret_lowered
from fusewise.lower.work import lower_partition
from fusewise.runtime.executable import build
from fusewise.runtime.host import host_target
from fusewise.trace import Trace

FIXED = settings(
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def agree(found: np.ndarray, expected: np.ndarray) -> bool:
    """Are the answers equal but for rounding? Inputs are of size 1, and differences of like numbers may vanish."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if found.dtype == bool or not found.size:
        return bool(np.array_equal(found, expected))
    size = max(1.0, float(np.max(np.abs(expected))))
    return bool(np.max(np.abs(found - expected)) <= TOLERANCES[found.dtype.name] * size)


@pytest.mark.parametrize("share", range(5))
def test_lowered_random_graphs_give_the_reference_answers(share: int) -> None:
    @seed(share)
    @settings(FIXED, max_examples=120)
    @given(st.randoms(use_true_random=False))
    def check(source: Random) -> None:
        from onnx.reference import ReferenceEvaluator

        graph = random_graph(source, FLOAT64)
        feeds = feeds_for(graph, share)
        expected = ReferenceEvaluator(model_of(graph)).run(None, feeds)
        for how in PLANNERS:
            found = interpret_lowered(lower_partition(plan(graph, Trace(), how).partition, Trace()), feeds)
            for value, wanted in zip(graph.outputs, expected, strict=True):
                assert agree(found[value], wanted), (how, value)

    check()


@pytest.mark.parametrize("share", range(4))
def test_compiled_random_graphs_give_the_answers_of_onnxruntime(share: int) -> None:
    import onnxruntime

    alone = onnxruntime.SessionOptions()
    alone.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    alone.intra_op_num_threads = 1

    @seed(share)
    @settings(FIXED, max_examples=20)
    @given(st.randoms(use_true_random=False))
    def check(source: Random) -> None:
        graph = random_graph(source, FLOAT32)
        feeds = feeds_for(graph, share)
        model = model_of(graph).SerializeToString()
        expected = onnxruntime.InferenceSession(model, alone, providers=["CPUExecutionProvider"]).run(None, feeds)
        for how in ("patterns", "published", "dnnfusion"):
            program = generate(plan(graph, Trace(), how).partition, host_target(), Trace(), workers=2)
            found = build(program, threads=2, cache=None).run(None, feeds)
            for value, got, wanted in zip(graph.outputs, found, expected, strict=True):
                assert agree(got, wanted), (how, value)

    check()
