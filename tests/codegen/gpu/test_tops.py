"""TopK in Triton's interpreter on any lines, against a stable sort."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codegen.gpu.interpreting import launch
from tests.runtime.gpu.kernels import needs_triton
from tests.whole import KINDS, Case, far, numbers, task_and_arrays

from fusewise.codegen.gpu import tops
from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.kernel import GpuKernel, NoKernel, task_of
from fusewise.codegen.gpu.tops import top_k
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.types import TensorType
from fusewise.ops.selection import top

pytestmark = needs_triton

SM_90 = device_named("sm_90")


def case(x: np.ndarray, count: int, axis: int = -1, largest: int = 1) -> Case:
    wanted = top(x, count, axis, bool(largest))
    return Case("TopK", (x, np.array([count])), wanted, {"axis": axis, "largest": largest}, (1,))


def check(one: Case) -> GpuKernel:
    task, arrays = task_and_arrays(one)
    kernel = top_k(task, SM_90, "float32")
    found, _ = launch(kernel, task, arrays)
    assert np.array_equal(found["out1"], one.wanted[1])
    assert found["out0"].tobytes() == one.wanted[0].tobytes(), "values are copied as they are, what is no number too"
    return kernel


@st.composite
def lines(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    shape = draw(st.sampled_from([(1,), (3,), (70,), (300,), (3, 17), (17, 3), (2, 70), (3, 1, 9), (2, 5, 3)]))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    x = far(rng, numbers(rng, shape, draw(st.sampled_from(KINDS[:-1])), draw(st.sampled_from((2, 100)))))
    return case(x, draw(st.integers(1, shape[axis])), axis, draw(st.integers(0, 1)))


@settings(max_examples=20, deadline=None)
@given(one=lines())
def test_any_lines(one: Case) -> None:
    check(one)


@pytest.mark.parametrize("length, count", [(256, 4), (300, 3), (257, 8)])
@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_long_lines_by_chunks(length: int, count: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last chunk may be short, and have fewer than are wanted."""
    monkeypatch.setattr(tops, "_CHUNKS", (16, 32, 64))
    monkeypatch.setattr(tops, "_SECOND", 0)
    rng = np.random.default_rng(0)
    assert check(case(far(rng, numbers(rng, (2, length), kind)), count)).then


@pytest.mark.parametrize(
    "kind", ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
)
def test_ends_of_every_type_and_signs_of_zero(kind: str) -> None:
    if kind.startswith("float"):
        x = np.tile(np.array([0.0, -0.0, np.nan, -np.inf, -np.nan, np.inf], kind), 5)
    else:
        x = np.tile(np.array([0, np.iinfo(kind).max, np.iinfo(kind).min, 1], kind), 8)
    for largest in (0, 1):
        check(case(x, 20, 0, largest))


def test_numbers_of_lanes_have_32_bits() -> None:
    """Those of the last block, too, which would be negative and so within the bounds."""
    task, _ = task_and_arrays(case(np.zeros((3, 2), np.float32), 1))
    count = 2**31 - 8
    anchor = replace(task.anchored, inputs=(TensorType(FLOAT32, (count // 2, 2)), *task.anchored.inputs[1:]))
    with pytest.raises(NoKernel, match=f"TopK of {count} elements"):
        top_k(replace(task, extents=(count // 2, 1), anchor=anchor), SM_90, "float32")


def test_the_best_and_the_worst_are_kernels_of_their_own_tasks() -> None:
    tasks = [task_and_arrays(case(np.arange(9, dtype=np.float32), 4, 0, largest))[0] for largest in (0, 1)]
    kernels = [top_k(task, SM_90, "float32") for task in tasks]
    assert [task_of(kernel) for kernel in kernels] == [task.digest for task in tasks]
    assert kernels[0].symbol != kernels[1].symbol


def test_lines_that_are_too_long_are_the_hosts() -> None:
    task, _ = task_and_arrays(case(np.zeros(1 << 18, np.float32), 1 << 18))
    with pytest.raises(NoKernel, match="the best 262144 of 1 lines of 262144 elements"):
        top_k(task, SM_90, "float32")
