"""Work beside the caller, in threads. `concurrent.futures` does this too, and takes 13 ms to import, a tenth of opening a model."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Generic, TypeVar, cast

__all__ = ["Aside", "mapped"]

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


def mapped(work: Callable[[int], Result], times: int, threads: int) -> list[Result]:
    """What `work` gives for 0, 1, ... `times` - 1, called by so many threads, the caller's among them.

    Raises what a call raised; the others that had begun are over then.
    """
    found: list[Result | None] = [None] * times
    waiting = deque(range(times))

    def next_one() -> int | None:
        try:
            return waiting.popleft()
        except IndexError:
            return None

    def run() -> None:
        try:
            while (number := next_one()) is not None:
                found[number] = work(number)
        except BaseException:
            waiting.clear()
            raise

    with ExitStack() as ends:
        helpers = [ends.enter_context(Aside(run)) for _ in range(min(threads, times) - 1)]
        run()
        for helper in helpers:
            helper.result()
    return cast("list[Result]", found)
