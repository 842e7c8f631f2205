"""The kernel of running sums and products along any axis of any layout, known or not, against NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.whole import Case, alike, scans, task_and_arrays

from fusewise.codegen.families.scan import SCAN


def check(run_kernel: Any, one: Case, workers: int, exact: bool = False) -> None:
    task, arrays = task_and_arrays(one)
    run_kernel(SCAN, replace(task, exact=exact), arrays, workers)
    assert alike([arrays["out0"]], one.wanted)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one=scans(), workers=st.integers(1, 4), exact=st.booleans())
def test_any_scan(run_kernel: Any, one: Case, workers: int, exact: bool) -> None:
    check(run_kernel, one, workers, exact)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(1, 5000, 3), (70, 20, 90)], ids=str)
@pytest.mark.parametrize("known", [(), (1,)], ids=["at run time", "known"])
def test_long_scans_are_shared_out(run_kernel: Any, axis: int, shape: tuple[int, ...], known: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    check(run_kernel, Case("CumSum", (x, np.array(axis)), (np.cumsum(x, axis),), {}, known), 3)


def test_narrow_floats_are_rounded_once(run_kernel: Any) -> None:
    x = np.random.default_rng(0).random((2, 3000)).astype(np.float16)
    wanted = np.cumsum(x.astype(np.float32), 1)
    task, arrays = task_and_arrays(Case("CumSum", (x, np.array(1)), (wanted.astype(np.float16),), {}, (1,)))
    run_kernel(SCAN, task, arrays, 2)
    assert np.abs(arrays["out0"].astype(np.float64) - wanted).max() <= 2.0**-11 * wanted.max()
