"""Compiling many kernels: order, helpers and their failures, executors, progress."""

import ctypes
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from fusewise import api, making
from fusewise.errors import FusewiseError
from fusewise.lower.program import KernelCode
from fusewise.ops.build import GraphBuilder
from fusewise.runtime import compile as compilation
from fusewise.runtime.compile import Helpers
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_object, load
from fusewise.zoo import catalogue


def kernel(number, build=None, level="full"):
    text = f"define i64 @f{number}() {{ ret i64 {number} }}"
    return KernelCode(f"f{number}", f"returns {number}", build or (lambda: text), level=level)


def values(objects):
    symbols = [f"f{number}" for number in range(len(objects))]
    library = load(objects, symbols)
    return [ctypes.CFUNCTYPE(ctypes.c_int64)(library.addresses[symbol])() for symbol in symbols]


STARTED = compilation._started
"""Taken before the session keeps all other tests from starting helpers."""


@pytest.fixture(autouse=True)
def helpers(monkeypatch):
    """Here they start as they do for users."""
    monkeypatch.setattr(compilation, "_started", STARTED)


@pytest.fixture
def eager(helpers, monkeypatch):
    """Helpers start at once, however little there is to do; the started ones are listed."""
    monkeypatch.setattr(compilation, "WORTH_HELPERS_S", -1.0)
    started = []

    def recorded():
        started.append(STARTED())
        return started[-1]

    monkeypatch.setattr(compilation, "_started", recorded)
    return started


def slow(number, seconds=0.02):
    """A kernel whose text takes a while to write, so that a helper has time to start."""

    def text():
        time.sleep(seconds)
        return kernel(number).build()

    return kernel(number, text)


def patient(count):
    """Kernels of which this process compiles its second only when a helper has answered, however long one takes to start."""
    answered, here, there = threading.Event(), [], []

    def text(number):
        ours = threading.current_thread() is threading.main_thread()
        (here if ours else there).append(number)
        if ours and len(here) > 1:
            answered.wait(60)
        elif len(there) > 1:  # it is asked for more
            answered.set()
        return kernel(number).build()

    return [kernel(number, partial(text, number)) for number in range(count)]


def compiled(kernels, processes=2, **settings):
    """The object files, and all helpers ended."""
    with Helpers(processes) as helpers:
        return compilation.compile_many(kernels, host_target(), helpers=helpers, **settings)


def test_alone():
    told = []
    objects = compiled([kernel(k) for k in range(5)], processes=1, progress=lambda *step: told.append(step))
    assert values(objects) == [0, 1, 2, 3, 4]
    assert told == [(k, 5) for k in range(1, 6)]


def test_little_work_starts_no_helper(monkeypatch):
    monkeypatch.setattr(compilation, "_started", lambda: pytest.fail("a helper was started"))
    assert len(compiled([kernel(k) for k in range(5)], processes=4)) == 5


def test_helpers_share_the_work(eager):
    told = []
    objects = compiled(patient(60), progress=lambda *step: told.append(step))
    assert values(objects) == list(range(60))
    assert len(eager) == 1
    assert len(told) < 60, "the helper compiled nothing"
    assert told[-1] == (60, 60)
    assert eager[0].returncode is not None, "the helper outlived its work"
    assert eager[0].stdin.closed and eager[0].stdout.closed


def test_helpers_without_being_given_any(eager):
    assert values(compilation.compile_many([slow(k) for k in range(60)], host_target())) == list(range(60))
    assert all(helper.returncode is not None for helper in eager)


def test_helpers_that_wait_for_work(eager):
    """Started before there is anything to compile they take their part even of little."""
    told = []
    with Helpers(2) as helpers:
        helpers.start_for(24)
        helpers.start_for(600)  # no more of them
        assert len(eager) == 1
        objects = compilation.compile_many(
            patient(4), host_target(), helpers=helpers, progress=lambda *step: told.append(step)
        )
        assert values(objects) == [0, 1, 2, 3]
    assert len(told) < 4, "the helper compiled nothing"
    assert eager[0].returncode is not None


def test_a_model_of_many_layers_starts_helpers_before_it_is_planned(eager, monkeypatch):
    seen = []
    planned = making.grouped

    def grouped(*given):
        seen.append(len(eager))
        return planned(*given)

    monkeypatch.setattr(making, "grouped", grouped)
    monkeypatch.setattr(compilation, "worker_count", lambda: 2)
    api.compile(catalogue.build("squeezenet1_1"), threads=1, cache=False)
    b = GraphBuilder("small")
    api.compile(b.finish(b.op("Relu", b.input("x", (4,)))), threads=1, cache=False)
    assert seen == [1, 1], "one for the first, none for the second"
    assert eager[0].returncode is not None


def test_helpers_that_are_not_needed_end(eager):
    with Helpers(3) as helpers:
        helpers.start(8)
    assert [helper.returncode for helper in eager] == [-signal.SIGKILL] * 2
    assert all(pipe.closed for helper in eager for pipe in (helper.stdin, helper.stdout))


@pytest.mark.parametrize(
    ("processes", "kernels", "count"), [(1, 99, 0), (2, 3, 0), (2, 99, 1), (8, 12, 3), (64, 999, 15)]
)
def test_as_many_helpers_as_are_worth_it(monkeypatch, processes, kernels, count):
    started = []
    monkeypatch.setattr(compilation, "_started", lambda: started.append(1))
    Helpers(processes).start(kernels)
    assert len(started) == count


def test_killed_helper_costs_nothing_but_time(eager):
    def deadly(number):
        def text():
            for helper in eager:
                os.kill(helper.pid, signal.SIGKILL)
            return kernel(number).build()

        return kernel(number, text)

    kernels = [slow(k) for k in range(30)]
    kernels[12] = deadly(12)
    assert values(compiled(kernels, processes=3)) == list(range(30))


def test_no_interpreter_to_start(eager, monkeypatch):
    def refuse(*_, **__):
        raise OSError("no processes today")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert values(compiled([kernel(k) for k in range(8)])) == list(range(8))
    assert eager
    assert not any(eager)


@pytest.mark.parametrize("position", [0, 29])
def test_broken_kernel_is_reported_and_helpers_end(eager, position):
    kernels = [slow(k) for k in range(30)]
    kernels[position] = kernel(position, lambda: "not IR")
    with pytest.raises(FusewiseError, match="not valid LLVM IR"):
        compiled(kernels)
    assert all(helper.returncode is not None for helper in eager)


def test_each_kernel_with_its_own_level(eager):
    """Here, and by a helper: what a pipeline leaves of a loop differs."""
    loop = """define i64 @f{0}(i64 %n) {{
    entry:
      br label %again
    again:
      %i = phi i64 [ 0, %entry ], [ %next, %again ]
      %sum = phi i64 [ 0, %entry ], [ %more, %again ]
      %more = add i64 %sum, {0}
      %next = add i64 %i, 1
      %on = icmp slt i64 %next, %n
      br i1 %on, label %again, label %done
    done:
      ret i64 %more
    }}"""

    def text(number):
        time.sleep(0.02)
        return loop.format(number)

    levels = [("full", "tidy", "quick")[k % 3] for k in range(60)]
    kernels = [kernel(k, lambda k=k: text(k), level) for k, level in enumerate(levels)]
    objects = compiled(kernels)
    assert objects == [compile_object(loop.format(k), host_target(), level) for k, level in enumerate(levels)]
    assert len({len(image) for image in objects}) > 1


def test_executor_is_used():
    with ThreadPoolExecutor(2) as executor:
        objects = compiled([kernel(k) for k in range(6)], executor=executor)
    assert values(objects) == list(range(6))
