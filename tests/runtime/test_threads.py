"""The worker pool: every worker runs every step, barriers hold, sleep is left in time, forks and exits are clean."""

import os
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fusewise.errors import UsageError
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_object, load
from fusewise.runtime.threads import CallRow, EndRow, Pool, shared_pool, step_table

# `count` adds one to a shared counter; `follow` writes one more than its neighbour's cell to its own cell of another array, so
# that after n steps every cell is n only if nobody ever read a cell before the barrier let it; `nothing` returns. `mark` adds one
# to the first of a pair of numbers for each part of its share, and writes who was there; worker 0 spins first, as often as asked.
KERNELS = """
define void @nothing(ptr %arguments, i64 %worker, i64 %next, i64 %workers, i64 %seat, i64 %again) {
  ret void
}
define void @count(ptr %arguments, i64 %worker, i64 %next, i64 %workers, i64 %seat, i64 %again) {
  %counter = load ptr, ptr %arguments
  %before = atomicrmw add ptr %counter, i64 1 monotonic
  ret void
}
define void @follow(ptr %arguments, i64 %worker, i64 %next, i64 %workers, i64 %seat, i64 %again) {
  %source = load ptr, ptr %arguments
  %second = getelementptr ptr, ptr %arguments, i64 1
  %target = load ptr, ptr %second
  %neighbour = urem i64 %next, %workers
  %from = getelementptr i64, ptr %source, i64 %neighbour
  %value = load volatile i64, ptr %from
  %more = add i64 %value, 1
  %to = getelementptr i64, ptr %target, i64 %worker
  store volatile i64 %more, ptr %to
  ret void
}
define void @mark(ptr %arguments, i64 %low, i64 %high, i64 %of, i64 %worker, i64 %again) {
entry:
  %cells = load ptr, ptr %arguments
  %slow.at = getelementptr i64, ptr %arguments, i64 1
  %slow = load i64, ptr %slow.at
  %first = icmp eq i64 %worker, 0
  %turns = select i1 %first, i64 %slow, i64 0
  br label %spin
spin:
  %i = phi i64 [ 0, %entry ], [ %more, %spin ]
  %more = add i64 %i, 1
  %waited = load volatile i64, ptr %slow.at
  %enough = icmp sge i64 %more, %turns
  br i1 %enough, label %cell, label %spin
cell:
  %k = phi i64 [ %low, %spin ], [ %next, %cell ]
  %place = mul i64 %k, 2
  %count.at = getelementptr i64, ptr %cells, i64 %place
  %before = atomicrmw add ptr %count.at, i64 1 monotonic
  %who.at = getelementptr i64, ptr %count.at, i64 1
  %who = add i64 %worker, 1
  store volatile i64 %who, ptr %who.at
  %next = add i64 %k, 1
  %last = icmp eq i64 %next, %high
  br i1 %last, label %done, label %cell
done:
  ret void
}
"""


@pytest.fixture(scope="module")
def kernels():
    return load([compile_object(KERNELS, host_target())], ["nothing", "count", "follow", "mark"], keep=True).addresses


def counting(kernels, steps):
    """A counter, the arguments that point to it, and a table that adds to it `steps` times per worker."""
    counter = np.zeros(1, np.int64)
    arguments = np.array([counter.ctypes.data], np.int64)
    return counter, arguments, step_table([(kernels["count"], arguments.ctypes.data, False)] * steps)


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)


@pytest.mark.parametrize("parking", ["futex", "condition"])
@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_every_worker_runs_every_step(kernels, workers, parking):
    if parking == "futex" and sys.platform != "linux":
        pytest.skip("futex is Linux's")
    counter, keep, table = counting(kernels, 5)
    with closing(Pool(parking=parking)) as pool:
        for launch in range(1, 301):
            pool.run(table, workers)
            assert counter[0] == 5 * workers * launch
    assert keep.size == 1


def marking(kernels, workers, pieces, steps, slow=0):
    """Cells of every step, its arguments, and a table; every other step is in pieces, or all are where `steps` is 1."""
    cells = [np.zeros((workers * (1 if k % 2 else pieces), 2), np.int64) for k in range(steps)]
    arguments = [np.array([found.ctypes.data, slow], np.int64) for found in cells]
    rows = [
        CallRow(kernels["mark"], given.ctypes.data, True, pieces=1 if k % 2 else pieces)
        for k, given in enumerate(arguments)
    ]
    return cells, arguments, step_table(rows)


