"""Tree ensembles and linear models by NumPy, against ONNX's evaluator and ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from tests.forests import MODES, forest, grid

import fusewise
from fusewise import api
from fusewise.ir.graph import Node, attributes_of
from fusewise.ir.parse import parse_graph
from fusewise.ir.text import print_graph
from fusewise.ops import forests
from fusewise.ops.forests import tables_of
from fusewise.ops.plain.classic import CLASSIC
from fusewise.ops.plain.table import plain_evaluator

DOMAIN = "ai.onnx.ml"


def nobody(*_: Any) -> list[Any]:
    pytest.fail("left to the evaluator")


def by_onnx_runtime(op: str, data: np.ndarray, outputs: int, **attributes: Any) -> list[Any]:
    names = [f"y{k}" for k in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], names, domain=DOMAIN, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(data.shape))],
        [helper.make_empty_tensor_value_info(name) for name in names],
    )
    versions = [helper.make_opsetid("", 15), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": data}))


def same(op: str, data: np.ndarray, outputs: int = 1, **attributes: Any) -> None:
    node = Node(op, ("x",), tuple(f"y{k}" for k in range(outputs)), attributes_of(**attributes), DOMAIN)
    run = plain_evaluator(node, 1, nobody)
    assert run is not None
    for one, right in zip(run(data), by_onnx_runtime(op, data, outputs, **attributes), strict=True):
        if right.dtype == object:
            assert one.tolist() == right.tolist()
        else:
            np.testing.assert_allclose(one, right, rtol=1e-5, atol=1e-6)
            assert one.dtype == right.dtype


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 999),
    st.integers(1, 6),
    st.integers(0, 5),
    st.booleans(),
    st.booleans(),
    st.integers(3, 4),
    st.booleans(),
)
def test_tree_classifier(
    seed: int, trees: int, depth: int, mixed: bool, holes: bool, classes: int, words: bool
) -> None:
    rng = np.random.default_rng(seed)
    found, leaves = forest(rng, trees, depth, 3, MODES[: 6 - holes] if mixed else MODES[:1], holes)
    ids = [int(k) for k in rng.permutation(np.arange(len(leaves)) % classes)]
    if len(set(ids)) < 2:
        return
    labels = (
        {"classlabels_strings": list("abcd")[:classes]} if words else {"classlabels_int64s": [7, 3, 9, 1][:classes]}
    )
    same(
        "TreeEnsembleClassifier",
        grid(rng, 5, 3, holes),
        2,
        class_treeids=[tree for tree, _ in leaves],
        class_nodeids=[node for _, node in leaves],
        class_ids=ids,
        class_weights=[float(w) for w in rng.integers(1, 9, len(leaves)) / 8],
        post_transform=str(rng.choice(["NONE", "SOFTMAX", "LOGISTIC"])),
        **labels,
        **found,
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), st.integers(1, 6), st.booleans())
def test_one_score_for_two_classes(seed: int, trees: int, logistic: bool) -> None:
    """Weights of one class alone: positive ones are its share, others go through the logistic function."""
    rng = np.random.default_rng(seed)
    found, leaves = forest(rng, trees, 4, 3, MODES[:1], False)
    weights = [float(w) for w in rng.integers(1, 9, len(leaves)) / 64]
    if logistic:
        weights = [w * (-1) ** k for k, w in enumerate(weights)]
        if min(weights) > 0:
            return
    same(
        "TreeEnsembleClassifier",
        grid(rng, 5, 3, False),
        2,
        class_treeids=[tree for tree, _ in leaves],
        class_nodeids=[node for _, node in leaves],
        class_ids=[0] * len(leaves),
        class_weights=weights,
        post_transform="LOGISTIC" if logistic else "NONE",
        classlabels_int64s=[7, 3],
        **found,
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), st.integers(1, 6), st.integers(0, 5), st.booleans(), st.integers(1, 3))
def test_tree_regressor(seed: int, trees: int, depth: int, holes: bool, targets: int) -> None:
    rng = np.random.default_rng(seed)
    found, leaves = forest(rng, trees, depth, 4, MODES[: 6 - holes], holes)
    how = str(rng.choice(["SUM", "AVERAGE", *(["MIN", "MAX"] if targets == 1 else [])]))
    same(
        "TreeEnsembleRegressor",
        grid(rng, 5, 4, holes),
        target_treeids=[tree for tree, _ in leaves],
        target_nodeids=[node for _, node in leaves],
        target_ids=[int(k) for k in rng.integers(0, targets, len(leaves))],
        target_weights=[float(w) for w in rng.integers(-9, 9, len(leaves)) / 8],
        n_targets=targets,
        aggregate_function=how,
        **({"base_values": [0.5]} if seed % 2 and targets == 1 else {}),
        **found,
    )


def test_linear_models_and_scalers() -> None:
    rng = np.random.default_rng(0)
    data = rng.uniform(-1, 1, (6, 3)).astype(np.float32)
    weights = [float(w) for w in rng.uniform(-1, 1, 9)]
    for how in ("NONE", "SOFTMAX", "LOGISTIC"):
        labels = {"coefficients": weights, "intercepts": [0.1, 0.2, 0.3], "post_transform": how}
        same("LinearClassifier", data, 2, classlabels_ints=[4, 5, 6], **labels)
        same("LinearClassifier", data, 2, classlabels_strings=["a", "b", "c"], **labels)
    same("LinearRegressor", data, coefficients=weights, intercepts=[1.0, 2.0, 3.0], targets=3)
    same("Scaler", data, offset=[0.5, 1.0, 2.0], scale=[1.0, 2.0, 3.0])
    for norm in ("MAX", "L1", "L2"):
        same("Normalizer", data, norm=norm)
        same("Normalizer", np.zeros((2, 3), np.float32), norm=norm)
    same("Binarizer", data, threshold=0.25)


def test_picked_features() -> None:
    node = Node("ArrayFeatureExtractor", ("x", "y"), ("z",), (), DOMAIN)
    run = plain_evaluator(node, 1, nobody)
    assert run is not None
    data = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(run(data, np.array([[2, 0]]))[0], [[2, 0], [5, 3]])
    np.testing.assert_array_equal(run(data[0], np.array([1]))[0], [[1]])


def test_what_goes_round_in_a_circle_is_left_to_the_evaluator() -> None:
    attributes = {
        "nodes_treeids": [0, 0],
        "nodes_nodeids": [0, 1],
        "nodes_featureids": [0, 0],
        "nodes_values": [0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ"],
        "nodes_truenodeids": [1, 0],
        "nodes_falsenodeids": [1, 0],
        "target_treeids": [0],
        "target_nodeids": [0],
        "target_ids": [0],
        "target_weights": [1.0],
    }
    run = plain_evaluator(
        Node("TreeEnsembleRegressor", ("x",), ("y",), attributes_of(**attributes), DOMAIN), 1, lambda *_: ["asked"]
    )
    assert run is not None
    assert run(np.ones((1, 1), np.float32)) == ["asked"]


def test_every_one_is_tested() -> None:
    assert {row.op for row in CLASSIC} == {
        "ArrayFeatureExtractor",
        "Binarizer",
        "LinearClassifier",
        "LinearRegressor",
        "Normalizer",
        "Scaler",
        "TreeEnsemble",
        "TreeEnsembleClassifier",
        "TreeEnsembleRegressor",
        "ZipMap",
    }


def zipped(words: bool) -> onnx.ModelProto:
    """Scores of three classes as scikit-learn's converter writes them: a dictionary for each row."""
    labels = {"classlabels_strings": ["a", "b", "c"]} if words else {"classlabels_int64s": [4, 2, 9]}
    kind = helper.make_map_type_proto(
        TensorProto.STRING if words else TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    )
    graph = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["p"]), helper.make_node("ZipMap", ["p"], ["y"], domain=DOMAIN, **labels)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_value_info("y", helper.make_sequence_type_proto(kind))],
    )
    versions = [helper.make_opsetid("", 15), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=8)


