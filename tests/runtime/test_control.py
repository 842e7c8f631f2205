"""If, Loop, Scan and SequenceMap as host steps, against ONNX's evaluator as it is corrected, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import fusewise
from fusewise.errors import FusewiseError, ResourceLimit
from fusewise.ops.corrections import corrected_operators
from fusewise.runtime import nested

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
value = helper.make_tensor_value_info


def model_of(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, Any] | None = None) -> Any:
    kept = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def reference(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(model, new_ops=list(corrected_operators())).run(None, feeds))


def same(model: onnx.ModelProto, feeds: dict[str, Any], rounds: int = 1) -> None:
    compiled, expected = fusewise.compile(model, cache=False, threads=1), reference(model, feeds)
    for _ in range(rounds):
        for one, right in zip(compiled.run(None, feeds), expected, strict=True):
            np.testing.assert_allclose(one, right, rtol=1e-5, atol=1e-6, strict=True)


def recurrence(trips: bool = True) -> onnx.ModelProto:
    """h = tanh(h W + i), for n rounds, or until its sum is less than 0.5; all h, too. W comes from outside."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "W"], ["t"]),
            helper.make_node("Cast", ["i"], ["f"], to=FLOAT),
            helper.make_node("Mul", ["f", "small"], ["s"]),
            helper.make_node("Add", ["t", "s"], ["u"]),
            helper.make_node("Tanh", ["u"], ["h2"]),
            helper.make_node("ReduceSum", ["h2"], ["sum"], keepdims=0),
            helper.make_node("Greater", ["sum", "limit"], ["going"]),
            helper.make_node("Identity", ["h2"], ["each"]),
        ],
        "body",
        [value("i", INT64, []), value("c", BOOL, []), value("h", FLOAT, [1, 4])],
        [value("going", BOOL, []), value("h2", FLOAT, [1, 4]), value("each", FLOAT, [1, 4])],
        [numpy_helper.from_array(np.array(0.01, np.float32), "small")],
    )
    loop = helper.make_node("Loop", ["n" if trips else "", "", "x"], ["y", "all"], body=body)
    rng = np.random.default_rng(0)
    constants = {"W": rng.uniform(0.2, 0.5, (4, 4)).astype(np.float32), "limit": np.array(0.5, np.float32)}
    inputs = [value("x", FLOAT, [1, 4]), *([value("n", INT64, [])] if trips else [])]
    return model_of([loop], inputs, [value("y", FLOAT, [1, 4]), value("all", FLOAT, [None, 1, 4])], constants)


@pytest.mark.parametrize("worth", [0.0, 1e9])
@pytest.mark.parametrize("rounds", [0, 1, 2, 9, 21])
def test_loop(rounds: int, worth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested, "_WORTH_SECONDS", worth)
    same(recurrence(), {"x": np.ones((1, 4), np.float32), "n": np.array(rounds)}, rounds=3)


@pytest.mark.parametrize("given_", [("n", ""), ("n", "c0"), ("", "c0")])
def test_a_loop_that_carries_nothing(given_: tuple[str, str]) -> None:
    nodes = [
        helper.make_node("Cast", ["i"], ["number"], to=FLOAT),
        helper.make_node("Less", ["i", "three"], ["going"]),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [value("i", INT64, []), value("c", BOOL, [])],
        [value("going", BOOL, []), value("number", FLOAT, [])],
        [numpy_helper.from_array(np.array(3), "three")],
    )
    inputs = [value("n", INT64, []), value("c0", BOOL, [])]
    model = model_of([helper.make_node("Loop", given_, ["all"], body=body)], inputs, [value("all", FLOAT, [None])])
    for n, rounds in ((10, 4), (2, 2 if given_[0] else 4)):
        (found,) = fusewise.compile(model, cache=False).run(None, {"n": np.array(n), "c0": np.array(True)})
        np.testing.assert_array_equal(found, np.arange(rounds, dtype=np.float32))


def test_a_condition_ends_a_loop() -> None:
    same(recurrence(), {"x": np.full((1, 4), 0.01, np.float32), "n": np.array(100)})
    same(recurrence(trips=False), {"x": np.full((1, 4), 0.01, np.float32)})


def test_a_loop_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    model = recurrence(trips=False)
    body = model.graph.node[0].attribute[0].g
    body.node[6].CopyFrom(helper.make_node("Identity", ["c"], ["going"]))
    with pytest.raises(ResourceLimit, match=r"\(Loop\) goes on for more than"):
        fusewise.compile(model, cache=False).run(None, {"x": np.ones((1, 4), np.float32)})