@pytest.mark.parametrize("workers", [2, 3, 7])
@pytest.mark.parametrize("pieces", [4, 16, 64])
@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_every_piece_is_done_once(kernels, workers, pieces, steps):
    cells, _keep, table = marking(kernels, workers, pieces, steps)
    with closing(Pool()) as pool:
        for launch in range(1, 201):
            pool.run(table, workers)
            for found in cells:
                assert (found[:, 0] == launch).all()


def test_pieces_with_fewer_workers_than_before(kernels):
    tables = {workers: marking(kernels, workers, 8, 3) for workers in (2, 3, 5)}
    done = dict.fromkeys(tables, 0)
    with closing(Pool()) as pool:
        for workers in [5, 2, 3, 2, 5, 3] * 60:
            pool.run(tables[workers][2], workers)
            done[workers] += 1
            assert all((found[:, 0] == done[workers]).all() for found in tables[workers][0])


def test_others_take_the_pieces_of_a_slow_worker(kernels):
    (cells,), _keep, table = marking(kernels, 2, 64, 1, slow=20_000_000)
    with closing(Pool()) as pool:
        pool.run(table, 2)
    own, other = cells[:64, 1], cells[64:, 1]
    assert (cells[:, 0] == 1).all()
    assert (own[:40] == 1).all(), "what a worker begins with is its own"
    assert (own[40:] == 2).any(), "nobody took what the slow worker had not begun"
    assert (other == 2).all()


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("timed", [False, True])
def test_a_walk_ends_where_a_byte_is_zero(kernels, workers, timed):
    counter, going = np.zeros(1, np.int64), np.ones(5, np.uint8)
    arguments = np.array([counter.ctypes.data], np.int64)
    call = CallRow(kernels["count"], arguments.ctypes.data, True)
    table = step_table([row for k in range(5) for row in (call, EndRow(going.ctypes.data + k))])
    expected = 0
    with closing(Pool()) as pool:
        for launch in range(300):
            going[:] = 1 + launch % 2
            going[launch % 7 : 5] = 0 if launch % 3 else 1
            clock = np.zeros((table.count, workers, 2), np.int64) if timed else None
            pool.run(table, workers, clock)
            calls = min(int((going == 0).argmax()) + 1 if not going.all() else 5, 5)
            expected += calls * workers
            assert counter[0] == expected
            if clock is not None:
                assert clock[: 2 * calls : 2].all()
                assert not clock[1::2].any()
                assert not clock[2 * calls :].any()


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_pieces_between_ends_are_done_once(kernels, workers):
    """However many calls in pieces were made since the last one."""
    cells, _keep, plain = marking(kernels, workers, 16, 6)
    going = np.ones(6, np.uint8)
    calls = [CallRow(f, a, True, pieces=int(flag) >> 32) for f, a, flag, _ in plain.words.tolist()]
    table = step_table(
        [row for k, call in enumerate(calls) for row in (call, *[EndRow(going.ctypes.data + k)] * (1 + k % 2))]
    )
    done = np.zeros(6, np.int64)
    with closing(Pool()) as pool:
        for launch in range(300):
            going[:] = 1
            going[launch % 6] = 0
            pool.run(table, workers)
            done[: launch % 6 + 1] += 1
            for found, times in zip(cells, done, strict=True):
                assert (found[:, 0] == times).all()


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_barrier_separates_steps(kernels, workers):
    cells = np.zeros((2, 64), np.int64)
    there = np.array([cells[0].ctypes.data, cells[1].ctypes.data], np.int64)
    back = there[::-1].copy()
    rows = [(kernels["follow"], (back if k % 2 else there).ctypes.data, True) for k in range(40)]
    table = step_table(rows)
    with closing(Pool()) as pool:
        for launch in range(1, 101):
            pool.run(table, workers)
            assert cells[0, :workers].tolist() == [40 * launch] * workers


def test_timings_show_the_barrier(kernels):
    table = step_table([(kernels["nothing"], 0, True)] * 50)
    clock = np.zeros((50, 3, 2), np.int64)
    with closing(Pool()) as pool:
        before = time.monotonic_ns()
        pool.run(table, 3, clock)
        after = time.monotonic_ns()
    start, end = clock[..., 0], clock[..., 1]
    assert (end >= start).all()
    assert before <= start.min()
    assert end.max() <= after
    assert (start[1:].min(axis=1) >= end[:-1].max(axis=1)).all(), "a step began before the one before it had ended"


