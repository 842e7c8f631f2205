"""Turns: other threads wait, the thread inside is refused."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import onnx
import pytest

import fusewise
from fusewise.errors import UsageError
from fusewise.runtime.turns import Turns


def test_a_thread_that_is_inside_is_refused_and_may_come_again_later() -> None:
    turns = Turns("it is done")
    with turns, pytest.raises(UsageError, match="it is done from within itself"), turns:
        pytest.fail("entered twice")
    with turns:
        pass


def test_other_threads_wait() -> None:
    turns, seen = Turns("it is done"), []

    def enter(number: int) -> None:
        with turns:
            seen.append(number)
            time.sleep(0.001)
            seen.append(number)

    threads = [threading.Thread(target=enter, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 16 and seen[::2] == seen[1::2]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_a_run_in_a_signal_handler_is_an_error_or_works_but_never_hangs() -> None:
    """A host step keeps Python inside the run for most of the time."""
    kinds = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.STRING, [4000]) for name in "xy"]
    nodes = [onnx.helper.make_node("StringConcat", ["x", "x"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "g", kinds[:1], kinds[1:])
    model = fusewise.compile(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10), cache=False
    )
    feeds = {"x": np.full(4000, "a", object)}
    refused = []

    def handler(*_: object) -> None:
        try:
            model.run(None, feeds)
        except UsageError as error:
            refused.append(str(error))

    before = signal.signal(signal.SIGALRM, handler)
    try:
        end = time.monotonic() + 20
        while not refused and time.monotonic() < end:
            signal.setitimer(signal.ITIMER_REAL, 0.0005)
            model.run(None, feeds)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert refused and "signal handler" in refused[0]
    assert model.run(None, feeds)[0][0] == "aa"
