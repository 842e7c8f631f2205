"""What each part of DNNFusion is worth here: latency without it, all variants of a model timed in turn.

    python -m benchmarks.fusion_ablation [NAME ...] --table latency     the source's "inference latency comparison"
    python -m benchmarks.fusion_ablation [NAME ...] --table breakdown   its "optimizations breakdown"
    python -m benchmarks.fusion_ablation [NAME ...] --table depth       its "deep versus shallow": speed by number of layers
    python -m benchmarks.fusion_ablation [NAME ...] --table parts       more than it has (the default): the whole without each part

with [--exported] [--threads N] [--runs N] [--seconds S] [--processor-time] [--json FILE]; `--from FILE ...` draws the table of
earlier runs. What is printed in the source stands beside ours. There is no GPU column of ours: kernels are for CPUs.

    OurB, OurB+   the source's baselines: no fusion, and fixed patterns, without anything that DNNFusion adds: rewriting, index
                  changes in place of moving data, layouts by the dominant operator
    +rewriting, +fusion   OurB with rewriting, and with fusion by mapping types too; all the rest makes it dnnfusion
    layouts+      OurB+ with layouts by the dominant operator
    none, patterns   no fusion, and fixed patterns, with all the rest left on
    dnnfusion     fused by mapping types, everything on
    -rewriting, -intra, -inter   the last without: rewriting; index changes; layouts (without fusion it is `none`)

Rewriting is the algebraic rules and the recognition of what exporters write out: normalisations, activations, attention.

The figure compared (`ms`) is the sum of each step's shortest time, on a machine that does nothing else. On a busy one
`--processor-time`, with `--threads 1`, compares the least time that the processor gave to a run: it leaves out all waiting. The
file also has medians and minima of whole runs (`p50_ms`, `min_ms`).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from benchmarks.dnnfusion_printed import BREAKDOWN, BREAKDOWN_MODELS, DEPTHS, LATENCIES, Latencies
from benchmarks.fusion_table import REWRITING, markdown
from benchmarks.zoo import machine

from fusewise import api
from fusewise.benchmarking.describe import description
from fusewise.benchmarking.inputs import random_feeds
from fusewise.benchmarking.timing import Clock, TimingBudget, race, settle
from fusewise.runtime.executable import Executable
from fusewise.trace import INTER_BLOCK, INTRA_BLOCK
from fusewise.zoo.catalogue import build

RECOGNITION = frozenset({"recognise_activations", "recognise_attention", "recognise_norms"})
REWRITES = tuple(sorted(REWRITING | RECOGNITION))
ALONE = (*REWRITES, INTRA_BLOCK, INTER_BLOCK)

VARIANTS: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        "OurB": {"fusion": "none", "disable": ALONE},
        "OurB+": {"fusion": "patterns", "disable": ALONE},
        "+rewriting": {"fusion": "none", "disable": (INTRA_BLOCK, INTER_BLOCK)},
        "+fusion": {"disable": (INTRA_BLOCK, INTER_BLOCK)},
        "layouts+": {"fusion": "patterns", "disable": (*REWRITES, INTRA_BLOCK)},
        "none": {"fusion": "none"},
        "patterns": {"fusion": "patterns"},
        "dnnfusion": {},
        "-rewriting": {"disable": REWRITES},
        "-intra": {"disable": (INTRA_BLOCK,)},
        "-inter": {"disable": (INTER_BLOCK,)},
    }
)
"""Compile options of every variant."""

Found = Mapping[str, Any]


Figure = Callable[[list[Executable], dict[str, Any], int], list[float]]
"""Milliseconds of each of several programs on the same inputs, of so many runs in turn."""


def measured(
    name: str, variants: Sequence[str], threads: int | None, budget: TimingBudget, decomposed: bool, figure: Figure
) -> dict[str, Any]:
    """Latencies of variants of one model, in milliseconds, timed in one process in turn."""
    graph = api.load(build(name, decomposed=decomposed))
    feeds = random_feeds(graph, 0)
    models = {variant: api.compile(graph, threads=threads, **VARIANTS[variant]) for variant in variants}
    timings = race([partial(models[variant].run, None, feeds) for variant in variants], budget)
    figures = figure([models[variant].executable for variant in variants], feeds, budget.runs)
    rows = {
        variant: {
            "p50_ms": timing.p50_ms,
            "min_ms": timing.min_ms,
            "ms": figure_ms,
            "groups": models[variant].summary["groups"],
        }
        for variant, timing, figure_ms in zip(variants, timings, figures, strict=True)
    }
    form = "exported" if decomposed else "clean"
    return {
        "model": name,
        "form": form,
        "operators": len(graph.nodes),
        "macs": description(graph)["macs"],
        "variants": rows,
    }


def shortest_steps(models: list[Executable], feeds: dict[str, Any], rounds: int) -> list[float]:
    """For each model the sum over its steps of the shortest time a step took."""
    found: list[dict[int, int]] = [{} for _ in models]
    for _ in range(rounds):
        for model, shortest in zip(models, found, strict=True):
            settle(Clock())
            model.run(None, feeds)  # warm caches, workers awake
            for timing in model.run_with_timings(None, feeds)[1]:
                taken = timing.end_ns - timing.start_ns
                shortest[timing.step] = min(taken, shortest.get(timing.step, taken))
    return [sum(shortest.values()) / 1e6 for shortest in found]


def least_processor_time(models: list[Executable], feeds: dict[str, Any], rounds: int) -> list[float]:
    """For each model the least time that processors worked on a run of it."""
    found = [math.inf] * len(models)
    for _ in range(rounds):
        for k, model in enumerate(models):
            settle(Clock())
            model.run(None, feeds)
            begin = time.process_time()
            model.run(None, feeds)
            found[k] = min(found[k], (time.process_time() - begin) * 1e3)
    return found


def ms(found: Found, variant: str) -> float:
    """The latency of a variant."""
    return float(found["variants"][variant]["ms"])


def _times(factor: float) -> str:
    return f"{factor:.2f}x"


def mean(factors: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, factors)) / len(factors))


def parts(results: Sequence[Found]) -> str:
    """Milliseconds with everything on, and times as long without each part."""
    others = [variant for variant in PARTS if variant != "dnnfusion"]
    ratios = [[ms(found, variant) / ms(found, "dnnfusion") for variant in others] for found in results]
    rows = [
        (found["model"], f"{ms(found, 'dnnfusion'):.2f}", *map(_times, ratio))
        for found, ratio in zip(results, ratios, strict=True)
    ]
    means = ("geometric mean", "", *(_times(mean(column)) for column in zip(*ratios, strict=True)))
    return markdown(("model", "dnnfusion ms", *others), [*rows, means])


def latency(results: Sequence[Found]) -> str:
    """All that the source prints in ms, CPU / GPU, and our three columns, each with how much faster DNNFusion is on the CPU."""
    printed = ("MNN", "TVM", "TFLite", "Pytorch", "OurB", "OurB+", "DNNFusion")
    rows = []
    for found in results:
        theirs = LATENCIES.get(found["model"])
        pairs = ("-",) * len(printed) if theirs is None else tuple(map(_pair, theirs))
        ours = [ms(found, variant) for variant in LATENCY]
        faster = [_times(figure / ours[-1]) for figure in ours[:-1]]
        rows.append((found["model"], *pairs, *_faster(theirs), *(f"{figure:.1f}" for figure in ours), *faster))
    over = ("OurB by DNNFusion", "OurB+ by it")
    headings = (*printed, *over, "here: OurB", "OurB+", "DNNFusion", *over)
    return markdown(("model", *headings), rows)


def _pair(printed: tuple[int | None, int | None]) -> str:
    return " / ".join("-" if figure is None else str(figure) for figure in printed)


def _faster(printed: Latencies | None) -> tuple[str, ...]:
    """How much faster DNNFusion is than both baselines on the phone's CPU."""
    if printed is None:
        return ("-", "-")
    ours, *baselines = (pair[0] for pair in (printed.dnnfusion, printed.our_b, printed.our_b_plus))
    return tuple("-" if figure is None or ours is None else _times(figure / ours) for figure in baselines)


