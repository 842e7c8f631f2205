"""Index maps against NumPy's own reshape and broadcast, on arbitrary shapes."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.ir.dtypes import INT64
from fusewise.ops.expr import const, index, load
from fusewise.ops.indexing import linear, reshaped, spread, unlinear, wrapped
from fusewise.ops.interpret import evaluate_expression

sizes = st.integers(1, 4)
shapes = st.lists(sizes, max_size=4).map(tuple)


def read(array: np.ndarray, shape: tuple[int, ...], source_index: object) -> np.ndarray:
    names = [f"i{k}" for k in range(len(shape))]
    at = tuple(index(n) for n in names)
    body = load("x", INT64, source_index(at))  # type: ignore[operator]
    return evaluate_expression(body, dict(zip(names, shape, strict=True)), {"x": array})[0]


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape)


@st.composite
def regrouped(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of the same number of elements: factors grouped in two ways, unit dimensions strewn in."""
    factors = draw(st.lists(st.sampled_from([1, 2, 3]), max_size=5))

    def group() -> tuple[int, ...]:
        shape: list[int] = []
        for factor in factors:
            if shape and draw(st.booleans()):
                shape[-1] *= factor
            else:
                shape.append(factor)
        return tuple(shape)

    return group(), group()


@given(regrouped())
@settings(max_examples=200, deadline=None)
def test_reshaped_is_a_reshape(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    source, shape = pair
    x = numbered(source)
    np.testing.assert_array_equal(read(x, shape, lambda at: reshaped(at, shape, source)), x.reshape(shape))


def test_reshape_divides_only_what_is_split() -> None:
    at = (index("a"), index("b"))
    assert repr(reshaped(at, (2, 12), (2, 3, 4))) == "(a, floordiv(b, 4), floormod(b, 4))"
    assert repr(reshaped((index("a"), index("b"), index("c")), (2, 3, 4), (6, 4))) == "(add(mul(a, 3), b), c)"


@given(shapes)
@settings(max_examples=100, deadline=None)
def test_unlinear_inverts_linear(shape: tuple[int, ...]) -> None:
    x = numbered(shape)
    np.testing.assert_array_equal(read(x, shape, lambda at: unlinear(linear(at, shape), shape)), x)


@given(shapes, st.data())
@settings(max_examples=100, deadline=None)
def test_spread_is_broadcasting(shape: tuple[int, ...], data: st.DataObject) -> None:
    dropped = data.draw(st.integers(0, len(shape)))
    operand = tuple(1 if data.draw(st.booleans()) else n for n in shape[dropped:])
    x = numbered(operand)
    np.testing.assert_array_equal(read(x, shape, lambda at: spread(at, operand)), np.broadcast_to(x, shape))


def test_negative_positions_count_from_the_end() -> None:
    assert wrapped(const(-1), 5) == const(4)
    assert wrapped(const(2), 5) == const(2)


def test_an_empty_tensor_has_no_position() -> None:
    assert reshaped((index("a"),), (0,), (3, 0)) == (const(0), const(0))
