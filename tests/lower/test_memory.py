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
