"""Where a model's time goes: each group's time, its share of what the machine can do, and the same as a picture over time.

Takes a compiled program and inputs, gives plain data with stable keys; and events in the Chrome trace format, which Perfetto
opens. The program itself takes the times (`Executable.run_with_timings`); a run that is not profiled takes none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from fusewise.benchmarking.limits import MachineLimits
from fusewise.lower.program import Account, NativeStep, Program
from fusewise.runtime.executable import Executable, StepTiming

__all__ = ["alike", "profile", "roofline", "trace_events"]


def profile(
    model: Executable, feeds: Mapping[str, Any], limits: MachineLimits, runs: int = 20
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The roofline of a model, and the events of its fastest run. Runs it `runs` times after two that do not count."""
    for _ in range(2):
        model.run(None, feeds)
    found = [model.run_with_timings(None, feeds)[1] for _ in range(max(1, runs))]
    program = model.contents.program
    fastest = min(found, key=_length)
    return roofline(program, found, limits, model.workers), trace_events(program, fastest)


def roofline(
    program: Program, runs: Sequence[Sequence[StepTiming]], limits: MachineLimits, workers: int
) -> dict[str, Any]:
    """Machine and groups, those that take longest first.

    Of each group: `ms` (the median over runs of its steps together), `share` of the whole, `gflops` and `gbs` reached,
    `peak` (the larger of the two shares of the machine's limits: how close the group is to its roof; of copying it may be above
    1 for what stays in the caches), `bound` (`compute` or `memory`, whichever limit is nearer), `kernels`, and the `nodes` of
    the model that it covers.
    """
    total = median([_length(run) for run in runs]) if runs else 0.0
    rows = [_row(program, number, [_taken(run, number) for run in runs], limits) for number in _numbers(runs)]
    rows.sort(key=lambda row: -row["ms"])
    steps_ms = sum(row["ms"] for row in rows)
    for row in rows:
        row["share"] = row["ms"] / steps_ms if steps_ms else 0.0
    return {
        "machine": {"gflops": limits.gflops, "copy_gbs": limits.copy_gbs, "threads": workers},
        "ms": total / 1e6,
        "gflops": _rate(sum(a.flops for a in program.accounts), total),
        "groups": rows,
    }


def alike(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The groups of a roofline, those of the same operators, work and kernels as one, with their number as `count`; those that
    take longest together first."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in found["groups"]:
        key = (row["operators"], row["flops"], row["bytes"], *row["kernels"])
        total = merged.setdefault(key, row | {"count": 0, "ms": 0.0, "share": 0.0, "nodes": []})
        total["count"] += 1
        for part in ("ms", "share", "nodes"):
            total[part] += row[part]
    machine = found["machine"]
    limits = MachineLimits(machine["gflops"], machine["copy_gbs"])
    for row in merged.values():
        row.update(_reached(row["count"] * row["flops"], row["count"] * row["bytes"], row["ms"] * 1e6, limits))
    return sorted(merged.values(), key=lambda row: -float(row["ms"]))


def trace_events(program: Program, run: Sequence[StepTiming]) -> list[dict[str, Any]]:
    """One run as complete events of the Chrome trace format: a lane for each worker; times in microseconds from the start."""
    begin = min((timing.start_ns for timing in run), default=0)
    lanes = max((len(timing.shares) for timing in run), default=0)
    events: list[dict[str, Any]] = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": lane, "args": {"name": f"worker {lane}"}}
        for lane in range(lanes)
    ]
    for timing in run:
        account, step = _account(program, timing.group), program.steps[timing.step]
        way = step.way if isinstance(step, NativeStep) else "host"
        about = {"group": timing.group, "kernel": way, "nodes": list(account.nodes)}
        events.extend(
            {
                "name": timing.label or account.operators,
                "cat": "kernel" if timing.native else "host",
                "ph": "X",
                "ts": (start - begin) / 1e3,
                "dur": (end - start) / 1e3,
                "pid": 0,
                "tid": lane,
                "args": about,
            }
            for lane, (start, end) in enumerate(timing.shares)
        )
    return events


def _row(program: Program, number: int, taken_ns: Sequence[float], limits: MachineLimits) -> dict[str, Any]:
    account, ns = _account(program, number), median(taken_ns)
    kernels = [step.way if isinstance(step, NativeStep) else "host" for step in program.steps if step.group == number]
    return {
        "group": number,
        "operators": account.operators,
        "ms": ns / 1e6,
        "share": 0.0,
        "flops": account.flops,
        "bytes": account.nbytes,
        **_reached(account.flops, account.nbytes, ns, limits),
        "kernels": list(dict.fromkeys(kernels)),
        "nodes": list(account.nodes),
    }


def _reached(flops: int, nbytes: int, ns: float, limits: MachineLimits) -> dict[str, Any]:
    """Rates, the larger share of the machine's limits and which it is of."""
    gflops, gbs = _rate(flops, ns), _rate(nbytes, ns)
    shares = {"compute": gflops / limits.gflops, "memory": gbs / limits.copy_gbs}
    return {"gflops": gflops, "gbs": gbs, "peak": max(shares.values()), "bound": max(shares, key=shares.__getitem__)}


def _account(program: Program, number: int) -> Account:
    """A step past the last group copies an input or a constant that is an output."""
    known = 0 <= number < len(program.accounts)
    return program.accounts[number] if known else Account("copy to an output", (), 0, 0)


def _numbers(runs: Sequence[Sequence[StepTiming]]) -> list[int]:
    return sorted({timing.group for run in runs for timing in run})


def _taken(run: Sequence[StepTiming], number: int) -> float:
    return float(sum(timing.end_ns - timing.start_ns for timing in run if timing.group == number))


def _length(run: Sequence[StepTiming]) -> float:
    return float(max((t.end_ns for t in run), default=0) - min((t.start_ns for t in run), default=0))


def _rate(amount: int, ns: float) -> float:
    """Billions a second."""
    return amount / ns if ns else 0.0
