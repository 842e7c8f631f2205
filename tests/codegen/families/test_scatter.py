"""The kernel of scatters on any shapes and dtypes, with any number of workers, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.whole import Case, alike, max_unpool, numbers, scatter_elements, scatter_nd, task_and_arrays, tensor_scatter

from fusewise.codegen.families.scatter import SCATTER

ANY = st.one_of(scatter_elements(), scatter_nd(), tensor_scatter(), max_unpool())


def check(run_kernel: Any, one: Case, workers: int) -> None:
    task, arrays = task_and_arrays(one)
    if 0 in task.extents:
        return
    run_kernel(SCATTER, task, arrays, workers)
    assert alike([arrays["out0"]], one.wanted)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one=ANY, workers=st.integers(1, 4))
def test_any_scatter(run_kernel: Any, one: Case, workers: int) -> None:
    check(run_kernel, one, workers)


@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize("shape", [(9000,), (300, 2, 9), (3, 700), (40, 20, 20)], ids=str)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_many_updates_are_shared_out(run_kernel: Any, reduction: str, shape: tuple[int, ...], depth: int) -> None:
    """`depth` 0 is ScatterElements along the first axis; there are many updates of one element."""
    rng = np.random.default_rng(len(shape))
    data, wanted = numbers(rng, shape, "float32"), numbers(rng, shape, "float32")
    if depth > len(shape):
        return
    if depth == 0:
        places, updates = rng.integers(-shape[0], shape[0], shape), numbers(rng, shape, "float32")
        wanted = data.copy()
        for at in np.ndindex(shape):
            where = (places[at], *at[1:])
            wanted[where] = updates[at] + (wanted[where] if reduction == "add" else 0)
        check(run_kernel, Case("ScatterElements", (data, places, updates), (wanted,), {"reduction": reduction}), 3)
        return
    places = np.stack([rng.integers(-n, n, 4200) for n in shape[:depth]], -1)
    updates = numbers(rng, (4200, *shape[depth:]), "float32")
    wanted = data.copy()
    for place, update in zip(places, updates, strict=True):
        wanted[tuple(place)] = update + (wanted[tuple(place)] if reduction == "add" else 0)
    check(run_kernel, Case("ScatterND", (data, places, updates), (wanted,), {"reduction": reduction}), 3)
