"""NVIDIA's driver, through its own `cuda-bindings`: neither PyTorch nor the CUDA toolkit is needed.

Everything happens in the device's primary context, which PyTorch and others share, and it is the thread's current one only
while this module calls. Tried on a stand-in for the bindings; it has not run on a GPU yet.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.errors import FusewiseError, InvalidModel
from fusewise.records import record
from fusewise.runtime.arena import address_of
from fusewise.runtime.gpu.driver import (
    Cubin,
    DeviceLost,
    DeviceMemoryFull,
    Launch,
    LaunchRefused,
    NoDevice,
    NoDriver,
    WrongArchitecture,
    runs_on,
)

__all__ = ["CudaDriver"]

_DLPACK_CUDA = 2
_PLAIN_SHARED_BYTES = 48 * 1024
"""What a block may have of shared memory without asking."""


def _rows(kind: type[FusewiseError], names: str) -> dict[str, type[FusewiseError]]:
    return {f"CUDA_ERROR_{name}": kind for name in names.split()}


_KINDS = MappingProxyType(
    _rows(DeviceMemoryFull, "OUT_OF_MEMORY")
    | _rows(NoDevice, "NO_DEVICE INVALID_DEVICE")
    | _rows(
        NoDriver, "NOT_INITIALIZED STUB_LIBRARY SYSTEM_DRIVER_MISMATCH COMPAT_NOT_SUPPORTED_ON_DEVICE SYSTEM_NOT_READY"
    )
    | _rows(NoDriver, "CALL_REQUIRES_NEWER_DRIVER INSUFFICIENT_LOADER_VERSION")
    | _rows(WrongArchitecture, "NO_BINARY_FOR_GPU INVALID_IMAGE INVALID_PTX UNSUPPORTED_PTX_VERSION")
    | _rows(
        DeviceLost, "ILLEGAL_ADDRESS LAUNCH_FAILED LAUNCH_TIMEOUT ASSERT ECC_UNCORRECTABLE NVLINK_UNCORRECTABLE UNKNOWN"
    )
    | _rows(
        DeviceLost,
        "HARDWARE_STACK_ERROR ILLEGAL_INSTRUCTION MISALIGNED_ADDRESS INVALID_ADDRESS_SPACE INVALID_PC CONTAINED",
    )
    | _rows(DeviceLost, "CONTEXT_IS_DESTROYED DEVICE_UNAVAILABLE EXTERNAL_DEVICE DEINITIALIZED MPS_CLIENT_TERMINATED")
)
"""What the driver's errors are to a user; all others are `LaunchRefused`."""

_ADVICE: MappingProxyType[type[FusewiseError], str] = MappingProxyType(
    {
        DeviceMemoryFull: "use smaller input shapes, or a device with more memory",
        NoDevice: "see which there are with nvidia-smi",
        NoDriver: "install a driver of NVIDIA's that fits the GPU",
        WrongArchitecture: "compile the model for this device",
        DeviceLost: "what lies there is gone, and the model has to be loaded again",
    }
)


@record(frozen=True, slots=True)
class _Function:
    """A kernel on the device."""

    handle: Any
    cubin: Cubin
    module: Any


