"""Numbers of fewer bits than a byte has, as files pack them."""

from __future__ import annotations

import numpy as np

__all__ = ["unpacked"]


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """uint8[..., n * 8 / bits] of uint8[..., n]: what is packed in each byte, the first in the lowest bits."""
    parts, mask = 8 // bits, np.uint8((1 << bits) - 1)
    found = np.empty((*packed.shape, parts), np.uint8)
    for k in range(parts):
        np.right_shift(packed, np.uint8(bits * k), out=found[..., k])
    found &= mask
    return found.reshape(*packed.shape[:-1], packed.shape[-1] * parts)
