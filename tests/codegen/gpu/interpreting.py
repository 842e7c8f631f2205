"""Kernels for GPUs in Triton's interpreter, with a look at every address; and what they compute by other means.

The interpreter is that of the simulated device (`runtime.gpu.triton_interpret`), in a process of its own: PyTorch imports Triton to
compile, and a process has it one way only.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Mapping
from functools import cache

import numpy as np

from fusewise.codegen.gpu.kernel import FAULT, SCRATCH, STEP, STEP_BYTES, GpuKernel
from fusewise.lower.interpret import interpret_task
from fusewise.lower.task import Operand, Task
from fusewise.runtime.arena import address_of
from fusewise.runtime.gpu.process import TritonProcess

GUARD = 64
"""Elements before and behind an operand, which nobody may touch."""
_ROOM = 1 << 30
"""Bytes of address space that are shared with the interpreter; only what is touched is memory."""


class OutsideOperands(AssertionError):
    """A lane touched what is no element of an operand that it may touch."""


class _Interpreter:
    """A process of Triton's interpreter, and memory that it shares."""

    def __init__(self) -> None:
        descriptor = os.memfd_create("fusewise-test-device")
        os.ftruncate(descriptor, _ROOM)
        self.memory = np.frombuffer(mmap.mmap(descriptor, _ROOM), np.uint8)
        self.base = address_of(self.memory)
        self.process = TritonProcess(
            "fusewise.runtime.gpu.triton_interpret:interpreting",
            (descriptor, _ROOM),
            (descriptor,),
            {"TRITON_INTERPRET": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        self._taken = 0

    def empty(self) -> None:
        """Nothing of what was there is needed any more."""
        self._taken = 0

    def there(self, array: np.ndarray) -> np.ndarray:
        """A copy of an array in the shared memory."""
        start = -(-self._taken // 64) * 64
        self._taken = start + array.nbytes
        assert self._taken <= _ROOM
        found = self.memory[start : self._taken].view(array.dtype)
        found[:] = array
        return found

    def launch(self, kernel: GpuKernel, places: Mapping[str, int], reads: np.ndarray, writes: np.ndarray) -> None:
        """Run a kernel with arguments at these addresses; it reads and writes these bytes, by address, and no others."""
        answer, _ = self.process.ask(
            {
                "symbol": kernel.symbol,
                "source": kernel.source,
                "types": kernel.types,
                "grid": kernel.grid,
                "arguments": [places[name] - self.base for name in kernel.arguments],
                "reads": _ranges(reads - self.base),
                "writes": _ranges(writes - self.base),
            }
        )
        if answer.get("error") == "OutsideSpans":
            raise OutsideOperands(answer["text"])
        assert "error" not in answer, answer


def _ranges(places: np.ndarray) -> list[tuple[int, int]]:
    """Bytes, one by one, as runs: offset and length."""
    ordered = np.unique(places)
    begins = np.flatnonzero(np.diff(ordered, prepend=-2) != 1)
    lengths = np.diff(begins, append=ordered.size)
    return [(int(ordered[begin]), int(length)) for begin, length in zip(begins, lengths, strict=True)]


@cache
def _interpreter() -> _Interpreter:
    return _Interpreter()


def elements_of(operand: Operand) -> np.ndarray:
    """How far every element lies from where the argument points, in elements."""
    found = np.full(operand.shape, operand.offset, np.int64)
    for axis, (extent, stride) in enumerate(zip(operand.shape, operand.strides, strict=True)):
        found += (np.arange(extent) * stride).reshape([-1 if k == axis else 1 for k in range(len(operand.shape))])
    return found.reshape(-1)


def span_of(operand: Operand) -> tuple[int, int]:
    """The lowest element and the number of elements from there to the highest."""
    low, high = (0, -1) if 0 in operand.shape else operand.span
    return low, high - low + 1


def guarded(operand: Operand, contents: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Memory of an operand between guards that are filled with what is noticed, and the part from where its argument points.

    `contents` are its elements in the order of its indices; what lies between them is noticed, too.
    """
    low, count = span_of(operand)
    low = min(low, 0)
    room = max(span_of(operand)[0] + count, 1) - low
    memory = np.full((room + 2 * GUARD) * operand.dtype.itemsize, 0xA5, np.uint8).view(operand.dtype.numpy)
    if operand.dtype.is_float and operand.dtype.bits > 8:
        memory[:] = np.nan
    start = memory[GUARD - low :]
    if contents is not None:
        memory[GUARD - low + elements_of(operand)] = contents.reshape(-1)
    return memory, start


def launch(
    kernel: GpuKernel, task: Task, contents: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What a kernel, and those behind it, write, in the order of indices by operand, and what they report; all else is seen to be
    as it was."""
    device = _interpreter()
    device.empty()
    starts = {}
    for operand in task.operands:
        memory, start = guarded(operand, contents.get(operand.name))
        starts[operand.name] = device.there(memory)[memory.size - start.size :]
    outputs = {store.operand for store in task.stores}
    fault = device.there(np.zeros(2 * max(1, task.sites), np.int64))
    scratch = device.there(np.full(max(1, -(-kernel.scratch_bytes // 4)), np.nan, np.float32))
    packed = {name: device.there(packing.pack(starts[name]).reshape(-1)) for name, packing in kernel.packed}
    packed |= {name: device.there(table.array.reshape(-1)) for name, table in kernel.tables}
    readable, writable = [_bytes(array) for array in packed.values()], [_bytes(fault[: 2 * task.sites])]
    for operand in task.operands:
        touched = _bytes_of(operand, address_of(starts[operand.name]))
        (writable if operand.name in outputs else readable).append(touched)
    places = {name: address_of(array) for name, array in {**starts, FAULT: fault, SCRATCH: scratch, **packed}.items()}
    for one in (kernel, *kernel.then):
        # working memory is written by the first; those behind it read it, and those that are launched again and again change it
        reads, writes = ([*readable, _bytes(scratch)], [*writable, _bytes(scratch)])
        places[STEP] = places[SCRATCH] + STEP_BYTES * one.step
        device.launch(one, places, _joined(reads), _joined(writes))
    found = {}
    for operand in task.operands:
        start, elements = starts[operand.name], elements_of(operand)
        if operand.name in outputs:
            found[operand.name] = (
                start[elements].reshape(operand.shape) if elements.size else np.zeros(operand.shape, start.dtype)
            )
    return found, fault.copy()


def _bytes(array: np.ndarray) -> np.ndarray:
    """The addresses of all bytes."""
    return address_of(array) + np.arange(array.nbytes)


def _bytes_of(operand: Operand, start: int) -> np.ndarray:
    """The addresses of the bytes of all elements."""
    size = operand.dtype.itemsize
    return (start + size * elements_of(operand)[:, None] + np.arange(size)).reshape(-1)


def _joined(addresses: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *addresses])


def expected(task: Task, contents: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What `ops.interpret` makes of a task without anchor; elements that no store writes are as in `guarded`."""
    memory = {o.name: guarded(o, contents.get(o.name)) for o in task.operands}
    with np.errstate(all="ignore"):
        interpret_task(task, {o.name: memory[o.name][1][o.offset :] for o in task.operands})
    outputs = {store.operand for store in task.stores}
    return {o.name: memory[o.name][1][elements_of(o)].reshape(o.shape) for o in task.operands if o.name in outputs}


TOLERANCES = {2: 1e-2, 4: 4e-6, 8: 1e-13}


def compare(found: np.ndarray, wanted: np.ndarray, times: float = 1.0) -> None:
    """Integers and places of NaN and infinity are equal; floats are near."""
    if wanted.dtype.kind in "biu" or wanted.dtype.itemsize == 1:
        np.testing.assert_array_equal(found, wanted)
        return
    tolerance = times * TOLERANCES[wanted.dtype.itemsize]
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)


def check(kernel: GpuKernel, task: Task, contents: Mapping[str, np.ndarray], times: float = 1.0) -> None:
    """A kernel computes what the task says, and touches nothing else."""
    found, _ = launch(kernel, task, contents)
    for name, wanted in expected(task, contents).items():
        compare(found[name], wanted, times)


def size_of(operand: Operand) -> int:
    """Elements of an operand."""
    return math.prod(operand.shape)
