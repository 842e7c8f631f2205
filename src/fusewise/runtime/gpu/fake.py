"""A driver without a GPU: memory is NumPy's, kernels run in Triton's interpreter. For tests, and to look for faults.

Memory is one block that is shared with the interpreter's process. What is allocated is filled with 0xFF, which is NaN in
every type of floats, and lies apart from all else; every access of a kernel is held against the bytes that its launch names.
A graph runs its launches one by one, in an order drawn anew for each run among those that its edges allow: one that is
missing shows in the answers.

What goes wrong with real devices can be asked for: little memory, and a device that is lost.
"""

from __future__ import annotations

import mmap
import os
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.errors import FusewiseError
from fusewise.records import record
from fusewise.runtime.arena import address_of
from fusewise.runtime.gpu.driver import (
    BrokenAccess,
    Cubin,
    DeviceLost,
    DeviceMemoryFull,
    Launch,
    LaunchRefused,
    Span,
    WrongArchitecture,
    runs_on,
)
from fusewise.runtime.gpu.process import TritonProcess

__all__ = ["FakeDriver"]

_ALIGNMENT = 256
_APART = 4096
"""Bytes between two allocations, which belong to nobody."""
_POISON = 0xFF
_CPU = (1, 0)
"""The host as DLPack names it, so that NumPy reads what lies here."""


@record(frozen=True, slots=True)
class _Function:
    """A kernel that was loaded; `number` says by which driver's how many-th load."""

    kernel: GpuKernel
    owner: int


def _one(kernel: GpuKernel) -> float:
    return 1.0


