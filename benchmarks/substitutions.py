"""Relaxed graph substitutions on whole networks (Z. Jia et al., SysML 2019, figures 4 to 6; Y. Yang et al., MLSys 2021, table 1).

    python -m benchmarks.substitutions costs   [NAME ...]    by estimate: how much cheaper the search makes each network
    python -m benchmarks.substitutions times   [NAME ...]    measured: end to end, before and after, in real runtimes
    python -m benchmarks.substitutions answers [NAME ...]    is what was optimised still the same model? The whole zoo
    python -m benchmarks.substitutions --show FILE           print the table of rows written earlier

Networks are those of the papers, BERT-base (`bert_base`) and TASO's block of products (`taso_bert`), which it calls BERT, among
them; every model of the zoo may be named. With `--json FILE` each row is written as soon as it is there, and what the file holds
already for the same settings is not done again: a run that was stopped goes on, and one model at a time may be added.

`costs`: for every search and every alpha how much cheaper the found graph is by `--cost` on `--machine`, what the clean-up
passes save not counted; how many substitutions led there and how many of them are distinct; graphs built, and the processor
time of the search. alpha = 1 is greedy. Ours beside the search as it was published (docs/substitutions.md, Backtracking):

    python -m benchmarks.substitutions costs --search relaxed,backtracking --alphas 1.05 --json costs.json

`times`: for every runtime the graph that `fusewise optimize --search relaxed --faster-in RUNTIME` gives out, with all of the
runtime's own optimisations on before and after. The choice is made in one duel (docs/substitutions.md, Never slower); the figures
are of another: the median over its rounds of the time before over the time after, and in brackets what that is at least, at
95 % confidence. `kept` is the input graph: nothing was faster than it beyond doubt. Milliseconds are of one session each. Run
it on a machine that does nothing else. What the processor tables of docs/substitutions.md want:

    python -m benchmarks.substitutions times --cost time        --machine cpu --json times.json
    python -m benchmarks.substitutions times --cost onnxruntime --seconds 300 --folder profiles --json times.json
    python -m benchmarks.substitutions times bert_base taso_bert nasrnn --cost time --machine cpu --json times.json

`answers`: every model of the zoo, and the networks above, searched on an analytic cost; the largest difference between the
answers of the exported graph and the original in ONNX Runtime, as a share of the largest answer, on random inputs. Exit status
1 when one is above 1e-4.

Run it from the root of the repository, with the extras `bench` and `search` installed.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.substitution_networks import NETWORKS as WRITTEN_HERE
from benchmarks.substitution_networks import built

from fusewise import api
from fusewise.benchmarking.accuracy import worst_error
from fusewise.benchmarking.inputs import random_feeds
from fusewise.benchmarking.ranking import settled, timed
from fusewise.benchmarking.reference import answer
from fusewise.benchmarking.timing import TimingBudget
from fusewise.files import write_text
from fusewise.frontend import onnx_export
from fusewise.frontend.lowest_opset import at_lowest_opset
from fusewise.ir.graph import Graph
from fusewise.optimizing import Optimization, optimized
from fusewise.zoo.catalogue import MODELS

NETWORKS = (
    *("inception_v3", "squeezenet1_1", "squeezenet_simple_bypass", "squeezenet_complex_bypass", "resnet18", "resnet50"),
    *("resnext50", "nasnet_a_mobile", "nasrnn", "bert_base", "taso_bert", "mobilenet_v2", "densenet121"),
)
"""The papers' networks."""

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
RUNTIMES = ("onnxruntime", "openvino", "fusewise")
SETTINGS = ("mode", "model", "alpha", "search", "cost", "machine", "budget", "seconds", "pieces")
"""What says which row is which."""

Row = dict[str, Any]


def loaded(name: str) -> Graph:
    return built(name) if name in WRITTEN_HERE else api.load(f"zoo:{name}")