class CudaDriver:
    """Device number `number` of this machine. `bindings` are those of `cuda.bindings.driver`."""

    def __init__(self, number: int = 0, bindings: Any = None) -> None:
        self._lost = self._closed = False
        self._cuda = _bindings() if bindings is None else bindings
        self._allocated: dict[int, int] = {}
        self._pinned: list[int] = []
        self._modules: list[Any] = []
        self._number = number
        self._device: Any = None
        self._context: Any = None
        self._stream: Any = None
        self.name = f"GPU {number}"
        self._start()
        self._device = self._call("cuDeviceGet", number)
        self.name = f"{_text(self._call('cuDeviceGetName', 128, self._device))} (GPU {number})"
        of = self._cuda.CUdevice_attribute
        major = self._call("cuDeviceGetAttribute", of.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self._device)
        minor = self._call("cuDeviceGetAttribute", of.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, self._device)
        self.architecture = f"sm_{major}{minor}"
        self._context = self._call("cuDevicePrimaryCtxRetain", self._device)
        try:
            with self._here():
                flag = self._cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
                self._stream = self._call("cuStreamCreate", flag.value)
        except BaseException:
            self.close()
            raise

    @property
    def bus(self) -> str:
        return _text(self._call("cuDeviceGetPCIBusId", 32, self._device))

    @property
    def place(self) -> tuple[int, int]:
        return _DLPACK_CUDA, self._number

    @property
    def stream(self) -> int | None:
        return int(self._stream)

    def check(self) -> None:
        if self._closed:
            raise DeviceLost(f"{self.name} was closed: load the model again")
        if self._lost:
            raise DeviceLost(f"{self.name} is lost: {_ADVICE[DeviceLost]}")

    def allocate(self, nbytes: int) -> int:
        with self._here():
            address = int(self._call("cuMemAlloc", max(1, nbytes), what=f"{nbytes:,} bytes of memory"))
        self._allocated[address] = nbytes
        return address

    def free(self, address: int) -> None:
        if self._allocated.pop(address, None) is None:
            raise LaunchRefused(f"{self.name} gave nothing at {address:#x} that could be given back")
        with self._here():
            self._call("cuMemFree", address)

    def pinned(self, nbytes: int) -> np.ndarray:
        what = f"{nbytes:,} bytes of the host's memory, kept where it is"
        with self._here():
            address = int(self._call("cuMemHostAlloc", max(1, nbytes), 0, what=what))
        self._pinned.append(address)
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))

    def unpin(self, block: np.ndarray) -> None:
        address = address_of(block)
        self._pinned.remove(address)
        with self._here():
            self._call("cuMemFreeHost", address)

    def holds(self, address: int, nbytes: int) -> bool:
        of = self._cuda.CUpointer_attribute
        with self._here():
            result = self._cuda.cuPointerGetAttribute(of.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)
        return result[0].name == "CUDA_SUCCESS" and int(result[1]) == self._number

    def copy_in(self, address: int, array: np.ndarray) -> None:
        if array.nbytes:
            with self._here():
                self._call("cuMemcpyHtoDAsync", address, address_of(array), array.nbytes, self._stream)

    def copy_out(self, array: np.ndarray, address: int) -> None:
        if array.nbytes:
            with self._here():
                self._call("cuMemcpyDtoHAsync", address_of(array), address, array.nbytes, self._stream)

    def copy_within(self, to: int, address: int, nbytes: int) -> None:
        if nbytes:
            with self._here():
                self._call("cuMemcpyDtoDAsync", to, address, nbytes, self._stream)

    def load(self, kernel: GpuKernel, cubin: Cubin | None) -> _Function:
        if cubin is None:
            raise LaunchRefused(f"kernel {kernel.symbol!r} is to be run by a GPU and was not compiled")
        what = f"kernel {kernel.symbol!r}, compiled for {cubin.architecture},"
        if not runs_on(cubin.architecture, self.architecture):
            raise WrongArchitecture(
                f"{what} does not run on {self.name}, which is {self.architecture}: compile the model for {self.architecture}"
            )
        with self._here():
            module = self._call("cuModuleLoadData", cubin.image, what=what)
            self._modules.append(module)
            try:
                return _Function(self._function(module, cubin, what), cubin, module)
            except BaseException:
                self._modules.remove(module)
                with suppress(FusewiseError):
                    self._call("cuModuleUnload", module)
                raise

    def _function(self, module: Any, cubin: Cubin, what: str) -> Any:
        """The kernel of a module, allowed the shared memory that it needs."""
        handle = self._call("cuModuleGetFunction", module, cubin.symbol.encode(), what=what)
        if self._takes_others(handle, cubin.parameters + cubin.hidden):
            raise InvalidModel(
                f"{what} does not take the {cubin.parameters} pointers that its file says: compile it again"
            )
        if cubin.shared_bytes > _PLAIN_SHARED_BYTES:
            asked = self._cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", handle, asked, cubin.shared_bytes, what=what)
        return handle

    def _takes_others(self, handle: Any, count: int) -> bool:
        """Does the machine code of a kernel have others than so many parameters of 8 bytes? A launch reads as many as it has.
        Drivers before CUDA 12.4 do not tell."""
        tell = getattr(self._cuda, "cuFuncGetParamInfo", None)
        if tell is None:
            return False
        for number in range(count + 1):
            try:
                status, *found = tell(handle, number)
            except RuntimeError:  # the bindings do not find it in the driver
                return False
            if status.name != "CUDA_SUCCESS":
                return False
            if number == count or [int(one) for one in found] != [8 * number, 8]:
                return True
        return False

    def unload(self, function: _Function) -> None:
        with self._here():
            self._modules.remove(function.module)
            self._call("cuModuleUnload", function.module)

    def launch(self, launch: Launch) -> None:
        cubin, (_, pointers) = launch.function.cubin, _pointers(launch)
        grid = (*launch.grid, 1, 1)[:3]
        with self._here():
            self._call(
                *(
                    "cuLaunchKernel",
                    launch.function.handle,
                    *grid,
                    cubin.threads,
                    1,
                    1,
                    cubin.shared_bytes,
                    self._stream,
                ),
                *(address_of(pointers), 0),
                what=f"kernel {cubin.symbol!r}",
            )

    def graph(self, launches: Sequence[Launch], edges: Sequence[tuple[int, int]]) -> CudaGraph:
        with self._here():
            return CudaGraph(self, launches, edges)

    def synchronise(self) -> None:
        with self._here():
            self._call("cuStreamSynchronize", self._stream)

    def timed(self, works: Sequence[Callable[[], object]]) -> list[float]:
        events: list[Any] = []
        try:
            for _ in range(len(works) + 1):
                with self._here():
                    events.append(self._call("cuEventCreate", 0))
            self._record(events[0])
            for work, event in zip(works, events[1:], strict=True):
                work()
                self._record(event)
            self.synchronise()
            with self._here():
                return [1e3 * self._call("cuEventElapsedTime", *pair) for pair in pairwise(events)]
        finally:
            with suppress(FusewiseError), self._here():
                for event in events:
                    self._call("cuEventDestroy", event)

    def _record(self, event: Any) -> None:
        with self._here():
            self._call("cuEventRecord", event, self._stream)

    def close(self) -> None:
        if self._closed:
            return
        if self._context is not None:
            with suppress(FusewiseError), self._here():
                given_back = [("cuModuleUnload", one) for one in self._modules]
                given_back += [("cuMemFree", address) for address in self._allocated]
                given_back += [("cuMemFreeHost", address) for address in self._pinned]
                given_back += [("cuStreamDestroy", self._stream)] if self._stream is not None else []
                for name, one in given_back:
                    with suppress(FusewiseError):
                        self._call(name, one)
            self._lost = False  # to a device that is lost this may be said, too
            with suppress(FusewiseError):
                self._call("cuDevicePrimaryCtxRelease", self._device)
        self._closed = True

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()

    def _start(self) -> None:
        try:
            self._call("cuInit", 0)
        except RuntimeError as error:  # the bindings look for the library when it is first called
            raise NoDriver("there is no driver of NVIDIA's on this machine: to run on a GPU needs one") from error

    @contextmanager
    def _here(self) -> Iterator[None]:
        """The device's context is the thread's current one."""
        self.check()
        self._call("cuCtxPushCurrent", self._context)
        try:
            yield
        finally:
            self._cuda.cuCtxPopCurrent()

    def _call(self, function: str, *arguments: Any, what: str = "") -> Any:
        """What a function of the driver gives beside its status, which is made an error about `what`."""
        if self._lost:
            raise DeviceLost(f"{self.name} is lost: {_ADVICE[DeviceLost]}")
        status, *found = getattr(self._cuda, function)(*arguments)
        if status.name != "CUDA_SUCCESS":
            kind = _KINDS.get(status.name, LaunchRefused)
            self._lost = kind is DeviceLost
            about = f"{what}: " if what else ""
            advice = f": {_ADVICE[kind]}" if kind in _ADVICE else ""
            raise kind(f"{about}{self.name} says {status.name} ({self._meaning(status)}) to {function}{advice}")
        return found[0] if len(found) == 1 else found

    def _meaning(self, status: Any) -> str:
        _, text = self._cuda.cuGetErrorString(status)
        return text.decode(errors="replace") if isinstance(text, bytes) else "an error without a text"


