"""Work beside the caller, in threads. `concurrent.futures` does this too, and takes 13 ms to import, a tenth of opening a model."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar, cast

__all__ = ["Aside", "Spread", "mapped"]

Result = TypeVar("Result")


class Aside(Generic[Result]):
    """A call under way in a thread of its own. Used as a context manager: it is over when the block is."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self._found: Result | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="fusewise-aside", daemon=True)
        self._thread.start()

    def result(self) -> Result:
        """What the call gives, once it is over; raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return cast(Result, self._found)

    def __enter__(self) -> Aside[Result]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            self._found = self._work()
        except BaseException as error:
            self._error = error


class Spread(Generic[Result]):
    """What `work` gives for 0, 1, ... `times` - 1, called by several threads. Used as a context manager: what has begun is over
    when the block is, and nothing begins after."""

    def __init__(self, work: Callable[[int], Result], times: int) -> None:
        self._work = work
        self._found: list[Result | None] = [None] * times
        self._waiting = deque(range(times))
        self._helpers: list[Aside[None]] = []

    def help(self, helpers: int) -> None:
        """Have so many threads call beside the caller, or as many as there are calls."""
        while len(self._helpers) < min(helpers, len(self._found)):
            self._helpers.append(Aside(self._run))

    def results(self) -> list[Result]:
        """All of them, in order; the caller helps. Raises what a call raised; the others that had begun are over then."""
        with self:
            self._run()
        for helper in self._helpers:
            helper.result()
        return cast("list[Result]", self._found)

    def __enter__(self) -> Spread[Result]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.clear()
        for helper in self._helpers:
            helper.__exit__(kind, error, trace)

    def _run(self) -> None:
        try:
            while (number := self._next()) is not None:
                self._found[number] = self._work(number)
        except BaseException:
            self._waiting.clear()
            raise

    def _next(self) -> int | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None


def mapped(work: Callable[[int], Result], times: int, threads: int) -> list[Result]:
    """What `Spread` gives, called by so many threads, the caller's among them."""
    spread = Spread(work, times)
    spread.help(min(threads, times) - 1)
    return spread.results()
