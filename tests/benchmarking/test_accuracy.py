"""How answers are compared: the cases that a naive comparison gets wrong."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fusewise.benchmarking.accuracy import relative_error, tolerance_of, within, worst_error

INFINITY = float("inf")
f32 = np.float32


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first draw loads what draws
@given(arrays.arrays(np.float32, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0)))
def test_everything_equals_itself(x):
    assert relative_error(x, x.copy()) == 0.0


@given(arrays.arrays(np.float32, st.integers(2, 9), elements=st.floats(-9, 9, width=32)), st.data())
def test_special_numbers_count_by_position(x, data):
    first, second = data.draw(st.permutations(range(len(x))))[:2]
    special = data.draw(st.sampled_from([math.nan, math.inf, -math.inf]))
    here, there = x.copy(), x.copy()
    here[first], there[second] = special, special
    assert relative_error(here, there) == INFINITY
    assert relative_error(here, here.copy()) == 0.0


@pytest.mark.parametrize("tiny", [1e-45, -1e-42])
def test_steps_among_denormals_are_no_difference(tiny):
    zero, least = np.zeros(2, f32), np.array([tiny, 0], f32)
    assert relative_error(least, zero) < 1e-3 and relative_error(zero, least) < 1e-3
    assert relative_error(np.array([1e-37, 0], f32), least) > 1


@pytest.mark.parametrize(
    "found, expected, error",
    [
        (np.array([1.0, 2.0], f32), np.array([1.0, 4.0], f32), 0.5),
        (np.array([math.nan, 1.0], f32), np.array([math.nan, 1.0], f32), 0.0),
        (np.array([math.nan, 1.0], f32), np.array([0.0, 1.0], f32), INFINITY),
        (np.array([math.inf], f32), np.array([math.inf], f32), 0.0),
        (np.array([math.inf], f32), np.array([-math.inf], f32), INFINITY),
        (np.array([math.inf, 1.0], f32), np.array([3e38, 1.0], f32), INFINITY),
        (np.array([0.0], f32), np.array([0.0], f32), 0.0),
        (np.array([1e-3], f32), np.array([0.0], f32), INFINITY),
        (np.array([1.0], f32), np.array([1.0], np.float64), INFINITY),
        (np.array([1.0], f32), np.array([[1.0]], f32), INFINITY),
        (np.array([True]), np.array([False]), INFINITY),
        (np.array([3]), np.array([4]), 0.25),
        (np.array([2**60 + 1]), np.array([2**60]), 2.0**-60),
        (np.array(["a"], object), np.array(["a"], object), 0.0),
        (np.array(["a"], object), np.array(["b"], object), INFINITY),
        (np.array([1 + 1j], np.complex64), np.array([1 + 0j], np.complex64), 1.0),
        (np.zeros((0, 3), f32), np.zeros((0, 3), f32), 0.0),
        ([np.array([1.0], f32)], [np.array([2.0], f32)], 0.5),
        ([np.array([1.0], f32)], [], INFINITY),
        ([], [], 0.0),
        (None, None, 0.0),
        (np.array([1.0], f32), None, INFINITY),
    ],
)
def test_relative_error(found, expected, error):
    assert relative_error(found, expected) == error


def test_narrow_floats_are_compared_in_wide_arithmetic():
    a = np.array([1.0, 2.0], ml_dtypes.bfloat16)
    b = np.array([1.0, 2.0625], ml_dtypes.bfloat16)
    assert relative_error(a, b) == pytest.approx(0.0625 / 2.0625)


def test_tolerances_follow_the_type():
    assert tolerance_of(np.float32(1)) == 1e-5
    assert tolerance_of(np.int64(1)) == 0.0
    assert tolerance_of([np.float16(1)]) > tolerance_of(np.float32(1))
    assert tolerance_of(None) == 0.0
    near = [np.array([1.0], f32)], [np.array([1.0 + 5e-6], f32)]
    assert within(*near) and not within(*near, tolerance=1e-7)
    assert worst_error([np.float32(1), np.float32(2)], [np.float32(1), np.float32(4)]) == 0.5
