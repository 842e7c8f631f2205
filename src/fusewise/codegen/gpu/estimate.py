"""What a launch may take, from figures alone: how many blocks a multiprocessor holds, and a roofline over bytes and operations.

Nothing here was measured. Blocks on a multiprocessor follow the CUDA Programming Guide ("Hardware Multithreading" and the table
of compute capabilities): registers are given to warps in units of 256, a quarter of the multiprocessor's to each of its four
parts, and shared memory in units of 128 bytes, 1 KiB of each block's for the system.

The roofline (S. Williams et al., CACM 2009) lets every byte that a step touches come from the device's memory once, whatever the
cache of the second level keeps. A device that has fewer blocks than multiprocessors does its share only, and so does the last
wave: both are in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fusewise.codegen.gpu.device import Device
from fusewise.records import record

__all__ = [
    "ARITHMETIC_LIMIT",
    "LAUNCH_LIMIT",
    "MEMORY_LIMIT",
    "WAIT_LIMIT",
    "LaunchEstimate",
    "Occupancy",
    "launch_estimate",
    "occupancy",
    "operations_per_second",
    "waves",
]

_WARP = 32
_WARP_REGISTERS, _PARTS = 256, 4
_SHARED_UNIT, _SYSTEM_SHARED = 128, 1 << 10

MEMORY_LIMIT, ARITHMETIC_LIMIT, LAUNCH_LIMIT, WAIT_LIMIT = "memory", "arithmetic", "launch", "waiting"
"""What a launch takes longest for."""

_PRODUCTS_EACH = {"float32": ("tf32", 3), "exact": ("float32", 1), "tf32": ("tf32", 1)}
"""Of a precision the tensor cores' type, and how many products of it stand for one."""


@record(frozen=True, slots=True)
class Occupancy:
    """`blocks` of a kernel that a multiprocessor holds at once, for want of more of `limit`, and the `share` of its warps that
    these are."""

    blocks: int
    limit: str
    share: float


@record(frozen=True, slots=True)
class LaunchEstimate:
    """What a launch may take, in microseconds: that of the launch itself, and behind it the longest of moving bytes, computing, and
    turns of a loop that wait for each other.

    `limit` is what it takes longest for.
    """

    launch_us: float
    memory_us: float
    arithmetic_us: float
    wait_us: float = 0.0

    @property
    def us(self) -> float:
        return self.launch_us + max(self.memory_us, self.arithmetic_us, self.wait_us)

    @property
    def limit(self) -> str:
        parts = {
            LAUNCH_LIMIT: self.launch_us,
            MEMORY_LIMIT: self.memory_us,
            ARITHMETIC_LIMIT: self.arithmetic_us,
            WAIT_LIMIT: self.wait_us,
        }
        return max(parts, key=parts.__getitem__)


def occupancy(device: Device, *, registers: int, shared_bytes: int, threads: int) -> Occupancy:
    """Of a kernel with so many registers of a thread, bytes of shared memory of a block, and threads of a block.

    No blocks at all where one alone does not fit.
    """
    warps = max(1, -(-threads // _WARP))
    of_warp = -(-max(1, registers) * _WARP // _WARP_REGISTERS) * _WARP_REGISTERS
    of_part = device.registers_per_sm // _PARTS // of_warp
    shared = -(-(shared_bytes + _SYSTEM_SHARED) // _SHARED_UNIT) * _SHARED_UNIT
    most = {
        "threads": device.threads_per_sm // (warps * _WARP),
        "registers": of_part * _PARTS // warps,
        "shared memory": device.shared_per_sm // shared if shared_bytes <= device.shared_per_block else 0,
        "blocks": device.blocks_per_sm,
    }
    limit = min(most, key=most.__getitem__)
    return Occupancy(most[limit], limit, most[limit] * warps * _WARP / device.threads_per_sm)


def waves(device: Device, grid: Sequence[int], blocks_per_sm: int) -> float:
    """How often the device is filled with the blocks of a grid: below 1 it is never full."""
    return prod(grid) / (device.sms * max(1, blocks_per_sm))


def operations_per_second(device: Device, precision: str) -> float:
    """What tensor cores do of a product's operations in a precision (`GpuProgram.precision`); in `exact` they do none, and the
    other units do them."""
    kind, each = _PRODUCTS_EACH.get(precision, (precision, 1))
    return device.peak(kind) / each


def launch_estimate(
    device: Device,
    grid: Sequence[int],
    nbytes: int,
    operations: int,
    per_second: float | None = None,
    wait_us: float = 0.0,
) -> LaunchEstimate:
    """Of a launch that touches `nbytes` and does so many operations, `per_second` of them on the whole device (float32 without
    tensor cores for None), in turns that take `wait_us` at least (`GpuKernel.wait_us`).

    The busiest multiprocessor has as many blocks as any, and decides on the arithmetic; on bytes the number of those that have any.
    """
    blocks = max(1, prod(grid))
    busiest = -(-blocks // device.sms)
    peak = device.peak("float32") if per_second is None else per_second
    return LaunchEstimate(
        device.launch_us,
        nbytes / (device.bytes_per_second * min(1.0, blocks / device.sms)) * 1e6,
        operations / peak * (busiest * device.sms / blocks) * 1e6,
        wait_us,
    )
