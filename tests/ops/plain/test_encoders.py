"""Labels and categories by NumPy, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import fusewise
from fusewise import api
from fusewise.errors import InvalidData
from fusewise.ir.graph import Node, attributes_of
from fusewise.ops.plain.encoders import ENCODERS
from fusewise.ops.plain.table import plain_evaluator

_WORDS = np.array([["b", "a", "none"], ["", "c", "a"]], object)
_NUMBERS = np.array([5, -3, 8, 5, 0])
_CATEGORIES = {"cats_strings": ["a", "b", "c"], "cats_int64s": [5, 8, -3]}

CASES: tuple[tuple[str, np.ndarray, dict[str, Any]], ...] = (
    ("CategoryMapper", _WORDS, {**_CATEGORIES, "default_int64": 9}),
    ("CategoryMapper", _WORDS, _CATEGORIES),
    ("CategoryMapper", _NUMBERS, {**_CATEGORIES, "default_string": "other"}),
    ("LabelEncoder", _WORDS, {"keys_strings": ["a", "b"], "values_int64s": [3, 4]}),
    ("LabelEncoder", _WORDS, {"keys_strings": ["a", "b"], "values_floats": [0.5, 1.5], "default_float": 7.0}),
    ("LabelEncoder", _WORDS, {"keys_strings": ["a", "b"], "values_strings": ["x", "y"], "default_string": "z"}),
    ("LabelEncoder", _NUMBERS, {"keys_int64s": [5, 8], "values_strings": ["x", "y"]}),
    ("LabelEncoder", _NUMBERS, {"keys_int64s": [5, 2**62], "values_int64s": [1, 2], "default_int64": 4}),
    ("OneHotEncoder", _WORDS, {"cats_strings": ["a", "c"]}),
    ("OneHotEncoder", _NUMBERS, {"cats_int64s": [8, 5, 2**62]}),
)


def nobody(*_: Any) -> list[Any]:
    pytest.fail("left to the evaluator")


@pytest.mark.parametrize(
    "data, categories, rows, unknown",
    [
        (["c", "a", "none", "a"], {"cats_strings": ["a", "c"]}, [[0, 1], [1, 0]], "'none'"),
        ([5, 5, -3], {"cats_int64s": [5]}, [[1], [1]], "-3"),
    ],
)
def test_a_category_without_a_row_is_named(data: list[Any], categories: Any, rows: list[Any], unknown: str) -> None:
    node = Node("OneHotEncoder", ("x",), ("y",), attributes_of(**categories, zeros=0), "ai.onnx.ml", name="here")
    run = plain_evaluator(node, 1, nobody)
    assert run is not None
    given = np.array(data, object if isinstance(data[0], str) else np.int64)
    np.testing.assert_array_equal(run(given[:2])[0], rows)
    with pytest.raises(InvalidData, match=f"'here'.* finds {unknown} in its operand 'x'"):
        run(given)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {min(case[2])}")
def test_tables_are_looked_up_as_onnx_runtime_does(case: tuple[str, np.ndarray, dict[str, Any]]) -> None:
    op, data, attributes = case
    kind = onnx.TensorProto.STRING if data.dtype == object else onnx.TensorProto.INT64
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], domain="ai.onnx.ml", **attributes)],
        "one",
        [helper.make_tensor_value_info("x", kind, data.shape)],
        [onnx.ValueInfoProto(name="y")],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    (right,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": data})
    (node,) = api.load(model).nodes
    run = plain_evaluator(node, 3, nobody)
    assert run is not None
    for found in (run(data)[0], fusewise.compile(model, cache=False, threads=1).run(None, {"x": data})[0]):
        assert found.dtype == right.dtype and found.tolist() == right.tolist()


def test_every_row_has_a_case() -> None:
    assert {row.op for row in ENCODERS} == {case[0] for case in CASES}
