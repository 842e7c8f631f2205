"""Binding: sizes from shapes, symbols and the batch default; everything else is asked for at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusewise.errors import InvalidModel, UsageError
from fusewise.frontend.bind import bind
from fusewise.frontend.onnx_import import load
from fusewise.ir.dtypes import FLOAT32, INT64
from fusewise.ir.graph import Graph
from fusewise.ir.size import Symbol
from fusewise.ir.types import Dim
from fusewise.ops.build import GraphBuilder


def _flattened(*shape: Dim) -> Graph:
    """Reshape(x, [Shape(x)[0], -1]), as exporters write a flatten."""
    b = GraphBuilder()
    x = b.input("x", shape, FLOAT32)
    first = b.op("Gather", b.op("Shape", x), b.constant(np.array(0)), axis=0)
    target = b.op("Concat", b.op("Unsqueeze", first, b.constant(np.array([0]))), b.constant(np.array([-1])), axis=0)
    y = b.op("Relu", b.op("Reshape", x, target))
    return b.finish(y)


def test_a_batch_is_one_unless_told_otherwise() -> None:
    graph = _flattened("N", 3, 4)
    (y,) = graph.outputs
    assert str(bind(graph).types[y]) == "float32[1,12]"
    assert str(bind(graph, {"x": (5, 3, 4)}).types[y]) == "float32[5,12]"
    assert str(bind(graph, None, {"N": 7}).types[y]) == "float32[7,12]"
    assert str(bind(_flattened(None, 3, 4)).types[y]) == "float32[1,12]"


def test_a_batch_that_is_not_first_is_known_by_its_name() -> None:
    assert bind(_flattened(4, "batch_size", 2)).types["x"] == bind(_flattened(4, 1, 2)).types["x"]


def test_rank_and_known_dimensions_are_there_before_binding() -> None:
    from fusewise.frontend.infer_types import infer_types

    graph = infer_types(_flattened("N", "C", 4))
    assert str(graph.types[graph.outputs[0]]) == "float32[N,?]"
    graph = infer_types(_flattened("N", 3, 4))
    assert str(graph.types[graph.outputs[0]]) == "float32[N,12]"


def test_every_open_dimension_is_listed_with_an_example() -> None:
    b = GraphBuilder()
    ids, mask = b.input("ids", ("N", "sequence")), b.input("mask", ("N", None))
    graph = b.finish(b.op("Relu", ids), b.op("Relu", mask))
    with pytest.raises(UsageError) as caught:
        bind(graph)
    text = str(caught.value)
    assert "dimension 1 of input 'ids' (sequence)" in text and "dimension 1 of input 'mask'" in text
    assert "--shape ids=1x128 --shape mask=1x128" in text
    bound = bind(graph, {"mask": (2, 9)}, {"sequence": 8})
    assert str(bound.types["ids"]) == "float32[2,8]"


@pytest.mark.parametrize(
    "shapes, symbols, part",
    [
        ({"x": (1, 3)}, {}, "has 2 dimensions, but the model wants"),
        ({"x": (2, 3, 4)}, {"N": 3}, "must be the same everywhere"),
        ({"x": (2, 3, 4)}, {"N": Symbol("N", 1, 8)}, "would be free and, by a shape that is given, 2"),
        ({"z": (1,)}, {}, "the model's inputs are 'x'"),
        ({}, {"M": 1}, "free dimensions are 'N'"),
        ({}, {"N": -1}, "cannot have the size -1"),
        ({"x": (-1, 3, 4)}, {}, "negative"),
    ],
)
def test_what_does_not_fit_is_refused(shapes: dict[str, tuple[int, ...]], symbols: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        bind(_flattened("N", 3, 4), shapes, symbols)


def test_an_input_without_a_rank_takes_any_shape() -> None:
    model = """<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) { y = Relu(x) }"""
    import onnx

    proto = onnx.parser.parse_model(model)
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    graph = load(proto)
    with pytest.raises(UsageError, match="the whole shape of 'x'"):
        bind(graph)
    assert str(bind(graph, {"x": (2, 0, 3)}).types["y"]) == "float32[2,0,3]"


def test_shapes_that_the_operators_refuse_are_an_invalid_model() -> None:
    b = GraphBuilder()
    graph = b.finish(b.op("Add", b.input("a", ("N", "p")), b.input("b", ("N", "q"))))
    with pytest.raises(InvalidModel, match="add"):
        bind(graph, {"a": (1, 3), "b": (1, 4)})


def _reduced() -> Graph:
    """ReduceSum over axes that are an input."""
    b = GraphBuilder()
    x, axes = b.input("x", ("N", 3, 4)), b.input("axes", ("K",), INT64)
    return b.finish(b.op("ReduceSum", x, axes))


def test_an_input_of_given_contents_is_a_constant() -> None:
    graph = bind(_reduced(), {"x": (2, 3, 4)}, values={"axes": [1, 2]})
    assert graph.inputs == ("x",)
    np.testing.assert_array_equal(graph.constants["axes"].array, np.array([1, 2]))
    assert graph.constants["axes"].array.dtype == np.int64
    assert str(graph.types[graph.outputs[0]]) == "float32[2,1,1]"


def test_contents_give_symbols_their_sizes() -> None:
    b = GraphBuilder()
    ids, mask = b.input("ids", ("S",), INT64), b.input("mask", ("S",))
    graph = bind(b.finish(b.op("Relu", mask), b.op("Identity", ids)), values={"ids": [4, 5, 6]})
    assert str(graph.types["mask"]) == "float32[3]"


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"other": [1]}, "inputs that are tensors are 'x', 'axes'"),
        ({"axes": [0.5]}, "not of its type"),
        ({"axes": ["a"]}, "not of its type"),
        ({"axes": [float("nan")]}, "not of its type"),
        ({"axes": [2**63]}, "not of its type"),
        ({"axes": [[1], [2, 3]]}, "not of its type"),
        ({"axes": [[1]]}, "has 2 dimensions"),
        ({"axes": {"a": 1}}, "not of its type"),
    ],
)
def test_contents_that_do_not_fit(values, wrong) -> None:
    with pytest.raises(UsageError, match=wrong):
        bind(_reduced(), {"x": (2, 3, 4)}, values=values)


def test_a_shape_beside_contents_must_be_theirs() -> None:
    with pytest.raises(UsageError, match="is not that of the value"):
        bind(_reduced(), {"x": (2, 3, 4), "axes": (2,)}, values={"axes": [1]})


def test_a_stated_size_gives_way_to_a_given_one() -> None:
    with pytest.warns(RuntimeWarning, match="it is taken to be 1x3x5"):
        graph = bind(_flattened("N", 3, 4), {"x": (1, 3, 5)})
    assert str(graph.types[graph.outputs[0]]) == "float32[1,15]"


def test_a_symbol_of_two_sizes_is_told_of() -> None:
    """ONNX Runtime runs what such a model is given; a size that is asked for by its symbol must hold."""
    b = GraphBuilder()
    x, y = b.input("x", ("N", 2)), b.input("y", ("N", 2))
    graph = b.finish(b.op("Concat", x, y, axis=0), b.op("Relu", y))
    with pytest.warns(RuntimeWarning, match="dimension 'N' would be 3 and, by the shape 4x2 of input 'y', 4"):
        bound = bind(graph, {"x": (3, 2), "y": (4, 2)})
    assert [str(bound.types[name]) for name in bound.outputs] == ["float32[7,2]", "float32[4,2]"]
    with pytest.raises(UsageError, match="must be the same everywhere"):
        bind(graph, {"y": (4, 2)}, {"N": 3})


def test_a_given_size_that_no_node_takes_is_the_users_fault() -> None:
    b = GraphBuilder()
    graph = b.finish(b.op("MatMul", b.input("x", (2, 3)), b.constant(np.ones((3, 4), np.float32))))
    with (
        pytest.warns(RuntimeWarning, match="taken to be 2x5"),
        pytest.raises(UsageError, match="the shape 2x5 for input 'x' does not fit: the model states float32.2,3., and"),
    ):
        bind(graph, {"x": (2, 5)})


def test_contents_that_no_node_takes_are_the_users_fault() -> None:
    with pytest.raises(UsageError, match="the values given for 'axes' do not fit"):
        bind(_reduced(), {"x": (2, 3, 4)}, values={"axes": [7]})
