"""The arena plan against a simulation of lifetimes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fusewise.lower.memory import ALIGNMENT, Lifetime, plan_arena


@st.composite
def lifetimes(draw: st.DrawFn) -> list[Lifetime]:
    found = []
    for _ in range(draw(st.integers(0, 20))):
        first = draw(st.integers(0, 15))
        found.append(Lifetime(draw(st.integers(0, 5000)), first, first + draw(st.integers(0, 6))))
    return found


@given(lifetimes())
def test_buffers_alive_together_do_not_overlap(wanted: list[Lifetime]) -> None:
    offsets, total = plan_arena(wanted)
    for a, (x, at) in enumerate(zip(wanted, offsets, strict=True)):
        assert at % ALIGNMENT == 0
        assert at + x.nbytes <= total
        for y, other in list(zip(wanted, offsets, strict=True))[a + 1 :]:
            together = x.first <= y.last and y.first <= x.last
            apart = at + x.nbytes <= other or other + y.nbytes <= at
            assert apart or not together


def test_a_chain_needs_two_buffers() -> None:
    chain = [Lifetime(1024, step, step + 1) for step in range(10)]
    assert plan_arena(chain)[1] == 2048


def test_buffers_of_one_place_have_one_middle() -> None:
    """Halves of a buffer are written by the same workers as the halves of what lay there before."""
    sizes = [8192, 4096, 2048, 1024, 6144]
    wanted = [Lifetime(size, step, step + 1) for step, size in enumerate(sizes)]
    offsets, total = plan_arena(wanted)
    assert total == 8192 + 4096
    assert {offset + size // 2 for offset, size in zip(offsets, sizes, strict=True)} == {4096, 8192 + 2048}


def test_what_is_overwritten_gives_its_place() -> None:
    """A chain of residuals, each alive until the next is written: one place with leave to overwrite, two without."""
    chain = [Lifetime(1024, 2 * k, 2 * k + 2) for k in range(5)]
    beside = [Lifetime(1024, 2 * k + 1, 2 * k + 2) for k in range(5)]
    pairs = [(k, k + 1) for k in range(4)]
    offsets, total = plan_arena([*chain, *beside], pairs)
    assert len(set(offsets[:5])) == 1
    assert set(offsets[5:]).isdisjoint(offsets[:5])
    assert total == 2048
    assert plan_arena([*chain, *beside])[1] == 3072


def test_a_place_that_was_in_use_lately_is_taken_first() -> None:
    """Its memory is nearer to the cores."""
    long_ago, lately, wanted = Lifetime(8192, 0, 3), Lifetime(4096, 2, 6), Lifetime(1024, 7, 7)
    offsets, _ = plan_arena([long_ago, lately, wanted])
    assert offsets[2] == offsets[1] + (4096 - 1024) // 2


def test_gaps_where_places_take_much_more() -> None:
    """Two small buffers beside each other fit where a large one was; as places they would need memory of their own."""
    wanted = [Lifetime(4096, 0, 0), *(Lifetime(1024, 1, 1) for _ in range(4))]
    assert plan_arena(wanted)[1] == 4096


@given(lifetimes())
def test_the_arena_holds_what_is_alive_and_no_more_than_everything(wanted: list[Lifetime]) -> None:
    alive = (sum(one.size for one in wanted if one.first <= step <= one.last) for step in range(22))
    assert plan_arena(wanted)[1] >= max(alive, default=0)
    assert plan_arena(wanted)[1] <= sum(one.size for one in wanted)
