"""Timing on a made-up clock: blocks, settling, percentiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewise.benchmarking.timing import Clock, Timing, TimingBudget, race, settle


class Machine:
    """A clock that only calls and sleeping advance. After a run its workers spin for a while and burn processor time."""

    def __init__(self, spin: float = 0.0) -> None:
        self.now = 0.0
        self.busy = 0.0
        self.spin = spin
        self.spin_until = 0.0
        self.log: list[str] = []

    def clock(self) -> Clock:
        return Clock(wall=lambda: self.now, cpu=lambda: self.busy, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        spinning = max(0.0, min(self.spin_until - self.now, seconds))
        self.busy += spinning
        self.now += seconds

    def call(self, name: str, seconds: float):
        def run() -> None:
            self.log.append("disturbed" if self.now < self.spin_until and self.log[-1] != name else name)
            self.now += seconds
            self.busy += seconds
            self.spin_until = self.now + self.spin

        return run


@given(st.lists(st.floats(0.001, 1e4), min_size=1, max_size=60), st.floats(0, 100))
def test_percentiles_are_numpys(samples, percent):
    assert Timing(tuple(samples)).percentile(percent) == pytest.approx(np.percentile(samples, percent), rel=1e-9)


def test_settle_waits_until_spinning_stops_and_no_longer():
    machine = Machine(spin=0.05)
    machine.call("a", 0.01)()
    begin = machine.now
    settle(machine.clock())
    assert 0.05 <= machine.now - begin <= 0.06
    settle(machine.clock())
    assert machine.now - begin <= 0.07


def test_settle_gives_up_on_a_machine_that_is_never_quiet():
    machine = Machine(spin=1e9)
    machine.call("a", 0.01)()
    begin = machine.now
    settle(machine.clock(), limit=0.3)
    assert machine.now - begin == pytest.approx(0.3, abs=0.01)


def test_race_runs_in_blocks_that_no_other_runtime_disturbs():
    machine = Machine(spin=0.05)
    calls = [machine.call("a", 0.010), machine.call("b", 0.020)]
    first, second = race(calls, TimingBudget(runs=30, seconds=0.5, limit_seconds=60), machine.clock())
    assert first.p50_ms == pytest.approx(10) and second.p50_ms == pytest.approx(20)
    assert min(len(first.samples_ms), len(second.samples_ms)) >= 30
    assert "disturbed" not in machine.log
    # Blocks alternate, and the order turns round: a b, b a, a b ...
    turns = [name for k, name in enumerate(machine.log) if k == 0 or machine.log[k - 1] != name]
    assert turns[:4] == ["a", "b", "a", "b"]
    uncounted = len(machine.log) - len(first.samples_ms) - len(second.samples_ms)
    assert uncounted >= 2 * TimingBudget().warmup


@pytest.mark.parametrize("spin", [0.0, 0.04])
@pytest.mark.parametrize("seconds", [2e-6, 2e-4])
def test_short_runs_take_no_longer_to_time_than_they_and_their_blocks_last(spin, seconds):
    """A process is watched for 5 ms before each block, and as long as its workers spin: blocks of a few short runs would be waiting
    and little else."""
    machine = Machine(spin)
    (short,) = race([machine.call("a", seconds)], TimingBudget(runs=5, seconds=0.4, limit_seconds=60), machine.clock())
    assert sum(short.samples_ms) >= 400
    assert machine.now < 2.5 * 0.4
    capped = TimingBudget(runs=5, seconds=0.001, limit_seconds=60, longest_block=3)
    machine = Machine()
    race([machine.call("a", 2e-6)], capped, machine.clock())
    assert machine.now > 0.5, "who says how long a block may be gets that"


def test_race_stops_at_its_limit():
    machine = Machine()
    (slow,) = race([machine.call("a", 5.0)], TimingBudget(runs=1000, seconds=1000, limit_seconds=20), machine.clock())
    assert 2 <= len(slow.samples_ms) <= 6


def test_progress_grows_to_one():
    machine = Machine()
    shares: list[float] = []
    race([machine.call("a", 0.01)], TimingBudget(runs=40, seconds=0.1), machine.clock(), progress=shares.append)
    assert shares == sorted(shares) and shares[-1] == 1.0
