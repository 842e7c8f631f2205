"""Memory straight from the operating system, in large pages where it has them."""

from __future__ import annotations

import mmap
from contextlib import suppress

__all__ = ["advise", "private_pages"]

_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
"""Not shared with processes to come, where systems tell these apart: only what is private can be given back in part."""


def private_pages(nbytes: int) -> mmap.mmap:
    """Zeroed memory of so many bytes, at least one, which goes back to the system with its last view. `OSError` when there is
    none."""
    pages = mmap.mmap(-1, max(nbytes, 1), **_PRIVATE)
    advise(pages, "MADV_HUGEPAGE", 0)
    return pages


def advise(pages: mmap.mmap, what: str, start: int) -> None:
    """Advice, by its name, on the memory from byte `start` on, where the system takes it."""
    advice = getattr(mmap, what, None)
    if advice is not None and start < len(pages):
        with suppress(OSError):
            pages.madvise(advice, start)
