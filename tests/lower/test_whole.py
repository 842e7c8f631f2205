"""Nodes that are one task each: native with every option, wherever their operands lie; what is wrong in the data is reported."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tests.forests import forests
from tests.whole import Case, alike, max_unpool, roi_pools, scans, scatter_elements, scatter_nd, tensor_scatter, tops

import fusewise
from fusewise.codegen.candidates import KERNELS
from fusewise.errors import InvalidData
from fusewise.fusion.plan import partition
from fusewise.lower.interpret import interpret_lowered
from fusewise.lower.whole import FAMILIES
from fusewise.lower.work import TaskWork, lower_partition
from fusewise.ops.spec import WHOLE_FAMILIES
from fusewise.trace import Trace

ANY = st.one_of(
    scatter_elements(), scatter_nd(), tensor_scatter(), max_unpool(), roi_pools(), scans(), tops(), forests()
)


def test_every_family_has_a_row_and_kernels():
    assert set(FAMILIES) == WHOLE_FAMILIES <= set(KERNELS)


@settings(max_examples=40, deadline=None)
@given(one=ANY, threads=st.integers(1, 3))
def test_native_code_does_what_the_text_says(one: Case, threads: int) -> None:
    model = fusewise.compile(one.model(), strict=True, threads=threads, cache=False)
    assert alike(model.run(None, one.feeds), one.wanted)
    assert alike(model.run(None, one.feeds), one.wanted)


@settings(max_examples=25, deadline=None)
@given(one=forests())
def test_forests_take_any_number_of_rows(one: Case) -> None:
    proto = one.model()
    rows = proto.graph.input[0].type.tensor_type.shape.dim[0]
    rows.dim_param = "rows"
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    model = fusewise.compile(proto, strict=True, threads=2, cache=False)
    (name,) = (port.name for port in model.get_inputs())
    data, wanted = one.feeds[name], one.wanted[0]
    for count in sorted({0, 1, len(data) // 2, len(data)}):
        assert alike(model.run(None, {name: data[:count]}), (wanted[:count],))
    twice = np.concatenate((data,) * 3)
    assert alike(model.run(None, {name: twice}), (np.concatenate((wanted,) * 3),))


@settings(max_examples=30, deadline=None)
@given(one=ANY)
def test_lowered_work_is_what_the_node_is(one: Case) -> None:
    graph = fusewise.load(one.model())
    lowered = lower_partition(partition(graph, Trace()), Trace())
    assert all(isinstance(work, TaskWork) for work in lowered.work)
    found = interpret_lowered(lowered, one.feeds)
    assert alike([found[name] for name in graph.outputs], one.wanted)


@settings(max_examples=12, deadline=None)
@given(one=ANY)
def test_a_checked_build_finds_nothing_wrong(one: Case) -> None:
    model = fusewise.compile(one.model(), strict=True, threads=2, cache=False, sanitize=True)
    assert alike(model.run(None, one.feeds), one.wanted)


@pytest.mark.parametrize("position", [3, -4, 2**40, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND", "CumSum", "MaxUnpool", "TensorScatter"])
def test_a_position_out_of_bounds_is_an_error(op: str, position: int) -> None:
    x, updates, at = np.ones((3, 3), np.float32), np.ones((2, 3), np.float32), np.array(position)
    cases = {
        "ScatterElements": Case(op, (x, np.array([[0, 1, 2], [0, 1, position]]), updates), (x,)),
        "ScatterND": Case(op, (x, np.array([[0], [position]]), updates), (x,)),
        "CumSum": Case(op, (x, at), (x,)),
        "TensorScatter": Case(op, (x, updates.T.copy(), np.array([0, 0, position])), (x,), {"axis": 1}),
        "MaxUnpool": Case(op, (x[:1, None], np.full((1, 1, 3), position)), (x,), {"kernel_shape": [1]}),
    }
    one = cases[op]
    for settings_ in ({"strict": True}, {"strict": True, "sanitize": True}):
        model = fusewise.compile(one.model(), cache=False, threads=2, **settings_)  # type: ignore[arg-type]
        with pytest.raises(InvalidData, match=f"{op}.* finds .* in its operand 'x"):
            model.run(None, one.feeds)


@pytest.mark.parametrize("last", [False, True])
def test_what_nobody_reads_later_is_changed_in_place(last: bool) -> None:
    """Two scatters one upon the other, of a value that may be read once more behind them."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["squares"]),
        helper.make_node("ScatterND", ["squares", "at", "u"], ["one"]),
        helper.make_node("ScatterElements", ["one", "at", "v"], ["two"], reduction="add"),
        helper.make_node("Add", ["two", "squares" if last else "x"], ["y"]),
    ]
    kinds = [("x", TensorProto.FLOAT, [50, 1]), ("at", TensorProto.INT64, [2, 1])]
    kinds += [("u", TensorProto.FLOAT, [2, 1]), ("v", TensorProto.FLOAT, [2, 1])]
    inputs = [helper.make_tensor_value_info(*kind) for kind in kinds]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    rng = np.random.default_rng(0)
    x, u, v = (rng.random((n, 1), np.float32) for n in (50, 2, 2))
    at = np.array([[7], [-50]])
    wanted = x * x
    wanted[[7, 0]] = u
    wanted[[7, 0]] += v
    wanted = wanted + (x * x if last else x)
    lowered = lower_partition(partition(fusewise.load(model), Trace()), Trace())
    labels = [work.label for work in lowered.work if isinstance(work, TaskWork)]
    assert labels.count("ScatterND") == 1 + last, "the squares are copied if they are read later, and only then"
    assert labels.count("ScatterElements") == 1
    compiled = fusewise.compile(model, strict=True, threads=1, cache=False)
    found = compiled.run(None, {"x": x, "at": at, "u": u, "v": v})[0]
    assert np.allclose(found, wanted)


