"""Shape arithmetic: known values are those of ONNX's reference evaluator, partly known ones keep what is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from fusewise.frontend.onnx_export import to_model
from fusewise.frontend.shape_values import _ARITHMETIC, _MOVES, VALUE_LIMIT, known_outputs
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.ops.build import GraphBuilder


def i(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def s(value: float, dtype: str = "int64") -> np.ndarray:
    return np.array(value, dtype=dtype)


VEC, MAT = i(4, -7, 2, 9), np.arange(6, dtype=np.int64).reshape(2, 3)

CASES: tuple[tuple[str, tuple[np.ndarray | None, ...], dict[str, Any], int], ...] = (
    ("Identity", (VEC,), {}, 1),
    ("Cast", (VEC,), {"to": 1}, 1),
    ("CastLike", (VEC, np.array([3], np.float32)), {}, 1),
    ("Cast", (np.array([1.7, -1.7, 0], np.float32),), {"to": 7}, 1),
    ("Cast", (VEC,), {"to": 9}, 1),
    ("Gather", (VEC, s(-1)), {"axis": 0}, 1),
    ("Gather", (MAT, np.array([[0, 2], [1, -1]])), {"axis": 1}, 1),
    ("Gather", (MAT, i(1)), {"axis": -2}, 1),
    ("Concat", (VEC, i(3)), {"axis": 0}, 1),
    ("Concat", (MAT, MAT), {"axis": -1}, 1),
    ("Slice", (VEC, i(1), i(2**62)), {}, 1),
    ("Slice", (VEC, i(-1), i(-100), i(0), i(-2)), {}, 1),
    ("Slice", (MAT, i(0, 1), i(1, 3), i(-2, 1)), {}, 1),
    ("Slice", (MAT, i(1), i(3), None, i(1)), {}, 1),
    ("Squeeze", (np.ones((1, 3, 1), np.int64),), {}, 1),
    ("Squeeze", (np.ones((1, 3, 1), np.int64), i(-1)), {}, 1),
    ("Unsqueeze", (VEC, i(0, 2)), {}, 1),
    ("Unsqueeze", (s(3), i(0)), {}, 1),
    ("Reshape", (MAT, i(3, -1)), {}, 1),
    ("Reshape", (MAT, i(0, 3, 1)), {}, 1),
    ("Reshape", (np.ones((0, 2), np.int64), i(2, 0)), {"allowzero": 1}, 1),
    ("Flatten", (MAT,), {"axis": 0}, 1),
    ("Transpose", (MAT,), {}, 1),
    ("Transpose", (MAT,), {"perm": [1, 0]}, 1),
    ("Split", (VEC, i(1, 3)), {"axis": 0}, 2),
    ("Split", (VEC,), {"axis": 0, "num_outputs": 2}, 2),
    ("Expand", (i(5), i(2, 3)), {}, 1),
    ("Add", (VEC, s(3)), {}, 1),
    ("Sub", (VEC, VEC), {}, 1),
    ("Mul", (MAT, i(1, 2, 3)), {}, 1),
    ("Div", (VEC, i(2, 2, -3, -4)), {}, 1),
    ("Div", (np.array([3.0, 1.0], np.float32), s(2, "float32")), {}, 1),
    ("Mod", (VEC, i(3, 3, -5, 4)), {}, 1),
    ("Mod", (VEC, i(3, 3, -5, 4)), {"fmod": 1}, 1),
    ("Neg", (VEC,), {}, 1),
    ("Abs", (VEC,), {}, 1),
    ("Floor", (np.array([1.5, -1.5], np.float32),), {}, 1),
    ("Ceil", (np.array([1.5, -1.5], np.float32),), {}, 1),
    ("Sqrt", (np.array([4.0, 2.0], np.float32),), {}, 1),
    ("Max", (VEC, i(0), i(5)), {}, 1),
    ("Min", (VEC, i(0)), {}, 1),
    ("Equal", (VEC, i(2)), {}, 1),
    ("Less", (VEC, i(2)), {}, 1),
    ("LessOrEqual", (VEC, i(2)), {}, 1),
    ("Greater", (VEC, i(2)), {}, 1),
    ("GreaterOrEqual", (VEC, i(2)), {}, 1),
    ("And", (VEC > 2, VEC > 3), {}, 1),
    ("Or", (VEC > 2, VEC < 0), {}, 1),
    ("Not", (VEC > 2,), {}, 1),
    ("Where", (VEC > 2, VEC, s(1)), {}, 1),
    ("ReduceProd", (MAT + 1, i(1)), {"keepdims": 0}, 1),
    ("ReduceSum", (MAT,), {}, 1),
    ("ReduceSum", (MAT,), {"noop_with_empty_axes": 1}, 1),
    ("ReduceMax", (MAT, i(-1)), {"keepdims": 1}, 1),
    ("ReduceMin", (MAT,), {"keepdims": 0}, 1),
    ("ConstantOfShape", (i(2, 3),), {}, 1),
    ("ConstantOfShape", (i(2),), {"value": Constant(i(7))}, 1),
    ("Range", (s(1), s(10), s(4)), {}, 1),
    ("Range", (s(1, "float32"), s(-2, "float32"), s(-0.75, "float32")), {}, 1),
    ("NonZero", (MAT,), {}, 1),
    ("Tile", (MAT, i(2, 1)), {}, 1),
    ("CumSum", (VEC, s(0)), {}, 1),
)


def _node(op: str, count: int, attributes: dict[str, Any], outputs: int, absent: tuple[int, ...] = ()) -> Node:
    inputs = tuple("" if k in absent else f"x{k}" for k in range(count))
    return Node(op, inputs, tuple(f"y{k}" for k in range(outputs)), attributes_of(**attributes))


@pytest.mark.parametrize("op, operands, attributes, outputs", CASES)
def test_known_values_are_those_of_the_reference(
    op: str, operands: tuple[np.ndarray | None, ...], attributes: dict[str, Any], outputs: int
) -> None:
    absent = tuple(k for k, x in enumerate(operands) if x is None)
    types = tuple(None if x is None else Constant(x).type for x in operands)
    found = known_outputs(_node(op, len(operands), attributes, outputs, absent), types, operands)
    b = GraphBuilder()
    names = [None if x is None else b.input(f"x{k}", x.shape, Constant(x).dtype) for k, x in enumerate(operands)]
    # axes, repeats and targets must be known for the types to be
    results = b.op(
        op,
        *[n if k == 0 or x is None else b.constant(x) for k, (n, x) in enumerate(zip(names, operands, strict=True))],
        outputs=outputs,
        **attributes,
    )
    graph = b.finish(*((results,) if outputs == 1 else results))
    feeds = {f"x{k}": x for k, x in enumerate(operands) if x is not None}
    for mine, theirs in zip(found, ReferenceEvaluator(to_model(graph)).run(None, feeds), strict=True):
        assert mine is not None
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


def test_every_operator_of_the_tables_has_a_case() -> None:
    assert set(_MOVES) | set(_ARITHMETIC) == {op for op, *_ in CASES}


def _partial(*items: Any) -> np.ndarray:
    value = np.empty(len(items), dtype=object)
    value[:] = items
    return value


SHAPE = _partial("N", 3, None)


@pytest.mark.parametrize(
    "op, operands, attributes, expected",
    [
        ("Gather", (SHAPE, s(0)), {}, "N"),
        ("Gather", (SHAPE, s(1)), {}, 3),
        ("Gather", (SHAPE, i(2, 1)), {}, [None, 3]),
        ("Slice", (SHAPE, i(1), i(2)), {}, [3]),
        ("Concat", (SHAPE, i(7)), {"axis": 0}, ["N", 3, None, 7]),
        ("Concat", (i(7), SHAPE), {"axis": 0}, [7, "N", 3, None]),
        ("Cast", (SHAPE,), {"to": 7}, ["N", 3, None]),
        ("Unsqueeze", (_partial("N").reshape(()), i(0)), {}, ["N"]),
        ("Mul", (SHAPE, s(2)), {}, [None, 6, None]),
        ("Mul", (SHAPE, s(1)), {}, ["N", 3, None]),
        ("Add", (SHAPE, i(0, 1, 2)), {}, ["N", 4, None]),
        ("Equal", (SHAPE, s(3)), {}, [None, True, None]),
        ("Where", (np.array([True, False, True]), SHAPE, s(5)), {}, ["N", 5, None]),
        ("Where", (_partial(None, True, False), SHAPE, s(5)), {}, [None, 3, 5]),
    ],
)
def test_partly_known_values_keep_what_is_known(
    op: str, operands: tuple[np.ndarray, ...], attributes: dict[str, Any], expected: Any
) -> None:
    (found,) = known_outputs(_node(op, len(operands), attributes, 1), (None,) * len(operands), operands)
    assert found is not None
    assert found.tolist() == expected


def test_shapes_of_tensors_are_the_source_of_known_values() -> None:
    kind = TensorType(FLOAT32, ("N", 3, 8))
    (whole,) = known_outputs(_node("Shape", 1, {}, 1), (kind,), (None,))
    assert whole is not None and whole.tolist() == ["N", 3, 8]
    (part,) = known_outputs(_node("Shape", 1, {"start": 1}, 1), (kind,), (None,))
    assert part is not None and part.dtype == np.int64 and part.tolist() == [3, 8]
    (size,) = known_outputs(_node("Size", 1, {}, 1), (TensorType(FLOAT32, (2, 3)),), (None,))
    assert size is not None and size.item() == 6


@pytest.mark.parametrize(
    "op, operands, attributes",
    [
        ("Range", (s(0), s(2**60), s(1)), {}),
        ("Range", (s(0), s(5), s(0)), {}),
        ("Expand", (i(1), i(2**40, 2**40)), {}),
        ("Tile", (i(1), i(2**62)), {}),
        ("Tile", (i(1), i(2**62, 4)), {}),
        ("ConstantOfShape", (i(2**33, 2**33),), {}),
        ("ConstantOfShape", (i(-1),), {}),
        ("Reshape", (VEC, i(3, 3)), {}),
        ("Gather", (VEC, s(9)), {}),
        ("Slice", (VEC, i(0), i(1), i(5)), {}),
        ("Div", (VEC, s(0)), {}),
        ("Mod", (VEC, s(0)), {}),
        ("Concat", (VEC, MAT), {"axis": 0}),
        ("Add", (VEC, i(1, 2, 3)), {}),
        ("Transpose", (MAT,), {"perm": [0, 7]}),
        ("Add", (np.zeros(VALUE_LIMIT + 1, np.int64), s(1)), {}),
    ],
)
def test_what_is_too_large_or_wrong_is_left_alone(
    op: str, operands: tuple[np.ndarray, ...], attributes: dict[str, Any]
) -> None:
    assert known_outputs(_node(op, len(operands), attributes, 1), (None,) * len(operands), operands) == (None,)


def test_slices_and_quotients_at_the_extremes() -> None:
    """Where ONNX's evaluator follows Python: a negative step from in front of the axis, and the least integer halved."""

    def known(op: str, *values: np.ndarray) -> np.ndarray | None:
        names = tuple(f"x{k}" for k in range(len(values)))
        kinds = tuple(Constant(value).type for value in values)
        return known_outputs(Node(op, names, ("y",)), kinds, values)[0]

    np.testing.assert_array_equal(known("Slice", VEC, i(-9), i(-99), i(0), i(-2)), [4])
    for dtype in (np.int8, np.int64):
        least = np.iinfo(dtype).min
        found = known("Div", np.array([least, least + 1, 7, -7], dtype), np.array([least + 1, least, -2, 2], dtype))
        np.testing.assert_array_equal(found, np.array([1, 0, -3, -3], dtype))
