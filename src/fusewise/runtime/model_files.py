"""What the files of a model hold, told apart by a cryptographic hash: the model's own, and those with external data that it names.

Models come from strangers, who may choose their bytes. Which files one names is read off its bytes without ONNX, which opening a
compiled model has no time for; whether any was missed, the message itself says before anything is kept (`ModelFiles.are_all`).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from fusewise.errors import FusewiseError
from fusewise.records import record
from fusewise.runtime.aside import mapped

__all__ = ["ModelFiles", "State", "fingerprint", "model_files"]

_STRETCH_BYTES = 4 * 1024 * 1024
_READERS = 4
_KEY = re.compile(rb"\x0a\x08location\x12([\x80-\xff]?)([\x00-\x7f])")
"""The key under which external data name their file, and the length of the name: a varint of one or two bytes."""

_LONGEST_KEY = 12
_LONGEST_NAME = 1 << 14

State = tuple[int, ...] | None
"""What no write to a file leaves as it was; None where it is missing, or is none that a model may name."""


@record(frozen=True, slots=True)
class ModelFiles:
    """The files of a model as they were when they were read: hashes of contents, and states. `external` are by name."""

    path: Path
    contents: str
    state: State
    external: Mapping[str, tuple[str | None, State]]

    @property
    def facts(self) -> object:
        """Everything that the contents say, in plain JSON."""
        return [self.contents, {name: contents for name, (contents, _) in self.external.items()}]

    def are_all(self) -> bool:
        """Are these files all of the model, and as they were? May say no where they are."""
        from fusewise.frontend.onnx_import import external_names

        return external_names(self.path) <= self.external.keys() and self._now() == (
            self.state,
            {name: state for name, (_, state) in self.external.items()},
        )

    def _now(self) -> tuple[State, dict[str, State]]:
        return _state(self.path), {name: state for name, (_, state) in _externals(self.path, self.external, read=False)}


def model_files(path: Path) -> ModelFiles:
    """What the files of the model in `path` hold; `OSError` when it cannot be read."""
    state = _state(path)
    with path.open("rb") as file:
        contents, names = _read(file.fileno())
    return ModelFiles(path, contents, state, dict(_externals(path, names, read=True)))


def fingerprint(path: Path) -> str:
    """Size and hash of a file's contents; `OSError` when it cannot be read."""
    with path.open("rb") as file:
        return _read(file.fileno())[0]


def _externals(path: Path, names: Iterable[str], *, read: bool) -> list[tuple[str, tuple[str | None, State]]]:
    """Contents, where they are to be read, and states of the files that the model in `path` names, as far as it may name them."""
    from fusewise.frontend.external import open_below

    found: list[tuple[str, tuple[str | None, State]]] = []
    for name in sorted(names):
        try:
            descriptor = open_below(path.parent, name)
        except (FusewiseError, OSError):
            found.append((name, (None, None)))
            continue
        try:
            state = _state(descriptor)
            found.append((name, (_read(descriptor)[0] if read else None, state)))
        finally:
            os.close(descriptor)
    return found


def _read(descriptor: int) -> tuple[str, frozenset[str]]:
    """Size and hash of an open file's contents, and every name that may be one of external data.

    SHA-256, which processors compute themselves, of the hashes of its stretches, which several threads take.
    """
    size = os.fstat(descriptor).st_size
    names: set[str] = set()

    def digest(number: int) -> bytes:
        begin = number * _STRETCH_BYTES
        stretch = os.pread(descriptor, _STRETCH_BYTES + _LONGEST_KEY, begin)
        for key in _KEY.finditer(stretch):
            names.add(_name(descriptor, begin + key.end(), *key.groups()))
        return hashlib.sha256(memoryview(stretch)[:_STRETCH_BYTES]).digest()

    found = mapped(digest, -(-size // _STRETCH_BYTES), _READERS)
    return f"{size} bytes {hashlib.sha256(b''.join(found)).hexdigest()}", frozenset(names)


def _name(descriptor: int, begin: int, low: bytes, high: bytes) -> str:
    """The text at `begin` of a file, whose length the two bytes of a varint say."""
    length = low[0] & 127 | high[0] << 7 if low else high[0]
    return os.pread(descriptor, min(length, _LONGEST_NAME), begin).decode(errors="replace")


def _state(file: Path | int) -> State:
    try:
        found = os.fstat(file) if isinstance(file, int) else file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
