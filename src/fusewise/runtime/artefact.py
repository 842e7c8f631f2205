"""A compiled model as one file: manifest, machine code and packed weights. Opening it compiles nothing and packs nothing.

    magic | length of manifest | manifest (JSON, spaces to fill a page) | checksum | sections, each on a 64-byte boundary

The manifest states format and program version, the CPU features the code was compiled for, the program, where its sections lie,
and a checksum of every stretch of the file behind it, so that a changed byte anywhere is found before anything runs. There is
no pickle; still, an artefact is machine code: open only what you trust as you would a program.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from fusewise.codegen.target import Target
from fusewise.errors import InvalidModel, UnsupportedModel, UsageError
from fusewise.files import written_whole
from fusewise.records import record
from fusewise.runtime.arena import ALIGNMENT_BYTES, aligned_block, check_memory
from fusewise.runtime.aside import Aside, mapped
from fusewise.runtime.host import host_target
from fusewise.runtime.resident import Resident

if TYPE_CHECKING:
    from fusewise.runtime.executable import Contents, Executable

__all__ = ["Artefact", "read", "write"]

_MAGIC = b"fusewise artefact\n"
_FORMAT = 4
_PAGE_BYTES = 4096
_CHECKSUM_BYTES = 4
_STRETCH_BYTES = 4 * 1024 * 1024
"""Sections are read, checked and, by several threads, overlapped in pieces of this size."""

_READERS = 4
_LONGEST_MANIFEST = 1 << 30


@record(frozen=True)
class Artefact:
    """What a file holds: a model ready to run, and the `notes` its writer added (plain JSON)."""

    executable: Executable
    notes: Mapping[str, Any]


def write(path: Path, executable: Executable, notes: Mapping[str, Any], version: str, *, settled: bool = True) -> None:
    """Write a compiled model; the file appears whole or not at all, and is on the disk then if `settled`.

    `version` is that of this program. Raises `ResourceLimit` when there is no room, `UsageError` when the place may not be
    written to.
    """
    from fusewise.runtime.program_json import program_to_json

    contents = executable.contents
    sections = [np.frombuffer(image, np.uint8) for image in contents.images]
    constants = sorted(contents.constants)
    sections += [contents.constants[number] for number in constants]
    edges = _edges([section.nbytes for section in sections])
    target = contents.target
    manifest = {
        "format": _FORMAT,
        "version": version,
        "target": {"triple": target.triple, "cpu": target.cpu, "features": target.features},
        "program": program_to_json(contents.program),
        "kernels": list(contents.symbols),
        "constants": constants,
        "sections": [[edge, section.nbytes] for edge, section in zip(edges, sections, strict=False)],
        "bytes": edges[-1],
        "checksums": _checksums(sections, edges),
        "notes": dict(notes),
    }
    text = json.dumps(manifest, separators=(",", ":")).encode()
    around = len(_MAGIC) + 8 + _CHECKSUM_BYTES
    text = text.ljust(-(-(len(text) + around) // _PAGE_BYTES) * _PAGE_BYTES - around)
    head = _MAGIC + len(text).to_bytes(8, "little") + text
    with written_whole(path, settled=settled) as (draft,), draft.open("wb") as file:
        file.write(head + _checksum(head))
        for piece in _pieces(sections, edges):
            file.write(piece)


def read(path: Path, version: str, *, threads: int | None = None) -> Artefact:
    """Open an artefact. Raises `UsageError` when there is no such file, `InvalidModel` when it is damaged, and
    `UnsupportedModel` when it was made by another version or for a CPU with features this one lacks."""
    with ExitStack() as ends:
        with _readable(path):
            file = ends.enter_context(path.open("rb"))
            manifest, start = _manifest(path, file.read(len(_MAGIC) + 8), file.fileno())
        with _understood(path):
            _check_version(path, manifest, version)
            arena_bytes = int(manifest["program"]["arena_bytes"])
            body = ends.enter_context(_Body(path, file.fileno(), manifest, start))
        resident = ends.enter_context(Resident())
        resident.start(arena_bytes)
        from fusewise.runtime.executable import restored  # imported while the body is read

        with _understood(path):
            contents = _contents(path, manifest, body)
            notes = dict(manifest["notes"])
        return Artefact(restored(contents, threads, resident), notes)


def _contents(path: Path, manifest: Mapping[str, Any], body: _Body) -> Contents:
    """What the manifest describes, put together while the body is read."""
    from fusewise.runtime.executable import Contents
    from fusewise.runtime.program_json import program_from_json

    target = host_target()
    _check_fit(path, manifest, target)
    program = program_from_json(manifest["program"])
    whole = body.whole()
    parts = [whole[offset : offset + size] for offset, size in manifest["sections"]]
    symbols = tuple(manifest["kernels"])
    images = tuple(bytes(part) for part in parts[: len(symbols)])
    constants = dict(zip(manifest["constants"], parts[len(symbols) :], strict=True))
    return Contents(program, symbols, images, constants, target)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


@contextmanager
def _understood(path: Path) -> Iterator[None]:
    """A manifest is whole, but may say what no model of this program does."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidModel(f"{path} is not a compiled model of this program ({error!r}); compile it again") from None


# --- writing ----------------------------------------------------------------------------------------------------------


def _checksum(manifest: bytes) -> bytes:
    return zlib.crc32(manifest).to_bytes(_CHECKSUM_BYTES, "little")


