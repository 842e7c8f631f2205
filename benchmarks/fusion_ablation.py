"""What each part of DNNFusion is worth here: latency without it, all variants of a model timed in turn (the paper's figure 7).

    python -m benchmarks.fusion_ablation [NAME ...] [--threads N] [--runs N] [--seconds S] [--json FILE]

    OurB, OurB+   the paper's baselines: no fusion, and fixed patterns, without anything that DNNFusion adds: rewriting, index
                  changes in place of moving data, layouts by the dominant operator
    layouts+      OurB+ with layouts by the dominant operator
    none, patterns   no fusion, and fixed patterns, with all the rest left on
    dnnfusion     fused by mapping types, everything on
    -rewriting, -fusion, -intra, -inter   the last without: rewriting; fusion; index changes; layouts

Rewriting is the algebraic rules and the recognition of what exporters write out: normalisations, activations, attention.

The figure compared is the sum of each step's shortest time (`steps_ms`), which other programs on the machine disturb least; the
file also has medians and minima of whole runs (`p50_ms`, `min_ms`).

The paper's factors are of a phone: rewriting 1.2-1.5x, fusion 1.6-2.2x, intra- and inter-block together 1.3-1.8x; DNNFusion
over fixed patterns 1.4-2.5x, over no fusion 1.5-5.8x.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.fusion_table import PUBLISHED, REWRITING
from benchmarks.zoo import machine

from fusewise import api
from fusewise.bench.inputs import random_feeds
from fusewise.bench.timing import Budget, Clock, race, settle
from fusewise.runtime.executable import Executable
from fusewise.trace import INTER_BLOCK, INTRA_BLOCK
from fusewise.zoo.catalogue import MODELS, build

RECOGNITION = frozenset({"recognise_activations", "recognise_attention", "recognise_norms"})
REWRITES = tuple(sorted(REWRITING | RECOGNITION))
ALONE = (*REWRITES, INTRA_BLOCK, INTER_BLOCK)

VARIANTS: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        "OurB": {"fusion": "none", "disable": ALONE},
        "OurB+": {"fusion": "patterns", "disable": ALONE},
        "layouts+": {"fusion": "patterns", "disable": (*REWRITES, INTRA_BLOCK)},
        "none": {"fusion": "none"},
        "patterns": {"fusion": "patterns"},
        "dnnfusion": {},
        "-rewriting": {"disable": REWRITES},
        "-fusion": {"fusion": "none"},
        "-intra": {"disable": (INTRA_BLOCK,)},
        "-inter": {"disable": (INTER_BLOCK,)},
    }
)
"""Compile options of every variant; `-fusion` is `none` by another name and is measured once."""


def measured(name: str, threads: int | None, budget: Budget, decomposed: bool) -> dict[str, Any]:
    """Latencies of every variant of one model, in milliseconds, timed in one process in turn."""
    graph = api.load(build(name, decomposed=decomposed))
    feeds = random_feeds(graph, 0)
    names = [variant for variant in VARIANTS if variant != "-fusion"]
    models = {variant: api.compile(graph, threads=threads, **VARIANTS[variant]) for variant in names}
    timings = race([partial(models[variant].run, None, feeds) for variant in names], budget)
    steps = shortest_steps([models[variant].executable for variant in names], feeds, budget.runs)
    rows = {
        variant: {
            "p50_ms": timing.p50_ms,
            "min_ms": timing.min_ms,
            "steps_ms": steps_ms,
            "groups": models[variant].summary["groups"],
        }
        for variant, timing, steps_ms in zip(names, timings, steps, strict=True)
    }
    rows["-fusion"] = rows["none"]
    return {"model": name, "form": "exported" if decomposed else "clean", "variants": {v: rows[v] for v in VARIANTS}}


def shortest_steps(models: list[Executable], feeds: dict[str, Any], rounds: int) -> list[float]:
    """For each model the sum over its steps of the shortest time a step took, in milliseconds; models run in turn."""
    found: list[dict[int, int]] = [{} for _ in models]
    for _ in range(rounds):
        for model, shortest in zip(models, found, strict=True):
            settle(Clock())
            model.run(None, feeds)  # warm caches, workers awake
            for timing in model.run_with_timings(None, feeds)[1]:
                taken = timing.end_ns - timing.start_ns
                shortest[timing.step] = min(taken, shortest.get(timing.step, taken))
    return [sum(shortest.values()) / 1e6 for shortest in found]


def factors(found: dict[str, Any]) -> dict[str, float]:
    """How many times longer each variant takes than the whole."""
    whole = found["variants"]["dnnfusion"]["steps_ms"]
    return {variant: row["steps_ms"] / whole for variant, row in found["variants"].items()}


def table(results: list[dict[str, Any]]) -> str:
    """A Markdown table: milliseconds with everything on, and times as long without each part."""
    others = [variant for variant in VARIANTS if variant != "dnnfusion"]
    lines = [f"| model | dnnfusion ms | {' | '.join(others)} |", f"| --- | ---: |{' ---: |' * len(others)}"]
    for found in results:
        ratio = factors(found)
        cells = [f"{ratio[variant]:.2f}x" for variant in others]
        lines.append(f"| {found['model']} | {found['variants']['dnnfusion']['steps_ms']:.2f} | {' | '.join(cells)} |")
    means = [math.exp(sum(math.log(factors(f)[v]) for f in results) / len(results)) for v in others]
    return "\n".join([*lines, f"| geometric mean | | {' | '.join(f'{mean:.2f}x' for mean in means)} |"])


def main() -> None:
    """Measure and print."""
    known = {model.name for model in MODELS}
    parser = argparse.ArgumentParser(description="Measure what each part of the fusion planner is worth.")
    parser.add_argument("names", nargs="*", help="zoo models (default: the paper's that the zoo has)")
    parser.add_argument("--exported", action="store_true", help="take models as exporters wrote them around 2020")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path, help="where to keep the results")
    given = parser.parse_args()
    budget = Budget(runs=given.runs, seconds=given.seconds, limit_seconds=300.0)
    results: list[dict[str, Any]] = []
    for name in given.names or [name for name in PUBLISHED if name in known]:
        results.append(measured(name, given.threads, budget, given.exported))
        print(table(results[-1:]).splitlines()[2], file=sys.stderr, flush=True)
        if given.json:
            given.json.write_text(json.dumps({"machine": machine(given.threads), "results": results}, indent=2) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
