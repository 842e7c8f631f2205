"""The worker pool: one native call runs a whole table of steps on all workers.

Workers are POSIX threads that execute generated code only: they never touch Python, so no lock of the interpreter is in the way.
Worker 0 is the calling thread. Idle workers spin for half a millisecond, for a caller that comes back at once, then
sleep until the next launch. One pool serves every executable of the process; a forked child makes its own.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
import time
import weakref
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from fusewise.errors import ResourceLimit, UsageError
from fusewise.records import record
from fusewise.runtime.arena import address_of, aligned_block
from fusewise.runtime.host import MAXIMUM_WORKERS, host_target
from fusewise.runtime.jit import Library, compile_object, load
from fusewise.runtime.pool_code import SLOT_WORDS, pool_ir
from fusewise.runtime.turns import Turns

__all__ = [
    "STEP_WORDS",
    "CallRow",
    "EndRow",
    "Pool",
    "StepTable",
    "pool_image",
    "process_number",
    "shared_pool",
    "step_table",
    "use_image",
]

STEP_WORDS = 4
"""64-bit words per step: function address, address of the argument pointers, barrier flag and pieces, part and number of parts."""

_IDLE_SPINS, _BARRIER_SPINS = 4, 5
_PARKED, _SHARED, _NUMBER, _STOP, _MUTEX, _CONDITION = 1, 2, 3, 4, 8, 16
_STACK_BYTES = 8 << 20


@record(frozen=True, slots=True)
class StepTable:
    """Steps in the form the pool walks: `words` is int64[count, 4], the other two save asking for them at each launch."""

    words: np.ndarray
    address: int
    count: int


class CallRow(NamedTuple):
    """A call: function address, address of its argument pointers, whether workers meet afterwards, which of how many parts of
    its share each worker does, and in how many pieces: whoever is done early takes some of the others'. Workers meet before and
    after a call in pieces."""

    function: int
    arguments: int
    barrier: bool
    part: int = 0
    parts: int = 1
    pieces: int = 1

    @property
    def words(self) -> tuple[int, int, int, int]:
        """As the pool reads them."""
        return self.function, self.arguments, self.pieces << 32 | self.barrier, self.parts << 32 | self.part


class EndRow(NamedTuple):
    """Where a walk ends for all workers, unless the bool at this address is true. They meet after the call before, and nobody
    writes the bool again in this walk."""

    goes_on: int

    @property
    def words(self) -> tuple[int, int, int, int]:
        """As the pool reads them."""
        return 0, self.goes_on, 1 << 31, 0


def step_table(steps: Sequence[CallRow | EndRow | tuple[int, int, bool]]) -> StepTable:
    """The calls in the order in which every worker makes them, and where they may end."""
    words = np.zeros((len(steps), STEP_WORDS), np.int64)
    for line, step in zip(words, steps, strict=True):
        row = step if isinstance(step, CallRow | EndRow) else CallRow(*step)
        line[:] = row.words
    return StepTable(words, address_of(words), len(steps))


class Pool:
    """Workers that walk step tables together.

    `idle_ns` is how long a worker without work spins before it sleeps, `barrier_ns` how long one spins at a barrier before it
    offers its processor to others (which matters when there are fewer processors than workers). `parking` is `futex` or
    `condition`; the default suits the system.
    """

    def __init__(self, *, idle_ns: int = 500_000, barrier_ns: int = 8_000, parking: str | None = None) -> None:
        self._code = _pool_code(_default_parking() if parking is None else parking)
        at = self._code.addresses
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        self._launch = ctypes.CFUNCTYPE(None, pointer, pointer, word, word, pointer)(at["pool_launch"])
        self._alone = ctypes.CFUNCTYPE(None, pointer, word, pointer)(at["pool_alone"])
        self._memory = aligned_block(8 * SLOT_WORDS * MAXIMUM_WORKERS).view(np.int64).reshape(-1, SLOT_WORDS)
        self._memory.fill(0)
        self._shared = address_of(self._memory)
        pause_ns = _pause_ns(at["pool_spin"])
        self._memory[0, _IDLE_SPINS] = int(idle_ns / pause_ns)
        self._memory[0, _BARRIER_SPINS] = max(16, int(barrier_ns / pause_ns))
        self._turns = Turns("the worker pool is asked for work")
        self._threads: list[int] = []
        self._finalizer = weakref.finalize(self, _stop, os.getpid(), self._memory, self._threads, at["pool_wake"])
        self._finalizer.atexit = False  # sleeping threads end with the process

    def run(self, steps: StepTable, workers: int, timings: np.ndarray | None = None) -> None:
        """Run a step table on `workers` workers and return when all are done.

        Every worker calls each step's `function(arguments, worker, worker + 1, workers, worker, 0)` in order, and waits for the
        others where the barrier flag is set and at the end, which is sooner where an `EndRow` says so. A step in pieces is called
        several times, with shares of shares.
        `timings` is None or int64[steps, workers, 2] and receives when each worker started and finished its share, in
        nanoseconds of the monotonic clock. Launches from several Python threads take turns.
        """
        clock = None if timings is None else address_of(timings)
        if workers == 1:
            self._alone(steps.address, steps.count, clock)
            return
        if workers > MAXIMUM_WORKERS:
            raise UsageError(f"the number of threads must be between 1 and {MAXIMUM_WORKERS}, not {workers}")
        with self._turns:
            if not self._finalizer.alive:
                raise RuntimeError("the worker pool is closed")
            if len(self._threads) < workers - 1:
                self._start(workers - 1)
            self._launch(self._shared, steps.address, steps.count, workers, clock)

    @property
    def started(self) -> int:
        """Threads that exist, without the caller."""
        return len(self._threads)

    @property
    def parked(self) -> int:
        """Threads that are asleep now."""
        slots = self._memory[1 : len(self._threads) + 1]
        return int(np.count_nonzero(slots[:, _PARKED]))

    def close(self) -> None:
        """End the threads. Only for pools of one's own; the shared pool lives as long as the process."""
        with self._turns:
            self._finalizer()

    def _start(self, count: int) -> None:
        """Have `count` threads. Signals stay with Python's own threads, whose system calls they are to interrupt."""
        process = ctypes.CDLL(None)
        attributes = ctypes.create_string_buffer(256)
        process.pthread_attr_init(attributes)
        process.pthread_attr_setstacksize(attributes, ctypes.c_size_t(_STACK_BYTES))
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            while len(self._threads) < count:
                number = len(self._threads) + 1
                slot = self._memory[number]
                slot[_SHARED], slot[_NUMBER] = self._shared, number
                process.pthread_mutex_init(ctypes.c_void_p(address_of(slot[_MUTEX:])), None)
                process.pthread_cond_init(ctypes.c_void_p(address_of(slot[_CONDITION:])), None)
                thread = ctypes.c_size_t()
                entry = ctypes.c_void_p(self._code.addresses["pool_worker"])
                failed = process.pthread_create(
                    ctypes.byref(thread), attributes, entry, ctypes.c_void_p(address_of(slot))
                )
                if failed:
                    raise ResourceLimit(
                        f"the system refused to start thread {number + 1} of {count + 1} ({os.strerror(failed)}): "
                        "ask for fewer threads"
                    )
                self._threads.append(thread.value)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            process.pthread_attr_destroy(attributes)


