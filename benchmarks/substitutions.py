"""Relaxed graph substitutions on whole networks (Jia et al., SysML 2019, figures 4 to 6; Yang et al., MLSys 2021, table 1).

    python -m benchmarks.substitutions [NAME ...] [--machine gpu|cpu] [--cost time] [--alphas 1,1.01,1.05,1.1]
                                       [--budget N] [--seconds S] [--pieces N] [--no-time] [--json FILE]

For every network and alpha: how much cheaper the found graph is by the cost asked for, which substitutions led there, how many
graphs were expanded and in how long, the largest difference between the answers of the exported graph and the original in
ONNX Runtime, and the time of the original over that of the exported graph there, with ONNX Runtime's own optimisations on in
both and runs taken in turn. alpha = 1 is greedy. Before every search the clean-up passes run, and the speed-up does not count
what they gain. Run it from the root of the repository, with the `bench` extra installed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from fusewise import api
from fusewise.bench.accuracy import worst_error
from fusewise.bench.inputs import random_feeds
from fusewise.bench.peers import Subject, open_onnxruntime
from fusewise.bench.reference import answer
from fusewise.bench.timing import Budget, race
from fusewise.ir.graph import Graph
from fusewise.optimizing import optimized

NETWORKS = (
    *("inception_v3", "squeezenet1_1", "resnet18", "resnet50", "resnext50", "nasnet_a_mobile", "nasrnn", "bert_base"),
    *("mobilenet_v2", "densenet121"),
)

PUBLISHED = {
    "inception_v3": "1.06 TASO, 1.10 Tensat, 1.23 MCTS",
    "squeezenet1_1": "1.07 TASO, 1.25 Tensat, 1.50 MCTS",
    "resnet50": "1.00 TASO, 1.01 MCTS",
    "resnext50": "1.06 TASO, 1.09 Tensat, 1.41 MCTS",
    "nasnet_a_mobile": "1.02 TASO, 1.07 Tensat, 1.31 MCTS",
    "nasrnn": "1.45 TASO, 1.69 Tensat, 1.23 MCTS",
    "mobilenet_v2": "1.01 MCTS",
}
"""Speed-ups on GPUs as the papers report them, each against its own baseline."""

TOLERANCE = 1e-4


def measure(name: str, alpha: float, options: argparse.Namespace, clean: Graph) -> dict[str, Any]:
    """Search one network with one alpha; the figures of its row."""
    found = optimized(
        clean,
        passes=False,
        search="relaxed",
        alpha=alpha,
        budget=options.budget,
        seconds=options.seconds,
        cost=options.cost,
        machine=options.machine,
        threads=options.threads,
        pieces=options.pieces,
        check=False,
    )
    rules = sorted({step.rule for step in found.steps})
    row = {
        "model": name,
        "alpha": alpha,
        "machine": options.machine,
        **found.summary,
        "distinct": len(rules),
        "rules": rules,
    }
    row |= {"steps": len(found.steps), "error": 0.0, "runtime_speedup": None}
    if not found.steps:
        return row
    feeds = random_feeds(clean, 0)
    with tempfile.TemporaryDirectory(prefix="fusewise-substitutions-") as folder:
        paths = [Path(folder) / "before.onnx", Path(folder) / "after.onnx"]
        api.save(clean, paths[0])
        api.save(found.graph, paths[1])
        row["error"] = worst_error(answer(paths[1], feeds)[1], answer(paths[0], feeds)[1])
        if options.time:
            sessions = [open_onnxruntime(Subject(path), options.threads) for path in paths]
            budget = Budget(runs=20, seconds=1.0, limit_seconds=15.0)
            before, after = race([lambda session=session: session.run(feeds) for session in sessions], budget)
            row |= {
                "before_ms": before.p50_ms,
                "after_ms": after.p50_ms,
                "runtime_speedup": before.p50_ms / after.p50_ms,
            }
    return row


def line(row: dict[str, Any]) -> str:
    timed = "-" if row["runtime_speedup"] is None else f"{row['runtime_speedup']:.2f}"
    return (
        f"{row['model']:17} {row['alpha']:5g} {row['speedup']:8.3f} {row['steps']:5} {row['distinct']:8} "
        f"{row['graphs_explored']:8} {row['duplicates']:6} {row['seconds']:8.1f} {row['error']:9.1e} {timed:>8}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Relaxed graph substitutions on whole networks.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NETWORKS)}; all by default")
    parser.add_argument("--machine", default="gpu", help="whose time is estimated: gpu, as the papers', or cpu")
    parser.add_argument("--cost", default="time", help="what to minimise, such as onnxruntime: times measured there")
    parser.add_argument("--alphas", default="1,1.05", help="values of alpha, with commas between")
    parser.add_argument("--budget", type=int, default=300)
    parser.add_argument("--pieces", type=int, help="search in pieces of so many nodes")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-time", dest="time", action="store_false", help="do not run the graphs against each other")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    print(f"cost: {options.cost} on {options.machine}; time: ONNX Runtime, {options.threads} thread(s), before / after")
    print("model             alpha cheaper  steps distinct  graphs  again  search s    error     time")
    rows = []
    for name in options.names or NETWORKS:
        clean = optimized(api.load(f"zoo:{name}")).graph
        for alpha in map(float, options.alphas.split(",")):
            rows.append(measure(name, alpha, options, clean))
            print(line(rows[-1]), flush=True)
        print(f"{'':17} published: {PUBLISHED.get(name, 'nothing')}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row["error"] <= TOLERANCE for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
