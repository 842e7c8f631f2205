"""Kernels to cubins, by Triton, for any architecture and without a GPU; kept on disk by what they are.

A kernel's key is all that its machine code depends on: the text, what its pointers point to and how they are aligned, warps
and stages, the architecture, whether multiplications and additions may be contracted, and the version of Triton. What writes
the text is not part of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from importlib import metadata
from queue import SimpleQueue
from types import MappingProxyType, TracebackType
from typing import Any

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import IMPORTS, GpuKernel
from fusewise.errors import FusewiseError
from fusewise.runtime.cache import KernelCache
from fusewise.runtime.gpu.driver import Cubin
from fusewise.runtime.gpu.process import TritonProcess, TritonStopped, require_triton

__all__ = ["TritonCompiler", "compiled"]

_FORM = 3
"""Changes with what is asked of Triton, and with how a cubin is kept."""

_ENVIRONMENT = MappingProxyType({"TRITON_INTERPRET": "0", "TRITON_DISABLE_LINE_INFO": "1"})
"""Of the compiler's processes. Where a kernel's text lay would be in its cubin, which would be another one every time."""

_JOB = "fusewise.runtime.gpu.triton_compile:compiling"


def compiled(kernel: GpuKernel, device: Device, *, contracted: bool = True, store: KernelCache | None = None) -> Cubin:
    """One kernel for one architecture, as `TritonCompiler` makes it."""
    with TritonCompiler() as compiler:
        return compiler.compile([kernel], device, contracted=contracted, store=store)[0]


class TritonCompiler:
    """Compiles kernels in so many `processes` of their own, which are started when something has to be compiled and end with
    `close`, or with the `with` statement that this is used in."""

    def __init__(self, processes: int = 1) -> None:
        self._count = processes
        self._processes: SimpleQueue[TritonProcess] = SimpleQueue()
        self._all = tuple(TritonProcess(_JOB, environment=_ENVIRONMENT) for _ in range(processes))
        for process in self._all:
            self._processes.put(process)

    def __enter__(self) -> TritonCompiler:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        for _ in range(self._count):
            self._processes.get().close()
        self._count = 0

    def compile(
        self,
        kernels: Sequence[GpuKernel],
        device: Device,
        *,
        contracted: bool = True,
        store: KernelCache | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Cubin]:
        """A cubin of each kernel, from `store` where it has been made before; those that follow one (`then`) are kernels of
        their own.

        A multiplication and an addition become one rounding where `contracted`. `progress` is told how many are done, and of
        how many. Raises `NoTriton`, and `FusewiseError` with the kernel's name for one that Triton refuses.
        """
        keys = [_key(kernel, contracted) for kernel in kernels]
        found = _stored(store, list(dict.fromkeys(keys)), device)
        missing = {key: kernel for key, kernel in zip(keys, kernels, strict=True) if key not in found}
        if missing:
            made = self._made(missing, device, contracted, progress)
            if store is not None:
                store.store({key: _packed(cubin) for key, cubin in made.items()}, set(made), _context(device))
            found |= made
        return [found[key] for key in keys]

    def assembly(self, kernel: GpuKernel, device: Device, *, contracted: bool = True) -> str:
        """A kernel in PTX, NVIDIA's assembly language, of which its cubin is made. Raises what `compile` raises."""
        require_triton()
        process = self._processes.get()
        try:
            return _answer(process, kernel, device, contracted, want="ptx")[1].decode()
        finally:
            self._processes.put(process)

    def _made(
        self,
        missing: Mapping[str, GpuKernel],
        device: Device,
        contracted: bool,
        progress: Callable[[int, int], None] | None,
    ) -> dict[str, Cubin]:
        require_triton()

        def one(kernel: GpuKernel) -> Cubin:
            process = self._processes.get()
            try:
                return _asked(process, kernel, device, contracted)
            finally:
                self._processes.put(process)

        made: dict[str, Cubin] = {}
        with ThreadPoolExecutor(self._count, "fusewise-triton") as threads:
            waiting = {threads.submit(one, kernel): key for key, kernel in missing.items()}
            try:
                for done in as_completed(waiting):
                    made[waiting[done]] = done.result()
                    if progress is not None:
                        progress(len(made), len(missing))
            except BaseException as error:
                threads.shutdown(wait=False, cancel_futures=True)
                if not isinstance(error, FusewiseError):  # an interrupt, say: nobody waits for what is being compiled
                    for process in self._all:
                        process.interrupt()
                raise
        return {key: made[key] for key in missing}


def _asked(process: TritonProcess, kernel: GpuKernel, device: Device, contracted: bool) -> Cubin:
    figures, image = _answer(process, kernel, device, contracted)
    cubin = Cubin(symbol=kernel.symbol, image=image, **figures)
    if cubin.shared_bytes > device.shared_per_block:
        raise FusewiseError(
            f"{_named(kernel, device)} needs {cubin.shared_bytes:,} bytes of shared memory, and a block has "
            f"{device.shared_per_block:,}"
        )
    return cubin


def _answer(
    process: TritonProcess, kernel: GpuKernel, device: Device, contracted: bool, want: str = "cubin"
) -> tuple[dict[str, Any], bytes]:
    """Figures of a kernel, and the form of it that is wanted."""
    request = {name: getattr(kernel, name) for name in ("symbol", "source", "types", "alignments", "warps", "stages")}
    asked = {**request, "capability": device.capability, "contracted": contracted, "want": want}
    try:
        figures, image = process.ask(asked)
    except TritonStopped as error:
        raise TritonStopped(f"{_named(kernel, device)}: {error}") from error
    if "error" in figures:
        raise FusewiseError(f"Triton does not compile {_named(kernel, device)}: {figures['text']} ({figures['error']})")
    return figures, image


def _named(kernel: GpuKernel, device: Device) -> str:
    return f"kernel {kernel.symbol!r} for {device.name}"


# --- on disk --------------------------------------------------------------------------------------------------------------


def _key(kernel: GpuKernel, contracted: bool) -> str:
    launched = (kernel.symbol, kernel.types, kernel.alignments, kernel.warps, kernel.stages, contracted)
    return f"{launched}\n{IMPORTS}{kernel.source}"


def _context(device: Device) -> str:
    try:
        version = metadata.version("triton")
    except metadata.PackageNotFoundError:
        version = "none"  # what is kept was made by some version, whose name is not this
    return f"cubin {_FORM} {device.name} triton {version}"


def _stored(store: KernelCache | None, keys: list[str], device: Device) -> dict[str, Cubin]:
    images = {} if store is None else store.fetch(keys, _context(device))
    return {key: _unpacked(image) for key, image in images.items()}


def _packed(cubin: Cubin) -> bytes:
    figures: dict[str, Any] = asdict(cubin)
    image: bytes = figures.pop("image")
    return json.dumps(figures).encode() + b"\n" + image


def _unpacked(data: bytes) -> Cubin:
    figures, image = data.split(b"\n", 1)
    return Cubin(image=image, **json.loads(figures))
