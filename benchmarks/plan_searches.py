"""Searches for layer-fusion plans, with and without splitting by explanation, beside the proven optimum and the paper's figures.

    python -m benchmarks.plan_searches [samples] [tables] [curves] [--quick] [--schemes lbdf,brr] [
                                       [--explainers none,random,smallest,all] [--seeds 5] [--workers 1] [--json FILE] [--svg FILE]
    python -m benchmarks.plan_searches --show FILE ...      print the tables of earlier runs, joined

`samples` is the paper's table I and figure 3: distinct groups that random search meets on each network, and the share of them
that fits each buffer. `tables` are its tables II to V: DRAM traffic, largest buffer need, rectify rate and time of every search
with every way to split groups that do not fit, over several seeds; `gap` is how much it lies above the proven optimum, `gain`
how much above the same search with the first way to split that is listed (the paper: at random). `curves` is its figure 5.
Explainers are those of `accel.explain`; `none` splits at random, `singles` gives up and runs every operator of the group alone (a
baseline that leaves as much to gain as the paper's), `random`, `spread`, `smallest`, `largest-live` and `all` are
controls that no learned explanation may fall short of. MB are the paper's, 1000 KiB. Needs the extra `search`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.line_chart import line_chart

from fusewise import api
from fusewise.accel.bits import bits_of
from fusewise.accel.explain.candidates import Share
from fusewise.accel.explain.catalogue import explainer_named
from fusewise.accel.network import Network, network_of, prepare
from fusewise.accel.problem import Costs, Problem
from fusewise.accel.schemes.catalogue import scheme_named
from fusewise.accel.search.exact import exact_search
from fusewise.accel.search.local import local_search
from fusewise.accel.search.nsga2 import nsga2_search
from fusewise.accel.search.random_search import random_search
from fusewise.accel.search.repair import Repair
from fusewise.accel.search.result import Budget
from fusewise.accel.split.recursive import RecursiveSplitter
from fusewise.accel.split.splitter import Splitting
from fusewise.files import write_text
from fusewise.zoo.catalogue import build

SEARCHES = {"random": random_search, "local": local_search, "nsga2": nsga2_search}
EXPLAINERS = ("none", "singles", "random", "spread", "smallest", "largest-live", "all")
BUFFERS = (128, 256, 512, 1024, 2048)
MB = 1000 * 1024

SAMPLED = (
    *("vgg16", "resnet18", "resnet50", "resnet101", "resnet152", "squeezenet1_1", "mobilenet_v2"),
    *("mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0", "efficientnet_b3", "deeplabv3_mobilenet_v3_large"),
)
"""The paper's networks."""


class Setting(NamedTuple):
    """One column of the paper's tables: `buffer` in KiB, `plans` evaluated by each search."""

    network: str
    scheme: str
    buffer: int
    plans: int


SETTINGS = (
    *(Setting(name, "lbdf", 128, 2000) for name in ("resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1", "vgg16")),
    *(Setting(name, "brr", 128, 2000) for name in ("resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1")),
    *(Setting(name, "lbdf", 256, 5000) for name in ("efficientnet_b3", "resnet152", "deeplabv3_mobilenet_v3_large")),
)

PAPER: dict[tuple[str, str, str], dict[str, float]] = {
    ("efficientnet_b3", "lbdf", "random"): {"none": 172.802, "gnne": 169.928, "pg": 164.086, "rg": 162.774},
    ("efficientnet_b3", "lbdf", "local"): {"none": 90.500, "gnne": 78.007, "pg": 73.569, "rg": 78.433},
    ("efficientnet_b3", "lbdf", "nsga2"): {"none": 77.334, "gnne": 61.265, "pg": 61.792, "rg": 61.535},
    ("resnet152", "lbdf", "nsga2"): {"none": 77.205, "rg": 66.621},
    ("mobilenet_v2", "lbdf", "local"): {"none": 9.803, "best": 8.823},
}
"""MB by network, scheme and search (Mills et al., "Applying Graph Explanation to Operator Fusion"); its model of the buffer is not
published, so gains compare and sizes do not."""

PAPER_RATES = {
    ("local", "gnne"): (83.1, 168),
    ("local", "pg"): (59.1, 72),
    ("local", "rg"): (94.0, 99),
    ("random", "gnne"): (72.1, 106),
    ("random", "pg"): (50.7, 32),
    ("random", "rg"): (91.4, 42),
}
"""Rectify rate in per cent, and seconds of the search, on MobileNetV2 under LBDF (the paper's table V)."""


class Task(NamedTuple):
    """One search: everything that its result depends on."""

    setting: Setting
    search: str
    explainer: str
    part: float
    seed: int


