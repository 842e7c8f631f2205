"""Compiling many kernels: order, helpers and their failures, executors, progress."""

import ctypes
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fusewise.errors import FusewiseError
from fusewise.runtime import compile as compilation
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import load


def source(number):
    return lambda: f"define i64 @f{number}() {{ ret i64 {number} }}"


def values(objects):
    symbols = [f"f{number}" for number in range(len(objects))]
    library = load(objects, symbols)
    return [ctypes.CFUNCTYPE(ctypes.c_int64)(library.addresses[symbol])() for symbol in symbols]


@pytest.fixture
def eager(monkeypatch):
    """Helpers start at once, however little there is to do; the started ones are listed."""
    monkeypatch.setattr(compilation, "WORTH_HELPERS_S", -1.0)
    started = []
    start = compilation._start_helper

    def recorded(queue):
        helper = start(queue)
        started.append(helper)
        return helper

    monkeypatch.setattr(compilation, "_start_helper", recorded)
    return started


def slow(number, seconds=0.02):
    """A source that takes a while to write, so that a helper has time to start."""

    def text():
        time.sleep(seconds)
        return source(number)()

    return text


def test_alone():
    told = []
    objects = compilation.compile_many(
        [source(k) for k in range(5)], host_target(), processes=1, progress=lambda *step: told.append(step)
    )
    assert values(objects) == [0, 1, 2, 3, 4]
    assert told == [(k, 5) for k in range(1, 6)]


def test_little_work_starts_no_helper(monkeypatch):
    monkeypatch.setattr(compilation, "_start_helper", lambda queue: pytest.fail("a helper was started"))
    assert len(compilation.compile_many([source(k) for k in range(5)], host_target(), processes=4)) == 5


def test_helpers_share_the_work(eager):
    told = []
    objects = compilation.compile_many(
        [slow(k) for k in range(60)], host_target(), processes=2, progress=lambda *step: told.append(step)
    )
    assert values(objects) == list(range(60))
    assert len(eager) == 1
    assert len(told) < 60, "the helper compiled nothing"
    assert told[-1] == (60, 60)
    assert eager[0].process.returncode is not None, "the helper outlived its work"


def test_killed_helper_costs_nothing_but_time(eager):
    def deadly(number):
        def text():
            for helper in eager:
                os.kill(helper.process.pid, signal.SIGKILL)
            return source(number)()

        return text

    sources = [slow(k) for k in range(30)]
    sources[12] = deadly(12)
    assert values(compilation.compile_many(sources, host_target(), processes=3)) == list(range(30))


def test_no_interpreter_to_start(eager, monkeypatch):
    def refuse(*_, **__):
        raise OSError("no processes today")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert values(compilation.compile_many([source(k) for k in range(8)], host_target(), processes=2)) == list(range(8))
    assert eager
    assert not any(eager)


@pytest.mark.parametrize("position", [0, 29])
def test_broken_kernel_is_reported_and_helpers_end(eager, position):
    sources = [slow(k) for k in range(30)]
    sources[position] = lambda: "not IR"
    with pytest.raises(FusewiseError, match="not valid LLVM IR"):
        compilation.compile_many(sources, host_target(), processes=2)
    assert all(helper.process.returncode is not None for helper in eager)


def test_executor_is_used():
    with ThreadPoolExecutor(2) as executor:
        objects = compilation.compile_many([source(k) for k in range(6)], host_target(), executor=executor)
    assert values(objects) == list(range(6))
