"""Words for people: the nearest of several names, sizes in bytes and of dimensions as text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from fusewise.errors import UsageError

__all__ = ["KIB", "MIB", "alike", "bytes_of", "nearest", "no_such", "size_text", "sizes_text", "unit_for"]

KIB, MIB = 1 << 10, 1 << 20
"""Bytes of the units in which sizes are shown, of memory and of files: `size_text`, or one of these where a column has one unit
(`unit_for`)."""

_UNITS = {
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KIB": 1024,
    "MIB": 1024**2,
    "GIB": 1024**3,
    "TIB": 1024**4,
    "K": 1024,
    "M": 1024**2,
    "G": 1024**3,
    "T": 1024**4,
}
_STEPS = (("KiB", KIB), ("MiB", MIB), ("GiB", 1 << 30))
_FEW = 12  # names that fit a sentence
_BEGINNING = 3  # letters of a word that is taken for the beginning of a name


def alike(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """At most so many of the known names, those most like a word in any case, the most alike first; none where none is like it.

    A name that begins with the word is most like it."""
    import difflib

    names = {name.lower(): name for name in sorted(known)}
    begun = [name for name in names if len(word) >= _BEGINNING and name.startswith(word.lower())]
    close = difflib.get_close_matches(word.lower(), names, n=most, cutoff=0.5)
    return [names[found] for found in dict.fromkeys((*begun, *close))][:most]


def nearest(word: str, known: Iterable[str], otherwise: str = "", most: int = 1) -> str:
    """The end of a sentence about an unknown name: the `most` nearest known ones, or else what is said `otherwise`: all of them."""
    names = list(known)
    near = " or ".join(map(repr, alike(word, names, most)))
    return f"did you mean {near}?" if near else otherwise or f"known are {', '.join(sorted(names))}."


def no_such(what: str, word: str, known: Iterable[str], listed: str = "", most: int = 1) -> UsageError:
    """The error about a name that nothing of a kind has: it tells the `most` nearest, and all where they are few.

    `listed` says where all are found, for those that are many.
    """
    names = list(known)
    hints = [nearest(word, names, most=most)] if alike(word, names) else []
    if len(names) <= _FEW:
        hints.append(f"there are {', '.join(names)}")
    elif listed:
        hints.append(listed)
    return UsageError(f"there is no {what} {word!r}{'; ' if hints else ''}{' '.join(hints)}")


def bytes_of(text: str) -> int:
    """A size such as `256KiB`, `0.5 MiB`, `128k` (KiB), `64MB` or `131072`, in bytes; `UsageError` when it is none.

    Less than 1024 needs a unit: nobody means 256 bytes by 256.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = _UNITS.get(found[2].upper() or "B") if found else None
    size = int(float(found[1]) * unit) if found and unit else 0
    if size < 1:
        raise UsageError(f"{text!r} is not a size: write it as 256KiB, 1MiB or a number of bytes.")
    if found and not found[2] and size < 1024:
        raise UsageError(f"{text.strip()!r} is a size without a unit: did you mean {size}KiB? For bytes write {size}B.")
    return size


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Values of dimensions by name: `batch=2, sequence=128`."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def unit_for(size: int) -> tuple[str, int]:
    """The unit of a column or an axis whose largest is `size` bytes, and its bytes: KiB, MiB or GiB."""
    return next(((unit, factor) for unit, factor in _STEPS if size < factor * 1024), _STEPS[-1])


def size_text(size: int) -> str:
    """Bytes for people: `173.4 KiB`; a half is rounded up, as report pages do."""
    if size < 1024:
        return f"{size} B"
    unit, factor = unit_for(size)
    return f"{math.floor(size / factor * 10 + 0.5) / 10:.1f} {unit}"
