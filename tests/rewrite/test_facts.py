"""Signs that are certain, and those that are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusewise.ir.dtypes import dtype_named
from fusewise.rewrite.facts import FACTS, is_nonnegative, is_positive


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
        ([1, 2], {"nonnegative", "positive", "nonzero", "constant", "whole"}),
        ([0.5], {"nonnegative", "positive", "nonzero", "constant"}),
        ([0.0, 1.0], {"nonnegative", "constant"}),
        ([-1.0], {"nonzero", "constant"}),
    ],
)
def test_facts_about_constants(written: Any, array: Any, facts: set[str]) -> None:
    graph = written(lambda g, x, c: x + c, constants={"c": np.array(array, np.float32)}, x=(1, 2))
    assert {name for name, holds in FACTS.items() if holds(graph, "c")} == facts
    assert not any(holds(graph, "x") for holds in FACTS.values())
