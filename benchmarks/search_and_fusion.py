"""What a search among substitutions and operator fusion are worth, alone and together, here and in ONNX Runtime: one figure.

    python -m benchmarks.search_and_fusion [NAME ...] [--cost C] [--machine M] [--by F] [--json FILE] [--figure FILE.svg]
    python -m benchmarks.search_and_fusion --table FILE [--by F] [--figure FILE.svg]     draw what an earlier run measured

    none     the model behind the clean-up passes, every operator a kernel of its own
    search   the graph that `fusewise optimize --search relaxed` finds in it by `--cost`, taken at its word; no fusion
    fusion   the model behind the clean-up passes, with rewriting and fusion by mapping types; in ONNX Runtime all of its
             optimisations
    both     the graph that was found, with rewriting and fusion

In Fusewise `none` and `search` have no algebraic rules, no index changes in place of moved data and no layouts by the dominant
operator either (`OurB` of `benchmarks.fusion_ablation`); in ONNX Runtime all of its own optimisations are off.

The eight programs of a model (four where the search finds nothing) are timed in one process in turn, in blocks, and none begins
before the process has gone quiet. The file has three figures of each, and `--by` says which one is compared: `p50_ms`, the
median, `min_ms`, the shortest run, and `steps_ms`, the sum over its steps of the shortest time that each took, as both runtimes
report them; what lies between steps is not in it, and other programs on the machine hardly. It has the largest difference of an
answer from those of `none` in ONNX Runtime, too.

Networks are those of `benchmarks.substitutions`, and any of the zoo. Run it from the root of the repository with the extras
`bench` and `search` installed, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from benchmarks.fusion_ablation import ALONE, shortest_steps
from benchmarks.substitutions import NETWORKS, loaded
from benchmarks.zoo import machine

from fusewise import api
from fusewise.benchmarking.accuracy import worst_error
from fusewise.benchmarking.inputs import random_feeds
from fusewise.benchmarking.timing import TimingBudget, race
from fusewise.files import write_text
from fusewise.ir.graph import Graph
from fusewise.optimizing import optimized
from fusewise.reporting.charts import svg
from fusewise.reporting.charts.panels import grouped_bars
from fusewise.runtime.host import worker_count

VARIANTS: Mapping[str, tuple[bool, bool]] = MappingProxyType(
    {"none": (False, False), "search": (True, False), "fusion": (False, True), "both": (True, True)}
)
"""Whether each variant is of the graph that was found, and whether it is fused."""
RUNTIMES = ("fusewise", "onnxruntime")


def measured(name: str, given: argparse.Namespace, budget: TimingBudget) -> dict[str, Any]:
    """The times of every variant of one network in both runtimes, and what the search did."""
    model = loaded(name)
    clean = optimized(model).graph
    found = optimized(
        model, search="relaxed", cost=given.cost, machine=given.machine, alpha=given.alpha, faster_in="none"
    )
    feeds = random_feeds(clean, 0)
    calls: dict[tuple[str, str], Callable[[], list[np.ndarray]]] = {}
    steps: dict[tuple[str, str], Callable[[], float]] = {}
    with tempfile.TemporaryDirectory(prefix="fusewise-search-") as folder:
        for variant, (searched, fused) in VARIANTS.items():
            if searched and not found.steps:
                continue
            graph = found.graph if searched else clean
            ours = _in_fusewise(graph, fused, given.threads)
            path = Path(folder) / f"{variant}.onnx"
            api.save(graph, path)
            theirs = _in_onnxruntime(path, fused, given.threads)
            calls["fusewise", variant] = partial(ours.run, None, feeds)
            calls["onnxruntime", variant] = partial(theirs.run, None, feeds)
            steps["fusewise", variant] = partial(_our_steps, ours, feeds, given.runs)
            steps["onnxruntime", variant] = partial(_their_steps, path, fused, given.threads, feeds, given.runs)
        expected = calls["onnxruntime", "none"]()
        timings = race(list(calls.values()), budget)
        times: dict[str, dict[str, Any]] = {runtime: {} for runtime in RUNTIMES}
        for (runtime, variant), timing in zip(calls, timings, strict=True):
            times[runtime][variant] = {
                "steps_ms": steps[runtime, variant](),
                "min_ms": timing.min_ms,
                "p50_ms": timing.p50_ms,
            }
    for row in times.values() if not found.steps else ():
        row |= {"search": row["none"], "both": row["fusion"]}
    error = max(worst_error(call(), expected) for call in calls.values())
    rules = [step.rule for step in found.steps]
    return {"model": name, "cheaper": found.summary["speedup"], "steps": rules, "error": error, "times": times}


def _in_fusewise(graph: Graph, fused: bool, threads: int) -> Any:
    how: dict[str, Any] = {} if fused else {"fusion": "none", "disable": ALONE}
    return api.compile(graph, threads=threads, **how)


def _our_steps(model: Any, feeds: dict[str, Any], rounds: int) -> float:
    return shortest_steps([model.executable], feeds, rounds)[0]


def _in_onnxruntime(path: Path, fused: bool, threads: int, profile: str = "") -> Any:
    import onnxruntime

    levels = onnxruntime.GraphOptimizationLevel
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    settings.graph_optimization_level = levels.ORT_ENABLE_ALL if fused else levels.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    if profile:
        settings.enable_profiling, settings.profile_file_prefix = True, profile
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def _their_steps(path: Path, fused: bool, threads: int, feeds: dict[str, Any], rounds: int) -> float:
    """The sum over ONNX Runtime's nodes of the shortest time that its profile has for each."""
    session = _in_onnxruntime(path, fused, threads, profile=str(path.with_suffix("")))
    for _ in range(rounds):
        session.run(None, feeds)
    events = json.loads(Path(session.end_profiling()).read_text())
    shortest: dict[str, int] = {}
    for event in events:
        if event["name"].endswith("_kernel_time"):
            shortest[event["name"]] = min(event["dur"], shortest.get(event["name"], event["dur"]))
    return sum(shortest.values()) / 1e3


