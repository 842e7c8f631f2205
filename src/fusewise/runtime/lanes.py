"""Several lanes of one program, for threads that run it at the same time.

A run by itself has all workers. Where runs of as many threads are under way as there are workers, each is made by its own thread
in a lane of its own, which is sooner done with all of them: workers need not meet. A thread that comes takes a lane that is free;
where there is none it waits, and who waits first is called first. A thread that comes may take what another was called for: the
other has to wait for the interpreter before it can, and the lane would lie idle. So there are more lanes than cores: a thread that
waits for the interpreter after its run still has one. Other lanes than the first are made when threads have had to wait some times.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from fusewise.errors import ResourceLimit
from fusewise.runtime.lane import Lane

__all__ = ["LANES_A_CORE", "Lanes"]

LANES_A_CORE = 2
"""Sixteen clients of a web service on two cores got 540 answers a second with two lanes, 670 with four, 620 with eight."""

_PATIENCE = 8
"""Times that threads had to wait before there is another lane."""

_LONGEST_WAIT_S = 0.05
"""A thread looks after so long by itself: one that is interrupted may forget to call the next."""


class Lanes:
    """A first lane, and at most so many in all; `make` gives another, or raises `ResourceLimit` where there is no room."""

    def __init__(self, first: Lane, most: int, make: Callable[[], Lane]) -> None:
        self.first = first
        self._lanes: tuple[Lane, ...] = (first,)
        self._others: tuple[Lane, ...] = ()
        self._most, self._make = most, make
        self._making = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._waited = 0

    @property
    def count(self) -> int:
        """How many lanes there are now."""
        return len(self._lanes)

    def take(self) -> Lane:
        """A lane for this thread alone, until it leaves it. `UsageError` for a thread that has one."""
        first = self.first
        if first.turn.try_enter():
            if self._others:
                return self._entered(first)
            first.is_crowded = False  # no call, during which a signal might come and the lane be lost
            return first
        return self._in_turn()

    def _entered(self, lane: Lane) -> Lane:
        try:
            lane.is_crowded = self._is_crowded(0)
        except BaseException:
            lane.turn.leave()
            raise
        return lane

    def take_first(self) -> Lane:
        """The first lane, for all workers."""
        self.first.turn.__enter__()
        self.first.is_crowded = False
        return self.first

    def leave(self, lane: Lane) -> None:
        """Another thread may have it."""
        lane.turn.leave()
        if self._waiting:
            self._call_next()

    def _in_turn(self) -> Lane:
        found = self._free()
        is_new = True
        while found is None:
            self._waited += 1  # also where another thread was sooner again
            if self._waited >= _PATIENCE and len(self._lanes) < self._most:
                self._grow()
            ticket = threading.Lock()
            ticket.acquire()
            (self._waiting.append if is_new else self._waiting.appendleft)(ticket)
            is_new = False
            try:
                found = self._called(ticket)
            finally:
                self._forget(ticket, found)
        return found

    def _called(self, ticket: threading.Lock) -> Lane | None:
        """A lane that is free before or after somebody has called; None where another thread was sooner."""
        if self._waiting and self._waiting[0] is ticket:
            found = self._free()
            if found is not None:
                return found
        else:
            self._call_next()  # with one more waiting, other lanes than the first may be for the first in the row
        ticket.acquire(timeout=_LONGEST_WAIT_S)
        return self._free()

    def _forget(self, ticket: threading.Lock, found: Lane | None) -> None:
        """The ticket is not waited for any more; a call that came for it and was not needed goes to the next."""
        try:
            self._waiting.remove(ticket)
        except ValueError:
            if found is None:
                return
        if found is not None and self._waiting and any(not lane.turn.is_taken for lane in self._lanes):
            self._call_next()

    def _free(self) -> Lane | None:
        """A lane that nobody has, which this thread has now."""
        for lane in self._lanes:
            if (lane is self.first or self._is_crowded(1)) and lane.turn.try_enter():
                return self._entered(lane)
        return None

    def _is_crowded(self, more: int) -> bool:
        """Are as many runs under way, with so many more, as there are workers?"""
        taken = sum(lane.turn.is_taken for lane in self._lanes)
        return taken + len(self._waiting) + more >= max(2, self.first.workers)

    def _call_next(self) -> None:
        with suppress(IndexError, RuntimeError):  # nobody waits any more, or has been called
            self._waiting.popleft().release()

    def _grow(self) -> None:
        if not self._making.acquire(blocking=False):
            return
        try:
            if len(self._lanes) < self._most:
                self._lanes = (*self._lanes, self._make())
                self._others = self._lanes[1:]
        except (ResourceLimit, MemoryError):
            self._most = len(self._lanes)
        finally:
            self._making.release()
