"""Compiles many kernels, with help from other processes when that pays.

LLVM is reached through one lock per process, so parallel compilation needs processes. Helpers are plain interpreters that read
IR from a pipe and write object files back: they never import the user's program, need no pickling, and end when their pipe
does. This process and its helpers take kernels from one queue. Helpers may be started before there is anything to compile: one
needs about as long to start as a model to be planned, beside it.
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
from contextlib import ExitStack, suppress
from dataclasses import asdict, field
from types import TracebackType
from typing import IO, TYPE_CHECKING

from fusewise.codegen.target import InstructionSet, Target
from fusewise.records import record
from fusewise.runtime.host import worker_count
from fusewise.runtime.jit import compile_object, warm_up

if TYPE_CHECKING:  # a helper starts sooner without them
    from concurrent.futures import Executor

    from fusewise.lower.program import KernelCode

__all__ = ["Helpers", "compile_many", "serve"]

WORTH_HELPERS_S = 0.6
"""Helpers are started when the work left is estimated to take longer; one needs about 0.25 s to start, beside us."""

_PROBES, _MANY = 3, 16
"""Kernels compiled here before the rest is estimated; and how many need no estimate, since few take less than 30 ms."""

_EACH, _MOST, _NODES = 4, 15, 6
"""So many kernels are worth a helper; how many helpers there are at most, as this process feeds them all; and nodes for each
kernel, in models whose layers differ."""


class Helpers:
    """Processes that compile kernels, none at first. Used as a context manager: they end with it, whatever they are doing."""

    def __init__(self, processes: int | None = None) -> None:
        """`processes`, with this one, are the most there will be (default: the processors available)."""
        self._limit = min(_MOST, (worker_count() if processes is None else processes) - 1)
        self.processes: tuple[subprocess.Popen[bytes], ...] = ()

    def start(self, kernels: int) -> None:
        """Start as many as so many kernels are worth, once."""
        if not self.processes:
            started = (_started() for _ in range(min(self._limit, kernels // _EACH)))
            self.processes = tuple(process for process in started if process is not None)

    def start_for(self, nodes: int) -> None:
        """Start what a model of so many nodes is likely to need."""
        self.start(nodes // _NODES)

    def end(self) -> None:
        """Stop them, whatever they are doing, and close their pipes."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # what was still to be written to one that is gone
                    if pipe is not None:
                        pipe.close()

    def __enter__(self) -> Helpers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def compile_many(
    kernels: Sequence[KernelCode],
    target: Target,
    *,
    executor: Executor | None = None,
    helpers: Helpers | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[bytes]:
    """An object file for each of `kernels`, begun in their order.

    With an `executor` the compilations are submitted to it. Otherwise `helpers` share the work, which are used up by that, or
    helpers of its own where there is enough of it. `progress(done, total)` is called from this thread.
    """
    queue = _Queue(kernels, target, progress)
    if executor is not None:
        futures = [executor.submit(compile_object, kernel.build(), target, kernel.level) for kernel in kernels]
        for number, future in enumerate(futures):
            queue.finish(number, future.result())
        return queue.collected()
    with ExitStack() as ends:
        at_hand = ends.enter_context(Helpers()) if helpers is None else helpers
        feeders: list[threading.Thread] = []
        begin = time.perf_counter()
        if len(kernels) >= _MANY:
            at_hand.start(len(kernels))
        try:
            feeders = _feeders(at_hand, queue)
            while queue.compile_first():
                if not feeders and queue.done >= _PROBES:
                    left_s = (time.perf_counter() - begin) / queue.done * len(queue.waiting)
                    if left_s > WORTH_HELPERS_S:
                        at_hand.start(len(kernels))
                        feeders = _feeders(at_hand, queue)
            for feeder in feeders:
                feeder.join()
            if feeders:
                queue.report()
            while queue.compile_first():  # what a helper that failed gave back
                pass
        except BaseException:
            at_hand.end()  # so that feeders end
            raise
        finally:
            for feeder in feeders:
                feeder.join()
    return queue.collected()


@record
class _Queue:
    """Kernels still to compile, and what has been compiled; shared between this thread and those that feed helpers."""

    kernels: Sequence[KernelCode]
    target: Target
    progress: Callable[[int, int], None] | None
    waiting: deque[int] = field(init=False)
    objects: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.waiting = deque(range(len(self.kernels)))

    @property
    def done(self) -> int:
        return len(self.objects)

    def compile_first(self) -> bool:
        """Compile the next kernel here; False when none is left."""
        number = self.take()
        if number is None:
            return False
        kernel = self.kernels[number]
        self.finish(number, compile_object(kernel.build(), self.target, kernel.level))
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
            self.progress(self.done, len(self.kernels))

    def collected(self) -> list[bytes]:
        return [self.objects[number] for number in range(len(self.kernels))]


# --- helpers, seen from here ------------------------------------------------------------------------------------------


def _started() -> subprocess.Popen[bytes] | None:
    """A new helper; None where processes cannot be started."""
    if not sys.executable:
        return None
    paths = json.dumps(sys.path)  # with "", the folder it works in: what this process could import, that one can
    program = f"import sys; sys.path[:] = {paths}; from fusewise.runtime.compile import serve; serve()"
    try:
        return subprocess.Popen(
            [sys.executable, "-S", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt on the terminal is for us; we end our helpers ourselves
        )
    except OSError:
        return None


def _feeders(helpers: Helpers, queue: _Queue) -> list[threading.Thread]:
    """A thread for each helper that feeds it."""
    threads = [
        threading.Thread(target=_feed, args=(process, queue), name="fusewise-compile", daemon=True)
        for process in helpers.processes
    ]
    for thread in threads:
        thread.start()
    return threads


def _feed(process: subprocess.Popen[bytes], queue: _Queue) -> None:
    """Have a helper compile kernels until none is left; a kernel it fails at goes back."""
    assert process.stdin is not None
    assert process.stdout is not None
    number: int | None = None
    try:
        _write(process.stdin, json.dumps(asdict(queue.target.instructions)).encode())
        while (number := queue.take()) is not None:
            kernel = queue.kernels[number]
            _write(process.stdin, kernel.level.encode())
            _write(process.stdin, kernel.build().encode())
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
    """Be a helper: compile what comes on standard input and answer on standard output, until the input ends.

    The first message is JSON, the instructions; then come two for each kernel, its level and its text. An empty answer means that
    compilation failed.
    """
    with os.fdopen(os.dup(0), "rb") as source, os.fdopen(os.dup(1), "wb") as sink:
        warm_up()
        described = json.loads(_read(source) or b"{}")
        if not described:
            return
        instructions = InstructionSet(**described)
        while level := _read(source):
            text = _read(source)
            try:
                image = compile_object(text.decode(), instructions, level.decode())
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
