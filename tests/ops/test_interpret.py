"""The interpreter itself: reductions over nothing, guarded loads, loop variables, counting."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fusewise.ir.dtypes import BOOL, FLOAT32, INT32, DType
from fusewise.ir.graph import Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.ops import interpret as module
from fusewise.ops.expr import compare, index, load, reduce, select
from fusewise.ops.interpret import evaluate_expression, interpret, space_size
from fusewise.ops.spec import Call, NotDefined
from fusewise.ops.table import spec_of

i, k = index("i"), index("k")
x = load("x", FLOAT32, (i, k))
data = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}


def test_reduction() -> None:
    found, operations = evaluate_expression(reduce("sum", (("k", 3),), x * x), {"i": 2}, data)
    np.testing.assert_array_equal(found, (data["x"] ** 2).sum(axis=1))
    assert operations == 12


@pytest.mark.parametrize(
    ("kind", "dtype", "identity"),
    [
        ("sum", FLOAT32, 0),
        ("prod", FLOAT32, 1),
        ("max", FLOAT32, -math.inf),
        ("min", INT32, 2**31 - 1),
        ("and", BOOL, True),
        ("or", BOOL, False),
    ],
)
def test_reduction_over_nothing_is_the_identity(kind: str, dtype: DType, identity: float) -> None:
    empty = {"x": np.zeros((2, 0), dtype.numpy)}
    body = reduce(kind, (("k", 0),), load("x", dtype, (i, k)))
    found, _ = evaluate_expression(body, {"i": 2}, empty)
    np.testing.assert_array_equal(found, np.full(2, identity, dtype.numpy))


def test_the_branch_not_taken_may_read_anywhere() -> None:
    body = select(compare("lt", i, 2), load("x", FLOAT32, (i, i + 100)), 0)
    found, _ = evaluate_expression(body, {"i": 4}, data)
    assert found.shape == (4,)
    np.testing.assert_array_equal(found[2:], 0)


def test_index_arithmetic_is_not_counted() -> None:
    _, operations = evaluate_expression(load("x", FLOAT32, (i % 2, k * 2 // 2)), {"i": 4, "k": 3}, data)
    assert operations == 0


def test_values_that_do_not_vary_are_computed_once() -> None:
    total = reduce("sum", (("k", 3),), load("x", FLOAT32, (index("z") * 0, k)))
    _, operations = evaluate_expression(load("x", FLOAT32, (i, index("j"))) * total, {"i": 2, "j": 3}, data)
    assert operations == 6 + 3


def test_a_loop_variable_has_one_extent() -> None:
    body = reduce("sum", (("k", 3),), x) + reduce("sum", (("k", 2),), x)
    with pytest.raises(NotDefined, match="loop variable k"):
        evaluate_expression(body, {"i": 2}, data)


def test_what_a_value_does_not_depend_on_does_not_count_as_space() -> None:
    """Statistics of a row are there once for the row, whatever element asks for them."""
    total = reduce("sum", (("k", 3),), x)
    assert space_size(load("x", FLOAT32, (i, index("j"))) / total, {"i": 2, "j": 3}) == 6
    assert space_size(reduce("sum", (("k", 3),), x * load("y", FLOAT32, (k, index("j")))), {"i": 2, "j": 5}) == 30
    nested = reduce("max", (("k", 3),), x - reduce("sum", (("m", 4),), load("y", FLOAT32, (index("m"), k))))
    assert space_size(nested, {"i": 2}) == 12


def test_a_large_space_is_evaluated_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of("AveragePool")
    assert spec is not None
    node = Node("AveragePool", ("x",), ("y",), attributes_of(kernel_shape=(3, 2), pads=(1, 0, 1, 1)))
    image = np.random.default_rng(0).normal(size=(2, 3, 7, 8)).astype(np.float32)
    call = Call(node, (TensorType(FLOAT32, image.shape),), (TensorType(FLOAT32, (2, 3, 7, 8)),))
    whole = interpret(spec, call, (image,))
    for size in (1, 100, 1000):
        monkeypatch.setattr(module, "LARGEST_SPACE", size)
        np.testing.assert_array_equal(interpret(spec, call, (image,)), whole)