@cache
def network_named(name: str) -> Network:
    """The planner's view of a zoo model."""
    return network_of(prepare(api.load(build(name))))


def problem_of(setting: Setting) -> Problem:
    """The planning problem of a column."""
    return Problem(network_named(setting.network), scheme_named(setting.scheme), setting.buffer * 1024)


def searched(task: Task) -> dict[str, Any]:
    """The result of one search, with memories of its own, so that its time is that of a first run."""
    costs = Costs(problem_of(task.setting))
    rng = np.random.default_rng(task.seed)
    repair = Repair(costs, seed=task.seed)
    if task.explainer == "singles":
        repair = Repair(costs, dissolved)
    elif task.explainer != "none":
        explain = explainer_named(task.explainer, task.setting.scheme, seed=task.seed)
        repair = Repair(costs, RecursiveSplitter(costs, explain, Share(task.part, 1), seed=task.seed))
    begin = time.process_time()
    found = SEARCHES[task.search](costs, Budget(task.setting.plans), rng, repair)
    return {
        **task.setting._asdict(),
        **{key: value for key, value in task._asdict().items() if key != "setting"},
        "dram_mb": found.cost / MB,
        "max_buffer_kib": max(map(costs.buffer_bytes, found.groups)) / 1024,
        "rectified": found.rectified,
        "invalid": found.invalid,
        "candidate_share": _candidate_share(repair),
        "process_s": time.process_time() - begin,
        "buffer_needs_computed": len(costs.buffer_known),
        "history": [(plans, cost / MB) for plans, cost in found.history],
    }


def dissolved(groups: Sequence[int]) -> tuple[Splitting, ...]:
    """Every operator of a group that does not fit, alone: the least that a repair can do."""
    return tuple(Splitting(group, tuple(1 << v for v in bits_of(group)), False) for group in groups)


def _candidate_share(repair: Repair) -> float | None:
    """The share of the edges inside groups that explanations put forward, over all groups that did not fit."""
    if not any(splitting.candidates for splitting in repair.splittings.values()):
        return None
    network = repair.costs.problem.network
    edges = sum(
        (network.successors[v] & group).bit_count()
        for group in repair.splittings
        for v in range(len(network))
        if group >> v & 1
    )
    return sum(len(splitting.candidates) for splitting in repair.splittings.values()) / edges


def optimum(setting: Setting) -> dict[str, Any]:
    """The proven optimum of a column, or a lower bound."""
    begin = time.process_time()
    found = exact_search(Costs(problem_of(setting)))
    bound = found.cost if found.optimal else found.lower_bound
    return {
        "optimal": found.optimal,
        "dram_mb": found.cost / MB,
        "bound_mb": None if bound is None else bound / MB,
        "process_s": time.process_time() - begin,
    }


def sampled(name: str, plans: int, seed: int) -> dict[str, Any]:
    """Distinct groups of several operators that random search proposes, and the share that fits each buffer."""
    problem = Problem(network_named(name), scheme_named("lbdf"), BUFFERS[-1] * 1024)
    repair, rng = Repair(Costs(problem)), np.random.default_rng(seed)
    groups = {g for _ in range(plans) for g in repair.space.ordered(repair.space.random(rng)) if g & (g - 1)}
    needs = [repair.costs.buffer_bytes(group) for group in groups]
    shares = {str(kib): sum(need < kib * 1024 for need in needs) / len(needs) for kib in BUFFERS}
    return {"network": name, "operators": len(problem.network), "groups": len(groups), "fitting": shares}


def samples_table(rows: Sequence[dict[str, Any]]) -> str:
    """Table I and figure 3."""
    lines = [_line("network", "operators", "groups", *(f"fit {kib} KiB" for kib in BUFFERS)), _rule(3 + len(BUFFERS))]
    for row in rows:
        shares = (f"{share:.0%}" for share in row["fitting"].values())
        lines.append(_line(row["network"], row["operators"], row["groups"], *shares))
    total = sum(row["groups"] for row in rows)
    lines.append(_line("together", "", total, *("" for _ in BUFFERS)))
    return "\n".join(
        [*lines, "", f"{total * len(BUFFERS)} samples; the paper has 10.8k groups, 54k samples, 0 to 100 % fitting."]
    )


