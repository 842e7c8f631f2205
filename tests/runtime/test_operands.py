"""What host steps read may not be written to; what they give is their own, and has the shape that code was written for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusewise.errors import ShapeContradicted
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.types import TensorType
from fusewise.lower.program import Place
from fusewise.runtime.arena import RunMemory, aligned_block
from fusewise.runtime.operands import apart, reader, writing

KIND = TensorType(FLOAT32, (2, 3))


def memory(caller: np.ndarray | None = None) -> RunMemory:
    """Buffer 0 is the program's, buffer 1 the caller's."""
    own = aligned_block(48)
    own.view(np.float32)[:] = np.arange(12)
    return RunMemory((own, None), {1: np.zeros((2, 3), np.float32) if caller is None else caller})


@pytest.mark.parametrize("offset", [0, 24])
def test_own_memory_is_read_where_it_lies(offset: int) -> None:
    blocks = memory()
    read = reader(("x", Place(0, offset), KIND))
    for change in (0, 100):
        blocks.own[0].view(np.float32)[:] += change  # type: ignore[union-attr]
        found = read(blocks, {})
        np.testing.assert_array_equal(found.reshape(-1), np.arange(6) + offset // 4 + change)
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 1


@pytest.mark.parametrize("strides", [None, (1, 2)])
def test_the_callers_arrays_differ_from_run_to_run(strides: tuple[int, int] | None) -> None:
    read = reader(("x", Place(1, 0, strides), KIND))
    for start in (0, 50):
        array = np.arange(start, start + 6, dtype=np.float32).reshape(2, 3)
        found = read(memory(array), {})
        np.testing.assert_array_equal(found, array if strides is None else array.reshape(3, 2).T)
        assert not found.flags.writeable and array.flags.writeable


def test_results_go_where_they_belong() -> None:
    for place in (Place(0, 24), Place(1)):
        put = writing(("y", place, KIND), "node 'n' (Op)")
        for number in (1, 2):
            blocks = memory()
            if place.buffer == 0 and number == 2:
                break  # a program's own memory is the same in every run
            put(blocks, {}, np.full((2, 3), number, np.float64), [])
            assert (blocks.view(place, KIND) == number).all()
    with pytest.raises(ShapeContradicted, match=r"^node 'n' \(Op\) gives the shape \[3, 2\].*states \[2, 3\]"):
        put(memory(), {}, np.zeros((3, 2), np.float32), [])


def test_objects_outlive_the_programs_memory() -> None:
    """Whatever of an operand a node hands on is a copy; what is its own stays."""
    blocks, objects = memory(), {}
    view = reader(("x", Place(0), KIND))(blocks, {})
    own = np.ones(3, np.float32)
    for value in (view, view[1:], view.T, view.reshape(-1), view[0, 1:2]):
        writing(("y", None, None), "n")(blocks, objects, [value, own, None, [value]], [view])
        first, second, nothing, (inner,) = objects["y"]
        for one in (first, inner):
            np.testing.assert_array_equal(one, value)
            assert not np.may_share_memory(one, view) and one.flags.writeable
        assert second is own and nothing is None


@pytest.mark.parametrize("value", [None, "text", 3, {"a": 1}, [], [[]], [{"a": 1.5}, {"a": 2.5}]])
def test_what_is_no_array_is_handed_on(value: Any) -> None:
    assert apart(value, [np.zeros(2)]) == value
    assert apart(value, []) is value
