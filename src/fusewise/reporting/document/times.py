"""What a model takes, as parts of the document: a run by group and by worker, and compiling by stage."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fusewise.compiled import Model

__all__ = ["RUNS", "compile_stages_of", "timeline_of", "times_of", "waits_of"]

RUNS = 10
"""Runs that are timed at most."""

_SECONDS = 3.0
"""What these may take, if it is more than one."""


def times_of(
    model: Model, *, seed: int = 0, runs: int = RUNS, folder: Path | None = None, feeds: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The part `times`: measured here and now, on random inputs from `seed` or on `feeds`.

    `ms` of a run (the median of so many `runs`, fewer where they would take long) and of each of the `groups`, as
    `benchmarking.roofline` has them, beside the `limits` of the machine, kept in `folder` once they are measured (that takes some
    seconds). `timeline` is the fastest run: when each worker began its share of a step, and how long it took, in microseconds;
    `workers` what each did and waited of it.
    Raises what `Model.run` raises.
    """
    from fusewise.benchmarking import roofline
    from fusewise.benchmarking.limits import ceilings

    own = model.executable
    given = model.random_inputs(seed) if feeds is None else feeds
    begin = time.perf_counter()
    own.run(None, given)
    runs = max(1, min(runs, int(_SECONDS / (time.perf_counter() - begin))))
    found, events = roofline.profile(own, given, partial(ceilings, own.workers, folder), runs)
    machine = found["machine"]
    timeline = timeline_of(events)
    return {
        "ms": found["ms"],
        "runs": runs,
        "threads": machine["threads"],
        "gflops": found["gflops"],
        "disturbed": machine["disturbed"],
        "limits": {name: machine[name] for name in ("gflops", "copy_gbs", "levels")},
        "groups": found["groups"],
        "timeline": timeline,
        "workers": waits_of(timeline),
    }


def timeline_of(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The bars of a run that `roofline.trace_events` gave, by their start; no two of a worker overlap."""
    bars = [
        {"step": event["args"]["step"], "worker": event["tid"] - 1, "start_us": event["ts"], "us": event["dur"]}
        for event in events
        if event["ph"] == "X"
    ]
    return sorted(bars, key=lambda bar: (bar["start_us"], bar["step"], bar["worker"]))


def waits_of(timeline: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each worker how long it worked (`busy_us`) and how long not (`wait_us`), from the first start to the last end of all."""
    bars = [*timeline]
    if not bars:
        return []
    begin = min(bar["start_us"] for bar in bars)
    end = max(bar["start_us"] + bar["us"] for bar in bars)
    busy: dict[int, float] = {}
    for bar in bars:
        busy[bar["worker"]] = busy.get(bar["worker"], 0.0) + bar["us"]
    return [
        {"worker": worker, "busy_us": us, "wait_us": max(0.0, end - begin - us)} for worker, us in sorted(busy.items())
    ]


def compile_stages_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The part `compile`, from the figures of a model (`Model.summary`): `ms`, and `stages` with the `ms` of each by `name`.

    What the stages leave of the whole is the last, `other`, unless that is nothing.
    """
    stages = [dict(stage) for stage in summary["stages"]]
    rest = summary["compile_ms"] - sum(stage["ms"] for stage in stages)
    if rest > _NOTHING_MS:
        stages.append({"name": "other", "ms": rest})
    return {"ms": summary["compile_ms"], "stages": stages}


_NOTHING_MS = 0.05
