"""What operators ask of sizes, solved: sizes meet what was found exactly when they meet what was asked."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.errors import InvalidModel
from fusewise.frontend.equations import Equations, Unasked
from fusewise.ir.deciding import known_equal
from fusewise.ir.size import Symbol, evaluate, greatest, least, size_of, symbols_of
from fusewise.ops.shapes.operands import is_unknown

SYMBOLS = tuple(Symbol(name, 0, 7) for name in ("a", "b", "c"))
A, B, C = map(size_of, SYMBOLS)

sizes = st.recursive(
    st.sampled_from([A, B, C]) | st.integers(0, 6),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] * p[1]),
        st.tuples(inner, st.integers(1, 3)).map(lambda p: p[0] * p[1] - 1),
        st.tuples(inner, st.integers(2, 4)).map(lambda p: p[0] // p[1]),
        st.tuples(inner, inner).map(lambda p: least(*p)),
        st.tuples(inner, inner).map(lambda p: greatest(*p)),
    ),
    max_leaves=4,
)
asked = st.lists(st.tuples(st.sampled_from(["equal", "at_least"]), sizes, sizes), min_size=1, max_size=4)


def _meets(equations: Equations, values: dict[str, int]) -> bool:
    """Do values meet what was found: ranges, what takes the place of symbols, checks?"""
    ranges = all(s.low <= values[name] <= s.high for name, s in equations.symbols.items())
    placed = all(evaluate(size, values) == values[name] for name, size in equations.values.items())
    return ranges and placed and all(check.condition.holds(values) for check in equations.settled_checks())


@settings(max_examples=60, deadline=None)
@given(asked)
def test_sizes_meet_what_was_found_when_they_meet_what_was_asked(facts: list[tuple[str, int, int]]) -> None:
    equations = Equations(SYMBOLS)
    refused = False
    try:
        for relation, a, b in facts:
            getattr(equations, relation)(a, b, "sizes")
        equations.settled_checks()
    except InvalidModel:
        refused = True
    for numbers in itertools.product(range(8), repeat=3):
        values = dict(zip("abc", numbers, strict=True))
        pairs = ((relation, evaluate(a, values), evaluate(b, values)) for relation, a, b in facts)
        wanted = all(a == b if relation == "equal" else a >= b for relation, a, b in pairs)
        if refused:  # what only holds where a product has no factor but 0 is refused, too
            assert not wanted or 0 in numbers, values
        elif _meets(equations, values):
            assert wanted, (values, equations.values, equations.symbols, equations.settled_checks())
            assert all(known_equal(evaluate(equations.known(a), values), evaluate(a, values)) for _, a, _ in facts)
        elif wanted:  # a product is 0 when one factor is: the others are taken to be equal all the same
            assert 0 in numbers or any(len(symbols_of(a - b)) > 1 for relation, a, b in facts if relation == "equal"), (
                values
            )


def test_what_takes_the_place_of_a_symbol_takes_that_of_those_before() -> None:
    equations = Equations(SYMBOLS)
    equations.equal(C, B + 1, "sizes")
    equations.equal(B, A, "sizes")
    assert str(equations.known(C * 2)) == "2*a + 2" and equations.symbols["a"].high == 6


def test_an_extremum_that_must_be_one_of_its_arguments_is() -> None:
    equations = Equations((Symbol("a"), Symbol("b")))
    total = size_of(Symbol("a")) + size_of(Symbol("b"))
    equations.equal(least(1024, total), total, "sizes")
    assert known_equal(equations.known(least(1024, total)), equations.known(total))
    assert [str(check.condition) for check in equations.settled_checks()] == ["- a - b + 1024 >= 0"]
    assert equations.symbols["a"].high == 1024


def test_what_is_not_known_is_not_solved() -> None:
    equations = Equations(SYMBOLS)
    unknown = size_of(Symbol("?0"))
    assert all(known_equal(equations.equal(*pair, "sizes"), A) for pair in ((A, unknown), (unknown, A)))
    equations.at_least(unknown, 5, "a size")
    assert not equations.settled_checks() and not equations.is_new
    assert is_unknown(Unasked().equal(A, B, "sizes"))


def test_what_cannot_be_is_refused() -> None:
    equations = Equations(SYMBOLS)
    with pytest.raises(InvalidModel, match="rows must be equal, and are a and a \\+ 1"):
        equations.equal(A, A + 1, "rows must be equal")
    with pytest.raises(InvalidModel, match="a size must be at least 9, and is a"):
        equations.at_least(A, 9, "a size")
