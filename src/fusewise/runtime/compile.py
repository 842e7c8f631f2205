"""Compiles many kernels, with help from other processes when that pays.

LLVM is reached through one lock per process, so parallel compilation needs processes. Helpers are plain interpreters that read
IR from a pipe and write object files back: they never import the user's program, need no pickling, and end when their pipe
does. This process takes kernels from one end of the queue while helpers take them from the other, so the first helper may take
as long to start as it likes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import IO

from fusewise.codegen.target import Beside, Target
from fusewise.runtime.host import worker_count
from fusewise.runtime.jit import compile_object

__all__ = ["DEFAULT_LEVEL", "compile_many", "serve"]

DEFAULT_LEVEL = "full"

WORTH_HELPERS_S = 0.6
"""Helpers are started when the work left is estimated to take longer; one needs about 0.25 s to start, beside us."""

_PROBES, _MANY = 3, 16
"""Kernels compiled here before the rest is estimated; and how many need no estimate, since few take less than 30 ms."""


def compile_many(
    sources: Sequence[Callable[[], str]],
    target: Target,
    *,
    level: str = DEFAULT_LEVEL,
    executor: Executor | None = None,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[bytes]:
    """An object file for each of `sources`, functions that give LLVM IR text, begun in their order.

    With an `executor` the compilations are submitted to it. Otherwise up to `processes` processes (default: the processors
    available) share the work when there is enough of it. `progress(done, total)` is called from this thread.
    """
    queue = _Queue(sources, target, level, progress)
    if executor is not None:
        futures = [executor.submit(compile_object, source(), target, level) for source in sources]
        for number, future in enumerate(futures):
            queue.finish(number, future.result())
        return queue.collected()
    limit = worker_count() if processes is None else processes
    helpers: list[_Helper] = []
    begin = time.perf_counter()
    try:
        if len(sources) >= _MANY:
            helpers = _start_helpers(queue, limit - 1)
        while queue.compile_first():
            if not helpers and queue.done >= _PROBES and limit > 1:
                left_s = (time.perf_counter() - begin) / queue.done * len(queue.waiting)
                if left_s > WORTH_HELPERS_S:
                    helpers = _start_helpers(queue, limit - 1)
        for helper in helpers:
            helper.thread.join()
        if helpers:
            queue.report()
        while queue.compile_first():  # what a helper that failed gave back
            pass
    finally:
        for helper in helpers:
            helper.process.kill()
            helper.process.wait()
            helper.thread.join()
    return queue.collected()


@dataclass
class _Queue:
    """Kernels still to compile, and what has been compiled; shared between this thread and those that feed helpers."""

    sources: Sequence[Callable[[], str]]
    target: Target
    level: str
    progress: Callable[[int, int], None] | None
    waiting: deque[int] = field(init=False)
    objects: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.waiting = deque(range(len(self.sources)))

    @property
    def done(self) -> int:
        return len(self.objects)

    def compile_first(self) -> bool:
        """Compile the next kernel here; False when none is left."""
        number = self.take()
        if number is None:
            return False
        self.finish(number, compile_object(self.sources[number](), self.target, self.level))
        return True

    def take(self) -> int | None:
        """The number of the next kernel; None when none is left."""
        try:
            return self.waiting.popleft()
        except IndexError:
            return None

    def finish(self, number: int, image: bytes) -> None:
        self.objects[number] = image
        self.report()

    def report(self) -> None:
        if self.progress is not None:
            self.progress(self.done, len(self.sources))

    def collected(self) -> list[bytes]:
        return [self.objects[number] for number in range(len(self.sources))]


# --- helpers, seen from here ------------------------------------------------------------------------------------------


@dataclass
class _Helper:
    process: subprocess.Popen[bytes]
    thread: threading.Thread


def _start_helpers(queue: _Queue, count: int) -> list[_Helper]:
    """As many as could be started."""
    return [helper for _ in range(count) if (helper := _start_helper(queue)) is not None]


def _start_helper(queue: _Queue) -> _Helper | None:
    """A new helper and the thread that feeds it; None where processes cannot be started."""
    if not sys.executable:
        return None
    paths = json.dumps([path for path in sys.path if path])
    program = f"import sys; sys.path[:0] = {paths}; from fusewise.runtime.compile import serve; serve()"
    try:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt on the terminal is for us; we end our helpers ourselves
        )
    except OSError:
        return None
    thread = threading.Thread(target=_feed, args=(process, queue), name="fusewise-compile", daemon=True)
    thread.start()
    return _Helper(process, thread)


def _feed(process: subprocess.Popen[bytes], queue: _Queue) -> None:
    """Have a helper compile kernels until none is left; a kernel it fails at goes back."""
    assert process.stdin is not None
    assert process.stdout is not None
    number: int | None = None
    try:
        _write(process.stdin, json.dumps({"target": asdict(queue.target), "level": queue.level}).encode())
        while (number := queue.take()) is not None:
            _write(process.stdin, queue.sources[number]().encode())
            image = _read(process.stdout)
            if not image:
                break
            queue.objects[number] = image
            number = None
    except Exception:
        pass
    finally:
        if number is not None:
            queue.waiting.append(number)
        with suppress(OSError):
            process.stdin.close()


# --- helpers, seen from inside ----------------------------------------------------------------------------------------


def serve() -> None:
    """Be a helper: compile each message on standard input and answer on standard output, until the input ends.

    The first message is JSON with the target and level. An empty answer means that compilation failed.
    """
    with os.fdopen(os.dup(0), "rb") as source, os.fdopen(os.dup(1), "wb") as sink:
        settings = json.loads(_read(source) or b"{}")
        if not settings:
            return
        described = settings["target"]
        target = Target(**{**described, "beside": Beside(**described["beside"])})
        while text := _read(source):
            try:
                image = compile_object(text.decode(), target, settings["level"])
            except Exception:
                image = b""
            _write(sink, image)


def _write(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(8, "little"))
    pipe.write(message)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes:
    """The next message; empty at the end of the stream."""
    head = pipe.read(8)
    size = int.from_bytes(head, "little")
    body = pipe.read(size) if len(head) == 8 else b""
    return body if len(body) == size else b""
