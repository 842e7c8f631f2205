"""One row at one size: ours and the other's in turn, how far the answers are apart, and how ours ran."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from benchmarks.operators.peers import OTHERS
from benchmarks.operators.row import Row, model_of
from benchmarks.operators.ways import worst

from fusewise import api
from fusewise.benchmarking.accuracy import worst_error
from fusewise.benchmarking.timing import Clock, Timing, TimingBudget, race
from fusewise.errors import FusewiseError

__all__ = ["measured"]

_LIMIT_S = 20.0
"""Of processor time, for one row at one size, all in all."""

_SLOW_S = 0.2
"""A run that takes longer is timed a few times only."""


class _TooLong(BaseException):
    """No `Exception`: nothing that handles a failed node may take it for one."""


def measured(row: Row, size: int, threads: int) -> dict[str, Any]:
    """The result of one row at one of its sizes; an error is a result too."""
    found: dict[str, Any] = {"op": row.op, "row": row.label, "domain": row.domain, "size": size, "threads": threads}
    try:
        with _limited(_LIMIT_S):
            return found | _measured(row, size, threads)
    except _TooLong:
        return found | {"error": f"took more than {_LIMIT_S:.0f} s of the processor"}
    except FusewiseError as error:
        return found | {"error": str(error).partition("\n")[0]}


def _measured(row: Row, size: int, threads: int) -> dict[str, Any]:
    model, feeds = model_of(row, size)
    clock = Clock()
    begin = clock.wall()
    ours = api.compile(model, cache=False, threads=threads, warn=lambda sentence: None)
    compile_ms = (clock.wall() - begin) * 1e3
    peer, theirs = _peer(row, model, feeds, threads)
    begin = clock.wall()
    answers = ours.run(None, feeds)
    first = clock.wall() - begin
    calls: list[Callable[[], object]] = [lambda: ours.run(None, feeds)]
    expected = None
    if theirs is not None:
        try:
            expected = theirs()
            calls.append(theirs)
        except Exception as error:  # of another program, whose errors have no common type
            peer = f"none ({' '.join(str(error).split())[:80]})"
    slow = first > _SLOW_S
    budget = TimingBudget(
        runs=3 if slow else 15,
        seconds=0.0 if slow else 0.05,
        limit_seconds=1.0,
        warmup=1 if slow else 2,
        block_seconds=0.01,
        longest_block=15,
    )
    times = race(calls, budget, clock)
    error = None if expected is None or row.random else _apart(answers, expected)
    return {
        "peer": peer,
        "way": worst(ours.summary["host"]),
        "compile_ms": compile_ms,
        "error": error,
        "ours": _spread(times[0]),
        "theirs": _spread(times[1]) if len(times) > 1 else None,
    }


def _peer(
    row: Row, model: onnx.ModelProto, feeds: dict[str, Any], threads: int
) -> tuple[str, Callable[[], Any] | None]:
    """The other runtime's name and a run of it; no run where it refuses the model, with the reason in the name."""
    other = OTHERS.get((row.domain, row.op))
    if other is not None:
        import torch

        torch.set_num_threads(threads)
        known = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        operands = [torch.from_numpy(np.array((known | feeds)[name])) for name in model.graph.node[0].input]

        def run() -> list[Any]:
            with torch.inference_mode():
                given = other(row.attributes, *operands)
            return [part.numpy() for part in (given if isinstance(given, tuple) else (given,))]

        return "torch", run
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    settings.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    except Exception as error:
        return f"none ({' '.join(str(error).split())[:80]})", None
    return "onnxruntime", lambda: session.run(None, feeds)


def _apart(found: Sequence[Any], expected: Sequence[Any]) -> float | None:
    """The largest relative difference; None where there is nothing to compare, as of maps."""
    if any(isinstance(answer, dict | list) and _is_map(answer) for answer in expected):
        return None if list(found) == list(expected) else float("inf")
    return worst_error(found, expected)


def _is_map(answer: Any) -> bool:
    return isinstance(answer, dict) or (bool(answer) and isinstance(answer[0], dict))


def _spread(timing: Timing) -> dict[str, float]:
    """Median, and the tenths of the runs that are faster and slower than all others."""
    return {"p10_ms": timing.percentile(10), "p50_ms": timing.p50_ms, "p90_ms": timing.p90_ms}


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raises `_TooLong` out of Python code that has taken so much processor time."""

    def stop(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