def table(results: list[dict[str, Any]], by: str) -> str:
    """A Markdown table: milliseconds of `none`, and how many times faster the others are, for each runtime."""
    others = [variant for variant in VARIANTS if variant != "none"]
    heads = " | ".join(f"{runtime}: none, ms | {' | '.join(others)}" for runtime in RUNTIMES)
    lines = [f"| network | by cost | steps | {heads} |", f"| --- | ---: | ---: |{' ---: |' * len(RUNTIMES) * 4}"]
    for found in results:
        cells = []
        for runtime in RUNTIMES:
            speed = speeds(found, runtime, by)
            cells += [f"{found['times'][runtime]['none'][by]:.2f}", *(f"{speed[v]:.2f}" for v in others)]
        lines.append(f"| {found['model']} | {found['cheaper']:.3f} | {len(found['steps'])} | {' | '.join(cells)} |")
    return "\n".join(lines)


def speeds(found: dict[str, Any], runtime: str, by: str) -> dict[str, float]:
    """How many times faster than `none` each variant is."""
    times = found["times"][runtime]
    return {variant: times["none"][by] / times[variant][by] for variant in VARIANTS}


def figure(results: list[dict[str, Any]], by: str) -> str:
    """The SVG text."""
    names = {found["model"]: found["model"].replace("_", "\n") for found in results}
    panels = {runtime: {names[found["model"]]: speeds(found, runtime, by) for found in results} for runtime in RUNTIMES}
    title = "Substitution search and fusion, alone and together"
    return svg(grouped_bars(panels, title=title, up="times as fast as none", mark=1.0))


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description="Measure substitution search and fusion, alone and together.")
    parser.add_argument("names", nargs="*", help="networks (default: those of benchmarks.substitutions)")
    parser.add_argument("--cost", default="time", help="what the search minimises, such as onnxruntime")
    parser.add_argument("--machine", default="cpu", help="whose time is estimated")
    parser.add_argument("--alpha", type=float, default=1.05)
    parser.add_argument("--by", default="p50_ms", choices=("p50_ms", "min_ms", "steps_ms"), help="what is compared")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=1.0, help="time to measure each program")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument("--figure", type=Path, metavar="FILE.svg", help="where to draw them")
    parser.add_argument("--table", type=Path, metavar="FILE", help="draw what this file holds and measure nothing")
    given = parser.parse_args()
    given.threads = worker_count(given.threads)
    results: list[dict[str, Any]] = []
    if given.table:
        results = json.loads(given.table.read_text())["results"]
    for name in () if given.table else given.names or NETWORKS:
        results.append(measured(name, given, TimingBudget(runs=given.runs, seconds=given.seconds, limit_seconds=60.0)))
        print(table(results[-1:], given.by).splitlines()[-1], file=sys.stderr, flush=True)
        if given.json:
            kept = {"machine": machine(given.threads), "cost": given.cost, "results": results}
            write_text(given.json, json.dumps(kept, indent=1) + "\n")
    print(table(results, given.by))
    if given.figure:
        write_text(given.figure, figure(results, given.by))


if __name__ == "__main__":
    main()
