"""Declared shapes: what they add to inference, and when they are not believed."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest

import fusewise
from fusewise.errors import FusewiseError
from fusewise.frontend.declared import contradicts, refine, settled
from fusewise.frontend.onnx_import import load
from fusewise.ir.dtypes import FLOAT32, INT64
from fusewise.ir.graph import Node
from fusewise.ir.types import Dim, OptionalType, SequenceType, TensorType


def t(*dims: Dim) -> TensorType:
    return TensorType(FLOAT32, dims)


def test_what_the_model_declares_fills_only_gaps() -> None:
    assert refine(t(2, None), t(3, 4)) == t(2, 4)
    assert refine(t(2, "N"), t(2, "M")) == t(2, "N")
    assert refine(t(2, "N"), t(2, 5)) == t(2, 5)
    assert refine(TensorType(FLOAT32, None), t(1, 2)) == t(1, 2)
    assert refine(t(2), t(1, 2)) == t(2)
    assert refine(t(None), TensorType(INT64, (3,))) == t(None)
    assert refine(SequenceType(TensorType(FLOAT32, None)), SequenceType(t(3))) == SequenceType(t(3))


@pytest.mark.parametrize("op", ["Reshape", "Squeeze", "Unsqueeze", "Flatten"])
def test_another_number_of_elements_is_not_believed(op: str) -> None:
    node, unknown = Node(op, ("x", "axes"), ("y",)), TensorType(FLOAT32, None)
    assert settled(node, t(2, 3), unknown, t(1, 2, 3)) == t(1, 2, 3)
    assert settled(node, t(2, 3), unknown, t(2, 5)) == unknown
    assert settled(node, t("N", 3), unknown, t(2, 5)) == t(2, 5)
    assert settled(node, t(2, 3), None, t(2, 5)) == unknown


def model(op: str, shape: list[int], second: np.ndarray, **attributes: int) -> onnx.ModelProto:
    x, axes = (onnx.helper.make_tensor_value_info(n, k, s) for n, k, s in (("x", 1, [2, 3]), ("a", 7, second.shape)))
    y = onnx.helper.make_tensor_value_info("y", 1, shape)
    graph = onnx.helper.make_graph([onnx.helper.make_node(op, ["x", "a"], ["y"], **attributes)], "g", [x, axes], [y])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    "op, second, wanted",
    [
        ("Unsqueeze", np.array([0]), (1, 2, 3)),
        ("Reshape", np.array([3, 2]), (3, 2)),
        ("CenterCropPad", np.array([2, 1]), (2, 1)),
        ("Tile", np.array([1, 2]), (2, 6)),
        ("Expand", np.array([4, 1, 3]), (4, 2, 3)),
    ],
)
@pytest.mark.parametrize("declared", [[7], [2, 5], [1, 1, 1, 9], [0, 3], []])
def test_a_declared_shape_that_does_not_hold_is_no_internal_error(op, second, wanted, declared) -> None:
    """The model runs, or is refused in a sentence; it never gives what it should not."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    status, shape = 3, wanted
    try:
        shape = fusewise.compile(model(op, declared, second), cache=False).run(None, {"x": x, "a": second})[0].shape
    except FusewiseError as error:
        status = error.exit_status
    assert (status, shape) == (3, wanted)


@pytest.mark.parametrize("optional", [False, True])
def test_negative_dimensions_are_unknown_ones_in_lists_and_options_too(optional: bool) -> None:
    kind = onnx.helper.make_sequence_type_proto(onnx.helper.make_tensor_type_proto(1, [-2, 3]))
    q = onnx.helper.make_value_info("q", onnx.helper.make_optional_type_proto(kind) if optional else kind)
    y = onnx.helper.make_tensor_value_info("y", 1 if not optional else 9, None)
    op = "OptionalHasElement" if optional else "ConcatFromSequence"
    node = onnx.helper.make_node(op, ["q"], ["y"], **({} if optional else {"axis": 0}))
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [q], [y]), ir_version=10)
    found = fusewise.load(model).types["q"]
    found = found.element if isinstance(found, OptionalType) else found
    assert found == SequenceType(t(None, 3))


@pytest.mark.parametrize("declared", [[2, 4], [6], [None, 2]])
def test_an_operator_is_right_where_the_model_declares_something_else(declared: list[int | None]) -> None:
    x, y = (onnx.helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [2, 3]), ("y", declared)))
    graph = onnx.helper.make_graph([onnx.helper.make_node("Abs", ["x"], ["y"])], "g", [x], [y])
    wrong = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    with pytest.warns(RuntimeWarning, match=r"'y', which node 'y' \(Abs\) makes, is float32\[2,3\], not float32\["):
        compiled = fusewise.compile(wrong, cache=False)
    (found,) = compiled.run(None, {"x": -np.ones((2, 3), np.float32)})
    np.testing.assert_array_equal(found, np.ones((2, 3), np.float32))


def test_symbols_and_silence_contradict_nothing() -> None:
    assert not any(contradicts(t(2, 3), kind) for kind in (None, t("N", 3), t(None, None), TensorType(FLOAT32, None)))
    assert not contradicts(t("N", 3), t(2, 3))
    assert contradicts(t("N", 3), t(2, 4))
    assert contradicts(t(2), TensorType(INT64, (2,)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning:onnx.*")
def test_what_onnx_declares_in_its_own_tests_is_what_is_inferred() -> None:
    from onnx.backend.test.loader import load_model_tests

    cases = load_model_tests(kind="node")
    assert len(cases) > 1500
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="what the model declares", category=RuntimeWarning)
        for case in cases:
            load(case.model)
