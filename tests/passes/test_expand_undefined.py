"""Operators without a definition run natively, with every option, and give what ONNX's evaluator does."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import fusewise
from fusewise.frontend.onnx_import import load
from fusewise.ir.dtypes import dtype_of
from fusewise.ops.evaluate import evaluate
from fusewise.passes.expand_undefined import expand_undefined
from fusewise.trace import Trace

Feeds = dict[str, np.ndarray]


def model_of(node: onnx.NodeProto, feeds: Feeds, opset: int, known: tuple[str, ...] = ()) -> onnx.ModelProto:
    """One node, its operands inputs but for the known ones."""
    inputs = [
        helper.make_tensor_value_info(name, dtype_of(x).onnx, x.shape) for name, x in feeds.items() if name not in known
    ]
    constants = [onnx.numpy_helper.from_array(feeds[name], name) for name in known]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "one", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", opset)]
    if node.domain:
        opsets.append(helper.make_opsetid(node.domain, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=13)


def agree(node: onnx.NodeProto, feeds: Feeds, opset: int, known: tuple[str, ...] = (), off: float = 2e-5) -> None:
    """All of it natively, as the evaluator has it."""
    model = model_of(node, feeds, opset, known)
    graph = load(model)
    wanted = evaluate(graph.nodes[0], feeds, max(graph.opset, opset), graph.opsets)
    compiled = fusewise.compile(model, cache=False, threads=1, strict=True)
    found = compiled.run(None, {name: x for name, x in feeds.items() if name not in known})
    for a, b in zip(found, (y for y, name in zip(wanted, node.output, strict=True) if name), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        wide, right = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(right)
        assert np.array_equal(wide[~finite], right[~finite], equal_nan=True)
        largest = np.abs(right[finite]).max(initial=0)
        assert np.abs(wide[finite] - right[finite]).max(initial=0) <= off * max(1.0, largest)


@st.composite
def attentions(draw: st.DrawFn) -> tuple[onnx.NodeProto, Feeds, tuple[str, ...]]:
    """Any Attention: heads shared or not, three axes or four, a past or padded keys, every mask and option."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    samples, shared, group = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    queries, new, past = draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.integers(0, 4))
    size, width, flat = draw(st.sampled_from([4, 8])), draw(st.sampled_from([4, 6])), draw(st.booleans())
    cache = draw(st.sampled_from(["none", "past", "lengths"]))
    heads, keys = shared * group, new + (past if cache == "past" else 0)

    def operand(count: int, rows: int, columns: int) -> np.ndarray:
        shape = (samples, rows, count * columns) if flat else (samples, count, rows, columns)
        return rng.standard_normal(shape).astype(np.float32)

    feeds: Feeds = {
        "q": operand(heads, queries, size),
        "k": operand(shared, new, size),
        "v": operand(shared, new, width),
    }
    attributes: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": shared} if flat else {}
    names, known = ["q", "k", "v", "", "", "", ""], []
    mask = draw(st.sampled_from(["none", "bool", "float", "infinite"]))
    if mask != "none":
        # one element along the keys is for all of them here, and for the first alone to ONNX's evaluator
        reach = draw(st.integers(min(2, keys), keys)) if cache != "lengths" else keys
        shape = draw(
            st.sampled_from([(reach,), (queries, reach), (heads, queries, reach), (samples, 1, queries, reach)])
        )
        feeds["m"] = rng.random(shape) < 0.7 if mask == "bool" else rng.standard_normal(shape).astype(np.float32)
        if mask == "infinite":
            feeds["m"][rng.random(shape) < 0.4] = -np.inf
        names[3] = "m"
        known = ["m"] if draw(st.booleans()) else []
    if cache == "past":
        feeds["pk"] = rng.standard_normal((samples, shared, past, size)).astype(np.float32)
        feeds["pv"] = rng.standard_normal((samples, shared, past, width)).astype(np.float32)
        names[4:6] = ["pk", "pv"]
    if cache == "lengths":
        feeds["n"] = rng.integers(0, keys + 1, samples).astype(np.int64)
        names[6] = "n"
    choices: dict[str, tuple[Any, ...]] = {
        "is_causal": (None, 0, 1),
        "scale": (None, 0.3),
        "softcap": (None, 2.0),
        "softmax_precision": (None, 1, 11),
        "left_window_size": (None, 0, 2),
        "right_window_size": (None, 0, 1),
    }
    attributes |= {name: value for name, of in choices.items() if (value := draw(st.sampled_from(of))) is not None}
    outputs = ["y"]
    if cache != "lengths" and draw(st.booleans()):
        outputs += ["present_k", "present_v"]
    if draw(st.booleans()):
        outputs += [""] * (3 - len(outputs)) + ["scores"]
        attributes["qk_matmul_output_mode"] = draw(st.integers(0, 3))
    if cache == "past" and len(outputs) == 1:
        outputs += ["present_k", "present_v"]
    while names and not names[-1]:
        names.pop()
    return helper.make_node("Attention", names, outputs, **attributes), feeds, tuple(known)


