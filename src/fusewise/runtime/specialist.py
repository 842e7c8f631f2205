"""Sizes that keep coming back get programs of their own, made in the background beside the one for all sizes.

Sizes are hot when their runs have taken half a second, or there were twenty. A thread of low priority makes their program; nothing
is made while it works, and nobody waits for it. Of the programs those used last are kept. Sizes whose program has left are hot
again after twice as many runs, so that sizes which take turns are not made over and over; those it fails for are not tried again.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any

import numpy as np

from fusewise.records import record
from fusewise.runtime.jit import Library
from fusewise.runtime.run_plan import Contents
from fusewise.words import sizes_text

__all__ = ["HOT_RUNS", "HOT_SECONDS", "Make", "Shapes", "Special", "Specialist", "Unwanted"]

HOT_RUNS, HOT_SECONDS = 20, 0.5
"""Sizes are hot after so many runs, or when at least two have taken so long together."""

_REMEMBERED = 4096
"""Tuples of sizes whose runs are counted, those met last."""

_NICE = 5
"""How much the thread gives way to others. It holds Python's lock now and then, so a run may wait for it: not more."""

Shapes = tuple[tuple[int, ...], ...]


class Unwanted(Exception):
    """The program that is being made is not wanted any more."""


@record(frozen=True, eq=False)
class Special:
    """A program for one tuple of sizes, whose symbols have the values `sizes`; `code_bytes` are those of its object files."""

    sizes: Mapping[str, int]
    contents: Contents
    library: Library
    code_bytes: int


Make = Callable[[Mapping[str, int], Sequence[np.ndarray], Callable[[], None]], Special]
"""`make(sizes, known, go_on)`: the program for these values of symbols. Its constants are those `known` where these have the same
bytes. It calls `go_on` often, which raises `Unwanted`."""


@record
class _Seen:
    """Runs of a tuple of sizes by the program for all sizes, and how many times as much they have to take to be hot."""

    runs: int = 0
    elapsed_ns: int = 0
    times: float = 1

    @property
    def is_hot(self) -> bool:
        long = self.runs >= 2 and self.elapsed_ns >= self.times * HOT_SECONDS * 1e9
        return self.times < float("inf") and (long or self.runs >= self.times * HOT_RUNS)


