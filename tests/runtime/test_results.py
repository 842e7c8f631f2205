"""What a run returns is the caller's own: no change to it reaches the model, an input, or another output."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fusewise
from fusewise.runtime import results


def tensor(name: str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [2])


def sequence(name: str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, kind, [2])


def compiled(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: Sequence[Any] = ()) -> fusewise.Model:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return fusewise.compile(model, cache=False)


def arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from arrays(one)


FLOATS, WORDS = np.array([1, 2], np.float32), np.array(["a", "b"], object)
BRANCH = helper.make_graph(
    [helper.make_node("Constant", [], ["c"], value=helper.make_tensor("", TensorProto.STRING, [2], [b"p", b"q"]))],
    "branch",
    [],
    [helper.make_tensor_value_info("c", TensorProto.STRING, [2])],
)
CASES = {
    "an input and one value twice": (
        [("Relu", "x", "y"), ("Identity", "y", "z"), ("Identity", "x", "w")],
        [tensor("x")],
        [tensor("y"), tensor("z"), tensor("w")],
        {"x": FLOATS},
    ),
    "a list of one array twice": (
        [("SequenceConstruct", "x x", "q"), ("Identity", "q", "r")],
        [tensor("x")],
        [sequence("q"), sequence("r")],
        {"x": FLOATS},
    ),
    "a list that is an input": ([("Identity", "q", "r")], [sequence("q")], [sequence("r")], {"q": [FLOATS.copy()]}),
    "text twice": (
        [("StringConcat", "x x", "y"), ("Identity", "y", "z")],
        [tensor("x", TensorProto.STRING)],
        [tensor("y", TensorProto.STRING), tensor("z", TensorProto.STRING)],
        {"x": WORDS},
    ),
    "a constant of the model in a list": (
        [("SequenceConstruct", "x k", "q")],
        [tensor("x")],
        [sequence("q")],
        {"x": FLOATS},
    ),
    "a constant text, twice, and text that is an input": (
        [("Identity", "s", "y"), ("Identity", "s", "z"), ("Identity", "x", "w")],
        [tensor("x", TensorProto.STRING)],
        [tensor(name, TensorProto.STRING) for name in "yzw"],
        {"x": WORDS},
    ),
    "a constant and an input as they are": (
        [("Identity", "k", "y"), ("Identity", "x", "z")],
        [tensor("x")],
        [tensor("y"), tensor("z")],
        {"x": FLOATS},
    ),
}


def check(model: fusewise.Model, feeds: dict[str, Any], names: list[str] | None = None) -> None:
    before = [[one.copy() for one in arrays(value)] for value in model.run(names, feeds)]
    given = [one.copy() for value in feeds.values() for one in arrays(value)]
    found = model.run(names, feeds)
    own = [one for value in found for one in arrays(value)]
    lists = [value for value in found if isinstance(value, list)]
    assert len({id(value) for value in lists}) == len(lists)
    for a, b in itertools.combinations(own, 2):
        assert not np.may_share_memory(a, b)
    for a, b in itertools.product(own, (one for value in feeds.values() for one in arrays(value))):
        assert not np.may_share_memory(a, b)
    for one in own:
        one[...] = "changed" if one.dtype == object else 77
    for value in lists:
        value.clear()
    for a, b in zip(given, (one for value in feeds.values() for one in arrays(value)), strict=True):
        np.testing.assert_array_equal(a, b)
    after = [list(arrays(value)) for value in model.run(names, feeds)]
    for a, b in zip(before, after, strict=True):
        for one, other in zip(a, b, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("case", CASES)
def test_outputs_share_nothing(case: str) -> None:
    nodes, inputs, outputs, feeds = CASES[case]
    made = [helper.make_node(op, reads.split(), [write]) for op, reads, write in nodes]
    constants = [
        onnx.numpy_helper.from_array(np.array([5, 6], np.float32), "k"),
        helper.make_tensor("s", TensorProto.STRING, [2], [b"s", b"t"]),
    ]
    check(compiled(made, inputs, outputs, constants), dict(feeds))


def test_what_an_evaluator_keeps_for_its_next_run_is_not_handed_out() -> None:
    node = helper.make_node("If", ["b"], ["y"], then_branch=BRANCH, else_branch=BRANCH)
    flag = helper.make_tensor_value_info("b", TensorProto.BOOL, [])
    check(compiled([node], [flag], [tensor("y", TensorProto.STRING)]), {"b": np.array(True)})


def test_an_output_asked_for_twice_is_two_arrays() -> None:
    model = compiled([helper.make_node("Relu", ["x"], ["y"])], [tensor("x")], [tensor("y")])
    check(model, {"x": FLOATS}, ["y", "y"])


def test_what_nobody_else_has_is_given_out_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result of a size from data alone is not copied; under two names, one of them is."""
    places = onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="z")
    nodes = [helper.make_node("NonZero", ["x"], ["y"]), helper.make_node("Identity", ["y"], ["z"])]
    one, two = compiled(nodes[:1], [tensor("x")], [places[0]]), compiled(nodes, [tensor("x")], list(places))
    copied: list[Any] = []
    right = np.array([[0, 1]])
    monkeypatch.setattr(results, "_copied", lambda value: copied.append(value) or value.copy())
    for model, is_copied in ((one, False), (two, True)):
        for _ in range(3):
            copied.clear()
            found = model.run(None, {"x": FLOATS})
            assert bool(copied) == is_copied
            for array in found:
                assert np.array_equal(array, right)
                array[...] = 7


def test_arrays_of_a_list_that_nobody_else_has_are_given_out_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless an array stands in it twice."""
    sequence = onnx.ValueInfoProto(name="y")
    copied: list[Any] = []
    monkeypatch.setattr(results, "_copied", lambda value: copied.append(value) or value.copy())
    for node, count in (
        (helper.make_node("SequenceConstruct", ["x"], ["y"]), 0),
        (helper.make_node("SequenceConstruct", ["k", "k"], ["y"]), 2),
    ):
        constant = onnx.numpy_helper.from_array(FLOATS, "k")
        model = compiled([node], [tensor("x")], [sequence], [constant])
        for _ in range(2):
            copied.clear()
            (found,) = model.run(None, {"x": FLOATS})
            assert len(copied) == count
            for array in found:
                assert np.array_equal(array, FLOATS)
                array[...] = 7


def test_maps_are_made_anew_and_copied_where_they_are_asked_for_twice() -> None:
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_strings=["a", "b"])
    graph = helper.make_graph([node], "g", [tensor("x")], [onnx.ValueInfoProto(name="y")])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    model = fusewise.compile(helper.make_model(graph, opset_imports=imports, ir_version=10), cache=False)
    for _ in range(2):
        found = model.run(["y", "y"], {"x": FLOATS})
        assert found == [[{"a": 1.0, "b": 2.0}]] * 2
        found[0][0]["a"] = 7
        assert found[1] == [{"a": 1.0, "b": 2.0}]
