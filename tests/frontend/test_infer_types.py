"""Types of whole graphs: those of ONNX's own inference, and more where shapes are computed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from fusewise.errors import InvalidModel
from fusewise.frontend.infer_control import widen
from fusewise.frontend.infer_types import infer_graph, infer_types
from fusewise.frontend.onnx_import import bind, load
from fusewise.ir.dtypes import FLOAT32, INT64
from fusewise.ir.types import Dim, OptionalType, SequenceType, TensorType


def t(*dims: Dim) -> TensorType:
    return TensorType(FLOAT32, dims)


def _parse(text: str, opset: int = 18) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')


ATTENTION_SPLIT = """g (float[N, S, 768] x) => (float[a, b, c, d] y) {
  shape = Shape(x)
  zero = Constant<value_int = 0>()
  one = Constant<value_int = 1>()
  axes = Constant<value_ints = [0]>()
  n = Gather<axis = 0>(shape, zero)
  s = Gather<axis = 0>(shape, one)
  un = Unsqueeze(n, axes)
  us = Unsqueeze(s, axes)
  tail = Constant<value_ints = [12, 64]>()
  target = Concat<axis = 0>(un, us, tail)
  r = Reshape(x, target)
  y = Transpose<perm = [0, 2, 1, 3]>(r)
}"""


def test_symbols_survive_the_shape_arithmetic_of_exporters() -> None:
    graph = load(_parse(ATTENTION_SPLIT))
    assert graph.types["y"] == t("N", 12, "S", 64)
    assert bind(graph, {"x": (2, 9, 768)}).types["y"] == t(2, 12, 9, 64)


@pytest.mark.parametrize(
    "source, target, expected",
    [
        ("N, 12, S, 64", "N, S, -1", ["N", "S", 768]),
        ("N, 12, S, 64", "-1, 768", [None, 768]),
        ("N, 3, 8", "-1, 24", ["N", 24]),
        ("N, 3, 8", "N, 24", ["N", 24]),
        ("N, M", "-1", [None]),
    ],
)
def test_a_hole_in_a_partly_known_target_is_filled_when_it_can_be(
    source: str, target: str, expected: list[Dim]
) -> None:
    dims = [dim.strip() for dim in source.split(",")]
    picks, parts = [], []
    for k, item in enumerate(part.strip() for part in target.split(",")):
        if item in dims and not item.lstrip("-").isdigit():
            picks.append(f"i{k} = Constant<value_ints = [{dims.index(item)}]>()  d{k} = Gather<axis = 0>(shape, i{k})")
        else:
            picks.append(f"d{k} = Constant<value_ints = [{item}]>()")
        parts.append(f"d{k}")
    text = f"g (float[{source}] x) => (float[] y) {{ shape = Shape(x) {' '.join(picks)} "
    text += f"target = Concat<axis = 0>({', '.join(parts)})  y = Reshape(x, target) }}"
    shape = load(_parse(text)).tensor("y").shape
    assert shape is not None and list(shape) == expected


def test_known_values_are_given_too() -> None:
    graph = bind(load(_parse(ATTENTION_SPLIT)), {"x": (2, 9, 768)})
    np.testing.assert_array_equal(infer_graph(graph).values["target"], [2, 9, 12, 64])


def test_all_types_of_a_model_are_those_onnx_infers() -> None:
    text = """g (float[2,3,16,16] x, float[8,3,3,3] w, int64[2] k) => (float[2,8,4] y, int64[n, m] z) {
      c = Conv<pads = [1,1,1,1], strides = [2,2]>(x, w)
      p = MaxPool<kernel_shape = [2,2], strides = [2,2]>(c)
      m = ReduceMean<keepdims = 0>(p, last)
      last = Constant<value_ints = [-1]>()
      y = LayerNormalization(m, scale)
      scale = Constant<value_floats = [1.0, 1.0, 1.0, 1.0]>()
      z = NonZero(m)
    }"""
    model = _parse(text)
    graph = load(model)
    assert graph.types["p"] == t(2, 8, 4, 4) and graph.types["y"] == t(2, 8, 4)
    assert graph.types["z"] == TensorType(INT64, (3, "m"))  # ONNX knows the rank, the model names the count
    assert infer_types(graph).types == graph.types


def test_widening_covers_both() -> None:
    assert widen(t(2, 3), t(2, 4)) == t(2, None)
    assert widen(t(2), t(2, 3)) == TensorType(FLOAT32, None)
    assert widen(None, t(2)) == t(2)
    assert widen(t(2), OptionalType(t(3))) == OptionalType(t(None))
    assert widen(SequenceType(t(2)), SequenceType(t(3))) == SequenceType(t(None))


def test_the_node_at_fault_is_named() -> None:
    model = _parse("g (float[2,3] x, float[4,5] w) => (float[2,5] y) { h = Relu(x)  y = MatMul(h, w) }")
    model.graph.node[1].name = "projection"
    with pytest.raises(InvalidModel, match=r"node 'projection' \(MatMul\)"):
        load(model)


def test_a_loop_that_keeps_its_shapes_is_static() -> None:
    text = """g (float[2,3] x, int64 n, bool go) => (float[] y, float[] z) {
      y, z = Loop(n, go, x) <body = b (int64 i, bool c, float[] state) => (bool d, float[] next, float[] out)
      { d = Identity(c)  next = Add(state, x)  out = Neg(next) }>
    }"""
    graph = load(_parse(text))
    assert graph.types["y"] == t(2, 3)
    assert graph.types["z"] == t(None, 2, 3)


def test_a_loop_whose_state_grows_is_widened() -> None:
    text = """g (float[1] x, int64 n, bool go) => (float[] y) {
      y = Loop(n, go, x) <body = b (int64 i, bool c, float[] state) => (bool d, float[] next)
      { d = Identity(c)  next = Concat<axis = 0>(state, x) }>
    }"""
    assert load(_parse(text)).types["y"] == t(None)


def test_a_scan_stacks_along_its_axes() -> None:
    text = """g (float[4] s, float[5,7,4] x) => (float[] last, float[] ys) {
      last, ys = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1], body = b
      (float[] state, float[] e) => (float[] next, float[] y) { sum = ReduceSum(e, zero)  zero = Constant<value_ints = [0]>()
      flat = Squeeze(sum, zero)  next = Add(state, flat)  y = Identity(next) }>(s, x)
    }"""
    graph = load(_parse(text))
    assert graph.types["last"] == t(4)
    assert graph.types["ys"] == t(4, 7)


def test_the_branch_of_a_known_condition_decides() -> None:
    text = """g (float[2,3] x) => (float[] y) {
      rank = Size(shape)  shape = Shape(x)  two = Constant<value_int = 2>()  c = Equal(rank, two)
      y = If(c) <then_branch = p () => (float[] a) { a = Transpose(x) }, else_branch = q () => (float[] b) { b = Relu(x) }>
    }"""
    assert load(_parse(text)).types["y"] == t(3, 2)


def test_the_counting_idiom_of_old_exporters_is_static() -> None:
    """Before opset 11 there was no Range: 0, 1, ..., n - 1 are the places where a vector of ones is not zero."""
    text = """g (float[N, 5] x) => (int64[] y) {
      shape = Shape(x)
      n = Slice<starts = [1], ends = [2]>(shape)
      ones = ConstantOfShape<value = int64[1] {1}>(n)
      places = NonZero(ones)
      y = Squeeze<axes = [0]>(places)
    }"""
    graph = load(_parse(text, 9))
    assert graph.types["y"] == TensorType(INT64, (5,))
    np.testing.assert_array_equal(infer_graph(graph).values["y"], np.arange(5))