@record(eq=False)
class Specialist:
    """Programs by the shapes of inputs, at most so many; `constants` are those of the program for all sizes.

    All but `close`, `stop` and `figures` are for the thread whose turn it is to run the model. `warn` is told, in the background,
    for which sizes there is no program, and why.
    """

    most: int
    make: Make
    constants: Collection[np.ndarray]
    warn: Callable[[str], None]
    programs: dict[Shapes, Special] = field(default_factory=dict)
    made: int = 0
    failed: int = 0
    _seen: dict[Shapes, _Seen] = field(default_factory=dict)
    _finished: deque[tuple[Shapes, Special | None]] = field(default_factory=deque)
    _thread: threading.Thread | None = None
    _is_wanted: bool = True

    def ran(self, shapes: Shapes, elapsed_ns: int) -> bool:
        """Count a run; is it time to `begin` a program for its sizes?"""
        if shapes in self.programs:
            return False
        seen = self._seen.get(shapes)
        if seen is None:
            seen = self._remember(shapes, _Seen())
        seen.runs += 1
        seen.elapsed_ns += elapsed_ns
        return self._is_wanted and seen.is_hot and not self.is_busy

    def begin(self, shapes: Shapes, sizes: Mapping[str, int]) -> None:
        """Have a program made for these values of symbols."""
        known = [*self.constants, *self._own]
        thread = threading.Thread(
            target=self._work, args=(shapes, sizes, known), name="fusewise-specialize", daemon=True
        )
        with suppress(RuntimeError):  # no thread can be started: later, perhaps
            thread.start()
            self._thread = thread

    @property
    def is_busy(self) -> bool:
        """Is a program being made, or has one not been taken in yet?"""
        return bool(self._finished) or (self._thread is not None and self._thread.is_alive())

    def arrived(self, wanted: Shapes) -> Sequence[Shapes]:
        """Before a run on inputs of the shapes `wanted`, take in what has been made; the shapes that another program runs from here
        on. The program for those wanted, if there is one, is kept longer than the others."""
        if wanted in self.programs:
            self.programs[wanted] = self.programs.pop(wanted)
        return self._taken_in() if self._finished else ()

    def _taken_in(self) -> list[Shapes]:
        shapes, program = self._finished.popleft()
        times = self._seen.pop(shapes, _Seen()).times
        if program is None:
            self.failed += 1
            self._remember(shapes, _Seen(times=float("inf")))
            return []
        self.made += 1
        self._remember(shapes, _Seen(times=2 * times))
        left = [self.drop() for _ in range(len(self.programs) + 1 - self.most)]
        self.programs[shapes] = program
        return [shapes, *left]

    def drop(self) -> Shapes:
        """Do without the program that was used longest ago; its shapes."""
        shapes = next(iter(self.programs))
        del self.programs[shapes]
        return shapes

    def forget(self, shapes: Shapes) -> None:
        """Do without the program for these shapes, and never make it again."""
        del self.programs[shapes]
        self._remember(shapes, _Seen(times=float("inf")))

    def _remember(self, shapes: Shapes, seen: _Seen) -> _Seen:
        self._seen.pop(shapes, None)
        if len(self._seen) >= _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._seen[shapes] = seen
        return seen

    @property
    def own_bytes(self) -> int:
        """Bytes of constants that only programs of one size have."""
        return sum(block.nbytes for block in self._own)

    @property
    def figures(self) -> dict[str, Any]:
        """As plain JSON: the `sizes` that have a program and the most that may; `bytes` of their own, constants and code; bytes of
        constants that are `shared` with the program for all sizes; how many were `made`, and `failed`."""
        programs = list(self.programs.values())
        shared = {id(block) for block in self.constants}
        blocks = [block for one in programs for block in one.contents.constants.values() if id(block) in shared]
        return {
            "most": self.most,
            "sizes": [dict(one.sizes) for one in programs],
            "bytes": self.own_bytes + sum(one.code_bytes for one in programs),
            "shared_bytes": sum({id(block): block.nbytes for block in blocks}.values()),
            "made": self.made,
            "failed": self.failed,
        }

    def stop(self) -> None:
        """Make nothing any more; what is being made is given up soon."""
        self._is_wanted = False

    def wait(self) -> None:
        """Wait until nothing is being made."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def close(self) -> None:
        """Make nothing any more, and wait until what is being made is given up."""
        self.stop()
        self.wait()

    @property
    def _own(self) -> list[np.ndarray]:
        shared = {id(block) for block in self.constants}
        blocks = (block for one in list(self.programs.values()) for block in one.contents.constants.values())
        return list({id(block): block for block in blocks if id(block) not in shared}.values())

    def _work(self, shapes: Shapes, sizes: Mapping[str, int], known: Sequence[np.ndarray]) -> None:
        """In the thread: nothing that is raised leaves it, and the process does not end while it is inside native code."""
        atexit.register(self.close)
        try:
            _give_way()
            self._finished.append((shapes, self.make(sizes, known, self._go_on)))
        except Unwanted:
            pass
        except BaseException as error:
            self._finished.append((shapes, None))
            said = " ".join(str(error).split()) or type(error).__name__
            named = sizes_text(sizes)
            with suppress(Exception):
                self.warn(f"there is no program for {named} alone, which the one for all sizes runs: {said}")
        finally:
            atexit.unregister(self.close)

    def _go_on(self) -> None:
        if not self._is_wanted:
            raise Unwanted


def _give_way() -> None:
    """Have this thread run after others, where the system knows priorities of threads."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + _NICE)
