"""A model that is used for long, or not at all: memory stays what it was, and idle workers leave the processor alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fusewise import api
from fusewise.ops.build import GraphBuilder

STATM = Path("/proc/self/statm")


def model(threads: int, on_host: bool = False) -> api.Model:
    """64 KB of output, and with `on_host` what a host step finds, whose size is not known."""
    b = GraphBuilder()
    x = b.op("Relu", b.op("MatMul", b.input("x", (64, 8)), b.constant(np.ones((8, 256), np.float32))))
    return api.compile(
        b.finish(x, b.op("NonZero", b.op("ReduceSum", x, b.constant([1])))), threads=threads, cache=False
    )


def growth(runs: int, on_host: bool) -> int:
    """Bytes by which this process is larger after so many runs, which is for a process of its own to ask."""
    compiled = model(1, on_host)
    feeds = {"x": np.ones((64, 8), np.float32)}
    for _ in range(300):
        compiled.run(None, feeds)
    before = resident_bytes()
    for _ in range(runs):
        compiled.run(None, feeds)
    return resident_bytes() - before


def resident_bytes() -> int:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not STATM.exists(), reason="no /proc here")
@pytest.mark.parametrize("runs, on_host", [(10_000, False), (1_000, True)], ids=["kernels", "host steps"])
def test_memory_does_not_grow(runs: int, on_host: bool) -> None:
    """In a process of its own: one that ran thousands of tests grows by megabytes at times, perhaps as it is given larger pages."""
    folders = [str(Path(__file__).parent), *(path for path in sys.path if path)]
    done = subprocess.run(
        [sys.executable, "-c", f"from {Path(__file__).stem} import growth; print(growth({runs}, {on_host}))"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1 << 20, "every output kept would be 64 KB a run"


def test_profiled_runs_leave_nothing_behind() -> None:
    compiled = model(2)
    feeds = {"x": np.ones((64, 8), np.float32)}
    _, timings = compiled.executable.run_with_timings(None, feeds)
    _, again = compiled.executable.run_with_timings(None, feeds)
    assert [t.step for t in timings] == [t.step for t in again]


def test_an_idle_model_uses_no_processor() -> None:
    compiled = model(2)
    for _ in range(5):
        compiled.run(None, {"x": np.ones((64, 8), np.float32)})
    time.sleep(0.05)  # workers wait a moment for the next run before they sleep
    begin, used = time.monotonic(), time.process_time()
    time.sleep(0.5)
    assert time.process_time() - used < 0.1 * (time.monotonic() - begin)
