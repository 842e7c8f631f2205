"""Signs that are certain, and those that are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusewise.ir.dtypes import dtype_named
from fusewise.ops.build import GraphBuilder
from fusewise.rewrite.facts import FACTS, is_finite, is_nonnegative, is_positive


@pytest.mark.parametrize(
    "function, nonnegative, positive",
    [
        (lambda g, x: g.Abs(x), True, False),
        (lambda g, x: g.Exp(x), True, False),
        (lambda g, x: x * x, True, False),
        (lambda g, x, y: x * y, False, False),
        (lambda g, x, y: g.Sqrt(g.Relu(x) + g.Exp(y)), True, False),
        (lambda g, x: g.Relu(x) + 0.5, True, True),
        (lambda g, x: g.Relu(x) - 0.5, False, False),
        (lambda g, x: g.Max(x, 0.5), True, True),
        (lambda g, x: g.Min(x, 0.5), False, False),
        (lambda g, x: g.Pow(x, 2), True, False),
        (lambda g, x: g.Pow(x, 3), False, False),
        (lambda g, x: g.Clip(x, 0.25), True, True),
        (lambda g, x: g.Clip(x, -1), False, False),
        (lambda g, x: g.Sqrt(g.Sigmoid(x) + 1), True, True),
        (lambda g, x: -g.Exp(x), False, False),
        (lambda g, x: x, False, False),
    ],
)
def test_signs(written: Any, function: Any, nonnegative: bool, positive: bool) -> None:
    graph = written(function)
    value = graph.outputs[0]
    assert is_nonnegative(graph, value) is nonnegative
    assert is_positive(graph, value) is positive


@pytest.mark.parametrize("dtype, sure", [("float32", True), ("int32", False), ("uint32", True)])
def test_integers_may_wrap_around(written: Any, dtype: str, sure: bool) -> None:
    graph = written(lambda g, x: x * x, dtype=dtype_named(dtype))
    assert is_nonnegative(graph, graph.outputs[0]) is sure


@pytest.mark.parametrize(
    "array, facts",
    [
        ([1, 2], {"nonnegative", "positive", "nonzero", "constant", "whole", "finite"}),
        ([0.5], {"nonnegative", "positive", "nonzero", "constant", "finite"}),
        ([0.0, 1.0], {"nonnegative", "constant", "finite"}),
        ([-1.0], {"nonzero", "constant", "finite"}),
        ([np.inf, 0.5], {"nonnegative", "positive", "nonzero", "constant"}),
        ([np.nan], {"nonnegative", "positive", "nonzero", "constant"}),
    ],
)
def test_facts_about_constants(written: Any, array: Any, facts: set[str]) -> None:
    graph = written(lambda g, x, c: x + c, constants={"c": np.array(array, np.float32)}, x=(1, 2))
    assert {name for name, holds in FACTS.items() if holds(graph, "c")} == facts
    assert not any(holds(graph, "x") for holds in FACTS.values())


@pytest.mark.parametrize(
    "given, kind, sure",
    [
        ("int64", "float32", True),
        ("bool", "float16", True),
        ("int8", "float16", True),
        ("int32", "float16", False),
        ("float64", "float32", False),
    ],
)
def test_whole_numbers_are_finite_where_the_type_holds_them(given: str, kind: str, sure: bool) -> None:
    build = GraphBuilder()
    x = build.input("x", (2, 3), dtype_named(given))
    made = build.op("Cast", x, to=dtype_named(kind).onnx)
    assert is_finite(build.finish(made), made) is sure


@pytest.mark.parametrize(
    "function, sure",
    [
        (lambda g, a, c: g.Sigmoid(g.Neg(a)), True),
        (lambda g, a, c: g.Max(g.Tanh(a), g.Erf(a)), True),
        (lambda g, a, c: g.Clip(a, c), False),
        (lambda g, a, c: a + a, False),
        (lambda g, a, c: g.Exp(a), False),
        (lambda g, a, c: g.Reciprocal(a), False),
    ],
)
def test_what_keeps_within_the_range(written: Any, function: Any, sure: bool) -> None:
    infinite = {"c": np.array(np.inf, np.float32)}
    graph = written(lambda g, x, c: function(g, g.Cast(x, to=1), c), dtype=dtype_named("int8"), constants=infinite)
    assert is_finite(graph, graph.outputs[0]) is sure


def test_bounds_of_whole_numbers_keep_them_above_zero(written: Any) -> None:
    graph = written(lambda g, x: g.Max(x, 1), dtype=dtype_named("int32"))
    assert is_positive(graph, graph.outputs[0])
    graph = written(lambda g, x: g.Max(x, 1) + 1, dtype=dtype_named("int32"))
    assert not is_positive(graph, graph.outputs[0]), "a sum may wrap around"
