"""One file here and in ONNX Runtime: is it read, what runs on the host, how far are answers apart, how long does either take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.files.row import Port, feeds_of, written
from benchmarks.files.table import file_named

from fusewise import api
from fusewise.benchmarking.accuracy import relative_error
from fusewise.benchmarking.timing import TimingBudget, race
from fusewise.errors import FusewiseError

__all__ = ["build", "line", "measure", "summary"]

LEAST_RATIO = 0.9


def build(name: str, folder: Path) -> str:
    """Has the tool write the file of this name; why it did not, or nothing."""
    try:
        written(file_named(name), folder)
    except Exception as error:  # of another program, whose errors have no common type
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return ""


def measure(name: str, folder: Path, threads: int, seconds: float, free: bool) -> dict[str, Any]:
    """The result for one file that is there; an error is a result too. `seconds` is how long each runtime is timed."""
    file, found = file_named(name), {}
    path = written(file, folder)
    try:
        session, plain = (_session(path, threads, level) for level in ("ENABLE_ALL", "DISABLE_ALL"))
        ports = tuple(Port(port.name, port.type, tuple(port.shape)) for port in session.get_inputs())
        feeds = feeds_of(file, ports)
        expected, again = (one.run(None, feeds) for one in (session, plain))
    except Exception as error:  # of another program, whose errors have no common type
        return found | {"peer": f"{' '.join(str(error).split())[:200]}"}
    shapes = {} if free else {name: value.shape for name, value in feeds.items()}
    try:
        model = api.compile(path, shapes=shapes, threads=threads, warn=lambda sentence: None)
        answers = model.run(None, feeds)
    except FusewiseError as error:
        return found | {"refused": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
    except Exception as error:  # a fault of ours, which the table shows
        return found | {"refused": f"FAULT {type(error).__name__}: {str(error).partition(chr(10))[0]}"}
    ours, theirs = race(
        [lambda: model.run(None, feeds), lambda: session.run(None, feeds)],
        TimingBudget(runs=20, seconds=seconds, limit_seconds=4 * seconds),
    )
    return found | {
        "host": dict(Counter(step["op"] for step in model.summary["host"])),
        "error": _apart(answers, expected),
        "own_error": _apart(again, expected),
        "tolerance": file.tolerance,
        "compile_s": model.summary["compile_ms"] / 1e3,
        "ours_ms": ours.p50_ms,
        "theirs_ms": theirs.p50_ms,
        "ratio": theirs.p50_ms / ours.p50_ms,
    }


def _session(path: Path, threads: int, level: str) -> Any:
    """The other runtime's, with all of its optimisations, or with none."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    settings.log_severity_level = 4
    settings.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def _apart(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest relative difference of an answer; maps are compared by what they hold."""
    if len(found) != len(expected):
        return float("inf")
    return max((_difference(a, b) for a, b in zip(found, expected, strict=True)), default=0.0)


def _difference(found: Any, expected: Any) -> float:
    if not (isinstance(expected, list) and expected and isinstance(expected[0], Mapping)):
        return relative_error(found, expected)
    if [list(a) for a in found] != [list(b) for b in expected]:
        return float("inf")
    values = (np.array([list(maps.values()) for maps in answer], np.float32) for answer in (found, expected))
    return relative_error(*values)


def agrees(result: Mapping[str, Any]) -> bool:
    """Are answers as near to the other runtime's as the file's tolerance, or as its own two levels are to each other?"""
    return bool(result["error"] <= max(result["tolerance"], result["own_error"]))


def line(result: Mapping[str, Any]) -> str:
    """A row of a Markdown table."""
    begin = f"| {result['file']} | {result['family']} |"
    for kind in ("unbuilt", "peer", "refused", "died"):
        if kind in result:
            return f"{begin} {kind}: {result[kind]} | | | | | |"
    host = ", ".join(f"{op} x {count}" for op, count in result["host"].items())
    mark = "" if agrees(result) else " differs"
    return (
        f"{begin} yes | {host} | {result['error']:.1e}{mark} | {result['ours_ms']:.3f} | {result['theirs_ms']:.3f} "
        f"| {result['ratio']:.2f} |"
    )


def summary(results: Sequence[Mapping[str, Any]]) -> str:
    """Counts, and the geometric mean of ratios."""
    timed = [result for result in results if "ratio" in result]
    told = [
        f"{len(timed)} of {len(results)} files run",
        f"{sum('refused' in result or 'died' in result for result in results)} refused",
        f"{sum('peer' in result for result in results)} that ONNX Runtime does not run",
        f"{sum('unbuilt' in result for result in results)} that their tool does not write",
        f"{sum(not agrees(result) for result in timed)} differ",
        f"{sum(bool(result['host']) for result in timed)} with host steps",
        f"{sum(result['ratio'] < LEAST_RATIO for result in timed)} below {LEAST_RATIO}",
    ]
    if timed:
        mean = np.exp(np.mean([np.log(result["ratio"]) for result in timed]))
        told.append(f"geometric mean of ratios {mean:.2f}")
    return "; ".join(told)
