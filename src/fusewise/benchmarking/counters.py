"""The processor's own counters while something runs: Linux's `perf_event_open`, for every thread of this process.

Each event is opened by itself, so that what a machine lacks leaves the others; virtual machines mostly have none of the
hardware's. Only what runs in user mode counts. When a processor has fewer counters than events, the kernel lets them take
turns, and a count is what it would have been all the time.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["EVENTS", "Counted", "CounterEvent", "System", "counted", "told"]


@dataclass(frozen=True, slots=True)
class CounterEvent:
    """One counter: `kind` and `config` as the system call's `type` and `config`."""

    name: str
    kind: int
    config: int


_HARDWARE, _SOFTWARE, _CACHE = 0, 1, 3
_L1, _LAST, _PAGES = 0, 2, 3
_READ, _WRITE = 0, 1


def _cache(name: str, which: int, operation: int, missed: bool) -> CounterEvent:
    return CounterEvent(name, _CACHE, which | operation << 8 | missed << 16)


EVENTS: tuple[CounterEvent, ...] = (
    CounterEvent("cycles", _HARDWARE, 0),
    CounterEvent("instructions", _HARDWARE, 1),
    CounterEvent("cache references", _HARDWARE, 2),
    CounterEvent("cache misses", _HARDWARE, 3),
    _cache("L1 loads", _L1, _READ, False),
    _cache("L1 load misses", _L1, _READ, True),
    _cache("L1 stores", _L1, _WRITE, False),
    _cache("last level loads", _LAST, _READ, False),
    _cache("last level load misses", _LAST, _READ, True),
    _cache("address translation misses", _PAGES, _READ, True),
    CounterEvent("page faults", _SOFTWARE, 2),
)
"""What is asked for, by `linux/perf_event.h`."""


class System(Protocol):
    """The operating system's side; errors are `OSError` with their number."""

    def threads(self) -> Sequence[int]:
        """The threads of this process."""
        ...

    def open(self, attributes: bytes, thread: int) -> int:
        """A descriptor for an event of a thread."""
        ...

    def control(self, descriptor: int, request: int) -> None:
        """Start or stop an event."""
        ...

    def read(self, descriptor: int) -> bytes:
        """What it counted: three words, the count, nanoseconds since it was started, and those in which it was counting."""
        ...

    def close(self, descriptor: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts by event, and of those that are missing why, in words with the system's name for the error."""

    values: Mapping[str, float]
    missing: Mapping[str, str]


def counted(
    work: Callable[[], object], events: Sequence[CounterEvent] = EVENTS, system: System | None = None
) -> Counted:
    """Run `work` and count meanwhile, on all threads that exist now. It runs once whatever is missing."""
    asked = _Linux() if system is None else system
    values: dict[str, float] = {}
    missing: dict[str, str] = {}
    opened: dict[str, list[int]] = {}
    with ExitStack() as ends:
        for event in events:
            try:
                opened[event.name] = _opened(asked, event, ends)
            except OSError as error:
                missing[event.name] = _reason(error)
        for descriptor in (one for found in opened.values() for one in found):
            asked.control(descriptor, _START)
        work()
        for descriptor in (one for found in opened.values() for one in found):
            asked.control(descriptor, _STOP)
        for name, found in opened.items():
            total = _total([asked.read(descriptor) for descriptor in found])
            if total is None:
                missing[name] = "the processor had no counter free for it"
            else:
                values[name] = total
    return Counted(values, missing)


def told(missing: Mapping[str, str]) -> str:
    """One sentence about what is missing and why; nothing where nothing is."""
    alike: dict[str, list[str]] = {}
    for name, reason in missing.items():
        alike.setdefault(reason, []).append(name)
    return "; ".join(f"no {', '.join(names)}: {reason}" for reason, names in alike.items())


_START, _STOP = 0x2400, 0x2401
_DISABLED, _WITHOUT_KERNEL, _WITHOUT_HYPERVISOR = 1, 1 << 5, 1 << 6
_TIMES = 3
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
"""The first version of `struct perf_event_attr`, which every kernel takes."""

_CALLS = {"x86_64": 298, "AMD64": 298, "aarch64": 241, "riscv64": 241}
"""Numbers of the system call, by processor."""

_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")


def _opened(system: System, event: CounterEvent, ends: ExitStack) -> list[int]:
    """A descriptor for each thread; those that have ended meanwhile are left out."""
    flags = _DISABLED | _WITHOUT_KERNEL | _WITHOUT_HYPERVISOR
    attributes = _ATTRIBUTES.pack(event.kind, _ATTRIBUTES.size, event.config, 0, 0, _TIMES, flags, 0, 0, 0)
    found: list[int] = []
    with ExitStack() as own:
        for thread in system.threads():
            try:
                descriptor = system.open(attributes, thread)
            except ProcessLookupError:
                continue
            own.callback(system.close, descriptor)
            found.append(descriptor)
        ends.push(own.pop_all())
    return found


def _total(readings: Sequence[bytes]) -> float | None:
    """The sum over threads, of each as if it had counted all the time; None where one that ran was never counted."""
    total = 0.0
    for reading in readings:
        count, enabled, running = struct.unpack("=QQQ", reading)
        if enabled and not running:
            return None
        total += count * (enabled / running) if running else 0.0
    return total


def _reason(error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL):
        return f"this processor, or the virtual machine, does not offer it ({name})"
    if error.errno in (errno.EACCES, errno.EPERM):
        level = ""
        with suppress(OSError):
            level = f"; kernel.perf_event_paranoid is {_PARANOID.read_text().strip()}, and 2 or less is needed"
        return f"the kernel does not allow it ({name}{level})"
    if error.errno == errno.ENOSYS:
        return f"this system has no perf_event_open ({name})"
    return f"{os.strerror(error.errno) if error.errno else error} ({name})"


class _Linux:
    """This process, on Linux."""

    def __init__(self) -> None:
        self._number = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
        self._process = ctypes.CDLL(None, use_errno=True)

    def threads(self) -> Sequence[int]:
        folder = Path("/proc/self/task")
        return sorted(int(entry.name) for entry in folder.iterdir()) if folder.exists() else [0]

    def open(self, attributes: bytes, thread: int) -> int:
        if self._number is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        any_cpu, no_group, close_on_exec = ctypes.c_int(-1), ctypes.c_int(-1), ctypes.c_ulong(8)
        call = ctypes.c_long(self._number)
        found = self._process.syscall(call, attributes, ctypes.c_int(thread), any_cpu, no_group, close_on_exec)
        if found < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return int(found)

    def control(self, descriptor: int, request: int) -> None:
        import fcntl

        fcntl.ioctl(descriptor, request, 0)

    def read(self, descriptor: int) -> bytes:
        return os.read(descriptor, 24)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)
