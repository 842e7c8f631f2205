"""Whole compiled models on disk, found by the contents of the model's file: what a second load of the same model uses.

An entry is a compiled file (`runtime.artefact`), so every byte is checked; its notes state the full key, so that a collision of
names is a miss. Entries appear by renaming, in a folder that nobody else may write to. Models come from strangers, who may choose
their bytes: what tells them apart is a cryptographic hash, and nothing is kept of a file that was written to while it was
compiled. The checksums within entries need not be one: they find damage, and only this user writes entries.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusewise.errors import FusewiseError
from fusewise.records import record
from fusewise.runtime.aside import mapped
from fusewise.runtime.cache import CacheInfo, source_digest
from fusewise.runtime.container import Container
from fusewise.runtime.folder import folder_fault, kept_files, removed, trim
from fusewise.runtime.host import host_target, processor, worker_count

if TYPE_CHECKING:
    from fusewise.runtime.artefact import Artefact
    from fusewise.runtime.executable import Executable

__all__ = ["Key", "ModelCache", "describes", "fingerprint", "model_key", "program_digest"]

_FOLDER = "models"
_STRETCH_BYTES = 4 * 1024 * 1024
_READERS = 4
_LARGEST_SHARE = 0.5  # of the limit, for one entry
_PLANNERS = (
    *("api.py", "choices.py", "compiling.py", "making.py"),
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
    """What a compiled model depends on, as `text`; `state` is that of the model's file when it was looked at, None without one."""

    text: str
    state: tuple[int, ...] | None


def fingerprint(path: Path) -> str:
    """Size and hash of a file's contents; `OSError` when it cannot be read.

    SHA-256, which processors compute themselves, of the hashes of its stretches, which several threads take.
    """
    with path.open("rb") as file:
        descriptor, size = file.fileno(), os.fstat(file.fileno()).st_size

        def digest(number: int) -> bytes:
            return hashlib.sha256(os.pread(descriptor, _STRETCH_BYTES, number * _STRETCH_BYTES)).digest()

        found = mapped(digest, -(-size // _STRETCH_BYTES), _READERS)
    return f"{size} bytes {hashlib.sha256(b''.join(found)).hexdigest()}"


def model_key(model: str, named: bool, settings: Mapping[str, Any], threads: int | None) -> Key | None:
    """Everything the compiled model depends on: a file's contents, or the name of a `named` model that this program
    builds itself; `settings` in plain JSON; machine and program. None when the file is missing.

    Of a file that is not all of its model nothing is stored, so nothing is found.
    """
    path = Path(model)
    if not named and not path.is_file():
        return None
    state = None if named else _state(path)
    facts = {
        "model": model if named else fingerprint(path),
        "settings": dict(settings),
        "workers": worker_count(threads),
        "target": processor() or host_target().key,
        "program": program_digest(),
    }
    return Key(json.dumps(facts, sort_keys=True), state)


def describes(key: Key, model: str) -> bool:
    """Is a file all of its model, and as it was when its key was made? May say no for one that is. A name says all."""
    from fusewise.frontend.onnx_import import stands_alone

    path = Path(model)
    return key.state is None or (stands_alone(path) and _state(path) == key.state)


def _state(path: Path) -> tuple[int, ...] | None:
    """What no write to a file leaves as it was; None where it is missing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class ModelCache:
    """Compiled models by key in `folder`. Every failure is a miss; a folder that others may write to is not used.

    The longest unused entries are removed when all together take more than `limit_bytes`.
    """

    def __init__(
        self, folder: Path, warn: Callable[[str], None] | None = None, *, limit_bytes: int = 2 * 1024**3
    ) -> None:
        self.folder = folder / _FOLDER
        self.limit_bytes = limit_bytes
        self._warn = warn

    def fetch(self, key: str, version: str, threads: int | None) -> Artefact | None:
        """The model stored under `key`; None when there is none that is whole and fits this machine."""
        path = self._path(key)
        if not path.exists() or folder_fault(self.folder, create=False):
            return None
        try:
            with Container(path, version) as container:
                from fusewise.runtime import artefact  # and NumPy, while the file is read

                found = artefact.read(container, threads=threads)
        except FusewiseError:
            with suppress(OSError):
                path.unlink()
            return None
        if found.notes.get("key") != key:
            return None
        with suppress(OSError):
            os.utime(path)
        return found

    def store(self, key: str, executable: Executable, notes: Mapping[str, Any], version: str) -> None:
        """Keep a model, unless it is so large that little else would have room."""
        size = sum(block.nbytes for block in executable.contents.constants.values())
        if size > self.limit_bytes * _LARGEST_SHARE:
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
        trim(self.folder, self.limit_bytes, lambda name: name.startswith("."))

    def info(self) -> CacheInfo:
        """Number and size of the entries."""
        sizes = [file.nbytes for file in kept_files(self.folder)]
        return CacheInfo(self.folder, len(sizes), sum(sizes), not folder_fault(self.folder, create=False))

    def clear(self) -> int:
        """Remove every entry; the number removed."""
        return removed(kept_files(self.folder))

    def _path(self, key: str) -> Path:
        return self.folder / f"{hashlib.blake2b(key.encode(), digest_size=20).hexdigest()}.fw"
