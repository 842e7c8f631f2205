"""Compiled kernels on disk: found by what they are, trusted only when whole.

A kernel's key says everything its machine code depends on: the kernel, the CPU, the versions of this program and of LLVM, and
the sources of our own code generator. A file is named by the hash of its keys, states them in full, and ends in a checksum over
everything before, so a hash collision, a flipped byte or half a file is a miss and never wrong code. Files appear whole, by
renaming; nothing is locked, so any number of processes may share a folder.

A program's kernels are stored one by one, for other programs to find, and once more together, since one file loads faster than
sixty.

    magic | length of header | header (JSON: context, keys, sizes) | object files | checksum
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fusewise.codegen.target import Target
from fusewise.records import record
from fusewise.runtime.folder import first_only, folder_fault, kept_files, removed, trim

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["CacheInfo", "KernelCache", "source_digest"]

_MAGIC = b"fusewise kernels 1\n"
_CHECKSUM_BYTES = 32
_FOLDER = "kernels"
_GENERATORS = ("codegen", "lower", "ops", "ir", "runtime/jit.py")
"""Sources that decide what machine code a kernel becomes."""


@record(frozen=True)
class CacheInfo:
    """What is in a cache folder."""

    folder: Path
    files: int
    nbytes: int
    usable: bool


class KernelCache:
    """Object files by key in `folder`. Every failure to read or write is a miss; the first is told to `warn` as a sentence.

    The folder is created for its owner only, and one that someone else owns or may write to is not used: what it holds is
    executed. When it grows past `limit_bytes` the files longest unused are removed.
    """

    def __init__(
        self, folder: Path, warn: Callable[[str], None] | None = None, *, limit_bytes: int = 512 * 1024 * 1024
    ) -> None:
        self.folder = folder / _FOLDER
        self.limit_bytes = limit_bytes
        self._complain = (lambda sentence: None) if warn is None else first_only(warn)
        self._readable: bool | None = None
        self._writable = True

    def fetch(self, keys: Sequence[str], target: Target | str) -> dict[str, bytes]:
        """The object files found among `keys` (distinct): the whole bundle when this program has been here, else one by one.

        Of code that LLVM did not make for a processor, `target` is all that it depends on besides its key.
        """
        if not keys or not self._usable():
            return {}
        context = _context(target)
        bundle = self._read(context, list(keys))
        if bundle is not None:
            return dict(zip(keys, bundle, strict=True))
        found: dict[str, bytes] = {}
        for key in keys:
            single = self._read(context, [key])
            if single is not None:
                found[key] = single[0]
        return found

    def store(self, images: Mapping[str, bytes], fresh: Collection[str], target: Target | str) -> None:
        """Keep all of a program's object files as a bundle, and those whose keys are in `fresh` by themselves as well."""
        if not images or not self._usable():
            return
        context = _context(target)
        for key in fresh:
            self._write(context, [key], [images[key]])
        if len(images) > 1:
            self._write(context, list(images), list(images.values()))
        trim(self.folder, self.limit_bytes, lambda name: name.startswith("new-"))

    def info(self) -> CacheInfo:
        """Number and size of the files kept."""
        sizes = [file.nbytes for file in kept_files(self.folder)]
        return CacheInfo(self.folder, len(sizes), sum(sizes), self._usable(create=False))

    def clear(self) -> int:
        """Remove every file; the number removed."""
        return removed(kept_files(self.folder))

    # --- files --------------------------------------------------------------------------------------------------------

    def _read(self, context: str, keys: list[str]) -> list[bytes] | None:
        path = self._path(context, keys)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._complain(
                f"compiled kernels cannot be read from {path.parent}: {error.strerror}; compiling them again"
            )
            return None
        images = _unpack(data, context, keys)
        if images is None:
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)
        return images

    def _write(self, context: str, keys: list[str], images: list[bytes]) -> None:
        """Write a file beside its place and move it there; readers see all of it or nothing."""
        if not self._writable:
            return
        import tempfile

        path = self._path(context, keys)
        temporary = None
        try:
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix="new-", delete=False) as stream:
                temporary = Path(stream.name)
                stream.write(_pack(context, keys, images))
            temporary.replace(path)
        except OSError as error:
            self._writable = False
            if temporary is not None:
                with suppress(OSError):
                    temporary.unlink()
            self._complain(
                f"compiled kernels cannot be kept in {self.folder}: {error.strerror}; working without the cache"
            )
        except BaseException:  # an interrupt must not leave a stray file
            if temporary is not None:
                with suppress(OSError):
                    temporary.unlink()
            raise

    def _path(self, context: str, keys: list[str]) -> Path:
        name = hashlib.blake2b("\0".join((context, *keys)).encode(), digest_size=20).hexdigest()
        return self.folder / f"{name}.{'one' if len(keys) == 1 else 'all'}"

    def _usable(self, *, create: bool = True) -> bool:
        """Does the folder exist, or can it be made, for us alone?"""
        if self._readable is None:
            fault = folder_fault(self.folder, create=create)
            if fault and not create:
                return False
            self._readable = not fault
            if fault:
                self._complain(f"the cache folder {self.folder} {fault}; working without the cache")
        return self._readable


