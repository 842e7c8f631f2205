"""The simplifier keeps the value of every expression, and reaches the forms that make reshapes free."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.ir.dtypes import INT64, UINT8, dtype_named
from fusewise.lower.index import Simplifier
from fusewise.ops.expr import Expr, binary, cast, compare, const, index, load, select, walk

RANGES = {"i": 4, "j": 6, "k": 5}
LEAVES = [index(name) for name in RANGES]

_OPERATIONS = {
    "neg": lambda a: -a,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "lt": lambda a, b: a < b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "select": lambda c, a, b: a if c else b,
}


def evaluate(e: Expr, where: dict[str, int]) -> int:
    if e.op == "const":
        return int(e.value)
    if e.op == "index":
        return where[e.value]
    return _OPERATIONS[e.op](*(evaluate(a, where) for a in e.args))


def expressions() -> st.SearchStrategy[Expr]:
    leaves = st.one_of(st.sampled_from(LEAVES), st.integers(-9, 9).map(const))
    positive = st.integers(1, 12)

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        pairs = st.tuples(st.sampled_from(["add", "sub", "min", "max"]), inner, inner)
        conditions = st.tuples(st.sampled_from(["lt", "ge", "eq"]), inner, inner).map(lambda t: compare(*t))
        return st.one_of(
            pairs.map(lambda t: binary(*t)),
            inner.map(lambda e: -e),
            st.tuples(inner, st.integers(-12, 12)).map(lambda t: t[0] * t[1]),
            st.tuples(inner, positive).map(lambda t: t[0] // t[1]),
            st.tuples(inner, positive).map(lambda t: t[0] % t[1]),
            st.tuples(conditions, inner, inner).map(lambda t: select(*t)),
        )

    return st.recursive(leaves, grow, max_leaves=10)


@settings(max_examples=300, deadline=None)
@given(expressions())
def test_simplifying_keeps_every_value(e: Expr) -> None:
    simple = Simplifier(RANGES).simplify(e)
    for point in itertools.product(*(range(n) for n in RANGES.values())):
        where = dict(zip(RANGES, point, strict=True))
        assert evaluate(simple, where) == evaluate(e, where)


@settings(max_examples=100, deadline=None)
@given(expressions())
def test_bounds_hold(e: Expr) -> None:
    simplifier = Simplifier(RANGES)
    low, high = simplifier.range_of(simplifier.linear(simplifier.simplify(e)))
    for point in itertools.product(*(range(n) for n in RANGES.values())):
        assert low <= evaluate(e, dict(zip(RANGES, point, strict=True))) <= high


i, j, k = LEAVES


@pytest.mark.parametrize(
    "before, after",
    [
        ((i * 6 + j) // 6, i),
        ((i * 6 + j) % 6, j),
        (((i * 6 + j) * 5 + k) // 10, i * 3 + j // 2),
        (((i * 6 + j) * 5 + k) // 5, i * 6 + j),
        ((j // 2) * 2 + j % 2, j),
        (
            ((i * 30 + j * 5 + k) // 30) * 30 + ((i * 30 + j * 5 + k) // 5 % 6) * 5 + (i * 30 + j * 5 + k) % 5,
            i * 30 + j * 5 + k,
        ),
        (binary("min", j, const(9)), j),
        (binary("max", j + 9, i), j + 9),
        (select(compare("lt", i, 4), i, j), i),
        (select(compare("ge", j, 6), i, j), j),
    ],
)
def test_reshape_arithmetic_vanishes(before: Expr, after: Expr) -> None:
    found = Simplifier(RANGES).simplify(before)
    assert Simplifier(RANGES).linear(found) == Simplifier(RANGES).linear(after)
    assert not any(node.op == "floormod" for node in walk(found))


def test_what_cannot_be_decided_stays() -> None:
    kept = Simplifier(RANGES).simplify(select(compare("lt", i, 3), i, j))
    assert kept.op == "select"


@pytest.mark.parametrize("dtype, low, high", [("uint4", 0, 15), ("int4", -8, 7), ("int16", -(1 << 15), (1 << 15) - 1)])
def test_integers_that_are_loaded_have_the_range_of_their_type(dtype: str, low: int, high: int) -> None:
    loaded = load("in0", dtype_named(dtype), (index("i"),))
    simplifier = Simplifier(RANGES)
    assert simplifier.bounds(cast(cast(loaded, dtype_named("int32")), INT64)) == (low, high)
    assert simplifier.bounds(cast(cast(loaded + const(1, loaded.dtype), UINT8), INT64))[1] > 1 << 32
    wrapped = cast(cast(loaded, dtype_named("uint64")), INT64)
    assert low == 0 or simplifier.bounds(wrapped)[0] < low
