"""Index arithmetic and tasks over extents that are sizes: what vanishes of numbers vanishes of symbols."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.ir.deciding import at_hint, deciding
from fusewise.ir.size import Symbol, evaluate, greatest, size_of
from fusewise.lower.extents import Positive, common_factors, exact
from fusewise.lower.index import Simplifier
from fusewise.ops.expr import Expr, index, walk
from fusewise.ops.indexing import reshaped
from fusewise.ops.interpret import evaluate_expression

BATCH, SEQUENCE = size_of(Symbol("batch")), size_of(Symbol("sequence"))


def at(rank: int) -> tuple[Expr, ...]:
    return tuple(index(f"i{d}") for d in range(rank))


def simplified(index_: tuple[Expr, ...], shape: tuple[int, ...]) -> list[str]:
    simplifier = Simplifier({f"i{d}": extent for d, extent in enumerate(shape)})
    return [str(simplifier.simplify(e)) for e in index_]


def test_heads_are_split_and_joined_without_division() -> None:
    there = (BATCH, SEQUENCE, 12, 64)
    assert simplified(reshaped(at(4), there, (BATCH, SEQUENCE, 768)), there) == ["i0", "i1", "add(mul(i2, 64), i3)"]
    joined = (12 * BATCH, SEQUENCE, 64)
    assert simplified(reshaped(at(4), (BATCH, 12, SEQUENCE, 64), joined), (BATCH, 12, SEQUENCE, 64)) == [
        "add(mul(i0, 12), i1)",
        "i2",
        "i3",
    ]


def test_joined_and_split_again_is_nothing() -> None:
    shape, rows = (BATCH, SEQUENCE, 768), (BATCH * SEQUENCE, 12, 64)
    there = reshaped(at(3), shape, rows)
    assert simplified(reshaped(there, rows, shape), shape) == ["i0", "i1", "i2"]


def test_an_index_space_that_is_entered_has_elements() -> None:
    rest = SEQUENCE - 5
    assert not Positive(()).at_most(6, SEQUENCE)
    assert Positive((rest,)).at_most(6, SEQUENCE)
    assert Positive((BATCH * SEQUENCE,)).at_most(1, SEQUENCE)
    assert not Positive((BATCH + SEQUENCE,)).at_most(1, SEQUENCE)
    part = greatest(0, SEQUENCE - BATCH)  # of which it follows that the sequence is longer than the batch
    assert Positive((part,)).at_most(part + BATCH, SEQUENCE) and not Positive(()).at_most(part + BATCH, SEQUENCE)
    negative = ((SEQUENCE - 9) // 2) * ((BATCH - 9) // 2)  # or both factors are
    assert not Positive((negative,)).at_most(11, SEQUENCE)


def test_factors_are_common_to_terms_and_divisor() -> None:
    assert common_factors([12, 8], 16) == [8, 4]
    assert common_factors([768 * SEQUENCE], 64 * SEQUENCE * BATCH) == [64 * SEQUENCE]
    assert exact(768 * SEQUENCE, SEQUENCE) == 768 and exact(768 * SEQUENCE, BATCH) is None


dimension = st.sampled_from([1, 2, 3, 4, 6, BATCH, SEQUENCE, 2 * BATCH, SEQUENCE + 1, BATCH * SEQUENCE])


@settings(max_examples=60, deadline=None)
@given(st.lists(dimension, min_size=1, max_size=4), st.randoms(), st.integers(1, 3), st.integers(1, 3))
def test_reshapes_of_sizes_are_those_of_numbers(shape: list[int], random, batch: int, sequence: int) -> None:
    """Neighbours joined, twice at random: what sizes give, at numbers, is what numbers give."""

    def joined(dims: list[int]) -> list[int]:
        found = [dims[0]]
        for n in dims[1:]:
            if random.random() < 0.5:
                found[-1] = found[-1] * n
            else:
                found.append(n)
        return found

    one, other = joined(shape), joined(shape)
    simplifier = Simplifier({f"i{d}": extent for d, extent in enumerate(one)})
    found = [simplifier.simplify(e) for e in reshaped(at(len(one)), one, other)]
    env = {"batch": batch, "sequence": sequence}
    extents = {f"i{d}": evaluate(n, env) for d, n in enumerate(one)}
    dims = [evaluate(n, env) for n in other]
    strides = [math.prod(dims[d + 1 :]) for d in range(len(dims))]
    with deciding(env):
        places = [at_hint(e) for e in found]
    assert all(type(e.value) is int for place in places for e in walk(place) if e.op == "const")
    linear = sum(evaluate_expression(p, extents, {})[0] * s for p, s in zip(places, strides, strict=True))
    whole = sum(
        evaluate_expression(index(name), extents, {})[0] * math.prod(list(extents.values())[d + 1 :])
        for d, name in enumerate(extents)
    )
    assert (linear == whole).all()