@settings(max_examples=25, deadline=None)
@given(attentions())
def test_attention_with_any_options(case: tuple[onnx.NodeProto, Feeds, tuple[str, ...]]) -> None:
    node, feeds, known = case
    agree(node, feeds, 25, known)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(attentions())
def test_attention_with_many_options(case: tuple[onnx.NodeProto, Feeds, tuple[str, ...]]) -> None:
    node, feeds, known = case
    agree(node, feeds, 25, known)


def test_a_past_goes_to_the_kernel() -> None:
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal((1, 2, n, 8)).astype(np.float32) for name, n in (("q", 1), ("k", 1), ("pk", 7))}
    node = helper.make_node("Attention", ["q", "k", "k", "", "pk", "pk"], ["y", "a", "b"], is_causal=1)
    graph = load(model_of(node, feeds, 23))
    after = expand_undefined(graph, Trace())
    assert [inner.op for inner in after.nodes] == ["Concat", "Concat", "Attention"]
    assert after.nodes[-1].attribute("is_causal", 0) == 0  # the one query sees all keys
    agree(node, feeds, 23)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("length", [1, 2, 6])
@pytest.mark.parametrize("options", ["", "bias", "past", "bias past"])
def test_causal_convolution(dtype: str, length: int, options: str) -> None:
    rng = np.random.default_rng(length)
    feeds = {"x": rng.standard_normal((2, 3, length)), "w": rng.standard_normal((3, 1, 4))}
    names = ["x", "w", "", ""]
    if "bias" in options:
        feeds["b"], names[2] = rng.standard_normal(3), "b"
    if "past" in options:
        feeds["p"], names[3] = rng.standard_normal((2, 3, 3)), "p"
    typed = {name: x.astype(dtype) for name, x in feeds.items()}
    activation = {"activation": "silu"} if length > 1 else {}
    node = helper.make_node("CausalConvWithState", names, ["y", "state"], **activation)
    agree(node, typed, 27, off=2e-5 if dtype == "float32" else 4e-3)


def test_flexible_attention_is_its_function() -> None:
    rng = np.random.default_rng(3)
    feeds = {
        "q": rng.standard_normal((1, 4, 3, 8)).astype(np.float32),
        "k": rng.standard_normal((1, 2, 5, 8)).astype(np.float32),
        "v": rng.standard_normal((1, 2, 5, 6)).astype(np.float32),
    }
    info = [helper.make_tensor_value_info(name, 1, None) for name in ("s", "t")]
    changed = helper.make_graph([helper.make_node("Tanh", ["s"], ["t"])], "score", info[:1], info[1:])
    node = helper.make_node(
        "FlexAttention", ["q", "k", "v"], ["y"], domain="ai.onnx.preview", score_mod=changed, scale=0.5
    )
    agree(node, feeds, 25)


def test_a_loss_is_its_function() -> None:
    rng = np.random.default_rng(4)
    feeds = {"x": rng.standard_normal((3, 5, 2)).astype(np.float32), "t": rng.integers(0, 5, (3, 2)).astype(np.int64)}
    agree(helper.make_node("SoftmaxCrossEntropyLoss", ["x", "t"], ["l", "p"], reduction="sum"), feeds, 21)


@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_scan_of_few_steps_is_written_out(backward: int, axis: int) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "x"], ["t"]),
            helper.make_node("Mul", ["t", "c"], ["next"]),
            helper.make_node("Neg", ["next"], ["y"]),
        ],
        "step",
        [helper.make_tensor_value_info(name, 1, None) for name in ("s", "x")],
        [helper.make_tensor_value_info(name, 1, None) for name in ("next", "y")],
        [helper.make_tensor("c", 1, [], [0.5])],
    )
    rng = np.random.default_rng(5)
    shape = (4, 3) if axis == 0 else (3, 4)
    feeds = {"s0": rng.standard_normal(3).astype(np.float32), "xs": rng.standard_normal(shape).astype(np.float32)}
    turned = {"scan_input_directions": [backward], "scan_output_directions": [1 - backward]}
    placed = {"scan_input_axes": [axis], "scan_output_axes": [-1]}
    node = helper.make_node("Scan", ["s0", "xs"], ["last", "ys"], num_scan_inputs=1, body=body, **turned, **placed)
    agree(node, feeds, 21)


def test_a_long_scan_stays() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Identity", ["t"], ["y"])],
        "step",
        [helper.make_tensor_value_info(name, 1, [3]) for name in ("s", "x")],
        [helper.make_tensor_value_info(name, 1, [3]) for name in ("t", "y")],
    )
    node = helper.make_node("Scan", ["s0", "xs"], ["last", "ys"], num_scan_inputs=1, body=body)
    feeds = {"s0": np.zeros(3, np.float32), "xs": np.zeros((500, 3), np.float32)}
    graph = load(model_of(node, feeds, 21))
    assert expand_undefined(graph, Trace()) is graph