@cache
def shared_pool() -> Pool:
    """The pool of this process."""
    return Pool()


@cache
def process_number() -> int:
    """This process, as the system numbers it; asking the system takes longer than all else that a run does to take its turn."""
    return os.getpid()


if hasattr(os, "register_at_fork"):
    # A child has none of its parent's threads, and perhaps a lock that nobody will ever release.
    os.register_at_fork(after_in_child=shared_pool.cache_clear)
    os.register_at_fork(after_in_child=process_number.cache_clear)


def _stop(owner: int, memory: np.ndarray, threads: list[int], wake_address: int) -> None:
    """End and join the threads, unless they stayed behind in the parent of a fork."""
    if os.getpid() != owner:
        return
    wake = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(wake_address)
    process = ctypes.CDLL(None)
    for number, _ in enumerate(threads, start=1):
        memory[number, _STOP] = 1
        memory[number, :1].view(np.int32)[0] += 1
        wake(address_of(memory[number]))
    for thread in threads:
        process.pthread_join(ctypes.c_size_t(thread), None)
    threads.clear()


def _default_parking() -> str:
    known = platform.machine() in ("x86_64", "aarch64") and sys.maxsize > 1 << 32
    return "futex" if sys.platform == "linux" and known else "condition"


def use_image(image: bytes) -> None:
    """A pool made from now on has the code of `image`, which `pool_image` made on a processor like this one; none is compiled."""
    _given_images().setdefault(_default_parking(), image)


@cache
def pool_image(parking: str | None = None) -> bytes:
    """The object file of a pool's code."""
    target = host_target()
    machine = target.triple.split("-", 1)[0]
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    text = pool_ir(machine, _default_parking() if parking is None else parking, time.CLOCK_MONOTONIC)
    return compile_object(text, target, "quick")


@cache
def _pool_code(parking: str) -> Library:
    symbols = ("pool_alone", "pool_launch", "pool_spin", "pool_wake", "pool_worker")
    return load([_given_images().get(parking) or pool_image(parking)], symbols, keep=True)


@cache
def _given_images() -> dict[str, bytes]:
    return {}


def _pause_ns(spin_address: int) -> float:
    """How long one turn of a spin loop takes here, nanoseconds; processors differ by a factor of ten."""
    spin = ctypes.CFUNCTYPE(None, ctypes.c_int64)(spin_address)
    turns, best = 500, float("inf")
    for _ in range(3):
        start = time.perf_counter_ns()
        spin(turns)
        best = min(best, (time.perf_counter_ns() - start) / turns)
    return max(best, 0.2)