def results_table(rows: Sequence[dict[str, Any]], optima: dict[str, dict[str, Any]]) -> str:
    """Tables II to V: a block a column of the paper, a line a search and explainer."""
    heads = ("search", "split by", "MB", "worst", "gap", "gain", "paper gain", "buffer KiB", "rectified", "edges", "s")
    lines: list[str] = []
    for key, block in _by(rows, "network", "scheme", "buffer", "plans"):
        best = optima[" ".join(map(str, key))]
        proof = "optimum" if best["optimal"] else f"found, at least {best['bound_mb']:.3f}"
        name, scheme, buffer, plans = key
        lines += [
            "",
            f"{name}, {scheme}, {buffer} KiB, {plans} plans; {proof} {best['dram_mb']:.3f} MB in {best['process_s']:.2f} s",
            "",
            _line(*heads),
            _rule(len(heads)),
        ]
        baseline: dict[str, float] = {}
        for (search, explainer), runs in _by(block, "search", "explainer"):
            mean = statistics.mean(run["dram_mb"] for run in runs)
            baseline.setdefault(search, mean)
            lines.append(
                _line(
                    search,
                    explainer,
                    f"{mean:.3f} ± {statistics.pstdev(run['dram_mb'] for run in runs):.3f}",
                    f"{max(run['dram_mb'] for run in runs):.3f}",
                    f"{mean / (best['bound_mb'] or best['dram_mb']) - 1:+.1%}",
                    f"{mean / baseline[search] - 1:+.1%}",
                    _paper_gain(name, scheme, search, explainer),
                    f"{statistics.mean(run['max_buffer_kib'] for run in runs):.1f}",
                    _rate(runs, name, scheme),
                    "-" if runs[0]["candidate_share"] is None else f"{runs[0]['candidate_share']:.0%}",
                    f"{statistics.mean(run['process_s'] for run in runs):.2f}",
                )
            )
    return "\n".join(lines).lstrip()


def _paper_gain(network: str, scheme: str, search: str, explainer: str) -> str:
    published = PAPER.get((network, scheme, search), {})
    if explainer not in published or explainer == "none":
        return "-"
    return f"{published[explainer] / published['none'] - 1:+.1%}"


def _rate(runs: Sequence[dict[str, Any]], network: str, scheme: str) -> str:
    """Rectified of all groups that did not fit, over all seeds; the paper's in brackets."""
    done, met = sum(run["rectified"] for run in runs), sum(run["invalid"] for run in runs)
    if runs[0]["explainer"] == "none" or not met:
        return f"- /{met}"
    paper = PAPER_RATES.get((runs[0]["search"], runs[0]["explainer"]))
    beside = f" [{paper[0]} %, {paper[1]} s]" if paper and (network, scheme) == ("mobilenet_v2", "lbdf") else ""
    return f"{done / met:.1%} of {met}{beside}"


