"""The kernel of recurrences: every option on odd sizes, any units and runs of steps, against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.codegen.ways import refusal, scheduled, text_of, way
from tests.recurrences import OPERANDS, Case, case, cases, difference

import fusewise
from fusewise.codegen.families.recurrent.kernel import RECURRENT, RecurrentSchedule
from fusewise.codegen.families.recurrent.shape import RecurrentShape, plan_of, steps_ahead, understand
from fusewise.codegen.kernel import Implementation
from fusewise.codegen.target import FEW_REGISTERS, TARGETS, Target
from fusewise.fusion.plan import partition
from fusewise.lower.task import Task
from fusewise.lower.work import TaskWork, lower_partition
from fusewise.trace import Trace

WEIGHTS = ("w", "r", "b", "p")
MOST = {"float32": 5e-6, "float64": 1e-12}


def task_of(one: Case, constants: tuple[str, ...]) -> Task:
    graph = fusewise.load(one.model(constants))
    (work,) = lower_partition(partition(graph, Trace()), Trace()).work
    assert isinstance(work, TaskWork)
    return work.bound.task


def check(
    run_kernel: Any, target: Target, one: Case, constants: tuple[str, ...], units: int, chunk: int, workers: int
) -> None:
    task = task_of(one, constants)
    steps, samples = task.extents[0], task.extents[2]
    schedule = RecurrentSchedule(-(-samples // -(-samples // min(units, samples))), min(chunk, steps))
    check_with(run_kernel, one, scheduled(RECURRENT[-1], task, target, schedule), workers)


def check_with(run_kernel: Any, one: Case, chosen: Implementation, workers: int) -> None:
    task = chosen.task
    packings = {a.name: a.packing for a in chosen.arguments}
    arrays = {}
    for operand in task.operands:
        if operand.name.startswith("out"):
            place = int(operand.name[-1])
            arrays[operand.name] = np.full(one.defined[one.outputs[place]].shape, np.nan, operand.dtype.numpy)
            continue
        given, packing = one.feeds[OPERANDS[int(operand.name[-1])]], packings[operand.name]
        arrays[operand.name] = given if packing is None else packing.pack(given)
    run_kernel(chosen.kernel, task, arrays, workers, chosen.schedule)
    found = {name: arrays[f"out{place}"] for place, name in enumerate(one.outputs) if name}
    assert difference(found, one.defined) < MOST[found[min(found)].dtype.name] + 10 * one.rounding


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    one=cases(steps=40, samples=9, hidden=40, kinds=("float32", "float32", "float64")),
    constants=st.sampled_from(((), WEIGHTS, ("r",), ("w", "lengths"))),
    units=st.integers(1, 5),
    chunk=st.integers(1, 40),
    workers=st.integers(1, 4),
)
def test_any_recurrence(run_kernel: Any, target: Target, one: Case, **options: Any) -> None:
    check(run_kernel, target, one, options.pop("constants"), *options.values())


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(
    one=cases(steps=40, samples=3, hidden=70, kinds=("float32", "float32", "float64")),
    constants=st.sampled_from(((), WEIGHTS, ("r",), ("w", "lengths"))),
    workers=st.integers(1, 4),
)
def test_inputs_products_beside_the_steps_before(
    run_kernel: Any, target: Target, one: Case, constants: tuple[str, ...], workers: int
) -> None:
    task = task_of(one, constants)
    samples = task.extents[2]
    ahead = steps_ahead(shape_of(task), target, samples)
    assume(ahead)
    schedule = RecurrentSchedule(samples, ahead, ahead=True)
    check_with(run_kernel, one, scheduled(RECURRENT[-1], task, target, schedule), workers)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "GRU that resets after", "RNN"])
@pytest.mark.parametrize("steps", [24, 25, 100])
@pytest.mark.parametrize("inputs", [1, 32, 61, 200])
def test_one_sample_has_its_inputs_products_made_beside(
    run_kernel: Any, target: Target, op: str, steps: int, inputs: int
) -> None:
    options = {"linear_before_reset": 1} if "after" in op else {}
    rng = np.random.default_rng(3)
    one = case(
        op[:4].rstrip(), rng, hidden=64, samples=1, inputs=inputs, steps=steps, direction="bidirectional", **options
    )
    task = task_of(one, WEIGHTS)
    chosen = way(RECURRENT[-1], task, target)
    assert chosen.schedule.ahead == (target.registers > FEW_REGISTERS)
    check_with(run_kernel, one, chosen, 2)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("hidden, samples", [(64, 1), (96, 7), (33, 9)])
def test_whole_and_broken_vectors(run_kernel: Any, target: Target, op: str, hidden: int, samples: int) -> None:
    one = case(op, np.random.default_rng(3), hidden=hidden, samples=samples, inputs=7, steps=11, present="bl")
    check(run_kernel, target, one, WEIGHTS, 2, 4, 3)


def shape_of(task: Task) -> RecurrentShape:
    found = understand(task)
    assert isinstance(found, RecurrentShape)
    return found


@pytest.mark.parametrize("machine", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("hidden, samples", [(1, 1), (48, 1), (64, 9), (1000, 40)])
def test_tiles_fit_the_registers(machine: Target, op: str, hidden: int, samples: int) -> None:
    one = case(op, np.random.default_rng(3), hidden=hidden, samples=samples, steps=2)
    plan = plan_of(shape_of(task_of(one, ())), machine, 1, 2)
    for stage in (*plan.inputs, *plan.states):
        assert plan.blocks % stage.together == 0
        sums = stage.rows * stage.vectors * stage.chains
        assert stage.rows == 1 or sums + stage.vectors < machine.registers


@pytest.mark.parametrize("machine", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("samples, hidden", [(1, 48), (4, 48), (1, 256)])
def test_code_does_not_grow_with_the_steps(machine: Target, samples: int, hidden: int) -> None:
    def size(steps: int) -> int:
        rng = np.random.default_rng(3)
        task = task_of(case("LSTM", rng, hidden=hidden, samples=samples, inputs=5, steps=steps), WEIGHTS)
        one = next(kernel for kernel in RECURRENT if refusal(kernel, task, machine) is None)
        return len(text_of(way(one, task, machine), machine.instructions, "kernel"))

    assert size(5000) < 1.02 * size(100)
