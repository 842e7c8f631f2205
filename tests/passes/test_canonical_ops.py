"""Special operators are written with basic ones: every row against ONNX Runtime, on random shapes and attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from tests.passes.gradient.computed import apart, in_type
from tests.passes.operator_cases import BOUNDS, CASES, MORE

from fusewise.frontend.lowest_opset import at_lowest_opset
from fusewise.frontend.onnx_export import to_model
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph
from fusewise.ir.verify import verify
from fusewise.ops.build import GraphBuilder
from fusewise.passes.canonical_ops import canonical_ops, written_out
from fusewise.passes.decompositions.table import DECOMPOSITIONS, SPECIAL
from fusewise.passes.edit import LocalRule, sweep
from fusewise.trace import Trace

UNCHECKED = {"Swish", "Attention"}
"""ONNX Runtime has no such operators, or not on all their forms: their gradients are checked."""


def answers(graph: Graph, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    model = to_model(at_lowest_opset(graph)).SerializeToString()
    return list(onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds))


def test_every_row_has_a_case() -> None:
    assert set(DECOMPOSITIONS) - UNCHECKED <= {*CASES, *MORE}


@pytest.mark.parametrize("name", [name for name in DECOMPOSITIONS if name not in UNCHECKED])
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_written_out_gives_the_same_answers(name: str, data: st.DataObject) -> None:
    b = GraphBuilder(name)
    case = MORE.get(name) or CASES[name]
    graph = in_type(b.finish(case(data.draw, b)), FLOAT32)
    row = DECOMPOSITIONS[name]
    rule = LocalRule(name, (name,), lambda edit, node: written_out(edit, node, row))
    after = sweep(graph, Trace(), (rule,))
    verify(after)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    low, high = BOUNDS.get(name, (-2.0, 2.0))
    feeds = {}
    for value in graph.inputs:
        least = 0.5 if value == "positive" else low
        feeds[value] = rng.uniform(least, high, graph.tensor(value).dims).astype(np.float32)
    try:
        (expected,) = answers(graph, feeds)
    except InvalidArgument as refused:  # SAME padding with dilations, for one
        assume("not supported" not in str(refused))
        raise
    (found,) = answers(after, feeds)
    assert apart(found, expected, 1e-3) < 1e-5


@pytest.mark.parametrize(
    "line, operators",
    [
        ("Conv(x, w, b)", "Conv Add"),
        ("ConvTranspose(x, v, b)", "ConvTranspose Add"),
        ("HardSwish(x)", "Div Add Clip Mul"),
        ("Mish(x)", "Max Abs Neg Exp Add Log Add Tanh Mul"),
        ("GlobalAveragePool(x)", "ReduceMean"),
        ("Sum(x, x, x)", "Add Add"),
        ("Flatten(x)", "Reshape"),
    ],
)
def test_the_pass(parse: Any, same_answers: Any, line: str, operators: str) -> None:
    graph = parse(
        f"""
        input x: float32[1,3,5,5]
        constant w: float32[4,3,3,3] = #w
        constant v: float32[3,4,3,3] = #v
        constant b: float32[4] = #b
        y = {line}
        return y
        """
    )
    after = canonical_ops(graph, Trace())
    verify(after)
    assert [node.op for node in after.nodes] == operators.split()
    assert canonical_ops(after, Trace()) is after
    assert canonical_ops(graph, Trace(limit=0)) is graph
    same_answers(graph, after, False)


def test_large_operands_overflow_no_more_than_before(parse: Any, same_answers: Any) -> None:
    """What the special operator keeps in range stays there."""
    for op in ("Softplus", "Mish", "Elu", "Celu", "Selu", "LogSoftmax", "Gelu", "HardSwish", "Softsign"):
        graph = parse(
            f"input x: float32[3]\nconstant far: float32[3] = [200.0, -200.0, 1.0]\na = Mul(x, far)\ny = {op}(far)\nreturn y, a"
        )
        after = canonical_ops(graph, Trace())
        (expected, _), (found, _) = (answers(g, {"x": np.ones(3, np.float32)}) for g in (graph, after))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_what_a_row_does_not_cover_stays(parse: Any) -> None:
    for text in (
        "input x: float32[?,3]\ny = HardSwish(x)\nreturn y",  # its shape is not known
        "input x: float32[2,3]\ninput axes: int64[1]\ny = ReduceL1(x, axes) {keepdims=1}\nreturn y",
        "input x: float32[1,2,3,3]\nconstant w: float32[2,2,1,1] = #w\ny = Conv(x, w)\nreturn y",
    ):
        graph = parse(text)
        assert canonical_ops(graph, Trace()) is graph


def test_the_table_is_of_special_operators_once_each() -> None:
    names = [row.op for row in SPECIAL]
    assert len(names) == len(set(names))
    assert set(names) < set(DECOMPOSITIONS)
