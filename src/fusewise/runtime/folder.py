"""Folders for what is kept and trusted later: where they are, whether they are ours alone, what is in them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

__all__ = ["KeptFile", "cache_folder", "first_only", "folder_fault", "kept_files", "removed", "trim"]

CACHE_VARIABLE = "FUSEWISE_CACHE_DIR"

_ABANDONED_S = 3600.0


def folder_fault(folder: Path, *, create: bool = True) -> str:
    """Why `folder` cannot be used, to be said after its name; empty when it can.

    With `create` a missing folder is made, for its owner only.
    """
    try:
        if create:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
        status = folder.stat()
    except OSError as error:
        return f"cannot be used: {error.strerror}"
    shared = bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    foreign = hasattr(os, "geteuid") and status.st_uid != os.geteuid()
    if not stat.S_ISDIR(status.st_mode) or shared or foreign:
        return "is not a folder that only you can write to, and what it holds would be trusted"
    return ""


def first_only(warn: Callable[[str], None]) -> Callable[[str], None]:
    """`warn`, for the first sentence alone: what keeps one part of the cache from being used keeps the others too."""
    said: list[str] = []

    def once(sentence: str) -> None:
        if not said:
            said.append(sentence)
            warn(sentence)

    return once


def cache_folder(cache: bool | str | Path) -> Path | None:
    """Where compiled kernels are kept: for True in the folder that the environment names, or the user's own; None for nowhere."""
    if cache is True:
        if named := os.environ.get(CACHE_VARIABLE, ""):
            return Path(named)
        import platformdirs

        return platformdirs.user_cache_path("fusewise")
    return None if cache is False else Path(cache)


class KeptFile(NamedTuple):
    """A file of a cache folder: where it is, bytes, and when it was last used, in seconds."""

    path: Path
    nbytes: int
    used: float


def kept_files(folder: Path) -> list[KeptFile]:
    """The files of a folder, the longest unused first; none when it cannot be read."""
    found = []
    with suppress(OSError):
        for entry in os.scandir(folder):
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    found.append(KeptFile(Path(entry.path), status.st_size, status.st_mtime))
    return sorted(found, key=lambda file: file.used)


def removed(files: Iterable[KeptFile]) -> int:
    """Remove files; the number that could be."""
    count = 0
    for file in files:
        with suppress(OSError):
            file.path.unlink()
            count += 1
    return count


def trim(folder: Path, limit_bytes: int, is_stray: Callable[[str], bool]) -> None:
    """Remove the longest unused files until the others fit the limit, and what writers that were killed left: files whose
    names are strays', an hour older than the newest one."""
    if not _due(folder, limit_bytes, is_stray):
        return
    files = kept_files(folder)
    total = sum(file.nbytes for file in files)
    for file in files:
        stray = is_stray(file.path.name) and files[-1].used - file.used > _ABANDONED_S
        if total > limit_bytes or stray:
            total -= file.nbytes
            removed([file])


def _due(folder: Path, limit_bytes: int, is_stray: Callable[[str], bool]) -> bool:
    """Might there be something to remove? Asked after every compilation, so it makes nothing of the thousands of files."""
    total = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if is_stray(entry.name):
                return True
            with suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_size
    return total > limit_bytes