class CudaGraph:
    """One graph of explicit nodes. Made and used in the driver's context."""

    def __init__(self, driver: CudaDriver, launches: Sequence[Launch], edges: Sequence[tuple[int, int]]) -> None:
        self._driver, self._cuda, self._call = driver, driver._cuda, driver._call
        waits: list[list[int]] = [[] for _ in launches]
        for first, second in dict.fromkeys(edges):
            if not 0 <= first < second < len(launches):
                raise LaunchRefused(f"a graph of {len(launches)} launches has an edge from {first} to {second}")
            waits[second].append(first)
        self._graph = self._call("cuGraphCreate", 0)
        self._ready = None
        self._nodes: list[Any] = []
        try:
            for launch, before in zip(launches, waits, strict=True):
                node, _kept = self._node(launch)
                known = [self._nodes[number] for number in before]
                what = f"kernel {launch.function.cubin.symbol!r}"
                made = self._call("cuGraphAddKernelNode", self._graph, known or None, len(known), node, what=what)
                self._nodes.append(made)
            self._ready = self._call("cuGraphInstantiate", self._graph, 0, what=f"a graph of {len(launches)} launches")
        except BaseException:
            with suppress(FusewiseError):
                self._destroy()
            raise

    def launch(self) -> None:
        with self._driver._here():
            self._call("cuGraphLaunch", self._ready, self._driver._stream)

    def point(self, number: int, launch: Launch) -> None:
        node, _kept = self._node(launch)
        with self._driver._here():
            self._call("cuGraphExecKernelNodeSetParams", self._ready, self._nodes[number], node)

    def close(self) -> None:
        with suppress(FusewiseError), self._driver._here():
            self._destroy()

    def _destroy(self) -> None:
        ready, graph, self._ready, self._graph = self._ready, self._graph, None, None
        try:
            if ready is not None:
                self._call("cuGraphExecDestroy", ready)
        finally:
            if graph is not None:
                self._call("cuGraphDestroy", graph)

    def _node(self, launch: Launch) -> tuple[Any, Any]:
        """The parameters of a node, and what has to live until the driver has copied them."""
        cubin, kept = launch.function.cubin, _pointers(launch)
        node = self._cuda.CUDA_KERNEL_NODE_PARAMS()
        node.func = launch.function.handle
        node.gridDimX, node.gridDimY, node.gridDimZ = (*launch.grid, 1, 1)[:3]
        node.blockDimX, node.blockDimY, node.blockDimZ = cubin.threads, 1, 1
        node.sharedMemBytes = cubin.shared_bytes
        node.kernelParams = address_of(kept[1])
        return node, kept


def _text(told: bytes) -> str:
    """What the driver wrote, up to the first zero."""
    return told.split(bytes(1))[0].decode(errors="replace")


def _pointers(launch: Launch) -> tuple[np.ndarray, np.ndarray]:
    """A kernel's arguments, the hidden ones null, and where each of them lies; uint64 both."""
    cubin: Cubin = launch.function.cubin
    if len(launch.arguments) != cubin.parameters:
        raise LaunchRefused(
            f"kernel {cubin.symbol!r} takes {cubin.parameters} pointers and gets {len(launch.arguments)}"
        )
    values = np.array([*launch.arguments, *[0] * cubin.hidden], np.uint64)
    return values, np.arange(values.size, dtype=np.uint64) * np.uint64(8) + np.uint64(address_of(values))


def _bindings() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise NoDriver(
            f"a GPU is called through cuda-bindings, which is not installed ({error}): pip install 'fusewise[gpu]'"
        ) from error
    return driver