def of_floats(*names: str) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, 1, [2, 3]) for name in names]


@pytest.mark.parametrize("rounds", [1, 5, 80])
@pytest.mark.parametrize("condition", ["", "yes"])
@pytest.mark.parametrize("last", ["handed on", "constant"])
def test_loops_of_a_known_number_of_rounds_are_native(rounds: int, condition: str, last: str) -> None:
    """One of two results twice, what is gathered, and the number of the round."""
    going = (
        helper.make_node("Identity", ["c"], ["on"])
        if last == "handed on"
        else helper.make_node("Constant", [], ["on"], value=onnx.numpy_helper.from_array(np.array(True)))
    )
    body = helper.make_graph(
        [going, helper.make_node("Cast", ["i"], ["f"], to=1), helper.make_node("Add", ["a", "f"], ["t"])],
        "round",
        [
            helper.make_tensor_value_info("i", 7, []),
            helper.make_tensor_value_info("c", 9, []),
            *of_floats("a", "b"),
        ],
        [helper.make_tensor_value_info("on", 9, []), *of_floats("t", "t", "b")],
    )
    node = helper.make_node("Loop", ["n", condition, "x", "x"], ["y", "z", "all"], body=body)
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array(rounds)}
    if condition:
        feeds["yes"] = np.array([True])
    agree(node, feeds, 21, ("n", condition) if condition else ("n",))


def test_a_loop_that_data_may_end_stays() -> None:
    body = helper.make_graph(
        [helper.make_node("Not", ["c"], ["on"]), helper.make_node("Neg", ["a"], ["b"])],
        "round",
        [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("c", 9, []), *of_floats("a")],
        [helper.make_tensor_value_info("on", 9, []), *of_floats("b")],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    graph = load(model_of(node, {"x": np.ones((2, 3), np.float32), "n": np.array(5)}, 21, ("n",)))
    assert expand_undefined(graph, Trace()) is graph


def branches(op: str, *more: str, **attributes: Any) -> onnx.NodeProto:
    """op(x, ...) or x, whose shape both have."""
    then = helper.make_graph([helper.make_node(op, ["x", *more], ["r"], **attributes)], "then", [], of_floats("r"))
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["q"])], "other", [], of_floats("q"))
    return helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)


@pytest.mark.parametrize("c", [np.array(True), np.array([False])])
def test_small_branches_are_native(c: np.ndarray) -> None:
    x = np.array([[1, np.inf, -3], [np.nan, 0, -0.0]], np.float32)
    agree(branches("Sqrt"), {"c": c, "x": x}, 21)
    agree(branches("Transpose", perm=[0, 1]), {"c": c, "x": x}, 21)


@pytest.mark.parametrize(("op", "more"), [("Gather", ("places",)), ("RandomNormalLike", ())])
def test_branches_that_may_not_both_run_stay(op: str, more: tuple[str, ...]) -> None:
    """Positions may be wrong where the branch is not taken, and what is random has a state."""
    feeds = {"c": np.array(True), "x": np.ones((2, 3), np.float32)} | {name: np.array([1, 0]) for name in more}
    graph = load(model_of(branches(op, *more), feeds, 21))
    assert expand_undefined(graph, Trace()) is graph


@pytest.mark.parametrize("c", [True, False])
def test_small_branches_of_any_size_are_native(c: bool) -> None:
    x = np.array([[1, 4, -3], [2, 0, 7]], np.float32)
    model = model_of(branches("Abs"), {"c": np.array(c), "x": x}, 21)
    for value in (model.graph.input[1], *(body.g.output[0] for body in model.graph.node[0].attribute)):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    compiled = fusewise.compile(model, cache=False, threads=1, strict=True)
    for rows in (2, 1, 4):
        feeds = {"c": np.array(c), "x": np.resize(x, (rows, 3))}
        wanted = evaluate(load(model).nodes[0], feeds, 21, ())
        np.testing.assert_array_equal(compiled.run(None, feeds)[0], wanted[0])


def test_large_branches_stay() -> None:
    feeds = {"c": np.array(True), "x": np.ones((200, 300), np.float32)}
    node = branches("Exp")
    for body in node.attribute:
        for dim, extent in zip(body.g.output[0].type.tensor_type.shape.dim, (200, 300), strict=True):
            dim.dim_value = extent
    graph = load(model_of(node, feeds, 21))
    assert expand_undefined(graph, Trace()) is graph


def test_a_tensor_is_an_optional_with_an_element() -> None:
    x = np.arange(4, dtype=np.float32)
    agree(helper.make_node("OptionalHasElement", ["x"], ["y"]), {"x": x}, 21)
    agree(helper.make_node("OptionalGetElement", ["x"], ["y"]), {"x": x}, 21)
