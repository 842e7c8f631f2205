"""Compiled files as bytes: a manifest in JSON and sections behind it, every byte checked.

    magic | length of manifest | manifest (JSON, spaces to fill a page) | checksum | sections, on 64-byte boundaries | signature

The manifest states format and program version, where the sections lie, and a checksum of every stretch of the file behind it, so
that a changed byte anywhere is found before anything is used. What else it says is `runtime.artefact`'s. Nothing here needs NumPy:
a file is read while that is imported, half of what opening a model would otherwise take.

Checksums (CRC-32) find damage, not intent: whoever writes a file can make them right, and a file is a program. Only signed ones end
in a signature. It covers everything up to the manifest's end, and the manifest of a signed file has a cryptographic hash (SHA-256)
of every stretch too; these are what is compared where a signature is asked for, with bytes that are in memory and stay there.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from fusewise.codegen.target import LINE_BYTES, whole_lines
from fusewise.errors import InvalidModel, ResourceLimit, UnsupportedModel, UsageError
from fusewise.files import written_whole
from fusewise.runtime.aside import Spread
from fusewise.runtime.host import check_memory
from fusewise.runtime.pages import private_pages
from fusewise.runtime.signing import SIGNATURE_BYTES

__all__ = ["Container", "understood", "write", "written"]

_MAGIC = b"fusewise artefact\n"
_FORMAT = 7
_PAGE_BYTES = 4096
_CHECKSUM_BYTES = 4
_STRETCH_BYTES = 4 * 1024 * 1024
"""Sections are read, checked and, by several threads, overlapped in pieces of this size."""

_READERS = 4
"""Threads that read once the caller waits for it. Before that there is one: imports cannot do without the other core, and every
thread that comes back from reading makes them wait for Python's lock."""

_LONGEST_MANIFEST = 1 << 30


def write(path: Path, parts: Iterable[bytes | memoryview], *, settled: bool) -> None:
    """Write a file of the `parts` that `written` gives; it appears whole or not at all, and is on the disk then if `settled`.

    Raises `ResourceLimit` when there is no room, `UsageError` when the place may not be written to.
    """
    with written_whole(path, settled=settled) as (draft,), draft.open("wb") as file:
        for part in parts:
            file.write(part)


