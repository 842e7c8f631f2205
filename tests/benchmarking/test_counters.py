"""The processor's counters, with a system that is made up; and here, whatever this machine has."""

from __future__ import annotations

import errno
import os
import re
import struct
from collections.abc import Sequence

import pytest

from fusewise.benchmarking.counters import EVENTS, CounterEvent, counted, told

CYCLES, FAULTS, MISSES = (
    CounterEvent("cycles", 0, 0),
    CounterEvent("page faults", 1, 2),
    CounterEvent("L1 load misses", 3, 0x10000),
)


class Faked:
    """Threads 7 and 8, each with counters that add `rate` for each unit of work; errors by event."""

    def __init__(self, errors: dict[tuple[int, int], int] | None = None, running: float = 1.0) -> None:
        self.errors = errors or {}
        self.running = running
        self.gone: set[int] = set()
        self.open_now: dict[int, tuple[int, int, int]] = {}
        self.started: set[int] = set()
        self.work = 0

    def threads(self) -> Sequence[int]:
        return [7, 8]

    def open(self, attributes: bytes, thread: int) -> int:
        kind, size, config, *_, flags, _, _, _ = struct.unpack("=IIQQQQQIIQ", attributes)
        assert size == len(attributes)
        assert flags & 1, "it must begin stopped"
        assert flags & 0x60 == 0x60, "the kernel is not ours to look at"
        if thread in self.gone:
            raise ProcessLookupError(errno.ESRCH, "gone")
        if (kind, config) in self.errors:
            number = self.errors[kind, config]
            raise OSError(number, os.strerror(number))
        self.open_now[descriptor := 100 + len(self.open_now)] = (kind, config, thread)
        return descriptor

    def control(self, descriptor: int, request: int) -> None:
        assert descriptor in self.open_now
        (self.started.add if request == 0x2400 else self.started.discard)(descriptor)

    def read(self, descriptor: int) -> bytes:
        assert not self.started, "all are stopped before one is read"
        _, config, thread = self.open_now[descriptor]
        count = self.work * thread * (1 + config % 7)
        return struct.pack("=QQQ", int(count * self.running), 1000, int(1000 * self.running))

    def close(self, descriptor: int) -> None:
        del self.open_now[descriptor]

    def do(self) -> None:
        assert self.started == set(self.open_now)
        self.work += 10


def test_all_threads_are_counted_and_everything_is_closed() -> None:
    system = Faked()
    found = counted(system.do, (CYCLES, FAULTS), system)
    assert found.values == {"cycles": 150.0, "page faults": 450.0}
    assert not found.missing
    assert not system.open_now


def test_counters_that_took_turns_are_scaled() -> None:
    found = counted((system := Faked(running=0.25)).do, (CYCLES,), system)
    assert found.values["cycles"] == pytest.approx(150, rel=0.05)


def test_one_that_never_had_its_turn_is_missing() -> None:
    found = counted((system := Faked(running=0.0)).do, (CYCLES,), system)
    assert found.missing == {"cycles": "the processor had no counter free for it"}


@pytest.mark.parametrize(
    "number, reason",
    [
        (errno.ENOENT, "does not offer it .ENOENT"),
        (errno.ENODEV, "does not offer it"),
        (errno.EACCES, "the kernel does not allow it .EACCES"),
        (errno.EPERM, "does not allow it"),
        (errno.ENOSYS, "no perf_event_open"),
        (errno.EMFILE, "EMFILE"),
    ],
)
def test_what_is_missing_is_said_by_its_errno_and_the_rest_is_counted(number: int, reason: str) -> None:
    system = Faked({(0, 0): number, (3, 0x10000): number})
    found = counted(system.do, (CYCLES, FAULTS, MISSES), system)
    assert system.work == 10
    assert set(found.values) == {"page faults"}
    sentence = told(found.missing)
    assert sentence.startswith("no cycles, L1 load misses: ")
    assert re.search(reason, sentence)
    assert not system.open_now


def test_a_thread_that_has_ended_is_left_out() -> None:
    system = Faked()
    system.gone = {7}
    assert counted(system.do, (CYCLES,), system).values == {"cycles": 80.0}


def test_work_that_fails_leaves_nothing_open() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    system = Faked()
    with pytest.raises(ZeroDivisionError):
        counted(fail, (CYCLES,), system)
    assert not system.open_now


def test_this_machine_counts_or_says_why_not() -> None:
    ran: list[int] = []
    found = counted(lambda: ran.append(1))
    assert ran == [1]
    assert set(found.values) | set(found.missing) == {event.name for event in EVENTS}
    assert not set(found.values) & set(found.missing)
    assert all(count >= 0 for count in found.values.values())
    assert told({}) == ""
