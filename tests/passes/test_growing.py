"""Which outputs grow in the place of inputs, and why others do not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from fusewise import api
from fusewise.errors import UsageError
from fusewise.passes.growing import grown_in_place

OPSET = [helper.make_opsetid("", 23)]


def model_of(nodes: list[onnx.NodeProto], other: str = "past") -> onnx.ModelProto:
    """a and b are past, x is new; c and d are outputs."""

    def port(name: str, length: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2, length, 4])

    new = helper.make_tensor_value_info("given", TensorProto.INT32, ["batch", 2, "new", 4])
    inputs = [new, port("a", "past"), port("b", other)]
    made = [helper.make_node("Cast", ["given"], ["x"], to=TensorProto.FLOAT), *nodes]
    graph = helper.make_graph(made, "grows", inputs, [port("c", "c_length"), port("d", "d_length")])
    return helper.make_model(graph, opset_imports=OPSET, ir_version=10)


def joined(first: str, second: str, output: str) -> onnx.NodeProto:
    return helper.make_node("Concat", [first, second], [output], axis=2, name=f"join_{output}")


def test_pairs_are_found_through_copies() -> None:
    nodes = [joined("a", "x", "e"), helper.make_node("Identity", ["e"], ["c"]), joined("b", "x", "d")]
    graph = grown_in_place(api.load(model_of(nodes), free=True))
    assert graph.growth is not None
    assert graph.growth.pairs == (("a", "c", 2), ("b", "d", 2))
    assert str(graph.growth.after) == "new + past"
    assert [str(dim) for dim in graph.tensor("a").dims] == ["batch", "2", "past + room", "4"]
    assert [str(size) for size in dict(graph.contents)[graph.growth.counts]] == ["past", "room"]


REFUSED = {
    "nothing is joined": (
        [helper.make_node("Relu", ["a"], ["c"]), helper.make_node("Relu", ["b"], ["d"])],
        {},
        "no output that is one of its inputs",
    ),
    "the new part comes first": (
        [joined("x", "a", "c"), joined("b", "x", "d")],
        {},
        r"output 'c' cannot grow in the place of input 'a': node 'join_c' \(Concat\) begins with 'x'",
    ),
    "more is done to it": (
        [joined("a", "x", "e"), helper.make_node("Relu", ["e"], ["c"], name="bend"), joined("b", "x", "d")],
        {},
        r"output 'c' cannot grow in the place of input 'a': node 'bend' \(Relu\) makes it",
    ),
    "they are not equally long": (
        [joined("a", "x", "c"), joined("b", "x", "d")],
        {"other": "second"},
        "inputs 'a' and 'b' grow, but are not equally long: past and second",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused(why: str) -> None:
    nodes, lengths, sentence = REFUSED[why]
    with pytest.raises(UsageError, match=sentence):
        grown_in_place(api.load(model_of(nodes, **lengths), free=True))


def test_a_length_that_is_given_does_not_grow() -> None:
    nodes = [joined("a", "x", "c"), joined("b", "x", "d")]
    graph = api.load(model_of(nodes), symbols={"past": 5}, free=True)
    with pytest.raises(UsageError, match="input 'a' cannot grow: it has 5 elements"):
        grown_in_place(graph)


def test_a_branch_that_is_known_to_be_taken() -> None:
    """As merged decoders have it: the other branch takes no past."""

    def port(name: str, length: str = "past") -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2, length, 4])

    def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph(list(nodes), name, [], [port(f"{name}_out", "now")])

    past = branch("past", helper.make_node("Concat", ["a"], ["copy"], axis=2), joined("copy", "n", "past_out"))
    first = branch("first", helper.make_node("Identity", ["n"], ["first_out"]))
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=TensorProto.FLOAT),
        helper.make_node("If", ["use"], ["c"], then_branch=past, else_branch=first, name="choice"),
    ]
    new = helper.make_tensor_value_info("x", TensorProto.INT32, ["batch", 2, "new", 4])
    use = helper.make_tensor_value_info("use", TensorProto.BOOL, [1])
    graph = helper.make_graph(nodes, "merged", [new, port("a"), use], [port("c", "now")])
    model = helper.make_model(graph, opset_imports=OPSET, ir_version=10)
    known = api.load(model, values={"use": np.array([True])}, free=True)
    found = grown_in_place(known).growth
    assert found is not None
    assert found.pairs == (("a", "c", 2),)
