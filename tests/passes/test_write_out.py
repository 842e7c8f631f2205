"""What is always written out for native code: the same answers, to the bit where they are whole numbers, and by a fast kernel."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from tests.codegen.families.test_convolution_integer import convolved
from tests.machines import compiled, runnable

from fusewise import api
from fusewise.codegen.target import Target
from fusewise.ir.graph import Graph
from fusewise.ir.verify import verify
from fusewise.passes.decompositions.table import NATIVE
from fusewise.passes.write_out import write_out
from fusewise.trace import Trace


@pytest.fixture(scope="session", params=runnable(), ids=lambda target: target.name)
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.param
    return found


def model(
    op: str,
    feeds: dict[str, np.ndarray],
    constants: dict[str, np.ndarray],
    reads: list[str],
    outputs: int,
    **attributes: object,
) -> onnx.ModelProto:
    """One node between its inputs and outputs."""
    writes = [f"y{k}" for k in range(outputs)]
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    graph = helper.make_graph(
        [helper.make_node(op, reads, writes, **attributes)],
        "one",
        ports,
        [onnx.ValueInfoProto(name=name) for name in writes],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def operators(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def run(
    asked: onnx.ModelProto, feeds: dict[str, np.ndarray], target: Target, threads: int = 1
) -> tuple[list[np.ndarray], Trace]:
    trace = Trace()
    after = write_out(api.load(asked), trace)
    verify(after)
    _, executable = compiled(after, target, threads, trace)
    return executable.run(None, feeds), trace


def kernels(trace: Trace) -> set[str]:
    return {event.what for event in trace if event.kind == "kernel" and event.applied}


_KINDS = st.sampled_from((np.uint8, np.int8))


def _bytes(data: st.DataObject, kind: type, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers between two ends, the ends among them."""
    low, high = sorted(data.draw(st.integers(np.iinfo(kind).min, np.iinfo(kind).max)) for _ in range(2))
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    return rng.choice([low, high, *rng.integers(low, high + 1, 5)], shape).astype(kind)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_convolutions_by_weights_around_any_number(target: Target, data: st.DataObject) -> None:
    group = data.draw(st.sampled_from((1, 1, 2, 8)))
    inputs, outputs = (
        (1, 8) if group == 8 else (data.draw(st.integers(1, 5)) * group, data.draw(st.integers(1, 9)) * group)
    )
    shape = (outputs, inputs if group == 1 else max(1, inputs // group), 3, 2)
    x = _bytes(data, data.draw(_KINDS), (1, shape[1] * group, 5, 6))
    w = _bytes(data, kind := data.draw(_KINDS), shape)
    zero = _bytes(data, kind, data.draw(st.sampled_from(((), (1,), (outputs,)))))
    x_zero, attributes = _bytes(data, x.dtype.type, ()), {"group": group, "pads": [1, 0, 2, 1]}
    feeds = {"x": x, "z": x_zero} if data.draw(st.booleans()) else {"x": x}
    constants = {"w": w, "v": zero, **({} if "z" in feeds else {"z": x_zero})}
    asked = model("ConvInteger", feeds, constants, ["x", "w", "z", "v"], 1, **attributes)
    (found,), trace = run(asked, feeds, target, data.draw(st.integers(1, 3)))
    centred = w.astype(int) - zero.reshape(-1, 1, 1, 1) if zero.size > 1 else w.astype(int) - int(zero.reshape(()))
    expected = convolved(x.astype(np.int64) - int(x_zero), centred, [1, 1], attributes["pads"], [1, 1], group)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, expected)
    assert group > 1 or "any-nest" not in kernels(trace)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_products_by_constant_matrices(target: Target, data: st.DataObject) -> None:
    lead = tuple(data.draw(st.lists(st.integers(1, 3), max_size=2)))
    rows, depth, columns = (data.draw(st.integers(low, high)) for low, high in ((1, 9), (64, 70), (64, 80)))
    a = _bytes(data, data.draw(_KINDS), (*lead, rows, depth))
    b = _bytes(data, kind := data.draw(_KINDS), (depth, columns))
    zero = _bytes(data, kind, data.draw(st.sampled_from(((), (1,), (columns,)))))
    a_zero = _bytes(data, a.dtype.type, ())
    asked = model("MatMulInteger", {"a": a, "z": a_zero}, {"b": b, "v": zero}, ["a", "b", "z", "v"], 1)
    (found,), trace = run(asked, {"a": a, "z": a_zero}, target, data.draw(st.integers(1, 3)))
    np.testing.assert_array_equal(found, (a.astype(int) - int(a_zero)) @ (b.astype(int) - zero.astype(int)))
    assert "any-nest" not in kernels(trace)


def test_products_that_stay() -> None:
    """By a matrix that is not constant, one of signed bytes around zero, and a vector, whose zero point is not of columns."""
    a, b, v = np.ones((2, 3), np.uint8), np.ones((3, 4), np.uint8), np.ones(3, np.uint8)
    cases: list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]] = [
        ({"a": a, "b": b}, {}),
        ({"a": a}, {"b": b.astype(np.int8)}),
        ({"a": a}, {"b": v}),
    ]
    for feeds, constants in cases:
        graph = api.load(model("MatMulInteger", feeds, constants, ["a", "b"], 1))
        assert write_out(graph, Trace()) is graph


