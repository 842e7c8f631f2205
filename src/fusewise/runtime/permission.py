"""What a system lets a process use only after it was asked: the tiles of x86 (AMX).

A thread's tiles take 8 KiB, which Linux saves for those processes alone that have asked (`arch_prctl`, ARCH_REQ_XCOMP_PERM, for
the tile data). The answer holds for all threads of the process, those to come too, and for the children that it forks; a
program that it starts has to ask again. Without the permission the first instruction that touches a tile ends the process.
"""

from __future__ import annotations

import platform
import sys
from functools import cache

__all__ = ["permits_tiles"]

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


@cache
def permits_tiles() -> bool:
    """May this process use tiles? Asks once; no system but Linux on x86-64 is known to say yes."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 1 << 32:
        return False
    import ctypes

    syscall = ctypes.CDLL(None).syscall
    syscall.restype = ctypes.c_long
    return bool(syscall(*map(ctypes.c_long, (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA))) == 0)