@pytest.mark.parametrize("read", ["", "past", "new", "long"])
def test_what_becomes_an_output_is_changed_there(read: str) -> None:
    """A cache with new rows moved up to where each sample ends, which may be read again, as what is joined may."""
    nodes = [
        helper.make_node("Neg", ["x"], ["new"]),
        helper.make_node("Concat", ["past", "new"], ["long"], axis=2),
        helper.make_node("TensorScatter", ["long", "new", "first"], ["y"], axis=2),
        helper.make_node("Abs", ["y"], ["z"]),
    ]
    outputs = ["y", "z"]
    if read:
        nodes.append(helper.make_node("Exp", [read], ["e"]))
        outputs.append("e")
    rng = np.random.default_rng(0)
    feeds = {
        "past": rng.standard_normal((2, 3, 4, 5)).astype(np.float32),
        "x": rng.standard_normal((2, 3, 2, 5)).astype(np.float32),
        "first": np.array([4, 1]),
    }
    kinds = [(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for name, x in feeds.items()]
    inputs = [helper.make_tensor_value_info(*kind) for kind in kinds]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    long = np.concatenate([feeds["past"], -feeds["x"]], 2)
    wanted = long.copy()
    wanted[1, :, 1:3] = -feeds["x"][1]
    lowered = lower_partition(partition(fusewise.load(model), Trace()), Trace())
    labels = [work.label for work in lowered.work if isinstance(work, TaskWork)]
    assert labels.count("TensorScatter") == 1 + (read == "long"), "nothing is copied but what is read later"
    found = fusewise.compile(model, strict=True, cache=False).run(None, feeds)
    np.testing.assert_array_equal(found[0], wanted)
    np.testing.assert_array_equal(found[1], np.abs(wanted))
    if read:
        given = {"past": feeds["past"], "new": -feeds["x"], "long": long}[read]
        np.testing.assert_allclose(found[2], np.exp(given), rtol=1e-5)


@pytest.mark.parametrize("fusion", ["dnnfusion", "patterns", "none"])
def test_operands_lie_anywhere(fusion: str) -> None:
    """What is read is turned round, and what is written a part of a larger tensor."""
    rng = np.random.default_rng(1)
    x, at, u = rng.random((4, 6, 5), np.float32), rng.integers(0, 6, (5, 6, 4)), rng.random((4, 6, 5), np.float32)
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], perm=[2, 1, 0]),
        helper.make_node("Transpose", ["u"], ["updates"], perm=[2, 1, 0]),
        helper.make_node("ScatterElements", ["turned", "at", "updates"], ["s"], axis=1, reduction="add"),
        helper.make_node("CumSum", ["turned", "axis"], ["c"]),
        helper.make_node("TopK", ["turned", "k"], ["t", "where"], axis=0),
        helper.make_node("Cast", ["where"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["s", "c", "t", "float"], ["y"], axis=0),
    ]
    constants = [numpy_helper.from_array(np.array(value), name) for name, value in (("axis", 0), ("k", [3]))]
    kinds = [("x", TensorProto.FLOAT, x.shape), ("at", TensorProto.INT64, at.shape), ("u", TensorProto.FLOAT, u.shape)]
    inputs = [helper.make_tensor_value_info(*kind) for kind in kinds]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    turned, updates = x.transpose(2, 1, 0), u.transpose(2, 1, 0)
    s = turned.copy()
    for i in np.ndindex(s.shape):
        s[i[0], at[i], i[2]] += updates[i]
    order = np.argsort(-turned, axis=0, kind="stable")[:3]
    wanted = np.concatenate([s, np.cumsum(turned, 0), np.take_along_axis(turned, order, 0), order], 0)
    found = fusewise.compile(model, strict=True, fusion=fusion, cache=False).run(None, {"x": x, "at": at, "u": u})[0]
    assert np.allclose(found, wanted, atol=1e-6)
