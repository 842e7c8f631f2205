"""A report as events of the Trace Event Format, which Perfetto opens: one run, and the stages of compiling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Any

from fusewise.benchmarking.trace_format import Bar, TraceTrack, events_of, named
from fusewise.errors import UsageError

__all__ = ["perfetto"]

_COMPILING, _RUN = TraceTrack(1, 1), TraceTrack(2, 2)
"""The track of the stages, and that of the first worker; other workers have the threads behind it."""


def perfetto(document: Mapping[str, Any]) -> dict[str, Any]:
    """The trace: a track for each worker of a run, times in microseconds, and one for compiling.

    `UsageError` for a document with neither.
    """
    run, stages = [*_run(document)], [*_stages(document)]
    if not run and not stages:
        raise UsageError("the report has no times to draw: make it without --no-times")
    names = []
    if run:
        tracks = {bar.track: bar.track.thread - _RUN.thread for bar in run}
        names = [named("process_name", _RUN, "a run")]
        names += [
            named("thread_name", track, f"worker {tracks[track]}") for track in sorted(tracks, key=tracks.__getitem__)
        ]
    if stages:
        names += [named("process_name", _COMPILING, "compiling"), named("thread_name", _COMPILING, "stages")]
    about = {"title": document["title"], "fusewise": document["made"]["fusewise"]}
    events = [*names, *events_of(run), *events_of(stages)]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _run(document: Mapping[str, Any]) -> Iterator[Bar]:
    shares = (document.get("times") or {}).get("timeline") or ()
    if not shares:
        return
    steps, kernels = document["steps"], document["kernels"]
    groups, nodes = document["groups"], document["graphs"]["native"]["nodes"]
    for share in shares:
        step = steps[share["step"]]
        members = [] if step["group"] is None else groups[step["group"]]["nodes"]
        way = step["reason"] if step["kernel"] is None else kernels[step["kernel"]]["way"]
        about = {
            "step": step["index"],
            "group": step["group"],
            "kernel": way,
            "nodes": [nodes[n]["name"] for n in members],
        }
        kind = "host" if step["kind"] == "host" else "kernel"
        track = TraceTrack(_RUN.process, _RUN.thread + share["worker"])
        begin, end = _ns(share["start_us"]), _ns(share["start_us"] + share["us"])
        yield Bar(step["label"], kind, track, begin, end - begin, about)


def _stages(document: Mapping[str, Any]) -> Iterator[Bar]:
    stages = (document.get("compile") or {}).get("stages") or ()
    ends = map(_ns, accumulate((stage["ms"] * 1e3 for stage in stages), initial=0.0))
    for stage, (begin, end) in zip(stages, pairwise(ends), strict=True):
        yield Bar(stage["name"], "compile", _COMPILING, begin, end - begin, {})


def _ns(us: float) -> int:
    return round(us * 1e3)
