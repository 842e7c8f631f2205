"""A report as events of the Chrome trace format, which Perfetto opens: one run, and the stages of compiling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fusewise.errors import UsageError

__all__ = ["perfetto"]

_RUN, _COMPILE = 0, 1
"""Numbers of the two processes that the tracks stand under."""


def perfetto(document: Mapping[str, Any]) -> dict[str, Any]:
    """The trace: a track for each worker of a run, times in microseconds, and one for compiling.

    `UsageError` for a document with neither.
    """
    events = [*_run(document), *_stages(document)]
    if not events:
        raise UsageError("the report has no times to draw: make it without --no-times")
    about = {"title": document["title"], "fusewise": document["made"]["fusewise"]}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _run(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    bars = (document.get("times") or {}).get("timeline") or ()
    if not bars:
        return
    steps, kernels = document["steps"], document["kernels"]
    groups, nodes = document["groups"], document["graphs"]["native"]["nodes"]
    yield _named("process_name", _RUN, 0, "a run")
    for worker in sorted({bar["worker"] for bar in bars}):
        yield _named("thread_name", _RUN, worker, f"worker {worker}")
    for bar in bars:
        step = steps[bar["step"]]
        members = [] if step["group"] is None else groups[step["group"]]["nodes"]
        way = step["reason"] if step["kernel"] is None else kernels[step["kernel"]]["way"]
        about = {
            "step": step["index"],
            "group": step["group"],
            "kernel": way,
            "nodes": [nodes[n]["name"] for n in members],
        }
        kind = "host" if step["kind"] == "host" else "kernel"
        yield _bar(step["label"], kind, (_RUN, bar["worker"]), (bar["start_us"], bar["us"]), about)


def _stages(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    stages = (document.get("compile") or {}).get("stages") or ()
    if not stages:
        return
    yield _named("process_name", _COMPILE, 0, "compiling")
    yield _named("thread_name", _COMPILE, 0, "stages")
    begin = 0.0
    for stage in stages:
        yield _bar(stage["name"], "compile", (_COMPILE, 0), (begin, stage["ms"] * 1e3), {})
        begin += stage["ms"] * 1e3


def _named(what: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": track, "args": {"name": name}}


def _bar(
    name: str, category: str, track: tuple[int, int], time_us: tuple[float, float], about: Mapping[str, Any]
) -> dict[str, Any]:
    process, thread = track
    start, length = time_us
    place = {"pid": process, "tid": thread}
    return {"name": name, "cat": category, "ph": "X", "ts": start, "dur": length, **place, "args": dict(about)}
