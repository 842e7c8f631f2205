"""Whole compiled models on disk, found by the contents of the model's file: what a second load of the same model uses.

An entry is a compiled file (`runtime.artefact`), so every byte is checked; its notes state the full key, so that a collision of
names is a miss. Entries appear by renaming, in a folder that nobody else may write to. Models come from strangers, who may choose
their bytes: what tells them apart is a cryptographic hash, and nothing is kept of a file that was written to while it was
compiled; so it is with files that a model names (`runtime.model_files`). The checksums within entries need not be one: they find
damage, and only this user writes entries.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusewise.errors import FusewiseError, UsageError
from fusewise.records import record
from fusewise.runtime.cache import CacheInfo, source_digest
from fusewise.runtime.container import Container
from fusewise.runtime.folder import folder_fault, kept_files, removed, trim
from fusewise.runtime.host import host_target, processor, worker_count
from fusewise.runtime.model_files import ModelFiles, model_files

if TYPE_CHECKING:
    from fusewise.ir.graph import Graph
    from fusewise.runtime.artefact import Artefact
    from fusewise.runtime.executable import Executable
    from fusewise.runtime.gpu.runner import GpuRunner
    from fusewise.runtime.gpu.sized import SizedPrograms

__all__ = ["Key", "ModelCache", "describes", "model_key", "program_digest", "room_of", "unchanged"]

_FOLDER = "models"
_MOST_BYTES = 16 * 1024**3
_MOST_OF_DISK = 0.25
_LARGEST_SHARE = 0.5  # of the limit, for one entry
_PLANNERS = (
    *("api.py", "choices.py", "compiling.py", "making.py", "on_gpu.py"),
    *("codegen", "frontend", "fusion", "ir", "lower", "ops", "passes", "rewrite", "runtime", "zoo"),
)
"""Sources that decide what a model becomes."""

_PACKAGES = ("llvmlite", "numpy", "onnx")


@cache
def program_digest() -> str:
    """Everything in this program, and the packages it plans and computes constants with, that decides what a model becomes."""
    from importlib import metadata

    return f"{source_digest(_PLANNERS)} {' '.join(f'{name} {metadata.version(name)}' for name in _PACKAGES)}"


@record(frozen=True, slots=True)
class Key:
    """What a compiled model depends on, as `text`, and its files; None where this program builds it itself."""

    text: str
    files: ModelFiles | None


def model_key(model: str, named: bool, settings: Mapping[str, Any], threads: int | None) -> Key | None:
    """Everything the compiled model depends on: the contents of its files, or the name of a `named` model that this program
    builds itself; `settings` in plain JSON; machine and program. None when the file is missing.
    """
    path = Path(model)
    if not named and not path.is_file():
        return None
    files = None if named else model_files(path)
    facts = {
        "model": model if files is None else files.facts,
        "settings": dict(settings),
        "workers": worker_count(threads),
        "target": processor() or host_target().key,
        "program": program_digest(),
    }
    return Key(json.dumps(facts, sort_keys=True), files)


def describes(key: Key) -> bool:
    """Are the files that a key was made of all of its model, and as they were? May say no where they are. A name says all."""
    return key.files is None or key.files.are_all()


def unchanged(key: Key | None, model: object, graph: Graph) -> Graph:
    """The graph read again from a model's file; `UsageError` where that is not any more what it was when its key was made."""
    if key is None or not describes(key):
        raise UsageError(f"{model} has changed since it was compiled")
    return graph


def room_of(folder: Path) -> int:
    """Bytes that compiled models may take in a folder: a quarter of the disk's free space and theirs, 16 GiB at most."""
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        free = shutil.disk_usage(there).free
    except OSError:
        return _MOST_BYTES
    return min(_MOST_BYTES, int(_MOST_OF_DISK * (free + sum(file.nbytes for file in kept_files(folder)))))


class ModelCache:
    """Compiled models by key in `folder`. Every failure is a miss; a folder that others may write to is not used.

    The longest unused entries are removed when all together take more than `limit_bytes`, or than there is room for (`room_of`).
    """

    def __init__(
        self, folder: Path, warn: Callable[[str], None] | None = None, *, limit_bytes: int | None = None
    ) -> None:
        self.folder = folder / _FOLDER
        self._limit_bytes = limit_bytes
        self._warn = warn

    def fetch(self, key: str, version: str, threads: int | None, device: str | None = None) -> Artefact | None:
        """The model stored under `key`; None when there is none that is whole and fits this machine. `device` says which GPU is
        to run that of one."""
        path = self._path(key)
        if not path.exists() or folder_fault(self.folder, create=False):
            return None
        try:
            with Container(path, version) as container:
                from fusewise.runtime import artefact  # and NumPy, while the file is read

                found = artefact.read(container, threads=threads, device=device)
        except FusewiseError:
            with suppress(OSError):
                path.unlink()
            return None
        if found.notes.get("key") != key:
            return None
        with suppress(OSError):
            os.utime(path)
        return found

    def store(
        self, key: str, executable: Executable | GpuRunner | SizedPrograms, notes: Mapping[str, Any], version: str
    ) -> None:
        """Keep a model, unless it is so large that little else would have room."""
        limit = room_of(self.folder) if self._limit_bytes is None else self._limit_bytes
        if executable.figures.constant_bytes > limit * _LARGEST_SHARE:
            return
        fault = folder_fault(self.folder)
        if not fault:
            from fusewise.runtime import artefact

            try:
                artefact.write(self._path(key), executable, {**notes, "key": key}, version, settled=False)
            except FusewiseError as error:
                fault = f"cannot take the compiled model: {error}"
        if fault and self._warn is not None:
            self._warn(f"the cache folder {self.folder} {fault}; working without it")
        trim(self.folder, limit, lambda name: name.startswith("."))

    def info(self) -> CacheInfo:
        """Number and size of the entries."""
        sizes = [file.nbytes for file in kept_files(self.folder)]
        return CacheInfo(self.folder, len(sizes), sum(sizes), not folder_fault(self.folder, create=False))

    def clear(self) -> int:
        """Remove every entry; the number removed."""
        return removed(kept_files(self.folder))

    def _path(self, key: str) -> Path:
        return self.folder / f"{hashlib.blake2b(key.encode(), digest_size=20).hexdigest()}.fw"
