"""Where a program's buffers lie: two allocations on the device, one of the host's memory that copies are fast from and to.

The first allocation holds the constants (`constants`; programs may share them), the second the arena and behind it every other
buffer that kernels touch. Buffers that host steps touch have a copy of their own in the host's memory; those that no kernel
touches lie there alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import accumulate

import numpy as np

from fusewise.codegen.gpu.program import ByteRange, GpuBuffer, GpuProgram, GpuStep, aligned, reads_of, writes_of
from fusewise.errors import FusewiseError
from fusewise.lower.program import HostStep
from fusewise.runtime.arena import aligned_block
from fusewise.runtime.gpu.constants import DeviceConstants, HeldConstants
from fusewise.runtime.gpu.driver import Driver, Span
from fusewise.runtime.gpu.packing import packed_bytes
from fusewise.runtime.host import check_memory

__all__ = ["GpuMemory", "constants_of", "device_sizes"]


class GpuMemory:
    """The memory of one program on one device.

    By buffer: `addresses` on the device (0 for what does not lie there), `staged` the block that copies of a port go through,
    and `copies` what host steps read and write; uint8 both, None for what there is not.
    """

    def __init__(self, program: GpuProgram, driver: Driver, constants: DeviceConstants | None = None) -> None:
        """`constants` are those of the other programs on this device that may share theirs."""
        self.driver, self._program = driver, program
        self._constants = DeviceConstants(driver) if constants is None else constants
        buffers = program.buffers
        launches = _launched(program)
        hosted = {one.buffer for step in program.steps if isinstance(step, HostStep) for one in _named(step)}
        ports = {port.buffer for port in (*program.inputs, *program.outputs) if port.buffer >= 0}
        self.on_device = [number in launches for number in range(len(buffers))]
        self.on_host = [k in hosted or (k in ports and k not in launches) for k in range(len(buffers))]
        self.addresses = [0] * len(buffers)
        self._allocated: list[Span] = []
        self._pinned: np.ndarray | None = None
        self._held: HeldConstants | None = None
        check_memory(self._host_bytes(ports), "what the model keeps in the host's memory")
        try:
            self._place_constants()
            self._place_others()
            through = [
                k for k in range(len(buffers)) if self.on_device[k] and (k in ports or buffers[k].kind == "fault")
            ]
            self.staged = self._stage(through)
            self.copies = tuple(self._copy(number) for number in range(len(buffers)))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give it back; a device that is lost has nothing to be given back."""
        for one in self._allocated:
            with suppress(FusewiseError):
                self.driver.free(one.address)
        self._allocated.clear()
        pinned, self._pinned = self._pinned, None
        if pinned is not None:
            with suppress(FusewiseError):
                self.driver.unpin(pinned)
        held, self._held = self._held, None
        if held is not None:
            self._constants.give_back(held)

    def owns(self, address: int) -> bool:
        """Is that of this memory, so that a run may write there, or of constants?"""
        own = any(one.address <= address < one.address + one.nbytes for one in self._allocated)
        return own or self._constants.owns(address)

    def fetch(self, parts: Iterable[ByteRange]) -> None:
        """Have what kernels made in the host's copies; it is there when the driver has synchronised."""
        for one in parts:
            if self.on_device[one.buffer] and self._program.buffers[one.buffer].kind not in ("constant", "input"):
                self.driver.copy_out(self._host(one), self.addresses[one.buffer] + one.low)

    def send(self, parts: Iterable[ByteRange]) -> None:
        """Have what host steps made on the device."""
        for one in parts:
            if self.on_device[one.buffer]:
                self.driver.copy_in(self.addresses[one.buffer] + one.low, self._host(one))

    def _host(self, one: ByteRange) -> np.ndarray:
        block = self.copies[one.buffer]
        assert block is not None
        return block[one.low : one.high]

    def _host_bytes(self, ports: Collection[int]) -> int:
        """Bytes of the copies that host steps read and write, and of those that copies of ports go through."""
        numbered = enumerate(self._program.buffers)
        return sum(one.nbytes * (self.on_host[k] + (self.on_device[k] and k in ports)) for k, one in numbered)

    def _place_constants(self) -> None:
        """Have the constants there that kernels read."""
        numbers = [k for k, one in enumerate(self._program.buffers) if one.kind == "constant" and self.on_device[k]]
        self._held = self._constants.take([self._program.buffers[number] for number in numbers])
        for number, address in zip(numbers, self._held.addresses, strict=True):
            self.addresses[number] = address

    def _place_others(self) -> None:
        buffers = self._program.buffers
        arena = _arena_of(self._program)
        others = [k for k, one in enumerate(buffers) if one.kind not in ("constant", "arena") and self.on_device[k]]
        starts = self._laid_out(others)
        nbytes = arena + starts[-1]
        if not nbytes:
            return
        base = self._allocate(nbytes)
        for number, start in zip(others, starts, strict=False):
            self.addresses[number] = base + arena + start
        for number, one in enumerate(buffers):
            if one.kind == "arena" and self.on_device[number]:
                self.addresses[number] = base + one.offset

    def _stage(self, numbers: list[int]) -> tuple[np.ndarray | None, ...]:
        starts = self._laid_out(numbers)
        block = np.empty(0, np.uint8)
        if numbers:
            block = self._pinned = self.driver.pinned(starts[-1])
        found: list[np.ndarray | None] = [None] * len(self._program.buffers)
        for number, start in zip(numbers, starts, strict=False):
            found[number] = block[start : start + self._program.buffers[number].nbytes]
        return tuple(found)

    def _copy(self, number: int) -> np.ndarray | None:
        if not self.on_host[number]:
            return None
        buffer = self._program.buffers[number]
        if buffer.kind == "constant":
            return packed_bytes(buffer)
        block = aligned_block(buffer.nbytes)[: buffer.nbytes]
        block.fill(0)
        return block

    def _laid_out(self, numbers: list[int]) -> list[int]:
        """Where these begin behind each other, and where the last one ends."""
        return [0, *accumulate(aligned(self._program.buffers[number].nbytes) for number in numbers)]

    def _allocate(self, nbytes: int) -> int:
        address = self.driver.allocate(nbytes)
        self._allocated.append(Span(address, nbytes))
        return address


def _named(step: GpuStep | HostStep) -> list[ByteRange]:
    """What a step touches or points to."""
    places = step.arguments if isinstance(step, GpuStep) else ()
    pointed = (ByteRange(place.buffer, place.offset, place.offset) for place in places)
    return [*reads_of(step), *writes_of(step), *pointed]


def _launched(program: GpuProgram) -> set[int]:
    """The buffers that kernels touch."""
    return {one.buffer for step in program.steps if isinstance(step, GpuStep) for one in _named(step)}


def constants_of(program: GpuProgram) -> list[GpuBuffer]:
    """The constants that kernels read."""
    return [program.buffers[k] for k in sorted(_launched(program)) if program.buffers[k].kind == "constant"]


def _arena_of(program: GpuProgram) -> int:
    return aligned(program.arena_bytes) if program.arena_bytes else 0


def device_sizes(program: GpuProgram) -> tuple[int, int]:
    """Bytes of a device's memory that a program takes: for constants, and for everything else."""
    sizes = {"constant": 0, "other": _arena_of(program)}
    for number in _launched(program):
        buffer = program.buffers[number]
        if buffer.kind != "arena":
            sizes["constant" if buffer.kind == "constant" else "other"] += aligned(buffer.nbytes)
    return sizes["constant"], sizes["other"]
