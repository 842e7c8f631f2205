"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from fusewise.errors import FusewiseError, ResourceLimit, UsageError

__all__ = ["write_text", "written_whole"]


@contextlib.contextmanager
def written_whole(*targets: Path, settled: bool = True) -> Iterator[tuple[Path, ...]]:
    """Empty files beside the targets to write to. They take the targets' names when all went well, else they go.

    `settled`: wait until the contents are on the disk, so that not even a power failure leaves half of them. Raises
    `ResourceLimit` when there is no room, and `UsageError` when the place may not be written to.
    """
    if any(target.exists() and not target.is_file() and not target.is_dir() for target in targets):
        with _written_through(targets) as drafts:
            yield drafts
        return
    temporary = tuple(target.with_name(f".{target.name}.{os.urandom(8).hex()}") for target in targets)
    try:
        for path in temporary:
            path.touch(exist_ok=False)
        yield temporary
        for path in temporary if settled else ():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        for path, target in zip(temporary, targets, strict=True):
            path.replace(target)
    except OSError as error:
        raise _told(targets[-1], error) from None
    finally:
        for path in temporary:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def _written_through(targets: tuple[Path, ...]) -> Iterator[tuple[Path, ...]]:
    """The same for a device or a pipe, which is written to and not replaced: the contents go there when all went well."""
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(prefix="fusewise-") as folder:
        drafts = tuple(Path(folder) / f"{k}-{target.name}" for k, target in enumerate(targets))
        try:
            for path in drafts:
                path.touch()
            yield drafts
            for path, target in zip(drafts, targets, strict=True):
                with path.open("rb") as source, target.open("wb") as there:
                    shutil.copyfileobj(source, there)
        except OSError as error:
            raise _told(targets[-1], error) from None


def _told(target: Path, error: OSError) -> FusewiseError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return ResourceLimit(f"cannot write {target}: {error.strerror}; nothing was left behind")
    return UsageError(f"cannot write {target}: {error.strerror}")


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all. Raises what `written_whole` raises."""
    with written_whole(path) as (draft,):
        draft.write_text(text, encoding="utf-8")
