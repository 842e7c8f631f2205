"""External data: tensors whose bytes lie in a file beside the model. No other module opens a file that a model names.

The model is a stranger's file and names the path, so the path is walked one component at a time below the model's folder
without following links, and the file must be an ordinary one with a single name (compare CVE-2022-25882, CVE-2024-27318,
CVE-2026-27489 and CVE-2026-34446 of the onnx package). Offsets and lengths are compared as unbounded integers.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from fusewise.errors import InvalidModel, ResourceLimit
from fusewise.frontend.limits import ModelLimits
from fusewise.frontend.stored import Stored, StoredBytes

if TYPE_CHECKING:
    import onnx

__all__ = ["ExternalData", "open_below"]

_KEYS = frozenset({"location", "offset", "length", "checksum", "basepath"})
_IGNORED_PREFIX = "prepacked"  # ONNX Runtime keeps its own layouts beside the weights under such keys


class ExternalData:
    """The external files of one model, each opened once. `folder` is None for a model that is not a file."""

    def __init__(self, folder: Path | None, limits: ModelLimits) -> None:
        self._folder = folder
        self._limits = limits
        self._files: dict[str, Stored] = {}

    def stretch(self, tensor: onnx.TensorProto, name: str) -> StoredBytes:
        """Where the bytes of `tensor`, called `name` in errors, lie. Raises `InvalidModel` for a bad place, path or range."""
        place = _entries(tensor, name)
        location = place.get("location", "")
        if self._folder is None:
            raise InvalidModel(
                f"tensor {name!r} lies in the file {location!r}, but the model has no folder; load it by its path"
            )
        _check_location(name, location)
        if location not in self._files:
            self._files[location] = self._opened(name, location)
        file = self._files[location]
        offset = _number(name, "offset", place.get("offset", "0"))
        length = _number(name, "length", place["length"]) if "length" in place else len(file) - offset
        if offset > len(file) or length > len(file) - offset:
            raise InvalidModel(
                f"tensor {name!r}: bytes {offset:,} to {offset + length:,} were asked of {location!r}, which has only "
                f"{len(file):,}; the file is too short or the model is not its own"
            )
        return StoredBytes(file, offset, length)

    def _opened(self, name: str, location: str) -> Stored:
        assert self._folder is not None
        try:
            descriptor = _open_below(self._folder, PurePosixPath(location).parts)
        except FileNotFoundError:
            raise InvalidModel(
                f"tensor {name!r}: its external data file {location!r} is missing in the model's folder"
            ) from None
        except OSError as error:
            raise InvalidModel(
                f"tensor {name!r}: its external data file {location!r} cannot be opened without leaving the model's "
                f"folder or following a link ({error.strerror}); put an ordinary file there"
            ) from None
        file = Stored(descriptor, f"the external data file {location!r}")
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidModel(f"tensor {name!r}: its external data {location!r} is not an ordinary file")
        if status.st_nlink > 1:
            raise InvalidModel(
                f"tensor {name!r}: its external data file {location!r} has {status.st_nlink} hard links, so it may "
                "be a file from elsewhere; put a copy there"
            )
        total = len(file) + sum(map(len, self._files.values()))
        if total > self._limits.external_bytes:
            raise ResourceLimit(
                f"the external data files hold {total:,} bytes; the limit is {self._limits.external_bytes:,}"
            )
        return file


def open_below(folder: Path, location: str) -> int:
    """The file that a model in `folder` may name as `location`, open for reading. `InvalidModel` or `OSError` for any other."""
    _check_location("", location)
    descriptor = _open_below(folder, PurePosixPath(location).parts)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "it is not an ordinary file")
    return descriptor


def _entries(tensor: onnx.TensorProto, name: str) -> dict[str, str]:
    """The external_data entries; unknown and repeated keys are refused."""
    found: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key.startswith(_IGNORED_PREFIX):
            continue
        if entry.key not in _KEYS or entry.key in found:
            problem = "repeated" if entry.key in found else "unknown"
            raise InvalidModel(f"tensor {name!r} has the {problem} external data key {entry.key[:100]!r}")
        found[entry.key] = entry.value
    return found


def _number(name: str, key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise InvalidModel(f"tensor {name!r}: its external data {key} {text[:40]!r} is not a plain number")
    return int(text)


def _check_location(name: str, location: str) -> None:
    """A location is a relative path of plain components, on every operating system."""
    windows = PureWindowsPath(location)
    outside = PurePosixPath(location).is_absolute() or bool(windows.drive or windows.root) or ".." in windows.parts
    if not location or "\0" in location or outside:
        raise InvalidModel(
            f"tensor {name!r}: its external data location {location[:200]!r} points outside the model's folder; "
            "only a relative path below it is allowed"
        )


def _open_below(folder: Path, parts: tuple[str, ...]) -> int:
    """Open a file below `folder` for reading, component by component, following no links."""
    if os.open not in os.supports_dir_fd:  # Windows: no openat; links need privileges there
        target = folder.joinpath(*parts)
        if target.resolve() != folder.resolve().joinpath(*parts):
            raise OSError(0, "it is a link")
        return os.open(target, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        # Without O_NONBLOCK opening a pipe would wait for its writer.
        return os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
    finally:
        os.close(here)
