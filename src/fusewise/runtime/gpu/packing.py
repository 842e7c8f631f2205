"""The bytes of a constant as kernels on a GPU want them."""

from __future__ import annotations

import numpy as np

from fusewise.codegen.gpu.program import GpuBuffer
from fusewise.errors import FusewiseError
from fusewise.runtime.arena import aligned_block, settled

__all__ = ["packed_bytes"]


def packed_bytes(buffer: GpuBuffer) -> np.ndarray:
    """The bytes of a constant as kernels want them, uint8[nbytes]."""
    if buffer.data is None:
        raise ValueError(f"constant {buffer.value!r} has no data")
    packing = buffer.packing
    if packing is not None and packing.parts is not None:
        found = aligned_block(packing.parts.nbytes)
        packing.parts.fill(buffer.data.rows, found)
    else:
        array = buffer.data.read_once()
        found = settled(array if packing is None else packing.pack(array))
    if found.nbytes < buffer.nbytes:
        raise FusewiseError(
            f"constant {buffer.value!r} has {found.nbytes:,} bytes where {buffer.nbytes:,} were planned"
        )
    return found[: buffer.nbytes]