@pytest.mark.parametrize("words", [False, True])
def test_maps(words: bool, tmp_path: Path) -> None:
    """What is given out is Python's, the same as ONNX Runtime's, compiled, from a file, and written again."""
    model, x = zipped(words), np.array([[1, 2, 3], [3, 1, 1]], np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (right,) = session.run(None, {"x": x})
    compiled = fusewise.compile(model, cache=False)
    assert compiled.get_outputs()[0].type == session.get_outputs()[0].type.replace("tensor(string)", "string")
    compiled.save(tmp_path / "m.fw")
    again = fusewise.compile(fusewise.to_onnx(fusewise.load(model)), cache=False)
    for one in (compiled, fusewise.open_compiled(tmp_path / "m.fw"), again):
        (found,) = one.run(None, {"x": x})
        assert [set(row) for row in found] == [set(row) for row in right]
        for row, expected in zip(found, right, strict=True):
            np.testing.assert_allclose([row[key] for key in expected], list(expected.values()), rtol=1e-6)
    graph = fusewise.load(model)
    assert parse_graph(print_graph(graph)).types["y"] == graph.types["y"]


@pytest.mark.parametrize("classes", [[3], [4, 2], [4, 2, 9], [1, 5, 1], list(range(9, 0, -1))])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 30])
def test_maps_of_few_rows_and_many(rows: int, classes: list[int]) -> None:
    """The keys are in the order of the classes; of a class that stands twice the last counts."""
    run = plain_evaluator(Node("ZipMap", ("x",), ("y",), attributes_of(classlabels_int64s=classes), DOMAIN), 1, nobody)
    assert run is not None
    data = np.random.default_rng(0).standard_normal((rows, len(classes))).astype(np.float32)
    wanted = [dict(zip(classes, row, strict=True)) for row in data.tolist()]
    (found,) = run(data)
    assert [list(row.items()) for row in found] == [list(row.items()) for row in wanted]


