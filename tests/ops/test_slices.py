"""What Slice reads, against the text of ONNX written out element by element."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewise.ops.slices import slice_along, sliced

BOUNDS = st.one_of(st.integers(-9, 9), st.sampled_from([2**63 - 1, -(2**63) + 1, 2**31, -(2**31)]))


def by_text(start: int, end: int, step: int, extent: int) -> list[int]:
    """The positions that are read: bounds adjusted, limited by the sign of the step, and walked."""
    if extent == 0:
        return []
    start, end = start + extent * (start < 0), end + extent * (end < 0)
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    at, stop = min(max(start, 0), high), min(max(end, low), high)
    found = []
    while at < stop if step > 0 else at > stop:
        found.append(at)
        at += step
    return found


@given(BOUNDS, BOUNDS, st.integers(-7, 7).filter(bool), st.integers(0, 6))
def test_bounds_are_limited_by_the_sign_of_the_step(start: int, end: int, step: int, extent: int) -> None:
    assert list(range(extent))[slice_along(start, end, step, extent)] == by_text(start, end, step, extent)


def test_a_negative_step_from_in_front_of_the_axis_reads_the_first_element() -> None:
    np.testing.assert_array_equal(sliced(np.arange(5), [-9], [-99], [0], [-1]), [0])


def test_axes_and_steps_may_be_absent() -> None:
    data = np.arange(20).reshape(4, 5)
    np.testing.assert_array_equal(sliced(data, np.array([1, 2]), np.array([3, 9])), data[1:3, 2:])
    np.testing.assert_array_equal(sliced(data, [4], [0], [-1], np.array([-2])), data[:, 4:0:-2])


def test_a_step_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="step of 0"):
        slice_along(0, 1, 0, 3)
