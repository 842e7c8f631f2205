"""One kernel, compiled for one architecture: what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.errors import FusewiseError
from fusewise.runtime.cache import KernelCache
from fusewise.runtime.gpu.compile import TritonCompiler
from fusewise.runtime.gpu.driver import Cubin

__all__ = ["Asked", "Checked", "checked", "family_of", "faults_of", "multiplies_tiles"]

_ANGLES = re.compile(r"libdevice\.(?:sin|cos|tan)\b")
_TABLE_BYTES = 40
"""Of a thread's memory, where libdevice keeps digits of 2 / pi for large angles: no registers are spilled there."""

_DIGEST = re.compile(r"[0-9a-f]{20}")

_PRODUCT = re.compile(r"\btl\.dot(?:_scaled)?\(")
_IEEE = re.compile(r"input_precision\s*=\s*\"ieee\"")


@dataclass(frozen=True)
class Asked:
    """A kernel to compile for a device, of a program in `precision`; `exact` is one here."""

    kernel: GpuKernel
    device: Device
    precision: str


@dataclass(frozen=True)
class Checked:
    """A kernel for a device, what it was compiled to (None where that failed), and what is wrong with it, as phrases."""

    kernel: GpuKernel
    device: Device
    cubin: Cubin | None
    faults: tuple[str, ...]


def family_of(kernel: GpuKernel) -> str:
    """The family that wrote a kernel: its symbol without the digest. What follows one, such as a sum of parts, counts by itself."""
    return "_".join(part for part in kernel.symbol.split("_") if not _DIGEST.fullmatch(part))


def multiplies_tiles(kernel: GpuKernel) -> bool:
    """Has it products of tiles?"""
    return _PRODUCT.search(kernel.source) is not None


def faults_of(kernel: GpuKernel, cubin: Cubin, device: Device) -> Iterator[str]:
    """What a compiled kernel must not have."""
    table = _TABLE_BYTES if _ANGLES.search(kernel.source) else 0
    if cubin.stack_bytes > table:
        yield f"a thread spills {cubin.stack_bytes - table} bytes"
    if cubin.shared_bytes > device.shared_per_block:
        yield f"{cubin.shared_bytes:,} bytes of shared memory, of {device.shared_per_block:,}"
    if cubin.registers * cubin.threads > device.registers_per_sm:
        yield f"{cubin.registers} registers for each of {cubin.threads} threads, of {device.registers_per_sm:,}"
    if multiplies_tiles(kernel) and not _IEEE.search(kernel.source) and not cubin.tensor_instructions:
        yield "a product without tensor-core instructions"


def checked(
    work: Sequence[Asked],
    processes: int = 1,
    store: KernelCache | None = None,
    progress: Callable[[Checked, int, int], None] | None = None,
) -> list[Checked]:
    """Each kernel compiled, from `store` where it was before. One that is not compiled is a result as well. `progress` is told of
    each, how many are done, and of how many."""
    with TritonCompiler(processes) as compiler, ThreadPoolExecutor(processes) as threads:

        def one(asked: Asked) -> Checked:
            kernel, device = asked.kernel, asked.device
            try:
                (cubin,) = compiler.compile([kernel], device, contracted=asked.precision != "exact", store=store)
            except FusewiseError as error:
                return Checked(kernel, device, None, (" ".join(str(error).split()),))
            return Checked(kernel, device, cubin, tuple(faults_of(kernel, cubin, device)))

        found = []
        for result in threads.map(one, work):
            found.append(result)
            if progress is not None:
                progress(result, len(found), len(work))
    return found