@pytest.mark.parametrize("per_channel", [False, True])
def test_linear_operators_round_as_their_definitions(target: Target, per_channel: bool) -> None:
    rng = np.random.default_rng(3)
    scales, zeros = (rng.uniform(0.001, 0.01, 16).astype(np.float32), rng.integers(90, 150, 16).astype(np.uint8))
    if not per_channel:
        scales, zeros = scales[0], zeros[0]
    parts = {
        "s": np.float32(0.02),
        "z": np.uint8(117),
        "t": scales,
        "v": zeros,
        "u": np.float32(0.07),
        "k": np.uint8(99),
    }
    constants = {name: np.asarray(array) for name, array in parts.items()}
    image, rows = rng.integers(0, 256, (1, 5, 7, 6)).astype(np.uint8), rng.integers(0, 256, (5, 70)).astype(np.uint8)
    asked = [
        model(
            "QLinearConv",
            {"x": image},
            {
                **constants,
                "w": rng.integers(0, 256, (16, 5, 3, 3)).astype(np.uint8),
                "b": rng.integers(-99, 99, 16).astype(np.int32),
            },
            ["x", "s", "z", "w", "t", "v", "u", "k", "b"],
            1,
        ),
        model(
            "QLinearMatMul",
            {"x": rows},
            {**constants, "w": rng.integers(0, 256, (70, 16)).astype(np.uint8)},
            ["x", "s", "z", "w", "t", "v", "u", "k"],
            1,
        ),
    ]
    for each, feed in zip(asked, (image, rows), strict=True):
        (found,), _ = run(each, {"x": feed}, target)
        (expected,) = onnxruntime.InferenceSession(each.SerializeToString()).run(None, {"x": feed})
        assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1  # they multiply by 1 / u
        (defined,) = compiled(api.load(each), target)[1].run(None, {"x": feed})
        np.testing.assert_array_equal(found, defined)


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 5, 4), (0, 3)])
@pytest.mark.parametrize("low, high", [(-3, 5), (1, 4), (-4, -1), (0, 0)])
def test_dynamic_quantisation(target: Target, shape: tuple[int, ...], low: int, high: int) -> None:
    x = np.random.default_rng(2).uniform(low, high, shape).astype(np.float32)
    asked = model("DynamicQuantizeLinear", {"x": x}, {}, ["x"], 3)
    found, _ = run(asked, {"x": x}, target)
    defined = compiled(api.load(asked), target)[1].run(None, {"x": x})
    for a, b in zip(found, defined, strict=True):
        np.testing.assert_array_equal(a, b)


def test_every_row_once_and_refused_by_the_limit() -> None:
    names = [row.op for row in NATIVE]
    assert len(names) == len(set(names))
    graph = api.load(model("DynamicQuantizeLinear", {"x": np.zeros(3, np.float32)}, {}, ["x"], 3))
    assert write_out(graph, Trace(limit=0)) is graph
    assert operators(write_out(graph, Trace()))[-1] == "QuantizeLinear"
