"""The kernel of TopK on any lines, against a stable sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.whole import Case, task_and_arrays, tops

from fusewise.codegen.families.top_k import TOP_K
from fusewise.ops.selection import top


def check(run_kernel: Any, one: Case, workers: int) -> None:
    task, arrays = task_and_arrays(one)
    run_kernel(TOP_K, task, arrays, workers)
    assert np.array_equal(arrays["out1"], one.wanted[1])
    assert arrays["out0"].tobytes() == one.wanted[0].tobytes(), "values are copied as they are, what is no number too"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one=tops(), workers=st.integers(1, 4))
def test_any_lines(run_kernel: Any, one: Case, workers: int) -> None:
    check(run_kernel, one, workers)


@pytest.mark.parametrize("order", ["rising", "falling", "equal", "at random"])
@pytest.mark.parametrize("count", [1, 24, 25, 60, 2000, 5000])
@pytest.mark.parametrize("largest", [0, 1])
def test_lines_in_any_order(run_kernel: Any, order: str, count: int, largest: int) -> None:
    """All are better than those before, none is, and all are as good: what is gathered is sorted often, or never."""
    x = np.arange(5000, dtype=np.float32)
    x = {"rising": x, "falling": x[::-1].copy(), "equal": x * 0}.get(order, np.random.default_rng(0).permutation(x))
    wanted = top(x, count, 0, bool(largest))
    check(run_kernel, Case("TopK", (x, np.array([count])), wanted, {"axis": 0, "largest": largest}, (1,)), 1)


@pytest.mark.parametrize("count", [3, 40])
def test_ends_of_every_integer_and_signs_of_zero(run_kernel: Any, count: int) -> None:
    for kind in ("int8", "uint8", "int32", "uint32", "int64", "uint64"):
        ends = np.iinfo(kind)
        x = np.tile(np.array([0, ends.max, ends.min, 1], kind), 30)
        for largest in (0, 1):
            wanted = top(x, count, 0, bool(largest))
            check(run_kernel, Case("TopK", (x, np.array([count])), wanted, {"axis": 0, "largest": largest}, (1,)), 1)
    x = np.tile(np.array([0.0, -0.0, np.nan, -np.inf, -np.nan, np.inf], np.float32), 20)
    for largest in (0, 1):
        wanted = top(x, count, 0, bool(largest))
        check(run_kernel, Case("TopK", (x, np.array([count])), wanted, {"axis": 0, "largest": largest}, (1,)), 1)
