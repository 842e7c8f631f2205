"""Whose turn it is: one thread at a time, and a thread that comes back before it is done is told so."""

from __future__ import annotations

import threading
from types import TracebackType

from fusewise.errors import UsageError

__all__ = ["Turns"]


class Turns:
    """Used as a context manager: other threads wait, and the thread inside gets a `UsageError` for `what` it is in the middle of.

    A thread can come back only from a signal handler, a finalizer or a callback; it would wait for itself.
    """

    __slots__ = ("_inside", "_lock", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = (
            threading.RLock()
        )  # of the thread that has it at any moment, unlike a note of one's own beside a lock
        self._inside = False

    @property
    def is_taken(self) -> bool:
        """Is a thread inside?"""
        return self._inside

    def try_enter(self) -> bool:
        """Enter if no other thread is inside; has it been possible?"""
        if not self._lock.acquire(blocking=False):
            return False
        if self._inside:
            self._refuse()
        self._inside = True
        return True

    def leave(self) -> None:
        """What ends what `try_enter` began."""
        self._inside = False
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._inside:
            self._refuse()
        self._inside = True

    def _refuse(self) -> None:
        self._lock.release()
        raise UsageError(
            f"{self._what} from within itself, as a signal handler does that interrupts it; run after it, or in a thread"
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside = False
        self._lock.release()