def searched(graph: Graph, row: Row, options: argparse.Namespace, faster_in: str = "none") -> Optimization:
    """The graph found with the settings of a row, its answers not compared yet."""
    settings = {key: row[key] for key in ("alpha", "search", "cost", "machine", "budget", "seconds", "pieces")}
    return optimized(
        graph, **settings, threads=options.threads, folder=options.folder, faster_in=faster_in, check=False
    )


def costs(graph: Graph, row: Row, options: argparse.Namespace) -> Row:
    """What the search finds by its own cost."""
    return found_by_cost(graph, row, options)[0]


def found_by_cost(graph: Graph, row: Row, options: argparse.Namespace) -> tuple[Row, Graph]:
    begin = time.process_time()
    found = searched(graph, row, options)
    return told(found) | {"processor_seconds": time.process_time() - begin}, found.graph


def told(found: Optimization) -> Row:
    rules = sorted({step.rule for step in found.steps})
    return {**found.summary, "distinct": len(rules), "rules": rules, "steps": len(found.steps)}


def times(graph: Graph, row: Row, options: argparse.Namespace) -> Row:
    """Before and after in every runtime asked for: the search, the choice made there, and another duel."""
    begin = time.process_time()
    measured: dict[str, Row] = {}
    summary: Row = {}
    for runtime in filter(None, options.runtimes.split(",")):
        found = searched(graph, row, options, faster_in=runtime)
        summary = summary or told(found)
        measured[runtime] = {"kept": found.graph is graph, "notes": list(found.notes), "timed": found.summary["timed"]}
        if found.graph is not graph:
            verdict = settled(graph, found.graph, runtime, options.threads)
            budget = TimingBudget(runs=options.runs, seconds=1.0, limit_seconds=30.0)
            before, after = timed([graph, found.graph], runtime, options.threads, budget)
            measured[runtime] |= {
                "speedup": verdict.speedup,
                "at_least": verdict.at_least,
                "before_min_ms": before.min_ms,
                "after_min_ms": after.min_ms,
                "before_p50_ms": before.p50_ms,
                "after_p50_ms": after.p50_ms,
            }
            measured[runtime] |= compared(graph, found.graph)
    return summary | {"runtimes": measured, "processor_seconds": time.process_time() - begin}


def answers(graph: Graph, row: Row, options: argparse.Namespace) -> Row:
    """Does the optimised graph answer as the original does?"""
    figures, found = found_by_cost(graph, row, options)
    return figures | compared(graph, found)


def compared(before: Graph, after: Graph) -> Row:
    """The largest relative difference on random inputs, and who said so: ONNX Runtime wherever it runs both graphs."""
    feeds = random_feeds(before, 0)
    found = []
    with tempfile.TemporaryDirectory(prefix="fusewise-answers-") as folder:
        for graph in (before, after):
            path = Path(folder) / "model.onnx"
            onnx_export.save(at_lowest_opset(graph), path)
            found.append(answer(path, feeds))
    (first, expected), (second, got) = found
    return {"error": worst_error(got, expected), "judges": sorted({first, second})}


MODES: dict[str, Callable[[Graph, Row, argparse.Namespace], Row]] = {"costs": costs, "times": times, "answers": answers}


def line(row: Row) -> str:
    start = f"{row['model']:29} {row['search']:12} {row['alpha']:5g} {row['speedup']:8.3f} {row['steps']:5} {row['distinct']:8}"
    start += f" {row['graphs_explored']:7} {row['processor_seconds']:8.1f}"
    if row["mode"] == "answers":
        judges = ", ".join(row["judges"])
        return f"{start}  {row['error']:8.1e}  {'ok' if row['error'] <= TOLERANCE else 'WRONG'} by {judges}"
    for runtime, found in row.get("runtimes", {}).items():
        ratio = "kept" if found["kept"] else f"{found['speedup']:.3f} ({found['at_least']:.3f})"
        start += f"  {runtime} {ratio}"
    return start