def breakdown(results: Sequence[Found]) -> str:
    """What each of rewriting, fusion and the rest gains over what stands before it, from OurB to DNNFusion."""
    names, rows = tuple(BREAKDOWN), []
    for found in results:
        steps = [ms(found, variant) for variant in STEPS]
        gains = [before / after for before, after in pairwise(steps)]
        most = max(zip(gains, names, strict=True))[1]
        whole = _times(steps[0] / steps[-1])
        rows.append((found["model"], f"{steps[0]:.1f}", *map(_times, gains), whole, most))
    low, high = (math.prod(bound[k] for bound in BREAKDOWN.values()) for k in (0, 1))
    bounds = [f"{least}-{most}x" for least, most in BREAKDOWN.values()]
    rows.append(("printed (CPU)", "", *bounds, f"{low:.1f}-{high:.1f}x", "fusion"))
    return markdown(("model", "OurB ms", *names, "all", "most"), rows)


def depth(results: Sequence[Found]) -> str:
    """Layers, work and speed, whose source says that more layers mean less speed."""
    rows = []
    for found in results:
        printed, flop = DEPTHS.get(found["model"]), 2 * (found["macs"] or 0)
        theirs = ("-",) * 3 if printed is None else (str(printed.layers), f"{printed.gflop:.1f}", str(printed.gflops))
        speeds = (f"{flop / ms(found, variant) / 1e6:.0f}" for variant in LATENCY)
        rows.append((found["model"], *theirs, str(found["operators"]), f"{flop / 1e9:.1f}", *speeds))
    ours = ("here: operators", "GFLOP", "GFLOP/s OurB", "OurB+", "DNNFusion")
    return markdown(("model", "printed: layers", "GFLOP", "GFLOP/s", *ours), rows)


