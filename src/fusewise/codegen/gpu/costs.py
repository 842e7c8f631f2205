"""What fusion costs and saves on a GPU: the planner's estimate at the prices of a device, and the limits that are not a GPU's.

A kernel costs its launch, in which a few megabytes could be moved; so fewer and fuller kernels come before all else, and
computing an element again is nearly free. What is small stays in the cache of the second level from one kernel to the next. A
device is as fast as it is full: at a batch of one many kernels have fewer elements than it has threads, and a kernel that adds up
few rows, and goes on with the sums, keeps a few multiprocessors busy with what all of them would share.

All of it is an estimate from the device's row; none of it was measured on a GPU.
"""

from __future__ import annotations

from dataclasses import replace

from fusewise.codegen.gpu.device import Device
from fusewise.fusion.cost import Prices
from fusewise.fusion.legal import LIMITS

__all__ = ["GPU_LIMITS", "prices_of"]

_CACHE_SPEED = 2.0
"""How many times the memory's bytes the cache of the second level gives in a second. Makers do not say; a cautious figure."""
_CACHED_SHARE = 4
"""A value of at most this part of the cache is still there when it is read."""
_FULL_LANES = 512
"""Lanes of a multiprocessor that keep it busy: 16 of its 48 to 64 warps."""
_ROW_LANES = 1024
"""Lanes that share a row, at most: a block."""
_SLOW_OPERATIONS = 20
"""What a transcendental function counts as."""
_HOST_US = 30.0
"""Of a step on the host: one graph ends, bytes come and go, another begins."""

GPU_LIMITS = replace(LIMITS, rows=1)
"""The constraint check, without the rows that a processor's workers have to share: how full a device is, its costs tell."""


def prices_of(device: Device) -> Prices:
    """What the estimate of a group takes on `device`, in nanoseconds."""
    per_byte = 1e9 / device.bytes_per_second
    each = 1e9 / device.peak("float32")
    return Prices(
        start_ns=device.launch_us * 1e3,
        host_start_ns=_HOST_US * 1e3,
        ns_per_byte=per_byte,
        slow_ns=each * _SLOW_OPERATIONS,
        fast_ns=each,
        cached_bytes=device.l2_bytes // _CACHED_SHARE,
        ns_per_cached_byte=per_byte / _CACHE_SPEED,
        full=device.sms * _FULL_LANES,
        row_lanes=_ROW_LANES,
    )
