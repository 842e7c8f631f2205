"""Every file of the benchmark, by family."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.files.decoders import BUILT, MERGED
from benchmarks.files.halves import HALVES
from benchmarks.files.learned import BOOSTED, LEARNED
from benchmarks.files.optimized import OPTIMIZED, SAVED
from benchmarks.files.quantized import BLOCKS, DYNAMIC, STATIC
from benchmarks.files.row import File

__all__ = ["FILES", "chosen", "file_named"]

FILES: tuple[File, ...] = (
    *OPTIMIZED,
    *SAVED,
    *DYNAMIC,
    *STATIC,
    *BLOCKS,
    *HALVES,
    *BUILT,
    *MERGED,
    *LEARNED,
    *BOOSTED,
)


def file_named(name: str) -> File:
    return next(file for file in FILES if file.name == name)


def chosen(names: Iterable[str]) -> tuple[File, ...]:
    """The files with these names or of these families, all where there are none; `ValueError` for a name that is neither."""
    wanted = set(names)
    unknown = sorted(wanted - {file.name for file in FILES} - {file.family for file in FILES})
    if unknown:
        families = ", ".join(dict.fromkeys(file.family for file in FILES))
        raise ValueError(f"there is no file or family {unknown[0]!r}; the families are {families}")
    return tuple(file for file in FILES if not wanted or {file.name, file.family} & wanted)
