"""A stand-in for `cuda.bindings.driver`: memory is the host's, kernels are NumPy's by the symbol that an image consists of.

It is as strict as a driver: calls need a current context, what it copies at a call is not read again later, and a kernel's hidden
pointers have to be null. `fail` has by function the error that its next call gives.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np
from tests.runtime.gpu.programs import BY_NUMPY, COUNT

ERRORS = (
    *("SUCCESS", "ERROR_OUT_OF_MEMORY", "ERROR_NO_DEVICE", "ERROR_STUB_LIBRARY", "ERROR_NO_BINARY_FOR_GPU"),
    *("ERROR_ILLEGAL_ADDRESS", "ERROR_INVALID_VALUE", "ERROR_ECC_UNCORRECTABLE", "ERROR_SYSTEM_DRIVER_MISMATCH"),
)
CUresult = IntEnum("CUresult", [(f"CUDA_{name}", number) for number, name in enumerate(ERRORS)])
OK = CUresult.CUDA_SUCCESS
FREE = (
    "cuInit",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
)
FREE = (*FREE, "cuDevicePrimaryCtxRelease", "cuCtxPushCurrent", "cuGetErrorString")
"""Functions that need no context."""


class Bindings:
    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR="major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR="minor"
    )
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=SimpleNamespace(value=1))
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared")
    CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL="ordinal")
    CUDA_KERNEL_NODE_PARAMS = SimpleNamespace

    def __init__(self, capability: tuple[int, int] = (9, 0)) -> None:
        self.capability = capability
        self.fail: dict[str, str] = {}
        self.called: list[str] = []
        self.current: list[Any] = []
        self.retained = 0
        self.memory: dict[int, Any] = {}
        self.held: set[Any] = set()
        self.shared: dict[str, int] = {}
        self.kept = 0
        self.launched = 0
        self.parameters: list[tuple[int, int]] | None = None

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not name.startswith("cu"):
            return found

        def call(*arguments: Any) -> Any:
            self.called.append(name)
            if name in self.fail:
                return CUresult[self.fail.pop(name)], None
            assert name in FREE or self.current, f"{name} without a context"
            return found(*arguments)

        return call if name not in ("current", "capability", "called") else found

    def cuInit(self, flags: int) -> Any:
        return (OK,)

    def cuDeviceGet(self, number: int) -> Any:
        return OK, number

    def cuDeviceGetName(self, length: int, device: int) -> Any:
        return OK, b"NVIDIA Stand-in".ljust(length, b"\0")

    def cuDeviceGetPCIBusId(self, length: int, device: int) -> Any:
        return OK, b"0000:3B:00.0".ljust(length, b"\0")

    def cuDeviceGetAttribute(self, attribute: str, device: int) -> Any:
        return OK, self.capability[attribute == "minor"]

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        self.retained += 1
        return OK, "context"

    def cuDevicePrimaryCtxRelease(self, device: int) -> Any:
        self.retained -= 1
        return (OK,)

    def cuCtxPushCurrent(self, context: Any) -> Any:
        assert context == "context"
        self.current.append(context)
        return (OK,)

    def cuCtxPopCurrent(self) -> Any:
        return OK, self.current.pop()

    def cuGetErrorString(self, status: Any) -> Any:
        return OK, status.name.lower().encode()

    def _new(self, sort: str) -> Any:
        self.kept += 1
        self.held.add((sort, self.kept))
        return sort, self.kept

    def cuStreamCreate(self, flags: int) -> Any:
        self.held.add(7)
        return OK, 7

    def cuStreamDestroy(self, stream: int) -> Any:
        self.held.remove(stream)
        return (OK,)

    def cuEventCreate(self, flags: int) -> Any:
        assert flags == 0
        event = SimpleNamespace(key=self._new("event"), at=None)
        return OK, event

    def cuEventRecord(self, event: Any, stream: int) -> Any:
        assert event.key in self.held
        assert stream in self.held
        event.at = self.launched
        return (OK,)

    def cuEventElapsedTime(self, first: Any, second: Any) -> Any:
        """Milliseconds: one for each launch between two."""
        return OK, float(second.at - first.at)

    def cuEventDestroy(self, event: Any) -> Any:
        self.held.remove(event.key)
        return (OK,)

    def cuStreamSynchronize(self, stream: int) -> Any:
        assert stream in self.held
        return (OK,)

    def _allocated(self, nbytes: int) -> Any:
        block = ctypes.create_string_buffer(nbytes + 256)
        address = -(-ctypes.addressof(block) // 256) * 256
        self.memory[address] = block
        return OK, address

    def cuMemAlloc(self, nbytes: int) -> Any:
        return self._allocated(nbytes)

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> Any:
        return self._allocated(nbytes)

    def cuMemFree(self, address: int) -> Any:
        del self.memory[address]
        return (OK,)

    cuMemFreeHost = cuMemFree

    def cuPointerGetAttribute(self, attribute: str, address: int) -> Any:
        inside = any(start <= address < start + len(block) for start, block in self.memory.items())
        return (OK, 0) if inside else (CUresult.CUDA_ERROR_INVALID_VALUE, None)

    def cuMemcpyHtoDAsync(self, to: int, source: int, nbytes: int, stream: int) -> Any:
        ctypes.memmove(to, source, nbytes)
        return (OK,)

    cuMemcpyDtoHAsync = cuMemcpyDtoDAsync = cuMemcpyHtoDAsync

    def cuModuleLoadData(self, image: bytes) -> Any:
        module = self._new("module")
        return OK, (*module, image.decode())

    def cuModuleUnload(self, module: Any) -> Any:
        self.held.remove(module[:2])
        return (OK,)

    def cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        assert name.decode() == module[2]
        return OK, module[2]

    def cuFuncGetParamInfo(self, function: str, number: int) -> Any:
        """Where a parameter of a kernel lies, and its size; an old driver has no such function."""
        if self.parameters is None:
            raise RuntimeError('Function "cuFuncGetParamInfo" not found')
        if number >= len(self.parameters):
            return CUresult.CUDA_ERROR_INVALID_VALUE, None, None
        return OK, *self.parameters[number]

    def cuFuncSetAttribute(self, function: str, attribute: str, value: int) -> Any:
        self.shared[function] = value
        return (OK,)

    def cuLaunchKernel(self, function: str, x: int, y: int, z: int, *rest: Any) -> Any:
        threads, _, _, shared, _stream, pointers, extra = rest
        assert extra == 0
        self._run(*self._read(function, (x, y, z), threads, pointers, shared))
        return (OK,)

    def _read(self, function: str, grid: tuple[int, ...], threads: int, pointers: int, shared: int) -> Any:
        """A launch's arguments, as they are now."""
        assert grid == (-(-COUNT // 64), 1, 1)
        assert threads == 128
        assert shared <= max(self.shared.get(function, 0), 48 * 1024)
        count = 4 if function == "neg" else 5
        where = (ctypes.c_uint64 * count).from_address(pointers)
        values = [ctypes.c_uint64.from_address(one).value for one in where]
        assert values[-2:] == [0, 0]
        return function, values[:-2]

    def _run(self, function: str, values: list[int]) -> None:
        arrays = [np.ctypeslib.as_array((ctypes.c_float * COUNT).from_address(value)) for value in values]
        arrays[-1][:] = BY_NUMPY[function](*arrays[:-1])
        self.launched += 1

    def cuGraphCreate(self, flags: int) -> Any:
        graph = self._new("graph")
        return OK, SimpleNamespace(key=graph, nodes=[])

    def _node(self, node: Any) -> Any:
        grid = (node.gridDimX, node.gridDimY, node.gridDimZ)
        assert (node.blockDimY, node.blockDimZ) == (1, 1)
        return self._read(node.func, grid, node.blockDimX, node.kernelParams, node.sharedMemBytes)

    def cuGraphAddKernelNode(self, graph: Any, before: Any, count: int, node: Any) -> Any:
        assert count == len(before or ())
        made = SimpleNamespace(number=len(graph.nodes), before=list(before or ()))
        graph.nodes.append((made, self._node(node)))
        return OK, made

    def cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        return OK, SimpleNamespace(key=self._new("ready"), nodes=list(graph.nodes))

    def cuGraphExecKernelNodeSetParams(self, ready: Any, made: Any, node: Any) -> Any:
        ready.nodes[made.number] = (made, self._node(node))
        return (OK,)

    def cuGraphLaunch(self, ready: Any, stream: int) -> Any:
        """The latest launch that may run comes first, so that an edge that is missing shows."""
        waiting, done = list(ready.nodes), set()
        while waiting:
            at = max(k for k, (made, _) in enumerate(waiting) if all(one.number in done for one in made.before))
            made, launch = waiting.pop(at)
            self._run(*launch)
            done.add(made.number)
        return (OK,)

    def cuGraphDestroy(self, graph: Any) -> Any:
        self.held.remove(graph.key)
        return (OK,)

    cuGraphExecDestroy = cuGraphDestroy
