"""Constants on a device, of one program or of several that run there: each lies there once, as long as some program has it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate

from fusewise.codegen.gpu.program import GpuBuffer, aligned
from fusewise.errors import FusewiseError
from fusewise.ir.graph import Constant
from fusewise.records import record
from fusewise.runtime.gpu.driver import Driver, Span
from fusewise.runtime.gpu.packing import packed_bytes

__all__ = ["DeviceConstants", "HeldConstants"]


@record(slots=True)
class _Block:
    """One allocation, and how many programs have constants in it."""

    span: Span
    holders: int = 0


@record(frozen=True, slots=True)
class _Placed:
    """A constant that lies on the device: `data` is held so that no other has its identity meanwhile."""

    data: Constant
    block: _Block
    address: int


@record(frozen=True, slots=True)
class HeldConstants:
    """Where the constants of a program lie, in the order of its buffers, and in which blocks."""

    addresses: tuple[int, ...]
    blocks: tuple[_Block, ...]


class DeviceConstants:
    """The constants of programs on one device. Two are the same where they are packed already, and one object.

    What a program has that is not there yet is one allocation, given back with the last program that has any of it. For one thread
    at a time.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._placed: dict[tuple[int, int], _Placed] = {}
        self._blocks: list[_Block] = []

    @property
    def nbytes(self) -> int:
        """Bytes of the device's memory that are taken now."""
        return sum(block.span.nbytes for block in self._blocks)

    def missing(self, buffers: Sequence[GpuBuffer]) -> int:
        """Bytes that these would take beside what is there."""
        return sum(aligned(one.nbytes) for one in self._new(buffers))

    def owns(self, address: int) -> bool:
        """Is that of a constant?"""
        return any(one.span.address <= address < one.span.address + one.span.nbytes for one in self._blocks)

    def take(self, buffers: Sequence[GpuBuffer]) -> HeldConstants:
        """Have these constants on the device, copied one after the other, so that the host packs one at a time."""
        new = self._new(buffers)
        starts = [0, *accumulate(aligned(one.nbytes) for one in new)]
        own: dict[int, int] = {}
        block = None
        if new:
            block = _Block(Span(self._driver.allocate(starts[-1]), starts[-1]))
            self._blocks.append(block)
        try:
            for one, start in zip(new, starts, strict=False):
                assert block is not None
                own[id(one)] = block.span.address + start
                self._driver.copy_in(own[id(one)], packed_bytes(one))
                self._driver.synchronise()
        except BaseException:
            if block is not None:
                self._free(block)
            raise
        for one in new:
            if block is not None and one.packing is None and one.data is not None:
                self._placed[_key(one)] = _Placed(one.data, block, own[id(one)])
        addresses = tuple(own[id(one)] if id(one) in own else self._placed[_key(one)].address for one in buffers)
        blocks = [one for one in self._blocks if any(_inside(address, one.span) for address in addresses)]
        for one_block in blocks:
            one_block.holders += 1
        return HeldConstants(addresses, tuple(blocks))

    def give_back(self, held: HeldConstants) -> None:
        """What `take` gave is used no more."""
        for block in held.blocks:
            block.holders -= 1
            if not block.holders:
                self._free(block)

    def _new(self, buffers: Sequence[GpuBuffer]) -> list[GpuBuffer]:
        """Those that are not there, each once."""
        found: dict[object, GpuBuffer] = {}
        for one in buffers:
            if one.packing is not None:
                found[id(one)] = one
            elif _key(one) not in self._placed:
                found.setdefault(_key(one), one)
        return list(found.values())

    def _free(self, block: _Block) -> None:
        self._blocks = [one for one in self._blocks if one is not block]
        self._placed = {key: one for key, one in self._placed.items() if one.block is not block}
        with suppress(FusewiseError):  # a device that is lost has nothing to be given back
            self._driver.free(block.span.address)


def _key(buffer: GpuBuffer) -> tuple[int, int]:
    return id(buffer.data), buffer.nbytes


def _inside(address: int, span: Span) -> bool:
    return span.address <= address < span.address + span.nbytes