class FakeDriver:
    """A device of an `architecture` with `nbytes` of memory. Graphs draw their orders from `seed`.

    With `lost_after` the device is lost while it makes that launch, counted from 0. `launches` says how many it made,
    `pinned_bytes` what of the host's memory is held for it, `orders` in which order each run of a graph made its own. A launch
    takes the microseconds that `takes` says of its kernel: one, where it is not given.
    """

    def __init__(
        self,
        architecture: str = "sm_90",
        nbytes: int = 1 << 28,
        *,
        seed: int = 0,
        lost_after: int | None = None,
        takes: Callable[[GpuKernel], float] = _one,
    ) -> None:
        self.architecture, self.lost_after, self.takes = architecture, lost_after, takes
        self.clock_us = 0.0
        self.launches = self.pinned_bytes = 0
        self.orders: list[tuple[int, ...]] = []
        self.random = random.Random(seed)
        self._nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._descriptor = os.memfd_create("fusewise-device")
        os.ftruncate(self._descriptor, self._nbytes)
        self._memory = np.frombuffer(mmap.mmap(self._descriptor, self._nbytes), np.uint8)
        self._base = address_of(self._memory)
        self._allocated: dict[int, int] = {}
        self._lost = self._closed = False
        self._interpreter = TritonProcess(
            "fusewise.runtime.gpu.triton_interpret:interpreting",
            (self._descriptor, self._nbytes),
            (self._descriptor,),
            {"TRITON_INTERPRET": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )

    @property
    def name(self) -> str:
        return f"a simulated {self.architecture}"

    @property
    def bus(self) -> str:
        return ""

    @property
    def place(self) -> tuple[int, int]:
        return _CPU

    @property
    def stream(self) -> int | None:
        return None

    @property
    def allocations(self) -> int:
        """How many are held."""
        return len(self._allocated)

    @property
    def allocated_bytes(self) -> int:
        """Of the device's memory, how many are held."""
        return sum(self._allocated.values())

    def allocate(self, nbytes: int) -> int:
        self.check()
        size = max(1, -(-nbytes // _ALIGNMENT)) * _ALIGNMENT
        at = 0
        for start, taken in sorted(self._allocated.items()):
            if at + size + _APART <= start:
                break
            at = start + taken + _APART
        if at + size > self._nbytes:
            free = self._nbytes - sum(self._allocated.values())
            raise DeviceMemoryFull(
                f"{self.name} has no {nbytes:,} bytes of memory left in one piece, and {free:,} of {self._nbytes:,} in all: "
                "use smaller input shapes or a device with more memory"
            )
        self._allocated[at] = size
        self._memory[at : at + size] = _POISON
        return self._base + at

    def free(self, address: int) -> None:
        if self._allocated.pop(address - self._base, None) is None:
            raise LaunchRefused(f"{self.name} gave nothing at {address:#x} that could be given back")

    def pinned(self, nbytes: int) -> np.ndarray:
        self.check()
        self.pinned_bytes += nbytes
        return np.zeros(nbytes, np.uint8)

    def unpin(self, block: np.ndarray) -> None:
        self.pinned_bytes -= block.nbytes

    def holds(self, address: int, nbytes: int) -> bool:
        """Do these bytes lie in one allocation?"""
        at = address - self._base
        return any(start <= at and at + nbytes <= start + size for start, size in self._allocated.items())

    def copy_in(self, address: int, array: np.ndarray) -> None:
        self._bytes(address, array.nbytes)[:] = array.reshape(-1).view(np.uint8)

    def copy_out(self, array: np.ndarray, address: int) -> None:
        array.reshape(-1).view(np.uint8)[:] = self._bytes(address, array.nbytes)

    def copy_within(self, to: int, address: int, nbytes: int) -> None:
        self._bytes(to, nbytes)[:] = self._bytes(address, nbytes)

    def load(self, kernel: GpuKernel, cubin: Cubin | None = None) -> _Function:
        self.check()
        if cubin is not None and not runs_on(cubin.architecture, self.architecture):
            raise WrongArchitecture(
                f"kernel {kernel.symbol!r} was compiled for {cubin.architecture} and does not run on {self.name}: "
                f"compile the model for {self.architecture}"
            )
        if not kernel.source:
            raise LaunchRefused(
                f"kernel {kernel.symbol!r} comes without its source, and nothing else can be run without a GPU"
            )
        return _Function(kernel, id(self))

    def unload(self, function: _Function) -> None:
        """Nothing to do: it is a text."""

    def launch(self, launch: Launch) -> None:
        self.check()
        number, self.launches = self.launches, self.launches + 1
        if number == self.lost_after:
            self._lost = True
            self.check()
        function = launch.function
        if not isinstance(function, _Function) or function.owner != id(self):
            raise LaunchRefused(f"{self.name} is to launch what it never loaded")
        kernel = function.kernel
        who = f"kernel {kernel.symbol!r}" + (f" ({launch.label})" if launch.label else "")
        for address, name, boundary in zip(launch.arguments, kernel.arguments, kernel.alignments, strict=True):
            if address % boundary:
                raise LaunchRefused(f"{who} is given {name!r} at {address:#x}, which is no multiple of {boundary}")
        answer, _ = self._interpreter.ask(
            {
                "symbol": kernel.symbol,
                "source": kernel.source,
                "types": kernel.types,
                "grid": launch.grid,
                "arguments": [address - self._base for address in launch.arguments],
                "reads": self._offsets(launch.reads, who),
                "writes": self._offsets(launch.writes, who),
            }
        )
        if "error" in answer:
            kind = BrokenAccess if answer["error"] == "OutsideSpans" else FusewiseError
            raise kind(f"{who}: {answer['text']}")
        self.clock_us += self.takes(kernel)

    def graph(self, launches: Sequence[Launch], edges: Sequence[tuple[int, int]]) -> FakeGraph:
        self.check()
        return FakeGraph(self, launches, edges)

    def synchronise(self) -> None:
        self.check()

    def timed(self, works: Sequence[Callable[[], object]]) -> list[float]:
        found = []
        for work in works:
            begin = self.clock_us
            work()
            found.append(self.clock_us - begin)
        return found

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._interpreter.close()
            os.close(self._descriptor)

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()

    def check(self) -> None:
        if self._lost or self._closed:
            raise DeviceLost(f"{self.name} is lost: what lies there is gone, and the model has to be loaded again")

    def _bytes(self, address: int, nbytes: int) -> np.ndarray:
        self.check()
        if nbytes and not self.holds(address, nbytes):
            raise BrokenAccess(
                f"{nbytes:,} bytes at {address:#x} of {self.name} are to be copied, and lie in no allocation"
            )
        return self._memory[address - self._base :][:nbytes]

    def _offsets(self, spans: Sequence[Span], who: str) -> list[tuple[int, int]]:
        """Ranges in the shared memory."""
        for one in spans:
            if one.nbytes and not self.holds(one.address, one.nbytes):
                raise BrokenAccess(f"{who} names {one.nbytes:,} bytes at {one.address:#x}, which lie in no allocation")
        return [(one.address - self._base, one.nbytes) for one in spans if one.nbytes]


class FakeGraph:
    """Launches, run one by one in some order that the edges allow."""

    def __init__(self, driver: FakeDriver, launches: Sequence[Launch], edges: Sequence[tuple[int, int]]) -> None:
        self._driver, self._launches = driver, list(launches)
        self._after: list[list[int]] = [[] for _ in launches]
        self._waits = [0] * len(launches)
        for first, second in dict.fromkeys(edges):
            if not 0 <= first < second < len(launches):
                raise LaunchRefused(f"a graph of {len(launches)} launches has an edge from {first} to {second}")
            self._after[first].append(second)
            self._waits[second] += 1

    def launch(self) -> None:
        waits, order = list(self._waits), list[int]()
        ready = [number for number, count in enumerate(waits) if not count]
        while ready:
            number = ready.pop(self._driver.random.randrange(len(ready)))
            self._driver.launch(self._launches[number])
            order.append(number)
            for later in self._after[number]:
                waits[later] -= 1
                if not waits[later]:
                    ready.append(later)
        self._driver.orders.append(tuple(order))

    def point(self, number: int, launch: Launch) -> None:
        self._launches[number] = launch

    def close(self) -> None:
        self._launches.clear()
