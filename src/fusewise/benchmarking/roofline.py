"""Where a model's time goes: each group's time, its share of what the machine can do, and the same as a picture over time.

Takes a compiled program and inputs, gives plain data with stable keys; and events of one run, which Perfetto
opens. The program itself takes the times (`Executable.run_with_timings`); a run that is not profiled takes none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from fusewise.benchmarking.bandwidth import least_ns
from fusewise.benchmarking.limits import MachineLimits
from fusewise.benchmarking.trace_format import Bar, TraceTrack, events_of, named
from fusewise.codegen.instructions.table import INSTRUCTIONS, MATRIX_INSTRUCTIONS
from fusewise.codegen.nest.instruction import Instruction
from fusewise.ir.size import evaluate
from fusewise.lower.fixed import chosen
from fusewise.lower.program import Account, NativeStep, Program, StepVersions
from fusewise.runtime.executable import Executable, StepTiming
from fusewise.runtime.sizes import SymbolReader

__all__ = ["alike", "multiplications", "profile", "reached", "roofline", "trace_events"]

Limits = Callable[[MachineLimits | None], MachineLimits]
"""Gives the machine's limits; given some that turned out too low, it measures them again."""

_ABOVE = 1.05


def profile(
    model: Executable, feeds: Mapping[str, Any], limits: Limits, runs: int = 20
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The roofline of a model, and the events of its fastest run. Runs it `runs` times after two that do not count.

    Free dimensions have the sizes that `feeds` have. `limits` of None measures, and of what it measured before again: that
    happens, once, where a group is faster than its ceiling.
    """
    for _ in range(2):
        model.run(None, feeds)
    found = [model.run_with_timings(None, feeds)[1] for _ in range(max(1, runs))]
    program, known = _at_sizes(model.contents.program, feeds), limits(None)
    told = roofline(program, found, known, model.workers)
    if any(row["peak"] > _ABOVE for row in told["groups"]):
        told = roofline(program, found, limits(known), model.workers)
    return told, trace_events(program, min(found, key=_length))


def roofline(
    program: Program, runs: Sequence[Sequence[StepTiming]], limits: MachineLimits, workers: int
) -> dict[str, Any]:
    """Machine and groups, those that take longest first.

    Of each group: `ms` (the median over runs of its steps together), `share` of the whole, `gflops` and `gbs` reached, and the
    ceilings of both, `ceiling_gflops` and `ceiling_gbs`; `peak` (the larger of the two shares: how close the group is to its roof),
    `bound` (`compute` or `memory`, whichever is nearer), `level` (the farthest level of the caches that some of its bytes must be
    in), `kernels`, and the `nodes` of the model that it covers.

    The ceiling of arithmetic is fused multiply-adds of float32, times what one of the kernel's own multiplications stands for.
    That of moving data lets as many bytes as the nearest cache holds be in it, and so on outwards (`bandwidth.least_ns`): no group
    can be faster, wherever its operands were left.
    """
    total = median([_length(run) for run in runs]) if runs else 0.0
    rows = [_row(program, number, [_taken(run, number) for run in runs], limits) for number in _numbers(runs)]
    rows.sort(key=lambda row: -row["ms"])
    steps_ms = sum(row["ms"] for row in rows)
    for row in rows:
        row["share"] = row["ms"] / steps_ms if steps_ms else 0.0
    levels = [{"name": one.name, "bytes": one.nbytes, "gbs": one.gbs, "spread": one.spread} for one in limits.levels]
    return {
        "machine": {
            "gflops": limits.gflops,
            "copy_gbs": limits.copy_gbs,
            "threads": workers,
            "levels": levels,
            "disturbed": limits.disturbed,
        },
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
    for row in merged.values():
        ceilings = row["ceiling_gflops"], row["ceiling_gbs"]
        row.update(reached(row["count"] * row["flops"], row["count"] * row["bytes"], row["ms"] * 1e6, ceilings))
    return sorted(merged.values(), key=lambda row: -float(row["ms"]))


def multiplications(way: str) -> float:
    """How many multiply-adds of float32 one of a kernel's may stand for, from what is said of it: what its algorithm saves of those
    that the definition has, times the terms of its instruction."""
    said = dict(part.split("=", 1) for part in way.split() if "=" in part)
    row = _INSTRUCTIONS.get(said.get("instruction", ""))
    return float(said.get("saves", 1.0)) * (1.0 if row is None else _terms(row))


_INSTRUCTIONS: Mapping[str, Instruction] = {row.name: row for row in (*INSTRUCTIONS, *MATRIX_INSTRUCTIONS)}


def _terms(row: Instruction) -> float:
    """Multiply-adds for each lane of 32 bits, of one whose results are narrower for more; of a matrix unit in a cycle."""
    if row.matrix is None:
        return row.terms * 4 / row.sum.itemsize
    return row.rows * row.steps * row.terms / row.matrix.unit.cycles


def trace_events(program: Program, run: Sequence[StepTiming]) -> list[dict[str, Any]]:
    """One run as events of the Trace Event Format: a track for each worker, from 1; times in microseconds from the start.

    `args` says which `step` of the program it is, its `group`, `kernel` and `nodes`.
    """
    begin = min((timing.start_ns for timing in run), default=0)
    tracks = [TraceTrack(1, 1 + worker) for worker in range(max((len(timing.shares) for timing in run), default=0))]
    bars = []
    for timing in run:
        account, step = _account(program, timing.group), program.steps[timing.step]
        way = step.way if isinstance(step, NativeStep) else "host"
        about = {"step": timing.step, "group": timing.group, "kernel": way, "nodes": list(account.nodes)}
        name, category = timing.label or account.operators, "kernel" if timing.native else "host"
        bars += [
            Bar(name, category, track, start - begin, end - start, about)
            for track, (start, end) in zip(tracks, timing.shares, strict=False)
        ]
    names = [named("thread_name", track, f"worker {worker}") for worker, track in enumerate(tracks)]
    return [*names, *events_of(bars)]


def _at_sizes(program: Program, feeds: Mapping[str, Any]) -> Program:
    """What a run on these inputs does, in numbers: of each step the version that is run, and what each group amounts to."""
    if not program.symbols:
        return program
    reader = SymbolReader(program.symbols, program.inputs, program.checks)
    values = reader.values(reader.rows([feeds[port.name] for port in program.inputs]))
    steps = tuple(chosen(one, values) or one if isinstance(one, StepVersions) else one for one in program.steps)
    accounts = (
        replace(a, flops=evaluate(a.flops, values), nbytes=evaluate(a.nbytes, values)) for a in program.accounts
    )
    return replace(program, steps=steps, accounts=tuple(accounts))


def _row(program: Program, number: int, taken_ns: Sequence[float], limits: MachineLimits) -> dict[str, Any]:
    account, ns = _account(program, number), median(taken_ns)
    kernels = [step.way if isinstance(step, NativeStep) else "host" for step in program.steps if step.group == number]
    gflops = limits.gflops * max(map(multiplications, kernels), default=1.0)
    least, level = least_ns(limits.levels, account.nbytes) if limits.levels else (0.0, "")
    gbs = account.nbytes / least if least else limits.copy_gbs
    return {
        "group": number,
        "operators": account.operators,
        "ms": ns / 1e6,
        "share": 0.0,
        "flops": account.flops,
        "bytes": account.nbytes,
        "level": level,
        "ceiling_gflops": gflops,
        "ceiling_gbs": gbs,
        **reached(account.flops, account.nbytes, ns, (gflops, gbs)),
        "kernels": list(dict.fromkeys(kernels)),
        "nodes": list(account.nodes),
    }


def reached(flops: int, nbytes: int, ns: float, ceilings: tuple[float, float]) -> dict[str, Any]:
    """Rates in 10^9 a second, the larger share of their ceilings and which it is of."""
    gflops, gbs = _rate(flops, ns), _rate(nbytes, ns)
    shares = {"compute": gflops / ceilings[0], "memory": gbs / ceilings[1]}
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
