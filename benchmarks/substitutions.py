"""Relaxed graph substitutions on whole networks (Z. Jia et al., SysML 2019, figures 4 to 6; Y. Yang et al., MLSys 2021, table 1).

    python -m benchmarks.substitutions [NAME ...] [--search relaxed|greedy|saturate] [--machine gpu|cpu] [--cost time]
                                       [--alphas 1,1.01,1.05,1.1,1.2] [--budget N] [--seconds S] [--pieces N] [--threads N]
                                       [--runtimes onnxruntime,openvino,fusewise] [--runs N] [--json FILE]

For every network and alpha: how much cheaper the found graph is by the cost asked for, what the clean-up passes save not
counted; how many substitutions led there and how many of them are distinct; graphs expanded, and the time of the search; the
largest difference between the answers of the exported graph and the original in ONNX Runtime. alpha = 1 is greedy.

Then, for every runtime, the time of the model as it was over that of the exported graph, with all of the runtime's own
optimisations on in both: shortest run and median, runs taken in turn in blocks. On a machine that does other things too the
shortest run is the better figure. Run it from the root of the repository, with the extras `bench` and `search` installed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.substitution_networks import NETWORKS as WRITTEN_HERE
from benchmarks.substitution_networks import built

from fusewise import api
from fusewise.bench.ranking import difference, timed
from fusewise.bench.timing import Budget
from fusewise.ir.graph import Graph
from fusewise.optimizing import Optimization, optimized

NETWORKS = (
    *("inception_v3", "squeezenet1_1", "squeezenet_simple_bypass", "squeezenet_complex_bypass", "resnet18", "resnet50"),
    *("resnext50", "nasnet_a_mobile", "nasrnn", "bert_base", "taso_bert", "mobilenet_v2", "densenet121"),
)

PUBLISHED = {
    "inception_v3": "1.06 TASO, 1.10 Tensat, 1.23 MCTS",
    "squeezenet1_1": "1.07 TASO, 1.25 Tensat, 1.50 MCTS",
    "resnet50": "1.00 TASO, 1.01 MCTS",
    "resnext50": "1.06 TASO, 1.09 Tensat, 1.41 MCTS",
    "nasnet_a_mobile": "1.02 TASO, 1.07 Tensat, 1.31 MCTS",
    "nasrnn": "1.45 TASO, 1.69 Tensat, 1.23 MCTS",
    "taso_bert": "1.09 TASO, 1.09 Tensat, 1.52 MCTS",
    "mobilenet_v2": "1.01 MCTS",
}
"""Speed-ups on GPUs as the papers report them, each against its own baseline."""

TOLERANCE = 1e-4
RUNTIMES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "fusewise": "measured"}


def loaded(name: str) -> Graph:
    return built(name) if name in WRITTEN_HERE else api.load(f"zoo:{name}")


def measure(name: str, graph: Graph, alpha: float, options: argparse.Namespace) -> tuple[dict[str, Any], Optimization]:
    """Search one network with one alpha; the figures of its row, times left out."""
    found = optimized(
        graph,
        search=options.search,
        alpha=alpha,
        budget=options.budget,
        seconds=options.seconds,
        cost=options.cost,
        machine=options.machine,
        threads=options.threads,
        pieces=options.pieces,
        folder=options.folder,
        check=False,
    )
    rules = sorted({step.rule for step in found.steps})
    row = {"model": name, "alpha": alpha, "machine": options.machine, **found.summary, "distinct": len(rules)}
    row |= {"rules": rules, "steps": len(found.steps), "error": difference(graph, found.graph), "runtimes": {}}
    return row, found


def times(graph: Graph, found: Graph, options: argparse.Namespace) -> dict[str, Any]:
    """Before and after in every runtime asked for."""
    rows = {}
    for runtime in filter(None, options.runtimes.split(",")):
        budget = Budget(runs=options.runs, seconds=1.0, limit_seconds=40.0)
        before, after = timed([graph, found], RUNTIMES[runtime], options.threads, budget)
        rows[runtime] = {
            "before_min_ms": before.min_ms,
            "after_min_ms": after.min_ms,
            "before_p50_ms": before.p50_ms,
            "after_p50_ms": after.p50_ms,
            "speedup": before.min_ms / after.min_ms,
            "speedup_p50": before.p50_ms / after.p50_ms,
        }
    return rows


def line(row: dict[str, Any]) -> str:
    ratios = (f"{found['speedup']:5.2f} ({found['speedup_p50']:.2f})" for found in row["runtimes"].values())
    return (
        f"{row['model']:25} {row['alpha']:5g} {row['speedup']:8.3f} {row['steps']:5} {row['distinct']:8} "
        f"{row['graphs_explored']:7} {row['seconds']:8.1f} {row['error']:8.1e}  {'  '.join(ratios)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Relaxed graph substitutions on whole networks.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NETWORKS)}; all by default")
    parser.add_argument("--search", default="relaxed", help="relaxed, greedy or saturate")
    parser.add_argument("--machine", default="gpu", help="whose time is estimated: gpu, as the papers', or cpu")
    parser.add_argument("--cost", default="time", help="what to minimise, such as onnxruntime: times measured there")
    parser.add_argument("--alphas", default="1,1.05", help="values of alpha, with commas between")
    parser.add_argument("--budget", type=int, default=300)
    parser.add_argument("--pieces", type=int, help="search in pieces of so many nodes")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runtimes", default=",".join(RUNTIMES), help="where to time before and after; '' nowhere")
    parser.add_argument("--runs", type=int, default=20, help="timed runs at least")
    parser.add_argument("--folder", type=Path, help="keep measurements here")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    print(
        f"cost: {options.cost} on {options.machine}; times: shortest run (median), before / after, {options.threads} thread(s)"
    )
    columns = "  ".join(f"{name:>12}" for name in filter(None, options.runtimes.split(",")))
    print(f"model                     alpha  cheaper steps distinct  graphs search s    error  {columns}")
    rows: list[dict[str, Any]] = []
    for name in options.names or NETWORKS:
        graph = loaded(name)
        timings: dict[Any, dict[str, Any]] = {}
        for alpha in map(float, options.alphas.split(",")):
            row, found = measure(name, graph, alpha, options)
            if found.steps not in timings:
                timings[found.steps] = times(graph, found.graph, options)
            row["runtimes"] = timings[found.steps]
            rows.append(row)
            print(line(row), flush=True)
        print(f"{'':25} published: {PUBLISHED.get(name, 'nothing')}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row["error"] <= TOLERANCE for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
