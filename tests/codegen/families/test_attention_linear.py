"""The kernel of linear attention: every rule and option on odd sizes, against ONNX's evaluator and the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper
from tests.codegen.ways import text_of, way

import fusewise
from fusewise.codegen.families.attention.linear import LINEAR_ATTENTION
from fusewise.codegen.target import TARGETS, Target
from fusewise.fusion.plan import partition
from fusewise.ir.dtypes import dtype_named
from fusewise.lower.interpret import interpret_lowered
from fusewise.lower.work import TaskWork, lower_partition
from fusewise.ops.evaluate import evaluate
from fusewise.ops.linear_attention import RULES
from fusewise.runtime.jit import compile_assembly
from fusewise.trace import Trace

Feeds = dict[str, np.ndarray]
NAMES = ("q", "k", "v", "past", "decay", "beta")
OFF = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


@st.composite
def uses(draw: st.DrawFn, kinds: tuple[str, ...] = ("float32",)) -> tuple[onnx.ModelProto, Feeds]:
    """A model of one node, and its feeds: shared states, decays per head or per number, rates per head or one, a past or none."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    samples, steps, shared, group = (draw(st.integers(1, n)) for n in (2, 6, 2, 3))
    size, width = draw(st.integers(1, 19)), draw(st.integers(1, 70))
    rule, kind = draw(st.sampled_from(RULES)), draw(st.sampled_from(kinds))
    heads = shared * group

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(dtype_named(kind).numpy)

    feeds = {"q": normal(samples, steps, heads * size), "k": normal(samples, steps, shared * size) * np.float32(0.3)}
    feeds["k"] = feeds["k"].astype(dtype_named(kind).numpy)
    feeds["v"] = normal(samples, steps, shared * width)
    if draw(st.booleans()):
        feeds["past"] = normal(samples, shared, size, width)
    if rule.startswith("gated"):
        many = shared * draw(st.sampled_from([1, size]))
        feeds["decay"] = -np.abs(normal(samples, steps, many))
    if rule.endswith("delta"):
        feeds["beta"] = rng.random((samples, steps, draw(st.sampled_from([1, shared])))).astype(dtype_named(kind).numpy)
    attributes: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": shared, "update_rule": rule}
    if draw(st.booleans()):
        attributes["scale"] = 0.4
    names = [name if name in feeds else "" for name in NAMES]
    node = helper.make_node("LinearAttention", names, ["y", "state"], **attributes)
    inputs = [helper.make_tensor_value_info(name, dtype_named(kind).onnx, x.shape) for name, x in feeds.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", "state")]
    graph = helper.make_graph([node], "linear", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)], ir_version=13), feeds


def near(found: np.ndarray, wanted: np.ndarray) -> bool:
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    kind = "bfloat16" if wanted.dtype.kind == "V" else wanted.dtype.name
    return a.shape == b.shape and bool(np.abs(a - b).max(initial=0) <= OFF[kind] * max(1.0, np.abs(b).max(initial=0)))


def wanted(model: onnx.ModelProto, feeds: Feeds) -> tuple[np.ndarray, ...]:
    graph = fusewise.load(model)
    return evaluate(graph.nodes[0], feeds, graph.opset, graph.opsets)


@settings(max_examples=15, deadline=None)
@given(uses(tuple(OFF)))
def test_compiled(use: tuple[onnx.ModelProto, Feeds]) -> None:
    model, feeds = use
    found = fusewise.compile(model, cache=False, threads=2, strict=True).run(None, feeds)
    for a, b in zip(found, wanted(model, feeds), strict=True):
        assert near(np.asarray(a), b)


@settings(max_examples=20, deadline=None)
@given(uses())
def test_lowered_work_means_the_same(use: tuple[onnx.ModelProto, Feeds]) -> None:
    model, feeds = use
    lowered = lower_partition(partition(fusewise.load(model), Trace()), Trace())
    found = interpret_lowered(lowered, feeds)
    for name, b in zip(("y", "state"), wanted(model, feeds), strict=True):
        assert near(found[name], b)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(use=uses(("float32", "float16")), workers=st.integers(1, 3))
def test_nothing_outside_is_touched(
    run_kernel: Any, target: Target, use: tuple[onnx.ModelProto, Feeds], workers: int
) -> None:
    model, feeds = use
    (work,) = lower_partition(partition(fusewise.load(model), Trace()), Trace()).work
    assert isinstance(work, TaskWork)
    task = work.bound.task
    right = dict(zip(("out0", "out1"), wanted(model, feeds), strict=True))
    arrays = {}
    for operand in task.operands:
        if operand.name.startswith("out"):
            arrays[operand.name] = np.zeros(operand.shape, operand.dtype.numpy)
        else:
            arrays[operand.name] = feeds[NAMES[int(operand.name[-1])]]
    run_kernel(LINEAR_ATTENTION[0], task, arrays, workers)
    for name, b in right.items():
        assert near(arrays[name], b)


def code(steps: int, target: Target, kind: str = "float32") -> str:
    """The kernel for a few heads and so many steps."""
    names = ["q", "k", "v", "", "g"]
    node = helper.make_node("LinearAttention", names, ["y", "s"], q_num_heads=2, kv_num_heads=1, update_rule="gated")
    sizes = {"q": 32, "k": 16, "v": 24, "g": 16}
    number = dtype_named(kind).onnx
    inputs = [helper.make_tensor_value_info(name, number, [1, steps, size]) for name, size in sizes.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", "s")]
    graph = helper.make_graph([node], "linear", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)], ir_version=13)
    (work,) = lower_partition(partition(fusewise.load(model), Trace()), Trace()).work
    assert isinstance(work, TaskWork)
    return text_of(way(LINEAR_ATTENTION[0], work.bound.task, target), target.instructions, "kernel")


def test_the_code_does_not_grow_with_the_steps() -> None:
    assert len(code(1000, TARGETS[0]).splitlines()) == len(code(3, TARGETS[0]).splitlines())


@pytest.mark.parametrize("other", TARGETS, ids=lambda t: t.name)
def test_code_for_every_machine(other: Target) -> None:
    for kind in ("float32", "bfloat16"):
        assert "kernel" in compile_assembly(code(3, other, kind), other)


@pytest.mark.parametrize("attributes", [{"q_num_heads": 3, "kv_num_heads": 2}, {"q_num_heads": 2, "kv_num_heads": 2}])
def test_operands_that_do_not_fit_are_refused(attributes: dict[str, int]) -> None:
    node = helper.make_node("LinearAttention", ["q", "k", "v"], ["y", "s"], update_rule="gated", **attributes)
    inputs = [helper.make_tensor_value_info(name, 1, [1, 2, 12]) for name in ("q", "k", "v")]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", "s")]
    graph = helper.make_graph([node], "linear", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)], ir_version=13)
    with pytest.raises(fusewise.FusewiseError):
        fusewise.compile(model, cache=False, threads=1, strict=True)
