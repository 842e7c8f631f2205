"""Runs one kernel on NumPy arrays: compile, call once per worker, one after the other."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from fusewise.codegen.kernel import Kernel, Params
from fusewise.codegen.target import Target
from fusewise.lower.task import Task
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_object, load

RunKernel = Callable[..., None]


@pytest.fixture(scope="session")
def target() -> Target:
    return host_target()


@pytest.fixture
def run_kernel(target: Target) -> RunKernel:
    """`run_kernel(kernel, task, arrays, workers=1, params=None)`: arrays are the operands' buffers, by name."""

    def run(
        kernel: Kernel,
        task: Task,
        arrays: Mapping[str, np.ndarray],
        workers: int = 1,
        params: Params | None = None,
    ) -> None:
        reason = kernel.accepts(task, target)
        assert reason is None, reason
        chosen = next(iter(kernel.space(task, target))) if params is None else params
        library = load([compile_object(kernel.build(task, target, chosen, "kernel"), target)], ["kernel"])
        buffers = []
        for argument in kernel.arguments(task, target, chosen):
            if argument.name == "scratch":
                buffers.append(np.zeros(argument.nbytes * (workers if argument.per_worker else 1) + 64, np.uint8))
            else:
                buffers.append(arrays[argument.name])
        pointers = (ctypes.c_void_p * max(1, len(buffers)))(*(buffer.ctypes.data for buffer in buffers))
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library.addresses["kernel"])
        for worker in range(workers):
            call(pointers, worker, workers)

    return run
