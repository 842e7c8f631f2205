"""Sizes: arithmetic as numbers have it, canonical forms, bounds that hold, comparisons that are answered or recorded."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.ir.deciding import at_hint, deciding, hint, known_below, known_equal, known_one
from fusewise.ir.size import Size, SizeNeeded, Symbol, Undecided, evaluate, greatest, least, size_of, substitute
from fusewise.ir.size_json import from_json, to_json
from fusewise.lower.task import RefusalReason

SYMBOLS = {s.name: s for s in (Symbol("batch", 1), Symbol("sequence", 0, 512), Symbol("past"), Symbol("n", 2, 9))}
BATCH, SEQUENCE, PAST, N = (size_of(s) for s in SYMBOLS.values())
VALUES = st.fixed_dictionaries(
    {s.name: st.integers(s.low, min(s.high, 1000)) for s in SYMBOLS.values()}
)  # fmt: skip


def _expressions():
    leaves = st.sampled_from([BATCH, SEQUENCE, PAST, N, 1, 2, 3, 5, 8])

    def more(inner):
        pair, by = st.tuples(inner, inner), st.sampled_from([2, 3, 4, 6, 8])
        return st.one_of(
            pair.map(lambda p: p[0] + p[1]),
            pair.map(lambda p: p[0] - p[1]),
            pair.map(lambda p: p[0] * p[1]),
            pair.map(lambda p: least(*p)),
            pair.map(lambda p: greatest(*p)),
            st.tuples(inner, by).map(lambda p: p[0] // p[1]),
            st.tuples(inner, by).map(lambda p: p[0] % p[1]),
            st.tuples(inner, st.sampled_from([BATCH, N, BATCH * N])).map(lambda p: p[0] // p[1]),
        )

    return st.recursive(leaves, more, max_leaves=6)


OPERATIONS = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "sub": (lambda a, b: a - b, lambda a, b: a - b),
    "mul": (lambda a, b: a * b, lambda a, b: a * b),
    "floordiv": (lambda a, b: a // greatest(b, 1), lambda a, b: a // max(b, 1)),
    "mod": (lambda a, b: a % greatest(b, 1), lambda a, b: a % max(b, 1)),
    "min": (least, min),
    "max": (greatest, max),
}


@pytest.mark.parametrize("name", OPERATIONS)
@settings(max_examples=150, deadline=None)
@given(left=_expressions(), right=_expressions(), values=VALUES)
def test_arithmetic_is_that_of_numbers(name, left, right, values):
    of_sizes, of_numbers = OPERATIONS[name]
    found = of_sizes(left, right)
    assert evaluate(found, values) == of_numbers(evaluate(left, values), evaluate(right, values))
    assert substitute(found, values) == evaluate(found, values)


@settings(max_examples=200, deadline=None)
@given(size=_expressions(), values=VALUES)
def test_bounds_hold_and_files_keep_sizes(size, values):
    number = evaluate(size, values)
    if isinstance(size, Size):
        low, high = size.bounds
        assert low <= number <= high
    assert known_equal(from_json(json.loads(json.dumps(to_json(size))), SYMBOLS), size)


@settings(max_examples=200, deadline=None)
@given(left=_expressions(), right=_expressions(), hints=VALUES, values=VALUES)
def test_what_is_decided_holds_wherever_its_conditions_do(left, right, hints, values):
    with deciding(hints) as conditions:
        answers = left == right, left < right, left >= right
    assert answers == tuple(_compared(left, right, hints))
    assert all(condition.holds(hints) for condition in conditions)
    if all(condition.holds(values) for condition in conditions):
        assert answers == tuple(_compared(left, right, values))


def _compared(left, right, values):
    a, b = evaluate(left, values), evaluate(right, values)
    return a == b, a < b, a >= b


def test_canonical_forms():
    assert BATCH * SEQUENCE * 768 // (12 * 64 * BATCH) == SEQUENCE
    assert (BATCH * (SEQUENCE + PAST) * 768) // (SEQUENCE + PAST) == 768 * BATCH
    assert (2 * N + 1) // 2 == N
    assert known_equal(-(-N // 2), (N - 1) // 2 + 1)
    assert known_equal(N // 2 // 2, N // 4)
    assert (N * 4 + 3) % 4 == 3
    assert (BATCH * SEQUENCE) % BATCH == 0
    assert math.prod([BATCH, 3, 4]) - 12 * BATCH == 0
    assert greatest(N, 1) is N
    assert least(PAST, PAST + 1) is PAST
    assert known_equal(SEQUENCE * BATCH, BATCH * SEQUENCE)
    assert str(2 * BATCH * SEQUENCE - N // 2 + 1) == "2*batch*sequence - (n//2) + 1"


def test_what_ranges_tell_is_known():
    assert N > 1
    assert BATCH != 0
    assert SEQUENCE <= 512
    assert known_below(N // 2, N)
    assert not known_below(SEQUENCE, 512)
    assert 4 * PAST + 1 != 0
    assert BATCH * N - N >= 0
    assert not known_one(BATCH)


def test_without_a_decider_nothing_is_taken_for_known():
    assert (BATCH == 1) is False
    assert (BATCH != 1) is True
    with pytest.raises(Undecided, match="sequence"):
        _ = SEQUENCE < 6


def test_conditions_are_noted_once_and_hints_are_none():
    with deciding({"sequence": 128}) as conditions:
        assert SEQUENCE >= 6
        assert SEQUENCE >= 6
        assert SEQUENCE % 16 == 0
        assert hint(SEQUENCE * 2) == 256
    assert [str(c) for c in conditions] == ["sequence - 6 >= 0", "sequence - 16*(sequence//16) == 0"]


@pytest.mark.parametrize(
    "use",
    [
        *(int, float, range, round, math.gcd, np.zeros),
        *(lambda n: [0] * n, lambda n: "a" * n, lambda n: n / 2, lambda n: 1 << n, lambda n: n & 1),
        lambda n: n.bit_length(),
    ],
)
def test_no_size_is_taken_for_a_number(use):
    with pytest.raises((SizeNeeded, TypeError), match=r"number|int"):
        use(N, 2) if use is math.gcd else use(N)


def test_records_at_the_hint():
    with deciding({"n": 7}):
        found = at_hint((RefusalReason("a", "b"), (N, N * 2), {"x": N}))
    assert found == (RefusalReason("a", "b"), (7, 14), {"x": 7})


@pytest.mark.parametrize(
    "data", [["x"], [1, [2, ["unknown", 1]]], [1, [2, ["n", 99]]], [1, [2, [["pow", 1], 1]]], "n", None]
)
def test_hostile_files_are_refused(data):
    with pytest.raises(ValueError, match="size"):
        from_json(data, SYMBOLS)
