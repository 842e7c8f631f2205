"""Blocks of memory between pages that nobody may touch, for a checked build."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np

from fusewise.runtime.arena import ALIGNMENT_BYTES, address_of, aligned_block

__all__ = ["guarded_block", "guarded_pages"]


def guarded_block(nbytes: int) -> np.ndarray:
    """uint8[nbytes] (at least one byte long) that ends where a page begins that can be neither read nor written, as far as its
    alignment lets it; so does the page before. Contents are zero.

    It is aligned to the largest power of two that divides its size, at most 64, or what ends there would lie unaligned."""
    size = max(nbytes, 1)
    if sys.platform == "win32":
        block = aligned_block(size)
        block.fill(0)
        return block
    pages, alignment = guarded_pages(size), min(ALIGNMENT_BYTES, size & -size)
    start = (pages.nbytes - size) // alignment * alignment
    return pages[start : start + size]


def guarded_pages(nbytes: int) -> np.ndarray:
    """uint8 of at least so many bytes, which are whole pages between two that nobody may touch. Contents are zero."""
    inside = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    try:
        pages = np.frombuffer(mmap.mmap(-1, inside + 2 * mmap.PAGESIZE), np.uint8)
    except OSError as error:
        raise MemoryError(f"{nbytes:,} bytes between guard pages cannot be had: {error}") from None
    for start in (0, mmap.PAGESIZE + inside):
        _forbid(address_of(pages) + start)
    return pages[mmap.PAGESIZE : mmap.PAGESIZE + inside]


def _forbid(address: int) -> None:
    process = ctypes.CDLL(None, use_errno=True)
    if process.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), 0):
        raise MemoryError(f"a page cannot be protected: error {ctypes.get_errno()}")