def curves_of(chosen: Sequence[dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Figure 5: the best cost so far, in MB, after so many plans; mean over seeds, by search and explainer."""
    found = {}
    for (search, explainer), runs in _by(chosen, "search", "explainer"):
        steps = sorted({plans for run in runs for plans, _ in run["history"]})
        start = max(run["history"][0][0] for run in runs)
        found[f"{search}, {explainer}"] = [
            (float(at), statistics.mean(_after(run["history"], at) for run in runs))
            for at in steps
            if at >= max(start, runs[0]["plans"] // 100)
        ]
    return {name: points for name, points in found.items() if points}


def _after(history: Sequence[Sequence[float]], plans: int) -> float:
    return min(cost for at, cost in history if at <= plans)


def _by(rows: Sequence[dict[str, Any]], *keys: str) -> Iterator[tuple[tuple[Any, ...], list[dict[str, Any]]]]:
    """Rows with equal values of `keys`, in order of first appearance."""
    blocks: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        blocks.setdefault(tuple(row[key] for key in keys), []).append(row)
    yield from blocks.items()


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _rule(columns: int) -> str:
    return f"| --- |{' ---: |' * (columns - 1)}"


def gaps_table(rows: Sequence[dict[str, Any]], optima: dict[str, dict[str, Any]]) -> str:
    """Tables II to IV in short: how far above the optimum each search ends, by the way it splits groups; mean and spread."""
    explainers = list(dict.fromkeys(row["explainer"] for row in rows))
    lines = [_line("network", "scheme", "KiB", "optimum MB", "search", *explainers), _rule(5 + len(explainers))]
    for key, block in _by(rows, "network", "scheme", "buffer", "plans"):
        best = optima[" ".join(map(str, key))]
        least = best["bound_mb"] or best["dram_mb"]
        for (search,), runs in _by(block, "search"):
            gaps = {by: [run["dram_mb"] / least - 1 for run in of] for (by,), of in _by(runs, "explainer")}
            cells = (f"{_percent(gaps[by])}" if by in gaps else "" for by in explainers)
            lines.append(_line(*key[:3], f"{best['dram_mb']:.3f}", search, *cells))
    return "\n".join(lines)


def _percent(gaps: Sequence[float]) -> str:
    mean, spread = statistics.mean(gaps), statistics.pstdev(gaps)
    return "0" if mean < 5e-5 else f"{100 * mean:.1f} ± {100 * spread:.1f} %"


def joined(files: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several runs as one: columns in the order of the paper's tables, explainers of the first file first."""
    optima = {name: best for found in files for name, best in found["optima"].items()}
    searches = [row for found in files for row in found["searches"]]
    places = {" ".join(map(str, setting)): place for place, setting in enumerate(SETTINGS)}
    order = list(SEARCHES)

    def place(row: dict[str, Any]) -> tuple[int, int]:
        column = f"{row['network']} {row['scheme']} {row['buffer']} {row['plans']}"
        return places.get(column, len(places)), order.index(row["search"])

    samples = [row for found in files for row in found["samples"]]
    return {"samples": samples, "searches": sorted(searches, key=place), "optima": optima}


def shown(found: dict[str, Any]) -> str:
    """All tables of a run."""
    parts = []
    if found["samples"]:
        parts.append(f"Table I and figure 3: groups that random search meets\n\n{samples_table(found['samples'])}")
    if found["searches"]:
        parts.append(f"Distance from the optimum\n\n{gaps_table(found['searches'], found['optima'])}")
        parts.append(f"Tables II to V\n\n{results_table(found['searches'], found['optima'])}")
    return "\n\n".join(parts)


def tasks_of(given: argparse.Namespace) -> list[Task]:
    """What to search, column by column."""
    settings = [
        setting
        for setting in SETTINGS
        if (not given.networks or setting.network in given.networks.split(","))
        and setting.scheme in given.schemes.split(",")
    ]
    if given.quick:
        settings = [s._replace(plans=300) for s in settings if s.network in ("mobilenet_v2", "squeezenet1_1")]
    seeds = 2 if given.quick else given.seeds
    return [
        Task(setting, search, explainer, given.part, seed)
        for setting in settings
        for search in given.searches.split(",")
        for explainer in given.explainers.split(",")
        for seed in range(seeds)
    ]


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(description="Compare searches for layer-fusion plans.")
    parser.add_argument("what", nargs="*", help="samples, tables, curves (default: all)")
    parser.add_argument("--quick", action="store_true", help="two small networks, 300 plans, two seeds")
    parser.add_argument("--networks", default="", help="only these columns, by zoo name")
    parser.add_argument("--schemes", default="lbdf,brr")
    parser.add_argument("--searches", default=",".join(SEARCHES))
    parser.add_argument("--explainers", default=",".join(EXPLAINERS))
    parser.add_argument("--part", type=float, default=0.3, help="share of a group's edges that an explanation may use")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument("--svg", type=Path, help="where to draw figure 5")
    parser.add_argument("--show", type=Path, nargs="+", help="print the tables of these files and search nothing")
    given = parser.parse_args()
    if given.show:
        print(shown(joined([json.loads(path.read_text()) for path in given.show])))
        return
    what = given.what or ["samples", "tables", "curves"]
    found: dict[str, Any] = {"samples": [], "searches": [], "optima": {}}
    if "samples" in what:
        names = ("squeezenet1_1", "mobilenet_v2") if given.quick else SAMPLED
        found["samples"] = [sampled(name, 20 if given.quick else 100, 0) for name in names]
        if given.json:
            write_text(given.json, json.dumps(found) + "\n")
    if "tables" in what or "curves" in what:
        tasks = tasks_of(given)
        for setting in dict.fromkeys(task.setting for task in tasks):
            found["optima"][" ".join(map(str, setting))] = optimum(setting)
        with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as workers:
            for row in workers.map(searched, tasks) if given.workers > 1 else map(searched, tasks):
                found["searches"].append(row)
                print(
                    f"{row['network']} {row['scheme']} {row['search']} {row['explainer']} {row['seed']}: "
                    f"{row['dram_mb']:.3f} MB, {row['process_s']:.2f} s",
                    file=sys.stderr,
                    flush=True,
                )
                if given.json:
                    write_text(given.json, json.dumps(found) + "\n")
    print(shown(found))
    if "curves" in what and found["searches"]:
        columns = dict(_by(found["searches"], "network", "scheme", "buffer"))
        column = next((key for key in columns if key[0] == "efficientnet_b3"), next(iter(columns)))
        curves = curves_of(columns[column])
        title = "DRAM traffic of the best plan: {}, {}, {} KiB".format(*column)
        if given.svg:
            write_text(given.svg, line_chart(curves, title=title, across="plans evaluated", up="MB"))
        print(f"\nFigure 5. {title}, in MB after so many plans\n")
        for label, points in curves.items():
            places = [points[len(points) * k // 5] for k in range(5)] + [points[-1]]
            print(f"{label:24} {'  '.join(f'{plans:.0f}: {cost:.2f}' for plans, cost in places)}")


if __name__ == "__main__":
    main()