def heading(mode: str) -> str:
    last = {"answers": "  error", "times": "  before / after (at least)"}.get(mode, "")
    return f"model                         search       alpha  cheaper steps distinct  graphs    cpu s{last}"


def rows_in(path: Path | None) -> list[Row]:
    return json.loads(path.read_text()) if path is not None and path.exists() else []


def done(options: argparse.Namespace) -> Iterator[Row]:
    """The rows, one after another: those of the file, and new ones, which are added to it at once."""
    rows = rows_in(options.json)
    known = {tuple(row[key] for key in SETTINGS): row for row in rows}
    everything = (*(model.name for model in MODELS), *WRITTEN_HERE)
    for name in options.names or (everything if options.mode == "answers" else NETWORKS):
        graph: Graph | None = None
        for search, alpha in itertools.product(options.search.split(","), map(float, options.alphas.split(","))):
            row: Row = {"mode": options.mode, "model": name, "search": search, "alpha": alpha}
            row |= {key: getattr(options, key) for key in ("seconds", "cost", "machine", "budget", "pieces")}
            key = tuple(row[each] for each in SETTINGS)
            if key not in known:
                graph = loaded(name) if graph is None else graph
                found = MODES[options.mode](graph, row, options)
                rows.append({**found, "search_seconds": found["seconds"], **row})
                known[key] = rows[-1]
                if options.json is not None:
                    write_text(options.json, json.dumps(rows_in(options.json) + rows[-1:], indent=1) + "\n")
            yield known[key]
        del graph
        gc.collect()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prog="python -m benchmarks.substitutions",
    )
    parser.add_argument("mode", nargs="?", choices=tuple(MODES), help="what to find out")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NETWORKS)}, or any of the zoo")
    parser.add_argument(
        "--search", default="relaxed", help="relaxed, backtracking, greedy or saturate, with commas between"
    )
    parser.add_argument("--machine", help="whose time is estimated, such as gpu-copies (cpu for times, else gpu)")
    parser.add_argument("--cost", default="time", help="what to minimise, such as onnxruntime: times measured there")
    parser.add_argument("--alphas", help="values of alpha, with commas between (costs: 1,1.05, else 1.05)")
    parser.add_argument("--budget", type=int, default=300, help="graphs to expand")
    parser.add_argument("--pieces", type=int, help="search in pieces of so many nodes, 0 as a whole (default: by size)")
    parser.add_argument("--seconds", type=float, help="time to search at most")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runtimes", default=",".join(RUNTIMES), help="times: where")
    parser.add_argument("--runs", type=int, default=20, help="times: timed runs at least")
    parser.add_argument("--folder", type=Path, help="keep measurements of kernels here")
    parser.add_argument("--json", type=Path, help="add each row to this file; rows that it holds are not done again")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print the rows of a file")
    options = parser.parse_args()
    if options.mode is None and options.show is None:
        parser.error("say costs, times or answers, or --show FILE")
    options.machine = options.machine or ("cpu" if options.mode == "times" else "gpu")
    options.alphas = options.alphas or ("1,1.05" if options.mode == "costs" else "1.05")
    return options


def main() -> int:
    options = parsed()
    if options.show is not None:
        rows = rows_in(options.show)
        for mode in MODES:
            ours = [row for row in rows if row["mode"] == mode]
            print("\n".join([heading(mode), *map(line, ours)]) if ours else "", end="\n" if ours else "")
        return 0
    print(
        f"cost: {options.cost} on {options.machine}; {options.threads} thread(s)\n{heading(options.mode)}", flush=True
    )
    good = True
    for row in done(options):
        published = PUBLISHED.get(row["model"], "") if options.mode != "answers" else ""
        print(line(row) + (f"   published: {published}" if published else ""), flush=True)
        errors = [row, *row.get("runtimes", {}).values()]
        good &= all(found.get("error", 0.0) <= TOLERANCE for found in errors)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
