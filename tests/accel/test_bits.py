"""Bit sets against Python's sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fusewise.accel.bits import bits_of, component, components, count, is_connected, lowest, mask_of, union_over

SETS = st.frozensets(st.integers(0, 90))


@given(SETS)
def test_members(nodes: frozenset[int]) -> None:
    mask = mask_of(nodes)
    assert list(bits_of(mask)) == sorted(nodes)
    assert count(mask) == len(nodes)
    assert not nodes or lowest(mask) == min(nodes)


@given(SETS, SETS)
def test_algebra(a: frozenset[int], b: frozenset[int]) -> None:
    assert mask_of(a) | mask_of(b) == mask_of(a | b)
    assert mask_of(a) & ~mask_of(b) == mask_of(a - b)


@given(st.sets(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=25), st.frozensets(st.integers(0, 19)))
def test_components(edges: set[tuple[int, int]], nodes: frozenset[int]) -> None:
    around = [{b for a, b in edges if a == v} | {a for a, b in edges if b == v} for v in range(20)]
    neighbours = [mask_of(one) for one in around]
    parts = components(neighbours, mask_of(nodes))
    assert sum(parts) == mask_of(nodes)
    assert is_connected(neighbours, mask_of(nodes)) == (len(parts) == 1)
    for part in parts:
        members = set(bits_of(part))
        assert union_over(neighbours, part) & mask_of(nodes) & ~part == 0
        assert all(component(neighbours, mask_of(nodes), v) == part for v in members)