@pytest.mark.parametrize("parking", ["futex", "condition"])
def test_sleeping_workers_wake(kernels, parking):
    if parking == "futex" and sys.platform != "linux":
        pytest.skip("futex is Linux's")
    counter, _keep, table = counting(kernels, 1)
    with closing(Pool(idle_ns=0, parking=parking)) as pool:
        for launch in range(1, 21):
            pool.run(table, 4)
            assert counter[0] == 4 * launch
            wait_until(lambda: pool.parked == 3)


def test_launches_while_workers_fall_asleep(kernels):
    """Launch at the moment of parking, over and over: an order that is slept through would hang."""
    counter, _keep, table = counting(kernels, 1)
    with closing(Pool(idle_ns=20_000)) as pool:
        for launch in range(1, 2001):
            pool.run(table, 3)
            until = time.perf_counter_ns() + 10_000 + 10 * (launch % 2000)
            while time.perf_counter_ns() < until:
                pass
        assert counter[0] == 3 * 2000


def test_fewer_workers_than_before(kernels):
    counter, _keep, table = counting(kernels, 3)
    expected = 0
    with closing(Pool()) as pool:
        for workers in [5, 2, 4, 1, 3, 5] * 50:
            pool.run(table, workers)
            expected += 3 * workers
            assert counter[0] == expected
        assert pool.started == 4


def test_concurrent_launches_take_turns(kernels):
    results = []

    def work(number):
        counter, _keep, table = counting(kernels, 4)
        for _ in range(200):
            pool.run(table, 1 + number % 3)
        results.append((int(counter[0]), 200 * 4 * (1 + number % 3)))

    with closing(Pool()) as pool:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 6
    assert all(found == expected for found, expected in results)


def test_empty_table(kernels):
    with closing(Pool()) as pool:
        pool.run(step_table([]), 2)
        pool.run(step_table([]), 1)
        counter, _keep, table = counting(kernels, 1)
        pool.run(table, 2)
        assert counter[0] == 2


def test_closed_pool_refuses(kernels):
    pool = Pool()
    pool.run(step_table([(kernels["nothing"], 0, True)]), 3)
    pool.close()
    assert pool.started == 0
    with pytest.raises(RuntimeError, match="closed"):
        pool.run(step_table([(kernels["nothing"], 0, True)]), 2)


def test_too_many_workers(kernels):
    with closing(Pool()) as pool, pytest.raises(UsageError, match="between 1 and 256, not 257"):
        pool.run(step_table([(kernels["nothing"], 0, True)]), 257)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads Linux's /proc")
def test_workers_leave_signals_to_python(kernels):
    with closing(Pool()) as pool:
        pool.run(step_table([(kernels["nothing"], 0, True)]), 3)
        own = str(threading.get_native_id())
        states = [(task / "status").read_text() for task in Path("/proc/self/task").iterdir() if task.name != own]
    masks = [int(line.split()[1], 16) for state in states for line in state.splitlines() if line.startswith("SigBlk")]
    interrupt = 1 << 1
    assert sum(bool(mask & interrupt) for mask in masks) >= 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_makes_its_own_pool(kernels):
    counter, _keep, table = counting(kernels, 2)
    shared_pool().run(table, 3)
    parent = shared_pool()
    stop = threading.Event()

    def hammer():  # so that forks come in the middle of launches, with the lock held
        own, _own_keep, own_table = counting(kernels, 50)
        while not stop.is_set():
            parent.run(own_table, 3)
        assert own[0] % 150 == 0

    thread = threading.Thread(target=hammer)
    thread.start()
    statuses = []
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    shared_pool().run(table, 3)
                    status = 0 if counter[0] == 12 and shared_pool() is not parent else 2
                finally:
                    os._exit(status)
            _, status = os.waitpid(child, 0)
            statuses.append(os.waitstatus_to_exitcode(status))
    finally:
        stop.set()
        thread.join()
    assert statuses == [0] * 5
    assert shared_pool() is parent
    shared_pool().run(table, 3)
    assert counter[0] == 12


@pytest.mark.parametrize("when", ["now", "atexit"])
def test_clean_exit(when):
    """An interpreter may end while workers spin; a run during its exit works too."""
    program = f"""
import atexit, numpy as np
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_object, load
from fusewise.runtime.threads import shared_pool, step_table
library = load([compile_object("define void @k(ptr %a, i64 %w, i64 %n) {{ ret void }}", host_target(), "quick")], ["k"])
table = step_table([(library.addresses["k"], 0, True)])
def go():
    for _ in range(100):
        shared_pool().run(table, 3)
    print("ran")
go() if {when!r} == "now" else atexit.register(go)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
