"""Folders for what is kept and trusted later: where they are, and whether they are ours and writable by nobody else."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

__all__ = ["cache_folder", "folder_fault"]


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


def cache_folder(cache: bool | str | Path) -> Path | None:
    """Where compiled kernels are kept; None for nowhere."""
    if cache is True:
        import platformdirs

        return platformdirs.user_cache_path("fusewise")
    return None if cache is False else Path(cache)
