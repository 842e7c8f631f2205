"""Copies that exchange the innermost axes, against NumPy, on every machine, with guard pages on both sides."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.codegen.ways import refusal

from fusewise.codegen.families.generic.transposed_copy import TURNED
from fusewise.codegen.target import TARGETS, Target
from fusewise.ir.dtypes import FLOAT32, INT32, DType, dtype_named
from fusewise.lower.task import Operand, Store, Task
from fusewise.ops.expr import index, load, unary


def copy(shape: tuple[int, ...], axes: tuple[int, ...], dtype: DType = FLOAT32) -> Task:
    """A dense tensor of `shape` with its axes exchanged, as ONNX's Transpose does."""
    whole = tuple(int(np.prod(shape[k + 1 :])) for k in range(len(shape)))
    result = tuple(shape[a] for a in axes)
    dense = tuple(int(np.prod(result[k + 1 :])) for k in range(len(result)))
    at = tuple(index(f"i{k}") for k in range(len(shape)))
    moved = Operand("in0", dtype, result, tuple(whole[a] for a in axes))
    return Task(result, (Operand("out0", dtype, result, dense), moved), (Store("out0", at, load("in0", dtype, at)),))


SHAPES = [(8, 8), (9, 17), (64, 100), (33, 16), (2, 16, 31), (3, 8, 5, 9), (40, 3, 24)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("workers", [1, 3])
def test_axes_are_exchanged(run_kernel, shape: tuple[int, ...], workers: int) -> None:
    taken = 0
    for axes in itertools.permutations(range(len(shape))):
        task = copy(shape, axes)
        if refusal(TURNED, task, TARGETS[0]) is not None:
            continue
        taken += 1
        given = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
        arrays = {"in0": given.reshape(-1).copy(), "out0": np.zeros(given.size, np.float32)}
        run_kernel(TURNED, task, arrays, workers)
        np.testing.assert_array_equal(arrays["out0"], given.transpose(axes).reshape(-1))
    assert taken


@pytest.mark.parametrize("workers", [1, 2])
def test_large_copies_are_shared(run_kernel, workers: int) -> None:
    given = np.random.default_rng(0).integers(-(2**31), 2**31 - 1, (67, 190), dtype=np.int32)
    given[0, :2] = np.array(
        [0x7FA00001, 0x7F800000], np.int32
    )  # bits of a signalling NaN and of infinity, if they were floats
    arrays = {"in0": given.reshape(-1).copy(), "out0": np.zeros(given.size, np.int32)}
    run_kernel(TURNED, copy(given.shape, (1, 0), INT32), arrays, workers)
    np.testing.assert_array_equal(arrays["out0"], given.T.reshape(-1))


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_other_tasks_are_left_alone(target: Target) -> None:
    refused = [
        copy((64, 64), (0, 1)),
        copy((3, 64), (1, 0)),
        copy((4, 16, 16), (1, 0, 2)),
        copy((64, 64), (1, 0), dtype_named("float64")),
    ]
    task = copy((64, 64), (1, 0))
    (store,) = task.stores
    refused.append(Task(task.extents, task.operands, (Store("out0", store.index, unary("neg", store.value)),)))
    assert all(refusal(TURNED, one, target) is not None for one in refused)
    assert refusal(TURNED, task, target) is None
