"""Slices that move along with the rounds of a Loop: the same as ONNX Runtime's, also where they reach beyond what there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import fusewise
from fusewise.errors import InvalidData
from fusewise.frontend.bodies import bodies_of, graph_of_body
from fusewise.frontend.onnx_import import load
from fusewise.ir.graph import Graph
from fusewise.runtime import control, nested, round_table
from fusewise.runtime.windows import with_windows

onnxruntime = pytest.importorskip("onnxruntime")
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
value = helper.make_tensor_value_info


def model_of(
    begin: int, length: int, axis: int, *, way: str = "unsqueeze", more: tuple[onnx.NodeProto, ...] = (), step: int = 1
) -> onnx.ModelProto:
    """s gathers the sums of x[i + begin : i + begin + length] along an axis of x [n, m]."""
    ways = {
        "unsqueeze": [
            helper.make_node("Add", ["i", "begin"], ["b"]),
            helper.make_node("Unsqueeze", ["b", "zero"], ["starts"]),
            helper.make_node("Add", ["starts", "length"], ["ends"]),
        ],
        "apart": [
            helper.make_node("Add", ["begin", "i"], ["b"]),
            helper.make_node("Add", ["b", "length"], ["ends"]),
            helper.make_node("Reshape", ["b", "one"], ["starts"]),
        ],
        "scalar": [
            helper.make_node("Add", ["i", "begin"], ["starts"]),
            helper.make_node("Add", ["starts", "length"], ["ends"]),
        ],
        "constant": [
            helper.make_node("Constant", [], ["starts"], value_ints=[1]),
            helper.make_node("Constant", [], ["ends"], value=numpy_helper.from_array(np.array([2]))),
        ],
        "minus": [
            helper.make_node("Unsqueeze", ["i", "zero"], ["i1"]),
            helper.make_node("Add", ["i1", "begin"], ["starts"]),
            helper.make_node("Sub", ["starts", "less"], ["e"]),
            helper.make_node("Cast", ["e"], ["ends"], to=INT64),
        ],
    }
    nodes = [
        *ways[way],
        helper.make_node("Slice", ["x", "starts", "ends", "axis", "step"], ["part"]),
        helper.make_node("ReduceSum", ["part"], ["total"], keepdims=0),
        helper.make_node("Add", ["s", "total"], ["s2"]),
        helper.make_node("Identity", ["c"], ["c2"]),
        *more,
    ]
    constants = {"begin": begin, "length": [length], "less": [-length], "zero": [0], "one": [1], "axis": [axis]}
    tensors = [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in {**constants, "step": [step]}.items()]
    inputs = [value("i", INT64, []), value("c", BOOL, []), value("s", FLOAT, [])]
    body = helper.make_graph(
        nodes, "body", inputs, [value("c2", BOOL, []), value("s2", FLOAT, []), value("total", FLOAT, [])], tensors
    )
    node = helper.make_node("Loop", ["trips", "", "s0"], ["s", "all"], body=body)
    given_ = [value("trips", INT64, []), value("s0", FLOAT, []), value("x", FLOAT, ["n", "m"])]
    graph = helper.make_graph([node], "g", given_, [value("s", FLOAT, []), value("all", FLOAT, ["r"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def body_of(model: onnx.ModelProto) -> Graph:
    graph = load(model)
    ((_, subgraph, _),) = bodies_of(graph.nodes[0])
    return graph_of_body(subgraph, graph.opset, graph.opsets)


@pytest.mark.parametrize("way", ["unsqueeze", "apart", "minus"])
def test_windows_are_found(way: str) -> None:
    found = with_windows(body_of(model_of(2, 3, 1, way=way)))
    assert found is not None
    ops = [node.op for node in found.nodes]
    assert "Slice" not in ops
    assert next(node for node in found.nodes if node.op == "Gather").attribute("axis") == 1


@pytest.mark.parametrize(
    "model",
    [
        model_of(-1, 1, 0),
        model_of(0, 0, 0),
        model_of(0, -2, 0),
        model_of(0, 65, 0),
        model_of(0, 2, 0, step=2),
        model_of(0, 1, 0, way="scalar"),
        model_of(0, 1, 0, way="constant"),
    ],
)
def test_what_is_no_window_stays(model: onnx.ModelProto) -> None:
    """Places before the first count from the end, and what has no elements, many, or some of them is a slice."""
    assert with_windows(body_of(model)) is None


@settings(max_examples=12, deadline=None)
@given(
    begin=st.integers(-2, 3),
    length=st.sampled_from((1, 1, 2, 5)),
    axis=st.sampled_from((0, 1, -1)),
    way=st.sampled_from(("unsqueeze", "apart", "minus")),
    sizes=st.tuples(st.integers(0, 24), st.integers(0, 24)),
)
def test_windows_are_as_slices(begin: int, length: int, axis: int, way: str, sizes: tuple[int, int]) -> None:
    """Also where they reach beyond the end, and where there is nothing."""
    model = model_of(begin, length, axis, way=way)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nested, "_WORTH_SECONDS", 0.0)
        patch.setattr(nested, "_LEAST_ROUNDS", 2)
        patch.setattr(nested, "_TRIAL", 0)
        patch.setattr(control, "_FEW_ROUNDS", 0)
        ours = fusewise.compile(model, cache=False, threads=1)
        rng = np.random.default_rng(length)
        inside = max(0, sizes[axis] - begin - length + 1)
        for trips in (inside, inside, inside + 2, inside):
            feeds = {"trips": np.array(trips), "s0": np.array(0, np.float32)}
            feeds["x"] = rng.standard_normal(sizes, dtype=np.float32)
            for found, expected in zip(ours.run(None, feeds), session.run(None, feeds), strict=True):
                if trips:
                    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, strict=True)


def test_rounds_with_windows_take_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested, "_WORTH_SECONDS", 0.0)
    made: list[Any] = []
    inner = round_table.run_rounds
    monkeypatch.setattr(round_table, "run_rounds", lambda *given_: made.append(inner(*given_)) or made[-1])
    ours = fusewise.compile(model_of(1, 2, 0), cache=False)
    feeds = {"trips": np.array(200), "s0": np.array(0, np.float32), "x": np.ones((203, 5), np.float32)}
    for _ in range(2):
        made.clear()
        np.testing.assert_array_equal(ours.run(None, feeds)[1], np.full(200, 10, np.float32))
    assert sum(one.count for one in made) == 200
    assert len(made) <= 4


def test_what_is_wrong_beside_a_window_is_told() -> None:
    more = (helper.make_node("Gather", ["x", "i"], ["row"], axis=0), helper.make_node("Neg", ["row"], ["unread"]))
    model = model_of(0, 1, 1, more=more)
    model.graph.node[0].attribute[0].g.output[2].CopyFrom(value("unread", FLOAT, None))
    model.graph.output[1].CopyFrom(value("all", FLOAT, None))
    ours = fusewise.compile(model, cache=False)
    x = np.ones((4, 50), np.float32)
    for trips in (4, 4, 4):
        assert len(ours.run(None, {"trips": np.array(trips), "s0": np.array(0, np.float32), "x": x})[1]) == 4
    with pytest.raises(InvalidData, match="4"):
        ours.run(None, {"trips": np.array(5), "s0": np.array(0, np.float32), "x": x})
