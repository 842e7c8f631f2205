"""How many workers a stretch of steps gets: all that it was planned for, or fewer while somebody else keeps a core busy.

Where workers meet after every step, one that the system puts aside for another process holds up all the others; without it a run
may be sooner over, and a short one is where meeting takes longer than what is shared out. Whether it is, is tried: nobody can tell
from outside why a run took longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

__all__ = ["Crew"]

_SLOW = 1.5
"""A run that takes so many times the least of all is slow: beside a busy core, most are."""

_RUNS = 8
"""So many runs are looked at together."""

_LEAST_NS = 100_000
"""Shorter ones are never slow: the system changes processes less often. One worker may have them done before others have met."""

_GAIN = 0.9
"""Fewer workers must take so much of the time, or less."""

_TRIES, _PROBES = 2, 3
"""Runs with fewer workers before it is decided (the first finds its data in others' caches), and with all of them again."""

_HOLD_NS, _LONGEST_HOLD_NS = 20_000_000, 500_000_000
"""How long to stay with fewer before all are tried again, at first and at most."""

_PATIENCE_NS, _LONGEST_PATIENCE_NS = 100_000_000, 5_000_000_000
"""How long to wait after fewer workers were found to be no faster, at first and at most."""


_SHORT_NS = 2_000
"""Calls of rounds that take less by one worker are not shared out: meeting after each takes more than that saves, and without end
where the system has put another worker aside. Nor is a whole stretch: calling the workers takes as long."""

_TINY_NS = 500
"""Nor is a stretch whose calls take less, one with another, which is what meeting takes. Where they take more, what is sooner is
tried."""

_PERHAPS_SHORT_NS = 300_000
"""Calls that take more with all workers are none of these, even beside a busy core."""


class Crew:
    """Of one stretch of so many `calls`. `size` workers are to run it next; tell how long that `took`. Of rounds of it one worker
    is to make some first, whose calls `took_alone`; then `for_rounds` says how many workers are to make the others."""

    def __init__(self, workers: int, calls: int = 1) -> None:
        self._all, self._calls = workers, max(1, calls)
        self._short_ns = max(_SHORT_NS, _TINY_NS * self._calls)
        self._sizes = sorted({workers - 1, (workers + 1) // 2} - {0, workers}, reverse=True)
        self._runs: deque[int] = deque(maxlen=_RUNS)
        self.forget()

    def forget(self) -> None:
        """What is run from here on takes another time."""
        self.size = self._fewer = self._all
        self.is_short = True if self._all == 1 else None
        self._is_cold = True
        self._untried: list[int] = []
        self._least_ns = self._alone_ns = 0
        self._runs.clear()
        self._limit_ns = 0.0
        self._hold_ns, self._patience_ns = _HOLD_NS, _PATIENCE_NS
        self._next_ns = self._returned_ns = 0
        self._phase: Callable[[int, int], None] = self._cold

    @property
    def for_rounds(self) -> int | None:
        """Workers for rounds; None where some are to be timed first."""
        return self.size if self.is_short is False else 1 if self.is_short else None

    def took_alone(self, ns: float) -> None:
        """One worker has made rounds, each call in so many nanoseconds; the first time it finds nothing in its caches."""
        if ns < _SHORT_NS or not self._is_cold:
            self.is_short = ns < _SHORT_NS
        self._is_cold = False

    def took(self, begin_ns: int, end_ns: int) -> None:
        """A run with `size` workers, by a monotonic clock."""
        self._phase(end_ns - begin_ns, end_ns)

    def _cold(self, taken_ns: int, now_ns: int) -> None:
        """The first run, which finds nothing in its caches."""
        if taken_ns < _PERHAPS_SHORT_NS * self._calls and self._all > 1:
            self._go(self._measured, 1)
        else:
            self._go(self._with_all, self._all)

    def _measured(self, taken_ns: int, now_ns: int) -> None:
        """One worker made it."""
        self._runs.append(taken_ns)
        if taken_ns < self._short_ns:
            self.is_short = True
        elif len(self._runs) == _TRIES:
            self._alone_ns = min(self._runs)
            self._go(self._with_all, self._all)

    def _with_all(self, taken_ns: int, now_ns: int) -> None:
        self._runs.append(taken_ns)
        if taken_ns < self._least_ns or not self._least_ns:
            self._least_ns = taken_ns
        if now_ns < self._next_ns or len(self._runs) < _RUNS or not self._sizes:
            return
        slow_ns = max(_LEAST_NS, _SLOW * self._least_ns)
        is_slow = taken_ns > slow_ns and 2 * sum(one > slow_ns for one in self._runs) > _RUNS
        usual = _middle(
            self._runs
        )  # where none was made alone, the first of all was long: it may have begun the threads
        alone_may_be_sooner = usual < _PERHAPS_SHORT_NS * self._calls and self._alone_ns < _GAIN * usual
        if is_slow or alone_may_be_sooner or max(self._runs) < _LEAST_NS:
            again = now_ns - self._returned_ns < 2 * _LONGEST_HOLD_NS
            self._hold_ns = min(2 * self._hold_ns, _LONGEST_HOLD_NS) if again else _HOLD_NS
            self._limit_ns = _GAIN * _middle(self._runs)
            self._untried = list(self._sizes) if is_slow else [1]
            self._go(self._trying, self._untried.pop(0))

    def _trying(self, taken_ns: int, now_ns: int) -> None:
        self._runs.append(taken_ns)
        if len(self._runs) < _TRIES:
            return
        if self.size == 1:
            self._alone_ns = min(self._runs)
        if taken_ns <= self._limit_ns:
            self._fewer = self.size
            self._next_ns = now_ns + self._hold_ns
            self._go(self._with_fewer, self._fewer)
        elif self._untried:
            self._go(self._trying, self._untried.pop(0))
        else:  # the machine is slower for all: from here on that is what a run takes
            self._least_ns = int(self._limit_ns / _GAIN)
            self._next_ns = now_ns + self._patience_ns
            self._patience_ns = min(2 * self._patience_ns, _LONGEST_PATIENCE_NS)
            self._go(self._with_all, self._all)

    def _with_fewer(self, taken_ns: int, now_ns: int) -> None:
        if self.size == 1 and taken_ns < self._short_ns:  # the first runs of all may have taken longer
            self.is_short = True
            return
        self._runs.append(taken_ns)
        if now_ns >= self._next_ns:
            self._limit_ns = _middle(self._runs)
            self._go(self._probing, self._all)

    def _probing(self, taken_ns: int, now_ns: int) -> None:
        self._runs.append(taken_ns)
        if taken_ns > self._limit_ns:
            self._hold_ns = min(2 * self._hold_ns, _LONGEST_HOLD_NS)
            self._next_ns = now_ns + self._hold_ns
            self._go(self._with_fewer, self._fewer)
        elif len(self._runs) == _PROBES:
            self._returned_ns, self._patience_ns = now_ns, _PATIENCE_NS
            self._go(self._with_all, self._all)

    def _go(self, phase: Callable[[int, int], None], size: int) -> None:
        self._phase, self.size = phase, size
        self._runs.clear()


def _middle(times_ns: Iterable[int]) -> int:
    """The median, the larger of two; `statistics` takes 10 ms to import."""
    ordered = sorted(times_ns)
    return ordered[len(ordered) // 2]
