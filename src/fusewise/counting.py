"""What fusing operators saves: memory accesses, cache misses, peak memory and the processor's use, of a model without and with it.

Takes a graph, compiles it in several ways, gives plain data with stable keys. Accesses and misses are of the program's own kernels
and addresses through a model of the caches (`benchmarking.accesses`); the processor's own counters stand beside them where the
system has any (`benchmarking.counters`), and times are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any

from fusewise.benchmarking.accesses import Accesses, accesses_of
from fusewise.benchmarking.caches import CacheLevel, host_levels
from fusewise.benchmarking.counters import counted, told
from fusewise.benchmarking.inputs import random_feeds
from fusewise.benchmarking.limits import MachineLimits, machine_limits
from fusewise.benchmarking.timing import Clock, settle
from fusewise.codegen.legalize import legalized
from fusewise.errors import within_memory
from fusewise.ir.graph import Graph
from fusewise.lower.program import HostStep, Program
from fusewise.making import Making, program_of
from fusewise.records import record
from fusewise.runtime.executable import Executable, StepTiming, build
from fusewise.runtime.host import host_target, worker_count
from fusewise.trace import Trace

__all__ = ["VARIANTS", "Variant", "compared", "headings", "rows"]

_RUNS, _MOST_RUNS, _BLOCK = 10, 1000, 5


@record(frozen=True)
class Variant:
    """A way to compile: the planner that groups nodes, what is not done, and how exact answers are, as `api.Options` says it."""

    fusion: str = "dnnfusion"
    disable: tuple[str, ...] = ()
    exact: bool = False
    precision: str = "float32"


VARIANTS: Mapping[str, Variant] = MappingProxyType({"without fusion": Variant("none"), "with fusion": Variant()})

Progress = Callable[[str, float], None]


@within_memory("memory accesses are counted")
def compared(
    graph: Graph,
    variants: Mapping[str, Variant] = VARIANTS,
    *,
    threads: int | None = None,
    levels: Sequence[CacheLevel] | None = None,
    seconds: float = 3.0,
    seed: int = 0,
    progress: Progress = lambda what, share: None,
) -> dict[str, Any]:
    """Count every variant of a model whose shapes are known, and time each for so many seconds, in turn.

    The result has `threads`, `caches` (each level's name, bytes and ways), `limits`, `without_counters` (a sentence on what the
    system does not count), and `variants` by name:

    - `groups`, `steps`, `host_steps` (which are not counted), `needed_bytes` (that all groups together must read and write),
      `peak_bytes` (the arena of intermediate results), `weight_bytes`
    - `loads`, `stores`, `prefetches`, `loaded_bytes`, `stored_bytes`, and `misses` (lines by level, prefetched ones included)
    - `ms` (the shortest times of all steps together), and in that time `busy` (the share that the workers spent working), `gflops`
      and `of_peak` (the share of the arithmetic that they could have done)
    - `counters` (the system's own, a run), `by_group` (group, operators, nodes, needed bytes, accesses and misses)
    """
    workers, caches = worker_count(threads), host_levels() if levels is None else tuple(levels)
    feeds = random_feeds(graph, seed)
    programs = {name: _program(graph, variant, workers) for name, variant in variants.items()}
    rows: dict[str, dict[str, Any]] = {}
    for k, (name, program) in enumerate(programs.items()):
        progress(f"counting {name}", k / len(programs))
        rows[name] = _counts(program, accesses_of(program, feeds, caches))
    models = {name: build(program, threads=workers) for name, program in programs.items()}
    fastest = _fastest(models, feeds, seconds, lambda share: progress("timing", share))
    limits, absent = machine_limits(workers), ""
    for name, model in models.items():
        events = counted(partial(_repeat, partial(model.run, None, feeds)))
        absent = told(events.missing)
        rows[name] |= {
            "weight_bytes": model.figures.constant_bytes,
            **_use(programs[name], fastest[name], workers, limits),
            "counters": {event: count / _RUNS for event, count in events.values.items()},
        }
    return {
        "threads": workers,
        "caches": [{"name": level.name, "bytes": level.nbytes, "ways": level.ways} for level in caches],
        "limits": {"gflops": limits.gflops, "copy_gbs": limits.copy_gbs},
        "without_counters": absent,
        "variants": rows,
    }


def _program(graph: Graph, variant: Variant, workers: int) -> Program:
    """What `compile` makes of a graph, for so many workers."""
    trace = Trace(disabled=frozenset(variant.disable))
    native = legalized(graph, host_target(), trace, precision=variant.precision, exact=variant.exact)
    return program_of(native, Making(workers, variant.fusion, variant.exact), trace)


def _counts(program: Program, found: Accesses) -> dict[str, Any]:
    whole = found.whole
    return {
        "groups": program.groups,
        "steps": len(program.steps),
        "host_steps": sum(isinstance(step, HostStep) for step in program.steps),
        "needed_bytes": sum(account.nbytes for account in program.accounts),
        "peak_bytes": program.arena_bytes,
        "loads": whole.loads,
        "stores": whole.stores,
        "prefetches": whole.prefetches,
        "loaded_bytes": whole.bytes_loaded,
        "stored_bytes": whole.bytes_stored,
        "misses": {level.name: whole.lines(k) for k, level in enumerate(found.levels)},
        "by_group": _groups(program, found),
    }


def _groups(program: Program, found: Accesses) -> list[dict[str, Any]]:
    """The same for each group; those that miss the nearest cache most come first."""
    rows: dict[int, dict[str, Any]] = {}
    for number, counts in found.steps.items():
        group = program.steps[number].group
        known = 0 <= group < len(program.accounts)
        row = rows.setdefault(
            group,
            {
                "group": group,
                "operators": program.accounts[group].operators if known else "copy to an output",
                "nodes": list(program.accounts[group].nodes) if known else [],
                "needed_bytes": program.accounts[group].nbytes if known else 0,
                "accesses": 0,
                "misses": {level.name: 0 for level in found.levels},
            },
        )
        row["accesses"] += counts.accesses
        for k, level in enumerate(found.levels):
            row["misses"][level.name] += counts.lines(k)
    nearest = found.levels[0].name
    return sorted(rows.values(), key=lambda row: -row["misses"][nearest])


def _fastest(
    models: Mapping[str, Executable], feeds: Mapping[str, Any], seconds: float, progress: Callable[[float], None]
) -> dict[str, list[StepTiming]]:
    """The shortest time of each step of each model, which other programs disturbed least; models take turns."""
    found: dict[str, dict[int, StepTiming]] = {name: {} for name in models}
    spent, rounds, clock = 0.0, 0, Clock()
    while rounds < _RUNS or (spent < seconds * len(models) and rounds < _MOST_RUNS):
        for name, model in models.items():
            settle(clock)
            begin = clock.wall()
            for timing in chain.from_iterable(model.run_with_timings(None, feeds)[1] for _ in range(_BLOCK)):
                known = found[name].setdefault(timing.step, timing)
                if _length_ns(timing) < _length_ns(known):
                    found[name][timing.step] = timing
            spent += clock.wall() - begin
        rounds += _BLOCK
        progress(min(1.0, spent / (seconds * len(models)) if seconds else 1.0))
    return {name: list(steps.values()) for name, steps in found.items()}


def _length_ns(timing: StepTiming) -> int:
    return timing.end_ns - timing.start_ns


def _use(program: Program, steps: Sequence[StepTiming], workers: int, limits: MachineLimits) -> dict[str, float]:
    """How the processor was used while these steps ran: by all workers, and for arithmetic."""
    whole = sum(_length_ns(timing) for timing in steps)
    spent = sum(end - start for timing in steps for start, end in timing.shares)
    gflops = sum(account.flops for account in program.accounts) / whole if whole else 0.0
    busy = spent / (whole * workers) if whole else 0.0
    return {"ms": whole / 1e6, "busy": busy, "gflops": gflops, "of_peak": gflops / limits.gflops}


def _repeat(run: Callable[[], object]) -> None:
    for _ in range(_RUNS):
        run()


def headings(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Of a table of what `compared` found."""
    misses = (f"{level['name']} misses k" for level in found["caches"])
    return ("", "steps", "needed MB", "accesses M", "moved MB", *misses, "peak MB", "ms", "busy", "of peak")


def rows(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Its rows, a variant each; MB are of 10^6 bytes."""
    return [
        (
            name,
            str(row["steps"]),
            f"{row['needed_bytes'] / 1e6:.1f}",
            f"{(row['loads'] + row['stores']) / 1e6:.2f}",
            f"{(row['loaded_bytes'] + row['stored_bytes']) / 1e6:.0f}",
            *(f"{count / 1e3:.0f}" for count in row["misses"].values()),
            f"{row['peak_bytes'] / 1e6:.1f}",
            f"{row['ms']:.2f}",
            f"{row['busy']:.0%}",
            f"{row['of_peak']:.0%}",
        )
        for name, row in found["variants"].items()
    ]
