"""Words for people: the nearest name, and sizes in bytes as text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from fusewise.errors import UsageError

__all__ = ["bytes_of", "nearest", "size_text"]

_UNITS = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "KIB": 1024, "K": 1024, "MIB": 1024**2, "M": 1024**2}


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest known one, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}."


def bytes_of(text: str) -> int:
    """A buffer size such as `256KiB`, `0.5 MiB`, `128k` (KiB) or `131072`, in bytes; `UsageError` when it is none."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = _UNITS.get(found[2].upper()) if found else None
    size = int(float(found[1]) * unit) if found and unit else 0
    if size < 1:
        raise UsageError(f"{text!r} is not a size: write it as 256KiB, 1MiB or a number of bytes.")
    return size


def size_text(size: int) -> str:
    """Bytes for people: `173.4 KiB`."""
    if size < 1024:
        return f"{size} B"
    return f"{size / 1024:.1f} KiB" if size < 1024**2 else f"{size / 1024**2:.1f} MiB"