def written(
    version: str,
    said: Mapping[str, Any],
    sections: Sequence[memoryview],
    sign: Callable[[bytes], bytes] | None = None,
) -> Iterator[bytes | memoryview]:
    """The bytes of flat `sections` and a manifest of what is `said`, plain JSON, part by part. `version` is that of this program;
    `sign` gives the signature of a message."""
    edges = _edges([section.nbytes for section in sections])
    manifest = {
        "format": _FORMAT,
        "version": version,
        **said,
        "sections": [[edge, section.nbytes] for edge, section in zip(edges, sections, strict=False)],
        "bytes": edges[-1],
        "checksums": _checksums(sections, edges),
    }
    if sign is not None:
        manifest["digests"] = _digests(sections, edges)
    text = json.dumps(manifest, separators=(",", ":")).encode()
    around = len(_MAGIC) + 8 + _CHECKSUM_BYTES
    text = text.ljust(-(-(len(text) + around) // _PAGE_BYTES) * _PAGE_BYTES - around)
    head = _MAGIC + len(text).to_bytes(8, "little") + text
    yield head + _checksum(head)
    yield from _pieces(sections, edges)
    if sign is not None:
        yield sign(head)


class Container:
    """A file whose sections are read and checked by threads while the caller does something else.

    Used as a context manager: reading is over, or given up, when the block is. `manifest` is whole, and of this version.
    """

    def __init__(
        self,
        path: Path,
        version: str,
        trust: Callable[[bytes, bytes], bool] | None = None,
        file: BinaryIO | None = None,
    ) -> None:
        """`trust` says whether the first is the signature of the second by someone whose programs are run. `file` is what is read
        in place of the one at `path`, which messages name then; it is closed in the end.

        Raises `UsageError` when the file cannot be read, `InvalidModel` when it is damaged or not signed as it should be,
        `UnsupportedModel` when another version wrote it, and `ResourceLimit` when it does not fit the memory.
        """
        self.path = path
        with _readable(path):
            self._file = path.open("rb") if file is None else file
        try:
            with _readable(path):
                head, self._start = _head(path, self._file.fileno())
            with understood(path):
                self.manifest = _manifest(head)
                if trust is not None:
                    _check_signature(path, self._file.fileno(), head, self.manifest, trust)
                self._sum = zlib.crc32 if trust is None else _digest
                self._sums = list(self.manifest["checksums" if trust is None else "digests"])
                _check_version(path, self.manifest, version)
                self._begin()
        except BaseException:
            self._file.close()
            raise

    def _begin(self) -> None:
        self._total = int(self.manifest["bytes"])
        stated = self._start + self._total + (SIGNATURE_BYTES if "digests" in self.manifest else 0)
        size = os.fstat(self._file.fileno()).st_size
        if size != stated or len(self._sums) != -(-self._total // _STRETCH_BYTES):
            raise _damaged(self.path, f"it has {size:,} bytes where {stated:,} are stated")
        check_memory(self._total, f"the weights of {self.path}")
        try:
            self._block = memoryview(private_pages(self._total))
        except OSError as error:
            raise ResourceLimit(f"no memory for the weights of {self.path}: {error.strerror}") from None
        self._wanted = True
        self._reading = Spread(self._fetch, len(self._sums))
        self._reading.help(1)

    def __enter__(self) -> Container:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wanted = False
        self._reading.__exit__(kind, error, trace)
        self._file.close()

    def sections(self) -> list[memoryview]:
        """The bytes of each, all read; they begin on 64-byte boundaries and may be written to.

        Raises `InvalidModel` where a checksum does not match, `UsageError` when reading fails.
        """
        with _readable(self.path):
            self._reading.help(_READERS - 1)
            good = self._reading.results()
        if not all(good):
            at = self._start + good.index(False) * _STRETCH_BYTES
            raise _damaged(self.path, f"bytes after {at:,} do not match their checksum")
        with understood(self.path):
            return [self._block[offset : offset + size] for offset, size in self._apart()]

    def _apart(self) -> list[tuple[int, int]]:
        """Where each section lies and its size, in bytes: one behind the other, on boundaries, and inside the file."""
        found, end = [], 0
        for number, (offset, size) in enumerate(self.manifest["sections"]):
            whole = type(offset) is type(size) is int
            if not whole or offset < end or offset % LINE_BYTES or size < 0 or offset + size > self._total:
                raise ValueError(f"section {number} is not where one can be")
            found.append((offset, size))
            end = offset + size
        return found

    def _fetch(self, number: int) -> bool:
        low = number * _STRETCH_BYTES
        part = self._block[low : min(low + _STRETCH_BYTES, self._total)]
        at, left = self._start + low, part
        while left.nbytes and self._wanted:
            count = os.preadv(self._file.fileno(), [left], at)
            if not count:
                return False
            at, left = at + count, left[count:]
        return bool(self._sum(part) == self._sums[number])


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """A manifest is whole, but may say what no model of this program does: `InvalidModel` then."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        about = str(error) if type(error) is ValueError else repr(error)
        raise InvalidModel(
            f"{path} is not a compiled model of this program ({about[:300]}); compile the model again"
        ) from None


# --- writing ----------------------------------------------------------------------------------------------------------


def _checksum(head: bytes) -> bytes:
    return zlib.crc32(head).to_bytes(_CHECKSUM_BYTES, "little")


def _edges(sizes: Sequence[int]) -> list[int]:
    """Where each section begins behind the manifest, and where the last one ends; bytes."""
    edges = [0]
    for size in sizes:
        edges.append(whole_lines(edges[-1] + size))
    return edges


def _pieces(sections: Sequence[memoryview], edges: Sequence[int]) -> Iterator[memoryview]:
    """The bytes of all sections with the zeros between them."""
    for section, begin, end in zip(sections, edges[:-1], edges[1:], strict=True):
        yield section
        yield memoryview(bytes(end - begin - section.nbytes))


def _checksums(sections: Sequence[memoryview], edges: Sequence[int]) -> list[int]:
    """A checksum of every stretch of what `_pieces` gives."""
    return [reduce(lambda state, part: zlib.crc32(part, state), parts, 0) for parts in _stretches(sections, edges)]


def _digests(sections: Sequence[memoryview], edges: Sequence[int]) -> list[str]:
    """A cryptographic hash of every stretch of what `_pieces` gives."""
    import hashlib

    found = []
    for parts in _stretches(sections, edges):
        state = hashlib.sha256()
        for part in parts:
            state.update(part)
        found.append(state.hexdigest())
    return found


def _stretches(sections: Sequence[memoryview], edges: Sequence[int]) -> Iterator[list[memoryview]]:
    """What `_pieces` gives as parts of stretches of one size; the last may be shorter."""
    parts: list[memoryview] = []
    room = _STRETCH_BYTES
    for view in _pieces(sections, edges):
        while view.nbytes:
            part = view[:room]
            parts.append(part)
            room, view = room - part.nbytes, view[part.nbytes :]
            if not room:
                yield parts
                parts, room = [], _STRETCH_BYTES
    if parts:
        yield parts


# --- reading ----------------------------------------------------------------------------------------------------------


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def _damaged(path: Path, what: str) -> InvalidModel:
    return InvalidModel(f"{path} is damaged: {what}; compile the model again")


def _head(path: Path, file: int) -> tuple[bytes, int]:
    """The file up to the end of the manifest, checked to be whole, and where the sections begin."""
    head = os.pread(file, len(_MAGIC) + 8, 0)
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
    return head + text, len(head) + length + _CHECKSUM_BYTES


def _manifest(head: bytes) -> dict[str, Any]:
    found = json.loads(head[len(_MAGIC) + 8 :])
    if not isinstance(found, dict):
        raise ValueError("its manifest is no object")
    return found


def _check_signature(
    path: Path, file: int, head: bytes, manifest: Mapping[str, Any], trust: Callable[[bytes, bytes], bool]
) -> None:
    """Refuse what is not signed by someone who is trusted."""
    if "digests" not in manifest:
        raise InvalidModel(f"{path} is not signed, and only signed files are trusted here; do not run it")
    with _readable(path):
        signature = os.pread(file, SIGNATURE_BYTES, max(0, os.fstat(file).st_size - SIGNATURE_BYTES))
    if not trust(signature, head):
        raise InvalidModel(f"{path} is not signed with the key that is trusted here, or was changed; do not run it")


def _digest(part: memoryview) -> str:
    import hashlib

    return hashlib.sha256(part).hexdigest()


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
