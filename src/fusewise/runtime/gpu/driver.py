"""What a GPU is asked for: memory, copies, launches, graphs. `runtime.gpu.cuda` is NVIDIA's driver, `runtime.gpu.fake` runs
without a GPU.

Work is given to one stream of the device and done in that order; `synchronise` waits for it. Addresses are the device's, as
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.errors import FusewiseError, ResourceLimit, UsageError
from fusewise.records import record

__all__ = [
    "BrokenAccess",
    "Cubin",
    "DeviceLost",
    "DeviceMemoryFull",
    "Driver",
    "Launch",
    "LaunchGraph",
    "LaunchRefused",
    "NoDevice",
    "NoDriver",
    "NoTriton",
    "Span",
    "WrongArchitecture",
    "runs_on",
]


class NoDriver(UsageError):
    """There is no driver of a GPU, or none that can be used, or the package that calls it is missing."""


class NoDevice(UsageError):
    """A driver is there, but no GPU, or none by that number."""


class NoTriton(UsageError):
    """A kernel has to be compiled, and Triton is not installed."""


class WrongArchitecture(UsageError):
    """A kernel was compiled for another GPU than this one."""


class DeviceMemoryFull(ResourceLimit):
    """The device has no more memory to give."""


class LaunchRefused(FusewiseError):
    """The driver refuses a kernel, a launch or a graph: a fault of ours."""


class BrokenAccess(FusewiseError):
    """A kernel touched memory that is none of its operands: a fault of ours."""


class DeviceLost(FusewiseError):
    """The device stopped answering, or an earlier error made everything on it invalid."""


@record(frozen=True, slots=True)
class Cubin:
    """A kernel compiled for one architecture (`sm_80`; `sm_90a` runs on sm_90 alone).

    `image` is the ELF file. `registers` of a thread, `shared_bytes` of a block, `stack_bytes` of a thread's memory: there
    spilled registers lie, and what the slow way of some functions needs. `tensor_instructions` counts those in PTX that
    multiply tiles. A block has `threads`; behind the kernel's own `parameters` pointers come `hidden` ones, which are null.
    """

    symbol: str
    architecture: str
    image: bytes
    registers: int
    shared_bytes: int
    stack_bytes: int
    tensor_instructions: int
    threads: int
    parameters: int
    hidden: int

    @property
    def spills(self) -> bool:
        """Does a thread need memory beside its registers?"""
        return self.stack_bytes > 0


@record(frozen=True, slots=True)
class Span:
    """Bytes of device memory from `address` on."""

    address: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel that the driver loaded (`function`), over `grid` blocks, with pointers to `arguments`.

    It touches nothing but `reads` and `writes`, which a driver may check. `label` is for people.
    """

    function: Any
    grid: tuple[int, ...]
    arguments: tuple[int, ...]
    reads: tuple[Span, ...] = ()
    writes: tuple[Span, ...] = ()
    label: str = ""


class LaunchGraph(Protocol):
    """Launches that wait for each other, ready to run as often as wanted."""

    def launch(self) -> None:
        """Give it to the stream."""

    def point(self, number: int, launch: Launch) -> None:
        """From the next run on, launch number `number` is this one: the same kernel and grid, other pointers."""

    def close(self) -> None:
        """Let go of it. It is not used afterwards."""


class Driver(Protocol):
    """One device. Its methods may be called from one thread at a time.

    All raise `DeviceLost` once the device is lost.
    """

    @property
    def architecture(self) -> str:
        """`sm_90` and the like."""

    @property
    def name(self) -> str:
        """What its maker calls it."""

    @property
    def bus(self) -> str:
        """Where it is plugged in (`0000:01:00.0`), by which other programs know it; empty where nobody tells."""

    @property
    def place(self) -> tuple[int, int]:
        """Kind and number of the device as DLPack names them."""

    @property
    def stream(self) -> int | None:
        """The stream as DLPack's producers want it; None where there is none to tell."""

    def check(self) -> None:
        """Raise `DeviceLost` where the device is lost, or the driver closed: then what it gave is gone, `pinned` memory too."""

    def allocate(self, nbytes: int) -> int:
        """The address of so many bytes, at least one, on a boundary of 256; contents undefined. `DeviceMemoryFull` when there
        are none."""

    def free(self, address: int) -> None:
        """Give back what `allocate` gave."""

    def pinned(self, nbytes: int) -> np.ndarray:
        """uint8[nbytes] of the host's memory that copies are fast from and to, until it is given back or the driver is closed."""

    def unpin(self, block: np.ndarray) -> None:
        """Give back what `pinned` gave. Nothing reads or writes it afterwards."""

    def holds(self, address: int, nbytes: int) -> bool:
        """Are these bytes memory of the device, whoever allocated them?"""

    def copy_in(self, address: int, array: np.ndarray) -> None:
        """Copy a C-contiguous array to the device. It is not written to until `synchronise` returned."""

    def copy_out(self, array: np.ndarray, address: int) -> None:
        """Copy to a C-contiguous array, which is whole when `synchronise` returned."""

    def copy_within(self, to: int, address: int, nbytes: int) -> None:
        """Copy on the device."""

    def load(self, kernel: GpuKernel, cubin: Cubin | None) -> Any:
        """What `Launch.function` takes: a GPU runs the `cubin`, a driver without one the source. `WrongArchitecture` for that
        of another GPU."""

    def unload(self, function: Any) -> None:
        """Let go of what `load` gave. Nothing launches it any more."""

    def launch(self, launch: Launch) -> None:
        """Give one launch to the stream."""

    def graph(self, launches: Sequence[Launch], edges: Sequence[tuple[int, int]]) -> LaunchGraph:
        """Launches of which the second of each pair of `edges` waits for the first; numbers are places in `launches`."""

    def synchronise(self) -> None:
        """Wait until everything is done."""

    def timed(self, works: Sequence[Callable[[], object]]) -> list[float]:
        """Call each of `works`, which give work to the stream, one after the other: microseconds of the device's clock for
        each, when all is done. What the device waits for to be given work counts as well."""

    def close(self) -> None:
        """Give everything back. It is not used afterwards; twice is no error."""


def runs_on(compiled: str, device: str) -> bool:
    """Does code for one architecture run on a device of another? Code for sm_80 does on 8.6, too; that with a letter on its
    own alone."""
    number, own = compiled.removeprefix("sm_"), int(device.removeprefix("sm_"))
    if not number.isdigit():
        return number.rstrip("af").isdigit() and int(number.rstrip("af")) == own
    return int(number) // 10 == own // 10 and int(number) <= own
