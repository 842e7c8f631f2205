"""Functions over terms become patterns, and patterns read as they were written."""

from __future__ import annotations

from typing import Any

import pytest

from fusewise.rewrite.pattern import Apply, Literal, Variable, pattern_of, regroups


@pytest.mark.parametrize(
    "function, text",
    [
        (lambda g, a, b, c: a * b + a * c, "a * b + a * c"),
        (lambda g, a, b, c: a * (b + c), "a * (b + c)"),
        (lambda g, a, b, c: a - (b - c), "a - (b - c)"),
        (lambda g, a, b, c: a - b - c, "a - b - c"),
        (lambda g, a, b: 1 / (a / b), "1 / (a / b)"),
        (lambda g, a, b: -(a + b) * -a, "-(a + b) * -a"),
        (lambda g, a: 1 - g.Exp(2 * a), "1 - Exp(2 * a)"),
        (lambda g, a, s: g.BitShift(a, s, direction="LEFT"), "BitShift(a, s, direction='LEFT')"),
        (lambda g, a, b: (a + b | g.Exp(a)) * 2, "(a + b | Exp(a)) * 2"),
        (lambda g, a, b: g.monomial(0.5, a, a + b), "0.5 * a * (a + b)"),
        (lambda g, x: g.Split(x, outputs=2, axis=1), "Split(x, axis=1)[0], Split(x, axis=1)[1]"),
    ],
)
def test_patterns_read_as_they_are_written(function: Any, text: str) -> None:
    assert str(pattern_of(function)) == text


def test_parts_of_a_pattern() -> None:
    pattern = pattern_of(lambda g, x, w, axes=None: g.ReduceSum(x * w + x * 2, axes, like="r"))
    assert pattern.variables == ("x", "w", "axes")
    assert pattern.once == {"w", "axes"}
    assert pattern.operators == {"ReduceSum", "Mul", "Add"}
    assert Variable("axes", optional=True) in set(pattern.terms())
    assert Literal(2.0) in set(pattern.terms())


def test_trees_of_one_operator_are_flattened() -> None:
    (root,) = pattern_of(lambda g, a, b, c, d: (a * b) * (c * (d + (a + b)))).flat().roots
    assert isinstance(root, Apply)
    assert [str(x) for x in root.operands] == ["a", "b", "c", "d + a + b"]
    (root,) = pattern_of(lambda g, a, b, c: a - (b - c)).flat().roots
    assert str(root) == "a - (b - c)"


def test_which_operators_regroup() -> None:
    assert regroups("Add")
    assert regroups("Max")
    assert not regroups("Sub")
    assert not regroups("Equal")  # commutative only
    assert not regroups("NoSuchOperator")