@pytest.mark.parametrize("modes", [(0,), (1,), (2, 3), (0, 1, 2, 3, 4, 5)])
@pytest.mark.parametrize("aggregate", [0, 1])
def test_an_ensemble_of_inner_nodes_and_leaves(modes: tuple[int, ...], aggregate: int) -> None:
    """Full trees of three levels, whose leaves come behind all inner nodes."""
    rng, trees = np.random.default_rng(0), 5
    inner = [7 * tree + node for tree in range(trees) for node in range(7)]
    below = [2 * (n % 7) + 1 for n in inner]
    trues = [n // 7 * (7 if n % 7 < 3 else 8) + (b if n % 7 < 3 else b - 7) for n, b in zip(inner, below, strict=True)]
    at_end = [int(n % 7 >= 3) for n in inner]
    attributes: dict[str, Any] = {
        "tree_roots": [7 * tree for tree in range(trees)],
        "nodes_featureids": rng.integers(0, 3, len(inner)).tolist(),
        "nodes_modes": rng.choice(np.array(modes, np.uint8), len(inner)),
        "nodes_splits": rng.integers(-2, 3, len(inner)).astype(np.float32),
        "nodes_truenodeids": trues,
        "nodes_falsenodeids": [place + 1 for place in trues],
        "nodes_trueleafs": at_end,
        "nodes_falseleafs": at_end,
        "leaf_targetids": rng.integers(0, 2, 8 * trees).tolist(),
        "leaf_weights": rng.standard_normal(8 * trees).astype(np.float32),
        "n_targets": 2,
        "aggregate_function": aggregate,
    }
    data = rng.integers(-3, 4, (9, 3)).astype(np.float32)
    data[2, 1] = np.nan if 5 not in modes else 0
    tensors = {
        k: helper.make_tensor(k, TensorProto.FLOAT, v.shape, v) for k, v in attributes.items() if hasattr(v, "shape")
    }
    kinds = np.asarray(attributes["nodes_modes"])
    tensors["nodes_modes"] = helper.make_tensor("nodes_modes", TensorProto.UINT8, kinds.shape, kinds)
    graph = helper.make_graph(
        [helper.make_node("TreeEnsemble", ["x"], ["y"], domain=DOMAIN, **attributes | tensors)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(data.shape))],
        [helper.make_empty_tensor_value_info("y")],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 5)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    (right,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": data})
    compiled = fusewise.compile(model, cache=False, threads=1)
    assert compiled.summary["host_steps"] == 0
    (node,) = api.load(model).nodes
    run = plain_evaluator(node, 5, nobody)
    assert run is not None
    np.testing.assert_allclose(run(data)[0], right, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(compiled.run(None, {"x": data})[0], right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("how", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("based", [False, True])
def test_a_forest_that_classifies_is_native(how: str, classes: int, based: bool) -> None:
    """Weights of all classes, or of one of two; a base value for each score."""
    rng = np.random.default_rng(0)
    found, leaves = forest(rng, 5, 5, 3, MODES[:1], True)
    signs = [1 if how == "NONE" or classes > 2 else (-1) ** k for k in range(len(leaves))]
    attributes = {
        "class_treeids": [tree for tree, _ in leaves],
        "class_nodeids": [node for _, node in leaves],
        "class_ids": [k % classes * (classes > 2) for k in range(len(leaves))],
        "class_weights": [float(w) * sign / 64 for w, sign in zip(rng.integers(1, 9, len(leaves)), signs, strict=True)],
        "classlabels_int64s": [7, 3, 9][:classes],
        "post_transform": how,
        **({"base_values": [0.25, -0.5, 0.125][: 1 if classes == 2 else 3]} if based else {}),
        **found,
    }
    if classes == 2 and how == "SOFTMAX":
        return  # ONNX Runtime takes the softmax of other scores than it gives without
    data = grid(rng, 9, 3, True)
    assert np.isnan(data).any()
    graph = helper.make_graph(
        [helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "scores"], domain=DOMAIN, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(data.shape))],
        [helper.make_empty_tensor_value_info(name) for name in ("label", "scores")],
    )
    versions = [helper.make_opsetid("", 15), helper.make_opsetid(DOMAIN, 1)]
    model = fusewise.compile(helper.make_model(graph, opset_imports=versions, ir_version=8), cache=False, threads=1)
    assert model.summary["host_steps"] == 0
    for one, right in zip(
        model.run(None, {"x": data}), by_onnx_runtime("TreeEnsembleClassifier", data, 2, **attributes), strict=True
    ):
        np.testing.assert_allclose(one, right, rtol=1e-5, atol=1e-6)


def test_a_forest_of_too_many_numbers_for_code_is_plain_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    found, leaves = forest(np.random.default_rng(0), 3, 3, 2, MODES[:1], False)
    attributes = found | {
        "target_treeids": [tree for tree, _ in leaves],
        "target_nodeids": [node for _, node in leaves],
        "target_ids": [0] * len(leaves),
        "target_weights": [1.0] * len(leaves),
    }
    node = Node("TreeEnsembleRegressor", ("x",), ("y",), attributes_of(**attributes), DOMAIN)
    assert tables_of(node) is not None
    for limit in ("_MOST_NODES", "_MOST_WEIGHTS", "_MOST_LEVELS"):
        with monkeypatch.context() as patched:
            patched.setattr(forests, limit, len(leaves) - 1)
            assert tables_of(node) is None