LATENCY = ("OurB", "OurB+", "dnnfusion")
STEPS = ("OurB", "+rewriting", "+fusion", "dnnfusion")
PARTS = ("OurB", "OurB+", "layouts+", "none", "patterns", "dnnfusion", "-rewriting", "-intra", "-inter")


class Table(NamedTuple):
    """A table: the variants it needs, the models it has when none is named, and how it is drawn."""

    variants: tuple[str, ...]
    models: tuple[str, ...]
    draw: Callable[[Sequence[Found]], str]


TABLES: Mapping[str, Table] = MappingProxyType(
    {
        "latency": Table(LATENCY, tuple(LATENCIES), latency),
        "breakdown": Table(STEPS, BREAKDOWN_MODELS, breakdown),
        "depth": Table(LATENCY, tuple(DEPTHS), depth),
        "parts": Table(PARTS, tuple(LATENCIES), parts),
    }
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure what each part of the fusion planner is worth.")
    parser.add_argument("names", nargs="*", help="zoo models (default: those that the source has in its table)")
    parser.add_argument("--table", choices=tuple(TABLES), default="parts")
    parser.add_argument("--exported", action="store_true", help="take models as exporters wrote them around 2020")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--processor-time", action="store_true", help="compare processor time (with --threads 1)")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument("--from", dest="earlier", type=Path, nargs="+", metavar="FILE", help="draw what --json kept")
    given = parser.parse_args()
    if given.processor_time and given.threads != 1:
        parser.error("--processor-time counts the waiting of workers for each other; give --threads 1 with it")
    table = TABLES[given.table]
    if given.earlier:
        kept = [one for path in given.earlier for one in json.loads(path.read_text())["results"]]
        fitting = [one for one in kept if one["variants"].keys() >= set(table.variants)]
        if not fitting:
            parser.error(f"--from names no results of all the variants {', '.join(table.variants)}")
        print(table.draw([one for one in fitting if not given.names or one["model"] in given.names]))
        return
    budget = TimingBudget(runs=given.runs, seconds=given.seconds, limit_seconds=300.0)
    figure = least_processor_time if given.processor_time else shortest_steps
    results: list[dict[str, Any]] = []
    for name in given.names or table.models:
        results.append(measured(name, table.variants, given.threads, budget, given.exported, figure))
        print(table.draw(results[-1:]).splitlines()[2], file=sys.stderr, flush=True)
        if given.json:
            given.json.write_text(json.dumps({"machine": machine(given.threads), "results": results}, indent=2) + "\n")
    print(table.draw(results))


if __name__ == "__main__":
    main()