def _edges(sizes: list[int]) -> list[int]:
    """Where each section begins behind the manifest, and where the last one ends; bytes."""
    edges = [0]
    for size in sizes:
        edges.append(-(-(edges[-1] + size) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
    return edges


def _pieces(sections: list[np.ndarray], edges: list[int]) -> Iterator[memoryview | bytes]:
    """The bytes of all sections with the zeros between them."""
    for section, begin, end in zip(sections, edges[:-1], edges[1:], strict=True):
        yield section.data
        yield b"\0" * (end - begin - section.nbytes)


def _checksums(sections: list[np.ndarray], edges: list[int]) -> list[int]:
    """A checksum of every stretch of what `_pieces` gives."""
    found, state, room = [], 0, _STRETCH_BYTES
    for piece in _pieces(sections, edges):
        view = memoryview(piece)
        while view.nbytes:
            part = view[:room]
            state, room = zlib.crc32(part, state), room - part.nbytes
            if not room:
                found.append(state)
                state, room = 0, _STRETCH_BYTES
            view = view[part.nbytes :]
    return found if room == _STRETCH_BYTES else [*found, state]


# --- reading ----------------------------------------------------------------------------------------------------------


def _damaged(path: Path, what: str) -> InvalidModel:
    return InvalidModel(f"{path} is damaged: {what}; compile the model again")


def _manifest(path: Path, head: bytes, file: int) -> tuple[dict[str, Any], int]:
    """The manifest, checked to be whole, and where the sections begin."""
    if not head.startswith(_MAGIC):
        if head and _MAGIC.startswith(head):
            raise _damaged(path, "it ends within its first line")
        raise InvalidModel(f"{path} is not a compiled model: it does not begin as one")
    length = int.from_bytes(head[len(_MAGIC) :], "little")
    known = os.fstat(file).st_size
    if len(head) < len(_MAGIC) + 8 or length > min(known, _LONGEST_MANIFEST):
        raise _damaged(path, "it is shorter than it says")
    text = os.pread(file, length, len(head))
    checksum = os.pread(file, _CHECKSUM_BYTES, len(head) + length)
    if _checksum(head + text) != checksum:
        _check_format(path, _stated_format(text))  # earlier ones had other checksums
        raise _damaged(path, "its manifest does not match its checksum")
    manifest: dict[str, Any] = json.loads(text)
    return manifest, len(head) + length + _CHECKSUM_BYTES


def _stated_format(text: bytes) -> int:
    """The format that a manifest states which does not match its checksum; this version's where it states no earlier one."""
    try:
        return min(int(json.loads(text)["format"]), _FORMAT)
    except (ValueError, KeyError, TypeError):
        return _FORMAT


def _check_format(path: Path, found: int) -> None:
    if found != _FORMAT:
        raise UnsupportedModel(
            f"{path} has format {found}, and this version reads format {_FORMAT}: compile the model again"
        )


def _check_version(path: Path, manifest: Mapping[str, Any], version: str) -> None:
    """Refuse what another version wrote."""
    if manifest["version"] != version:
        raise UnsupportedModel(
            f"{path} was written by version {manifest['version']}, and this is {version}: compile the model again"
        )
    _check_format(path, manifest["format"])


def _check_fit(path: Path, manifest: Mapping[str, Any], host: Target) -> None:
    """Refuse what this CPU cannot run."""
    made = manifest["target"]
    if made["triple"] != host.triple:
        raise UnsupportedModel(f"{path} was compiled for {made['triple']}, and this is {host.triple}: compile it here")
    missing = sorted(_present(made["features"]) - _present(host.features))
    if missing:
        shown = ", ".join(missing[:6]) + (" and more" if len(missing) > 6 else "")
        raise UnsupportedModel(f"{path} was compiled for a {made['cpu']}; this CPU lacks {shown}: compile it here")


def _present(features: str) -> set[str]:
    return {name[1:] for name in features.split(",") if name.startswith("+")}


class _Body:
    """All sections in one block of memory, every stretch read and checked by threads while the caller does something else.

    Used as a context manager: reading is over, or given up, when the block is.
    """

    def __init__(self, path: Path, file: int, manifest: Mapping[str, Any], start: int) -> None:
        """`file` is open, and sections begin at `start`. Raises `InvalidModel` when it has not as many bytes as are stated, and
        `ResourceLimit` when they do not fit the memory."""
        self._path, self._file, self._start = path, file, start
        self._total, self._checksums = int(manifest["bytes"]), manifest["checksums"]
        size, stated = os.fstat(file).st_size, start + self._total
        if size != stated or len(self._checksums) != -(-self._total // _STRETCH_BYTES):
            raise _damaged(path, f"it has {size:,} bytes where {stated:,} are stated")
        check_memory(self._total, f"the weights of {path}")
        self._block = aligned_block(self._total)
        self._wanted = True
        self._reading = Aside(lambda: mapped(self._fetch, len(self._checksums), _READERS))

    def __enter__(self) -> _Body:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wanted = False
        self._reading.__exit__(kind, error, trace)

    def whole(self) -> np.ndarray:
        """The block, read to its end. Raises `InvalidModel` where a checksum does not match, `UsageError` when reading fails."""
        with _readable(self._path):
            good = self._reading.result()
        if not all(good):
            at = self._start + good.index(False) * _STRETCH_BYTES
            raise _damaged(self._path, f"bytes after {at:,} do not match their checksum")
        return self._block

    def _fetch(self, number: int) -> bool:
        low = number * _STRETCH_BYTES
        part = self._block.data[low : min(low + _STRETCH_BYTES, self._total)]
        at, left = self._start + low, part
        while left.nbytes and self._wanted:
            count = os.preadv(self._file, [left], at)
            if not count:
                return False
            at, left = at + count, left[count:]
        return bool(zlib.crc32(part) == self._checksums[number])