def growing() -> onnx.ModelProto:
    """What is carried gets longer from round to round."""
    body = helper.make_graph(
        [helper.make_node("Concat", ["a", "x"], ["b"], axis=0), helper.make_node("Identity", ["c"], ["going"])],
        "body",
        [value("i", INT64, []), value("c", BOOL, []), value("a", FLOAT, [None])],
        [value("going", BOOL, []), value("b", FLOAT, [None])],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    return model_of([loop], [value("x", FLOAT, [2]), value("n", INT64, [])], [value("y", FLOAT, [None])])


@pytest.mark.parametrize("worth", [0.0, 1e9])
def test_shapes_that_change_from_round_to_round(worth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested, "_WORTH_SECONDS", worth)
    same(growing(), {"x": np.array([1, 2], np.float32), "n": np.array(5)}, rounds=3)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 1), st.integers(0, 1), st.integers(-3, 2), st.integers(-3, 2), st.integers(129, 200), st.booleans()
)
def test_scan(back: int, back_out: int, axis: int, axis_out: int, length: int, at_once: bool) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "x"], ["s2"]),
            helper.make_node("Mul", ["s2", "two"], ["o"]),
        ],
        "body",
        [value("s", FLOAT, [2, 3]), value("x", FLOAT, [2, 3])],
        [value("s2", FLOAT, [2, 3]), value("o", FLOAT, [2, 3])],
    )
    node = helper.make_node(
        "Scan",
        ["s", "x"],
        ["y", "all"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=[back],
        scan_output_axes=[axis_out],
        scan_output_directions=[back_out],
    )
    shape = [2, 3]
    shape.insert(axis % 3, length)
    model = model_of(
        [node],
        [value("s", FLOAT, [2, 3]), value("x", FLOAT, shape)],
        [value("y", FLOAT, None), value("all", FLOAT, None)],
        {"two": np.array(2, np.float32)},
    )
    rng = np.random.default_rng(0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(nested, "_WORTH_SECONDS", 0.0 if at_once else 1e9)
        same(model, {"s": rng.random((2, 3), np.float32), "x": rng.random(shape, np.float32)}, rounds=2)


def branches() -> onnx.ModelProto:
    """An If in an If, both of which read `x` of outside under a name that an outer constant has, too."""
    inner = [
        helper.make_graph([helper.make_node(op, ["x", "k"], ["r"])], "inner", [], [value("r", FLOAT, [3])])
        for op in ("Add", "Mul")
    ]
    nodes = [helper.make_node("If", ["d"], ["z"], then_branch=inner[0], else_branch=inner[1])]
    then = helper.make_graph(nodes, "then", [], [value("z", FLOAT, [3])])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["q"])], "other", [], [value("q", FLOAT, [3])])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    inputs = [value("x", FLOAT, [3]), value("c", BOOL, []), value("d", BOOL, [])]
    return model_of([node], inputs, [value("y", FLOAT, [3])], {"k": np.array(3, np.float32)})


@pytest.mark.parametrize("c", [True, False])
@pytest.mark.parametrize("d", [True, False])
@pytest.mark.parametrize("worth", [0.0, 1e9])
def test_if(c: bool, d: bool, worth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested, "_WORTH_SECONDS", worth)
    same(branches(), {"x": np.arange(3, dtype=np.float32), "c": np.array(c), "d": np.array(d)}, rounds=3)


def test_what_fails_inside_is_named() -> None:
    model = growing()
    model.graph.node[0].attribute[0].g.node[0].CopyFrom(helper.make_node("MatMul", ["a", "i"], ["b"], name="inside"))
    with pytest.raises(FusewiseError, match="inside|Loop"):
        fusewise.compile(model, cache=False).run(None, {"x": np.ones(2, np.float32), "n": np.array(2)})


def test_several_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = fusewise.compile(recurrence(), cache=False, threads=1)
    feeds = {"x": np.ones((1, 4), np.float32), "n": np.array(20)}
    expected = reference(recurrence(), feeds)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: model.run(None, feeds), range(40)):
            np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)


def counted() -> onnx.ModelProto:
    """All squares of the number of the round, plus x, and the sum of them: a condition that stays as it is."""
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["i", "i"], ["s"]),
            helper.make_node("Add", ["s", "x"], ["each"]),
            helper.make_node("Add", ["a", "each"], ["b"]),
            helper.make_node("Identity", ["c"], ["going"]),
        ],
        "body",
        [value("i", INT64, []), value("c", BOOL, []), value("a", INT64, [])],
        [value("going", BOOL, []), value("b", INT64, []), value("each", INT64, []), value("s", INT64, [])],
    )
    loop = helper.make_node("Loop", ["n", "", "zero"], ["y", "all", "squares"], body=body)
    outputs = [value("y", INT64, []), value("all", INT64, [None]), value("squares", INT64, [None])]
    return model_of([loop], [value("x", INT64, []), value("n", INT64, [])], outputs, {"zero": np.array(0)})


@pytest.mark.parametrize("worth", [0.0, 1e9])
@pytest.mark.parametrize("rounds", [0, 7, 33, 34, 100])
def test_rounds_together(rounds: int, worth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested, "_WORTH_SECONDS", worth)
    same(counted(), {"x": np.array(3), "n": np.array(rounds)}, rounds=3)
    y, _, squares = fusewise.compile(counted(), cache=False).run(None, {"x": np.array(3), "n": np.array(rounds)})
    assert squares.tolist() == [k * k for k in range(rounds)]
    assert y == sum(k * k + 3 for k in range(rounds))
