"""Times as events of the Trace Event Format, which Perfetto and `chrome://tracing` open.

Events are as the strictest reader takes them, Perfetto's: of bars of one track that overlap, if only by a nanosecond, it drops
one; number 0 is the idle process of a system in some of its versions, and some name threads by their numbers alone, whatever
process they are of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Bar", "TraceTrack", "bars_apart", "events_of", "named"]


@dataclass(frozen=True)
class TraceTrack:
    """A row of bars. Neither number is 0, and no other track of a file has the same `thread`."""

    process: int
    thread: int


@dataclass(frozen=True)
class Bar:
    """What was done on a track, from when and for how long, in nanoseconds. `about` is shown of it when it is selected."""

    name: str
    category: str
    track: TraceTrack
    start_ns: int
    ns: int
    about: Mapping[str, Any]


def bars_apart(bars: Iterable[Bar]) -> list[Bar]:
    """The bars by their start. Those of a track stand one after the other, each as long as it was: two steps that take turns
    (`NativeStep.strips`) are given as one bar each, from the first of its parts."""
    found: list[Bar] = []
    free: dict[TraceTrack, int] = {}
    for bar in sorted(bars, key=lambda bar: bar.start_ns):
        start = max(bar.start_ns, free.get(bar.track, 0))
        free[bar.track] = start + bar.ns
        found.append(bar if start == bar.start_ns else replace(bar, start_ns=start))
    return sorted(found, key=lambda bar: bar.start_ns)


def events_of(bars: Iterable[Bar]) -> list[dict[str, Any]]:
    """Bars as complete events, none over another."""
    return [
        {
            "name": bar.name,
            "cat": bar.category,
            "ph": "X",
            "ts": _us(bar.start_ns),
            "dur": _us(bar.ns),
            "pid": bar.track.process,
            "tid": bar.track.thread,
            "args": dict(bar.about),
        }
        for bar in bars_apart(bars)
    ]


def named(what: str, track: TraceTrack, name: str) -> dict[str, Any]:
    """The event that names a track (`what` is `thread_name`) or its process (`process_name`)."""
    return {"name": what, "ph": "M", "pid": track.process, "tid": track.thread, "args": {"name": name}}


def _us(ns: int) -> float:
    """Microseconds of which a reader that multiplies by 1000 and cuts off what is behind the point makes the nanoseconds again."""
    us = ns / 1e3
    return us if int(us * 1e3) >= ns else math.nextafter(us, math.inf)
