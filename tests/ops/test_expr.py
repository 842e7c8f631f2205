"""Expressions: folding, equality, substitution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewise.ir.dtypes import BOOL, FLOAT32, INT32, INT64
from fusewise.ops.expr import (
    Expr,
    assignments,
    binary,
    cast,
    compare,
    const,
    index,
    load,
    reduce,
    select,
    substitute,
    substitute_indices,
    unary,
    walk,
)
from fusewise.ops.interpret import evaluate_expression

i, j = index("i"), index("j")


def test_index_arithmetic_folds() -> None:
    assert const(2) + 3 == const(5)
    assert i * 1 is i
    assert i + 0 is i
    assert i * 0 == const(0)
    assert i // 1 is i
    assert i % 1 == const(0)
    assert (const(-7) // 2, const(-7) % 2) == (const(-4), const(1))


def test_division_of_constants_by_zero_is_left_alone() -> None:
    assert (const(1) // const(0)).op == "floordiv"


def test_data_is_never_folded() -> None:
    """Zero times a load is NaN when the load is."""
    x = load("x", FLOAT32, (i,))
    assert (x * 0.0).op == "mul"


def test_numbers_take_the_type_of_their_partner() -> None:
    x = load("x", INT32, (i,))
    assert (x + 1).args[1] == const(1, INT32)
    assert (1 - load("y", FLOAT32, ())).args[0] == const(1.0, FLOAT32)


def test_constants_differ_by_value_type_and_sign() -> None:
    assert const(0, FLOAT32) != const(0, INT32)
    assert const(0.0, FLOAT32) != const(-0.0, FLOAT32)
    assert const(True, BOOL) != const(1)


def test_result_types() -> None:
    x = load("x", FLOAT32, (i,))
    assert compare("lt", x, 0).dtype == BOOL
    assert unary("isnan", x).dtype == BOOL
    assert select(compare("lt", i, 3), x, 0).dtype == FLOAT32
    assert cast(x, FLOAT32) is x
    assert cast(x, INT64).dtype == INT64


def test_a_reduction_over_no_axes_is_its_body() -> None:
    x = load("x", FLOAT32, (i,))
    assert reduce("sum", (), x) is x


@pytest.mark.parametrize("kind", ["sin", "no such"])
def test_unknown_operations_are_refused(kind: str) -> None:
    with pytest.raises(AssertionError):
        binary(kind, i, j)


def test_walk_gives_children_first_and_each_once() -> None:
    shared = i + j
    nodes = walk(shared * shared)
    assert len(nodes) == len(set(nodes)) == 4
    assert nodes[-1] == shared * shared


def test_substitution_folds_again() -> None:
    assert substitute_indices(i * 4 + j, {"i": const(2), "j": const(1)}) == const(9)
    x = load("x", FLOAT32, (i,))
    inlined = substitute(x + x, lambda e: unary("exp", load("y", FLOAT32, e.args)) if e.op == "load" else None)
    assert repr(inlined) == "add(exp(y[i]), exp(y[i]))"


@given(st.integers(-50, 50), st.integers(-9, 9).filter(bool), st.integers(-50, 50))
def test_folding_agrees_with_interpretation(a: int, b: int, c: int) -> None:
    folded = (const(a) * b + c) // b % 7
    x, y, z = (load(name, INT64, ()) for name in "abc")
    found, _ = evaluate_expression(
        (x * y + z) // y % 7, {}, {k: np.array(v) for k, v in zip("abc", (a, b, c), strict=True)}
    )
    assert folded.value == found


def test_deep_expressions_that_share_their_parts_are_compared_once() -> None:
    def doubled(levels: int) -> Expr:
        found = unary("exp", load("x", FLOAT32, (i,)))
        for _ in range(levels):
            found = binary("add", found, found)
        return found

    assert doubled(3000) == doubled(3000)
    assert doubled(3000) != doubled(2999)
    assert len(walk(binary("mul", doubled(200), doubled(200)))) == len(walk(doubled(200))) + 1


def test_assignments_name_what_stands_in_several_places_or_is_long() -> None:
    x, y = load("in0", FLOAT32, (index("i0"),)), load("in1", FLOAT32, (index("i0"),))
    shared = unary("exp", x + y * y)
    assert assignments({"out0[i0]": shared / (shared + 1.0)}) == [
        ("t0", "exp(add(in0[i0], mul(in1[i0], in1[i0])))"),
        ("out0[i0]", "div(t0, add(t0, 1.0))"),
    ]
    assert assignments({"a": x, "b": x + y}) == [("a", "in0[i0]"), ("b", "add(in0[i0], in1[i0])")]


def test_assignments_of_deep_and_shared_expressions_stay_short() -> None:
    x = load("in0", FLOAT32, (index("i0"),))
    for _ in range(5000):  # deeper than the stack, and 2 ** 5000 leaves if it were written out
        x = x + x
    found = assignments({"out": x})
    assert all(len(text) <= 250 for _, text in found)
    assert [name for name, _ in found[:-1]] == [f"t{k}" for k in range(len(found) - 1)]
