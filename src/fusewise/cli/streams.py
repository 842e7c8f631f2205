"""The two streams of the program, and how much it says on the second: what happens when nobody reads, or nothing can be written."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import IntEnum
from io import StringIO
from typing import Any

from fusewise.errors import ResourceLimit

__all__ = ["ReaderLeft", "Talk", "note", "streams", "talk", "words_and_talk"]

ANYWHERE = ("--debug", "-q", "--quiet", "-v", "--verbose")
"""Words that may stand anywhere on the line, so that they can be added at its end."""


class Talk(IntEnum):
    """How much is said beside data and errors: nothing, what matters, or decisions and times of stages, too."""

    QUIET = 0
    USUAL = 1
    VERBOSE = 2


class ReaderLeft(BaseException):
    """Whoever read standard output has closed it. No `Exception`, so that nobody takes it for a failure of what was being done."""


_TALK: ContextVar[Talk] = ContextVar("talk", default=Talk.USUAL)


def talk() -> Talk:
    """How much this run of the program is to say."""
    return _TALK.get()


def note(sentence: str) -> None:
    """Say on stderr what the user should know; nothing with `-q`."""
    if talk() > Talk.QUIET:
        sys.stderr.write(f"fusewise: {sentence}\n")


def words_and_talk(arguments: Sequence[str]) -> tuple[list[str], Talk, bool]:
    """The words without those of `ANYWHERE` in front of `--`, how much to say, and whether a traceback is wanted."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    before = arguments[:end]
    said = Talk.USUAL
    for word in before:
        said = Talk.QUIET if word in ("-q", "--quiet") else Talk.VERBOSE if word in ("-v", "--verbose") else said
    return [*(word for word in before if word not in ANYWHERE), *arguments[end:]], said, "--debug" in before


@contextmanager
def streams(said: Talk) -> Iterator[None]:
    """Standard output ends with `ReaderLeft` where its reader has left and `ResourceLimit` where there is no room; what cannot be
    written to stderr is dropped. Everything is written out at the end. What is warned of is said as a `note`."""
    token, out, err = _TALK.set(said), sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Output(out or _Closed()), _Messages(err or _Closed())
    try:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, category, filename, lineno, file=None, line=None: _noted(message)
                yield
        finally:
            _ended(sys.exc_info()[1])
    finally:
        sys.stdout, sys.stderr = out, err
        _TALK.reset(token)


def _noted(message: Warning | str) -> None:
    """A warning as a sentence: the line of the program that it comes from says nothing to who typed a command."""
    note(" ".join(str(message).split()))


def _ended(error: BaseException | None) -> None:
    """Write out what is left; another error than one of writing goes first."""
    if isinstance(error, ReaderLeft | ResourceLimit):
        with suppress(ReaderLeft, ResourceLimit):
            sys.stdout.flush()
    else:
        sys.stdout.flush()


class _Closed(StringIO):
    """A stream that the program was started without."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "it is closed")


class _Stream:
    """A stream that is another one in all but writing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Output(_Stream):
    """Ends with the same error whenever it is written to after one: some callers swallow the first."""

    failed: BaseException | None = None

    def write(self, text: str) -> int:
        with self._watched():
            return int(self.stream.write(text))

    def flush(self) -> None:
        with self._watched():
            self.stream.flush()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        if self.failed is not None:
            raise self.failed
        try:
            yield
        except OSError as error:
            self.failed = self._told(error)
            raise self.failed from None

    def _told(self, error: OSError) -> BaseException:
        """The error to end with. What is still buffered goes nowhere: Python must not try again when it ends."""
        with suppress(OSError, ValueError):  # a stream of a test has no number
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)
        if error.errno in (errno.EPIPE, errno.ECONNRESET):
            return ReaderLeft()
        return ResourceLimit(f"cannot write to standard output: {error.strerror}")


class _Messages(_Stream):
    def write(self, text: str) -> int:
        with suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self.stream.flush()
