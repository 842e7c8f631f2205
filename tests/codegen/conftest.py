"""Runs one kernel on NumPy arrays: compile, call once per worker, one after the other, again piece by piece, and where it may
with its result on top of what it adds."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from fusewise.codegen.kernel import Kernel, Params
from fusewise.codegen.overwrite import overwritable
from fusewise.codegen.target import Target
from fusewise.lower.task import Task
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_object, load

RunKernel = Callable[..., None]


def in_pieces(workers: int) -> list[tuple[int, int, int, int, int]]:
    """Calls in which every worker does the first half of its share, and others the quarters that are left."""
    begun = [(4 * worker, 4 * worker + 2, 4 * workers, worker, 0) for worker in range(workers)]
    rest = [(4 * worker + k, 4 * worker + k + 1, 4 * workers) for k in (2, 3) for worker in range(workers)]
    return begun[::-1] + [(*piece, number % max(1, workers - 1), 1) for number, piece in enumerate(rest)]


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
        library = load(
            [compile_object(kernel.build(task, target, chosen, "kernel"), target, kernel.level(chosen))], ["kernel"]
        )
        arguments = kernel.arguments(task, target, chosen)
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 5)(library.addresses["kernel"])

        def calls(given: Mapping[str, np.ndarray], shares: list[tuple[int, int, int, int, int]]) -> None:
            buffers = [
                np.zeros(argument.nbytes * (workers if argument.per_worker else 1) + 64, np.uint8)
                if argument.name in ("scratch", "next")  # what comes next is fetched, and not read
                else given[argument.name]
                for argument in arguments
            ]
            pointers = (ctypes.c_void_p * max(1, len(buffers)))(*(buffer.ctypes.data for buffer in buffers))
            for share in shares:
                call(pointers, *share)

        whole = [(worker, worker + 1, workers, worker, 0) for worker in range(workers)]
        copies = {name: array.copy() for name, array in arrays.items()}
        calls(arrays, whole)
        calls(copies, in_pieces(workers))
        for name, array in arrays.items():
            assert array.tobytes() == copies[name].tobytes(), f"{name} is another when work is dealt out in pieces"
        for read in overwritable(task) if kernel.writes_once(task, target, chosen) else ():
            written = task.stores[0].operand
            for shares in (whole, in_pieces(workers)):
                place = arrays[read].copy()
                calls({**arrays, read: place, written: place}, shares)
                assert place.tobytes() == arrays[written].tobytes(), f"{written} is another on top of {read}"

    return run
