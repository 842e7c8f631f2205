"""The combination table against what is published of it, and its own consistency."""

from __future__ import annotations

from fusewise.fusion.verdicts import COMBINATIONS, Verdict, combine
from fusewise.ops.spec import Mapping

TYPES = tuple(kind for kind in Mapping if kind is not Mapping.OPAQUE)


def test_the_table_has_every_pair_and_two_red_cells() -> None:
    assert set(COMBINATIONS) == {(a, b) for a in TYPES for b in TYPES}
    red = {pair for pair, (_, verdict) in COMBINATIONS.items() if verdict is Verdict.BREAK}
    assert red == {(Mapping.ONE_TO_MANY, Mapping.MANY_TO_MANY), (Mapping.MANY_TO_MANY, Mapping.MANY_TO_MANY)}


def test_one_to_one_takes_the_other_type_without_asking() -> None:
    for kind in TYPES:
        assert combine(Mapping.ONE_TO_ONE, kind) == (kind, Verdict.FUSE)
        assert combine(kind, Mapping.ONE_TO_ONE) == (kind, Verdict.FUSE)


def test_heavier_types_prevail_and_have_to_be_asked_for() -> None:
    heavy = (Mapping.ONE_TO_MANY, Mapping.MANY_TO_MANY)
    for moving in (Mapping.REORGANIZE, Mapping.SHUFFLE):
        for kind in heavy:
            assert combine(moving, kind) == (kind, Verdict.ASK)
            assert combine(kind, moving) == (kind, Verdict.ASK)
    assert combine(Mapping.MANY_TO_MANY, Mapping.ONE_TO_MANY) == (Mapping.MANY_TO_MANY, Verdict.ASK)


def test_movement_stays_movement() -> None:
    moving = (Mapping.REORGANIZE, Mapping.SHUFFLE)
    for a in moving:
        for b in moving:
            both = Mapping.SHUFFLE if a is b is Mapping.SHUFFLE else Mapping.REORGANIZE
            assert combine(a, b) == (both, Verdict.FUSE)


def test_opaque_breaks_on_either_side() -> None:
    for kind in Mapping:
        assert combine(Mapping.OPAQUE, kind)[1] is Verdict.BREAK
        assert combine(kind, Mapping.OPAQUE)[1] is Verdict.BREAK