def _pack(context: str, keys: list[str], images: list[bytes]) -> bytes:
    header = json.dumps({"context": context, "keys": keys, "sizes": [len(image) for image in images]}).encode()
    body = b"".join((_MAGIC, len(header).to_bytes(8, "little"), header, *images))
    return body + hashlib.blake2b(body, digest_size=_CHECKSUM_BYTES).digest()


def _unpack(data: bytes, context: str, keys: list[str]) -> list[bytes] | None:
    """The object files, or None when the file is damaged or belongs to other keys."""
    view = memoryview(data)
    body, checksum = view[:-_CHECKSUM_BYTES], view[-_CHECKSUM_BYTES:]
    if hashlib.blake2b(body, digest_size=_CHECKSUM_BYTES).digest() != checksum or body[: len(_MAGIC)] != _MAGIC:
        return None
    start = len(_MAGIC) + 8
    end = start + int.from_bytes(body[len(_MAGIC) : start], "little")
    header = json.loads(bytes(body[start:end]))
    if header["context"] != context or header["keys"] != keys:
        return None
    images = []
    for size in header["sizes"]:
        images.append(bytes(body[end : end + size]))
        end += size
    return images


# --- keys ---------------------------------------------------------------------------------------------------------------


def _context(target: Target | str) -> str:
    """What the machine code of every kernel depends on besides the kernel itself."""
    return target if isinstance(target, str) else f"{_versions()}\n{target.key}"


@cache
def _versions() -> str:
    from importlib import metadata

    import llvmlite
    import llvmlite.binding as llvm

    try:
        own = metadata.version("fusewise")
    except metadata.PackageNotFoundError:  # run from a source tree
        own = "source"
    numbers = ".".join(str(part) for part in llvm.llvm_version_info)
    return f"fusewise {own} {source_digest()} llvmlite {llvmlite.__version__} llvm {numbers}"


@cache
def source_digest(places: tuple[str, ...] = _GENERATORS) -> str:
    """A hash over sources of the package, by default the code generator's: a change makes every kernel compiled before a
    stranger."""
    from importlib import resources

    state = hashlib.blake2b(digest_size=16)
    root = resources.files("fusewise")
    for place in places:
        for name, text in sorted(_sources(root.joinpath(place), place)):
            state.update(f"{name}\0{len(text)}\0".encode())
            state.update(text)
    return state.hexdigest()


def _sources(node: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    if node.is_file():
        if name.endswith(".py"):
            yield name, node.read_bytes()
    elif node.is_dir():
        for child in node.iterdir():
            yield from _sources(child, f"{name}/{child.name}")
