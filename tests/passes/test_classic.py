"""Operators of classical machine learning run natively, and give what ONNX Runtime gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import fusewise
from fusewise.benchmarking.accuracy import within
from fusewise.passes.decompositions.classic import CLASSIC, CLASSIC_DOMAIN

_NAN = float("nan")


def support(*sizes: int) -> dict[str, Any]:
    """Classes with so many support vectors of four features."""
    total = sum(sizes)
    return {
        "vectors_per_class": list(sizes),
        "support_vectors": listed(total, 4),
        "coefficients": listed(len(sizes) - 1, total, seed=2),
        "rho": listed(len(sizes) * (len(sizes) - 1) // 2, seed=3),
        "classlabels_ints": [5, 9, -1, 2][: len(sizes)],
        "kernel_params": [0.125, 0.5, 3.0],
    }


def x(*shape: int, dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-9, 9, shape).astype(dtype)


def listed(*shape: int, seed: int = 1) -> list[float]:
    return [float(v) for v in x(*shape, seed=seed).reshape(-1)]


def holes(data: np.ndarray, value: Any) -> np.ndarray:
    found = data.copy()
    found.reshape(-1)[::3] = value
    return found


_KERNEL = {"support_vectors": listed(5, 4), "coefficients": listed(5, seed=2), "rho": [0.25], "n_supports": 5}
_LINEAR = {"coefficients": listed(3, 4), "intercepts": [0.5, -0.5, 1.0], "classlabels_ints": [7, -1, 40]}

CASES: tuple[tuple[str, tuple[np.ndarray, ...], dict[str, Any], int], ...] = (
    *(
        ("ArrayFeatureExtractor", (data, np.array([[3, 0, 3]])), {}, 1)
        for data in (x(2, 4), x(3, 2, 5, dtype=np.int64))
    ),
    *(("Binarizer", (data,), {"threshold": 1.5}, 1) for data in (x(3, 4), x(2, 3, 4))),
    ("FeatureVectorizer", (x(3, 4), x(3, 1)), {"inputdimensions": [4, 1]}, 1),
    ("FeatureVectorizer", (x(3, 4, dtype=np.int64), x(3, 2, dtype=np.int64)), {"inputdimensions": [4, 2]}, 1),
    ("Imputer", (holes(x(3, 4), _NAN),), {"imputed_value_floats": listed(4), "replaced_value_float": _NAN}, 1),
    ("Imputer", (holes(x(3, 4), 2.0),), {"imputed_value_floats": [0.5], "replaced_value_float": 2.0}, 1),
    ("Imputer", (holes(x(3, 2, dtype=np.int64), -3),), {"imputed_value_int64s": [5, 6], "replaced_value_int64": -3}, 1),
    *(
        ("LabelEncoder", (data,), {"keys_int64s": [4, -2, 9], "values_int64s": [1, 2, 3], "default_int64": 77}, 1)
        for data in (np.array([4, -2, 9, 5, -3, 10, 2**63 - 1, -(2**63)]), np.array([[4], [0]]))
    ),
    (
        "LabelEncoder",
        (np.array([1, 2, 3]),),
        {"keys_int64s": [3, 1], "values_floats": [0.5, 1.5], "default_float": -9.0},
        1,
    ),
    *(
        ("LinearClassifier", (x(6, 4, dtype=kind),), {**_LINEAR, "post_transform": how}, 2)
        for kind in (np.float32, np.float64, np.int64)
        for how in ("NONE", "SOFTMAX", "LOGISTIC")
    ),
    ("LinearRegressor", (x(5, 4),), {"coefficients": listed(4), "intercepts": [0.5]}, 1),
    ("LinearRegressor", (x(5, 4),), {"coefficients": listed(8), "targets": 2, "intercepts": [0.5, 1.5]}, 1),
    *(
        ("Normalizer", (data,), {"norm": norm}, 1)
        for data in (x(3, 4), -np.abs(x(2, 3)), np.zeros((2, 3), np.float32), x(4))
        for norm in ("MAX", "L1", "L2")
    ),
    ("OneHotEncoder", (np.array([[1, 5], [9, 2]]),), {"cats_int64s": [5, 1, 2], "zeros": 1}, 1),
    ("OneHotEncoder", (np.array([1.0, 5.0, 3.0], np.float32),), {"cats_int64s": [5, 1, 2]}, 1),
    *(
        ("SVMClassifier", (x(20, 4) / 9,), {**support(*sizes), "kernel_type": kind}, 2)
        for sizes in ((3, 2), (2, 4, 1), (1, 2, 3, 4))
        for kind in ("LINEAR", "RBF", "SIGMOID")
    ),
    *(
        ("SVMRegressor", (x(6, 4) / 9,), {**_KERNEL, "kernel_type": kind, "kernel_params": [0.125, 0.5, 3.0]}, 1)
        for kind in ("LINEAR", "POLY", "RBF", "SIGMOID")
    ),
    *(
        ("Scaler", (x(3, 4, dtype=kind),), {"offset": listed(4), "scale": listed(4, seed=3)}, 1)
        for kind in (np.float32, np.float64, np.int64)
    ),
    ("Scaler", (x(3, 4),), {"offset": [1.5], "scale": [0.5]}, 1),
)


def model_of(op: str, operands: tuple[np.ndarray, ...], attributes: dict[str, Any], outputs: int) -> onnx.ModelProto:
    names = [f"x{k}" for k in range(len(operands))]
    node = helper.make_node(op, names, [f"y{k}" for k in range(outputs)], domain=CLASSIC_DOMAIN, **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(given.dtype), given.shape)
        for name, given in zip(names, operands, strict=True)
    ]
    graph = helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name=name) for name in node.output])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(CLASSIC_DOMAIN, 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1][0].dtype}{list(case[1][0].shape)}")
def test_answers_are_onnx_runtimes_and_native(case: tuple[str, tuple[np.ndarray, ...], dict[str, Any], int]) -> None:
    model, operands = model_of(*case), case[1]
    feeds = {f"x{k}": given for k, given in enumerate(operands)}
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    found = fusewise.compile(model, cache=False, threads=1, strict=True).run(None, feeds)
    assert within(found, expected), (found, expected)


@pytest.mark.parametrize("op, attributes", [("LinearClassifier", _LINEAR), ("SVMClassifier", support(2, 4, 1))])
def test_of_classes_that_are_words_the_labels_alone_are_looked_up_on_the_host(
    op: str, attributes: dict[str, Any]
) -> None:
    named = {name: value for name, value in attributes.items() if name != "classlabels_ints"}
    data = x(20, 4) / 9
    model = model_of(op, (data,), {**named, "classlabels_strings": ["c", "a", "b"]}, 2)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x0": data})
    compiled = fusewise.compile(model, cache=False, threads=1)
    assert [step["op"] for step in compiled.summary["host"]] == ["Gather"]
    labels, scores = compiled.run(None, {"x0": data})
    assert labels.tolist() == expected[0].tolist()
    assert within([scores], expected[1:])


@pytest.mark.parametrize(
    "sizes, kind, words",
    [
        ((3, 2), "LINEAR", False),
        ((2, 4, 1), "RBF", True),
        ((1, 2, 3, 4), "POLY", False),
        ((1, 2, 3, 4), "SIGMOID", True),
    ],
)
def test_of_probabilities_what_is_left_on_the_host_reads_the_scores_of_pairs(
    sizes: tuple[int, ...], kind: str, words: bool
) -> None:
    pairs = len(sizes) * (len(sizes) - 1) // 2
    slopes = {"prob_a": [-abs(one) / 4 for one in listed(pairs, seed=4)], "prob_b": listed(pairs, seed=5)}
    named = (
        {"classlabels_strings": list("dcab")[: len(sizes)]}
        if words
        else {"classlabels_ints": [5, 9, -1, 2][: len(sizes)]}
    )
    given = {
        **support(*sizes),
        "kernel_type": kind,
        **{name: [v / 9 for v in values] for name, values in slopes.items()},
    }
    given.pop("classlabels_ints")
    data = x(40, 4) / 9
    model = model_of("SVMClassifier", (data,), {**given, **named}, 2)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x0": data})
    compiled = fusewise.compile(model, cache=False, threads=1)
    (left,) = [node for node in compiled.graph.nodes if node.op == "SVMClassifier"]
    assert compiled.graph.tensor(left.inputs[0]).dims == (40, pairs)
    labels, scores = compiled.run(None, {"x0": data})
    assert labels.tolist() == expected[0].tolist()
    assert within([scores], expected[1:])


def test_labels_that_are_picked_for_any_number_of_rows_are_native() -> None:
    """As converters write classifiers: the features of a vector of classes at the largest scores."""
    nodes = [
        helper.make_node("ArgMax", ["x"], ["at"], axis=1, keepdims=0),
        helper.make_node("ArrayFeatureExtractor", ["classes", "at"], ["y"], domain=CLASSIC_DOMAIN),
    ]
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", 3])]
    classes = onnx.numpy_helper.from_array(np.array([5, -1, 8]), "classes")
    graph = helper.make_graph(nodes, "picked", inputs, [onnx.ValueInfoProto(name="y")], [classes])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(CLASSIC_DOMAIN, 3)]
    model = fusewise.compile(
        helper.make_model(graph, opset_imports=imports, ir_version=10), cache=False, threads=1, strict=True
    )
    for rows in (1, 2, 33):
        data = x(rows, 3, seed=rows)
        (found,) = model.run(None, {"x": data})
        np.testing.assert_array_equal(found, np.array([[5, -1, 8]])[:, data.argmax(axis=1)])


def test_every_row_has_a_case() -> None:
    assert {row.op for row in CLASSIC} == {case[0] for case in CASES}
