"""Recurrences in programs: native with every option, wherever their operands lie, and on the host when that is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from tests.recurrences import ROUGHLY_ONE, Case, by_onnx_runtime, case, cases, difference

import fusewise
from fusewise.codegen.assemble import generate
from fusewise.codegen.machine.figures import MeasuredFigures
from fusewise.codegen.target import TARGETS
from fusewise.compiled import Model
from fusewise.fusion.plan import partition
from fusewise.lower.interpret import interpret_lowered
from fusewise.lower.work import TaskWork, lower_partition
from fusewise.trace import Trace


def answers(model: Model, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = [one.name for one in model.get_outputs()]
    return dict(zip(names, model.run(None, {x.name: feeds[x.name] for x in model.get_inputs()}), strict=True))


@settings(max_examples=25, deadline=None)
@given(
    one=cases(steps=20, samples=5, hidden=24),
    constants=st.sampled_from(((), ("w", "r", "b", "p"), ("w", "r", "b", "p", "lengths", "h", "c"))),
)
def test_native_code_agrees_with_onnx_runtime(one, constants):
    model = fusewise.compile(one.model(constants), strict=True, threads=2, cache=False)
    assert difference(answers(model, one.feeds), by_onnx_runtime(one), ROUGHLY_ONE) < 1e-5 + 10 * one.rounding


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    one=cases(steps=20, samples=2, hidden=40, kinds=("float32", "float32", "float64")),
    constants=st.sampled_from(((), ("w", "r", "b", "p"))),
)
def test_workers_may_share_out_every_step(monkeypatch, one, constants):
    monkeypatch.setattr(MeasuredFigures().ways, "shared_weights", 0)
    model = fusewise.compile(one.model(constants), strict=True, threads=5, cache=False)
    for _ in range(2):
        assert difference(answers(model, one.feeds), one.defined) < 5e-6 + 10 * one.rounding


def test_large_weights_of_one_sample_are_shared_out():
    one = case("LSTM", np.random.default_rng(0), hidden=384, samples=1, steps=10, present="b")
    graph = fusewise.load(one.model(("w", "r", "b")))
    program = generate(partition(graph, Trace()), TARGETS[0], Trace(), workers=2)
    assert [step.way.split()[0] for step in program.steps] == ["recurrence-by-steps"] * 12
    alone = generate(partition(graph, Trace()), TARGETS[0], Trace(), workers=1)
    assert len(alone.steps) == 1
    model = fusewise.compile(one.model(("w", "r", "b")), strict=True, threads=2, cache=False)
    assert difference(answers(model, one.feeds), one.defined) < 5e-6


@pytest.mark.parametrize(
    "op, workers, hidden, shared",
    [
        ("LSTM", 2, 64, False),
        ("LSTM", 2, 128, True),
        ("LSTM", 8, 128, False),
        ("LSTM", 8, 256, True),
        ("GRU", 2, 128, False),
        ("GRU", 2, 256, True),
    ],
)
def test_steps_are_shared_out_where_every_worker_gets_weights_enough(op, workers, hidden, shared):
    one = case(op, np.random.default_rng(0), hidden=hidden, samples=1, steps=10, present="b")
    target = replace(TARGETS[0], workers=workers)
    program = generate(partition(fusewise.load(one.model(("w", "r", "b"))), Trace()), target, Trace(), workers=workers)
    assert {step.way.split()[0] for step in program.steps} == {"recurrence-by-steps" if shared else "recurrence"}


def test_float64_is_native():
    one = case("GRU", np.random.default_rng(0), kind="float64", present="blh", hidden=11)
    found = answers(fusewise.compile(one.model(), strict=True, cache=False), one.feeds)
    assert difference(found, one.defined) < 1e-13


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("options", [{"kind": "float16"}, {"steps": 0}, {"samples": 0}])
def test_narrow_and_empty_ones_are_native(op, options, layout):
    outputs = ("", "y_h", "y_c")[: 3 if op == "LSTM" else 2]
    one = case(
        op,
        np.random.default_rng(0),
        present="bhcp" if op == "LSTM" else "bh",
        outputs=outputs,
        layout=layout,
        **options,
    )
    model = fusewise.compile(one.model(), strict=True, cache=False)
    assert difference(answers(model, one.feeds), one.defined) < (1e-3 if "kind" in options else 1e-6)


def test_a_refused_loop_runs_on_the_host():
    one = case("LSTM", np.random.default_rng(0), present="l")
    program: Any = fusewise.inspect(one.model())
    assert not program["host"]
    model = fusewise.compile(one.model(), cache=False, disable=("recurrence",))
    assert difference(answers(model, one.feeds), one.defined) < 1e-6
    with pytest.raises(fusewise.errors.UnsupportedModel, match="LSTM: refused"):
        fusewise.compile(one.model(), cache=False, strict=True, disable=("recurrence",))


def between(one: Case, layout: int) -> onnx.ModelProto:
    """Two recurrences, one upon the other's Y, whose X is turned and whose Y_h are parts of a larger tensor."""
    hidden = one.attributes["hidden_size"]
    names = ["w", "r", "b"]
    weights = [onnx.numpy_helper.from_array(one.feeds[name], name) for name in names]
    turn, back = ((1, 0, 2), (0, 2, 1, 3)) if layout else ((0, 1, 2), (0, 2, 1, 3))
    node = {"hidden_size": hidden, "layout": layout}
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], perm=turn),
        helper.make_node("LSTM", ["turned", *names], ["y", "h", "c"], **node),
        helper.make_node("Transpose", ["y"], ["y2"], perm=(0, 1, 2, 3) if layout else back),
        helper.make_node("Reshape", ["y2", "shape"], ["again"]),
        helper.make_node("LSTM", ["again", *names, "", "h", "c"], ["z", "zh", ""], **node),
        helper.make_node("Concat", ["h", "zh", "c"], ["all"], axis=2),
        helper.make_node("Relu", ["all"], ["out"]),
    ]
    steps, samples, _ = one.operands[0].shape
    shape = [samples, steps, hidden] if layout else [steps, samples, hidden]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, one.operands[0].shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("out", "z")],
        [*weights, onnx.numpy_helper.from_array(np.array(shape), "shape")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("fusion", ["dnnfusion", "none"])
def test_operands_lie_anywhere(layout, fusion):
    one = case("LSTM", np.random.default_rng(2), inputs=6, hidden=6, steps=5, samples=3, present="b")
    model = between(one, layout)
    feeds = {"x": one.feeds["x"]}
    found = answers(fusewise.compile(model, fusion=fusion, strict=True, cache=False), feeds)
    host = fusewise.compile(model, cache=False, disable=("recurrence",))
    assert difference(found, answers(host, feeds)) < 1e-6


@pytest.mark.parametrize("length", [-1, 5, np.iinfo(np.int32).max, np.iinfo(np.int32).min])
@pytest.mark.parametrize("disable", [(), ("recurrence",)])
def test_a_length_beyond_the_steps_is_an_error(length, disable):
    one = case("LSTM", np.random.default_rng(2), steps=4, samples=3, present="l")
    model = fusewise.compile(one.model(), cache=False, disable=disable)
    good = answers(model, one.feeds)
    wrong = np.array([0, 4, length], np.int32)
    with pytest.raises(fusewise.errors.InvalidData, match=r"'LSTM_0' \(LSTM\)|LSTM"):
        answers(model, one.feeds | {"lengths": wrong})
    assert difference(answers(model, one.feeds), good) == 0


@settings(max_examples=15, deadline=None)
@given(one=cases())
def test_lowered_work_is_what_the_node_is(one):
    graph = fusewise.load(one.model(("w", "r")))
    lowered = lower_partition(partition(graph, Trace()), Trace())
    assert all(isinstance(work, TaskWork) for work in lowered.work)
    assert difference(interpret_lowered(lowered, one.feeds), one.defined) == 0


def test_a_long_sequence_is_one_step():
    one = case("GRU", np.random.default_rng(2), steps=3000, samples=1, hidden=8, present="b", direction="bidirectional")
    model = fusewise.compile(one.model(("w", "r", "b")), strict=True, cache=False)
    assert difference(answers(model, one.feeds), one.defined) < 1e-5
    assert model.summary["groups"] == 1
