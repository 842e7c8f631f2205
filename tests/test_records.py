"""Records behave like dataclasses of the same fields, which are the reference here."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewise.records import record


def pair(**options):
    """The same class as a dataclass and as a record."""

    def made(decorator):
        @decorator(**options)
        class Point:
            """A point."""

            x: int
            y: tuple[int, ...] = ()
            note: str = field(default="", compare=False)
            hidden: int = field(default=0, repr=False)

            def sum(self) -> int:
                return self.x + sum(self.y)

        return Point

    return made(dataclass), made(record)


values = st.tuples(
    st.integers(0, 2), st.lists(st.integers(0, 1), max_size=2).map(tuple), st.sampled_from("ab"), st.integers(0, 1)
)


@pytest.mark.parametrize("slots", [False, True])
@given(values, values)
def test_frozen_ones_compare_hash_and_show_as_dataclasses_do(slots, a, b):
    reference, ours = pair(frozen=True, slots=slots)
    assert (ours(*a) == ours(*b)) is (reference(*a) == reference(*b))
    assert (hash(ours(*a)) == hash(ours(*b))) is (hash(reference(*a)) == hash(reference(*b)))
    assert repr(ours(*a)) == repr(reference(*a))
    assert asdict(ours(*a)) == asdict(reference(*a))
    assert asdict(replace(ours(*a), x=7)) == asdict(replace(reference(*a), x=7))
    assert ours(*a).sum() == reference(*a).sum()
    assert ours(*a) != a and ours(*a) != reference(*a)


def test_plain_ones_have_no_hash_and_may_change():
    for kind in pair():
        point = kind(1)
        point.x = 2
        assert point == kind(2)
        with pytest.raises(TypeError, match="unhashable"):
            hash(point)


def test_without_comparison_each_is_itself():
    for kind in pair(eq=False, frozen=True):
        assert kind(1) != kind(1)
        assert len({kind(1), kind(1)}) == 2


def test_own_methods_stay():
    @record(frozen=True)
    class Odd:
        x: int

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 5

        def __repr__(self):
            return "odd"

    assert Odd(1) == Odd(2)
    assert hash(Odd(1)) == 5
    assert repr(Odd(1)) == "odd"


def test_with_one_field_or_none():
    @record(frozen=True)
    class Nothing:
        pass

    @record
    class One:
        x: float

    nan = float("nan")
    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(())
    assert One(nan) == One(nan)  # as in a tuple: the same object
    assert [one.name for one in fields(One)] == ["x"]


def test_one_that_holds_itself_can_be_shown():
    @record
    class Ring:
        next: object = None

    ring = Ring()
    ring.next = ring
    assert repr(ring).endswith("Ring(next=...)")


@record(frozen=True, slots=True)
class Kept:
    x: int
    y: str


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda kept: pickle.loads(pickle.dumps(kept))])
def test_copies_are_equal(again):
    assert again(Kept(1, "a")) == Kept(1, "a")


def test_dataclasses_of_the_graph_stay_frozen():
    from fusewise.ir.graph import Node

    node = Node("n", "Relu", ("x",), ("y",))
    with pytest.raises(FrozenInstanceError):
        node.name = "m"
