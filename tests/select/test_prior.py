"""What moves promise after what was counted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.select.prior import Count, Move, Prior

MOVE, ELSEWHERE = Move("FoldConstant", "FuseOps"), Move("SimplifyExpr", "FuseOps")
PAID, IN_VAIN = Count(1, 1, 1, 1), Count(1, 0, 0, 0)

counts = st.tuples(*[st.integers(0, 50)] * 4).map(lambda parts: Count(*sorted(parts, reverse=True)))
moves = st.builds(Move, st.sampled_from(["", "a", "b"]), st.sampled_from(["a", "b", "c"]), st.booleans())
known = st.dictionaries(moves, counts, max_size=8)


@settings(max_examples=30, deadline=None)
@given(known, moves)
def test_a_promise_is_a_chance_that_experience_moves(found: dict[Move, Count], move: Move) -> None:
    before = Prior(found).promise(move)
    assert 0 < before < 1
    paid, in_vain = Prior(found), Prior(found)
    paid.add(move, PAID)
    in_vain.add(move, IN_VAIN)
    assert in_vain.promise(move) < before < paid.promise(move)


@settings(max_examples=30, deadline=None)
@given(known, known, moves)
def test_counts_add_up_in_any_order(first: dict[Move, Count], second: dict[Move, Count], move: Move) -> None:
    forth, back = Prior(first), Prior(second)
    for other, count in second.items():
        forth.add(other, count)
    for other, count in first.items():
        back.add(other, count)
    assert forth.promise(move) == back.promise(move)


def test_what_is_not_known_is_judged_by_what_is_like_it() -> None:
    assert Prior({}).promise(MOVE) == 0.25
    taught = Prior({ELSEWHERE: Count(10, 10, 10, 10)})
    assert taught.promise(ELSEWHERE) > taught.promise(MOVE) > taught.promise(Move("", "AlterOpLayout")) > 0.25
    assert taught.promise(Move("", "FuseOps", put=False)) == 0.25, "to leave a pass out is another thing"
