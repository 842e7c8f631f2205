"""LSTM, GRU and RNN on a GPU, in a loop and by steps: every option, wherever operands lie, against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codegen.gpu.interpreting import expected, launch
from tests.codegen.gpu.lying import contents_of, lying, task_of
from tests.recurrences import OUTPUTS, Case, case, cases, difference
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu import recurrence_plan
from fusewise.codegen.gpu.choose import candidates
from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.kernel import NoKernel
from fusewise.codegen.gpu.kernel import task_of as task_of_kernel
from fusewise.codegen.gpu.recurrence_plan import MOST_LAUNCHES, by_steps, recurrence_task, tiles_of
from fusewise.codegen.gpu.recurrences import recurrence, recurrence_by
from fusewise.lower.recurrence import SAMPLES_FIRST
from fusewise.lower.task import Task

SM_90 = device_named("sm_90")
WEIGHTS = ("w", "r", "b", "p")
MOST = {"float32": 5e-6, "float64": 1e-12}


def given_to(one: Case, task: Task) -> dict[str, np.ndarray]:
    """The operands in the order of axes that the task has them in, whatever the layout."""
    turned = one.attributes.get("layout", 0)
    operands = [
        x.transpose(1, 0, 2) if turned and x is not None and place in SAMPLES_FIRST else x
        for place, x in enumerate(one.operands)
    ]
    return contents_of(task, operands)


def check(one: Case, task: Task, stepped: bool) -> None:
    """The kernels give what the definition does, and touch nothing but operands."""
    contents = given_to(one, task)
    kernel = recurrence_by(recurrence_task(task), SM_90, "float32", stepped)
    found, fault = launch(kernel, task, contents)
    assert not fault.any()
    by_name = {}
    for name, x in found.items():
        axes = (2, 0, 1, 3) if name == "out0" else (1, 0, 2)
        by_name[OUTPUTS[int(name[-1])]] = x.transpose(axes) if one.attributes.get("layout") else x
    assert difference(by_name, one.defined) < MOST[one.feeds["x"].dtype.name] + 10 * one.rounding


@needs_triton
@settings(max_examples=12, deadline=None)
@given(
    one=cases(steps=4, samples=5, hidden=9, kinds=("float32", "float32", "float64")),
    constants=st.sampled_from(((), WEIGHTS, ("r",), ("w", "lengths"))),
    seed=st.integers(0, 99),
    stepped=st.booleans(),
)
def test_any_recurrence(one: Case, constants: tuple[str, ...], seed: int, stepped: bool) -> None:
    check(one, lying(task_of(one.model(constants)), np.random.default_rng(seed)), stepped)


@needs_triton
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
@pytest.mark.parametrize("stepped", [False, True])
def test_states_of_several_tiles(op: str, stepped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are multiplied in several goes, and blocks have some of them; the last has fewer."""
    monkeypatch.setattr(recurrence_plan, "_MOST_DEPTH", 16)
    monkeypatch.setattr(recurrence_plan, "_MOST_WARPS", 1)
    one = case(op, np.random.default_rng(0), steps=2, samples=2, hidden=37, inputs=3, present="bh")
    task = task_of(one.model(WEIGHTS))
    tiles = tiles_of(recurrence_task(task), stepped)
    assert tiles.depth < 37 and tiles.blocks > 1
    check(one, task, stepped)


@needs_triton
def test_numbers_that_are_none_stay_with_their_sample() -> None:
    one = case("GRU", np.random.default_rng(0), present="bl", linear_before_reset=1)
    x, lengths = one.operands[0], one.operands[4]
    assert x is not None and lengths is not None
    lengths[:] = 4
    x[1, 2, 0] = np.nan
    task = task_of(one.model(WEIGHTS))
    for stepped in (False, True):
        contents = contents_of(task, one.operands)
        found, _ = launch(recurrence_by(recurrence_task(task), SM_90, "float32", stepped), task, contents)
        for name, right in expected(task, contents).items():
            assert np.isnan(right).any() and not np.isnan(right).all()
            np.testing.assert_allclose(found[name], right, rtol=0, atol=1e-5)


@needs_triton
@pytest.mark.parametrize("length", [-1, 5])
def test_lengths_out_of_bounds_are_told(length: int) -> None:
    """And the sample has no step, in either way."""
    one = case("LSTM", np.random.default_rng(0), present="l", hidden=2, inputs=2)
    lengths = one.operands[4]
    assert lengths is not None
    lengths[:] = 4
    lengths[2] = length
    task = task_of(one.model(WEIGHTS))
    for stepped in (False, True):
        kernel = recurrence_by(recurrence_task(task), SM_90, "float32", stepped)
        found, fault = launch(kernel, task, contents_of(task, one.operands))
        assert fault.tolist() == [1, length]
        assert not found["out1"][:, 2].any() and found["out1"][:, 1].all()


def task_for(op: str, steps: int, samples: int, hidden: int, **options: object) -> Task:
    one = case(
        op, np.random.default_rng(0), steps=steps, samples=samples, inputs=64, hidden=hidden, present="b", **options
    )
    return task_of(one.model(WEIGHTS))


def test_the_way_is_chosen_by_estimate() -> None:
    """Few weights stay in a multiprocessor's cache; of many every step is a launch, unless there are too many steps."""
    for task, launches in (
        (task_for("LSTM", 20, 1, 32), 2),
        (task_for("LSTM", 20, 1, 512), 22),
        (task_for("GRU", 20, 1, 512), 42),
        (task_for("GRU", 20, 1, 512, linear_before_reset=1), 22),
        (task_for("RNN", MOST_LAUNCHES + 1, 1, 512), 2),
    ):
        kernel = recurrence(task, SM_90, "float32")
        assert 1 + len(kernel.then) == launches
        assert len(set(kernel.then)) <= 3, "launches of one kernel"
        barriers = kernel.then[0].source.count("tl.debug_barrier()")
        assert barriers == (0 if launches > 2 else 2), (
            "behind the first states and each phase of a step; a launch needs none"
        )
        assert {task_of_kernel(one) for one in (kernel, *kernel.then)} == {task.digest}
        assert by_steps(recurrence_task(task), SM_90) == (launches > 2)
        others = [len(one.then) for _, one in candidates(task, SM_90, "float32")[1:]]
        assert others == ([1] if launches > 2 else [21] if task.extents[0] == 20 else [])


def test_what_is_no_recurrence_is_refused() -> None:
    task = task_for("RNN", 2, 1, 3)
    with pytest.raises(NoKernel, match="no recurrence"):
        recurrence(replace(task, anchor=None), SM_90, "float32")
