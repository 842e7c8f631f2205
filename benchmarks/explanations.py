"""Explanations beside the truth: for groups that do not fit, the exact need of every legal split is known.

    python -m benchmarks.explanations [SETTING ...] [--search local|random] [--share 0.3] [--plans 1000] [--groups 150]
                                      [--seeds 3] [--retrain] [--json FILE]

A SETTING is NETWORK:SCHEME:BUFFER, as `mobilenet_v2:lbdf:128KiB`. For every explainer and control, the means over the groups of

- *true drop*: the rank correlation of its scores with by which share the largest need falls when the group is split at an edge, and
  *best drop*: of what the best edge would bring, what the best of the edges named brings;
- *fidelity+* and *fidelity-*: what the classifier's verdict loses when the named edges are hidden, and when all others are;
- *sparsity*: the share of edges that are not named;
- *stability*: the rank correlation of its scores between seeds, where it has any (with `--retrain`, also of training);
- *rectified*: groups that the named edges, asked for once, split into groups that fit; *chance*: as many random edges.

`truth` names edges by the drop itself, which no explainer sees.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.explainers import agreement, collected, invalid_groups, network_named, rate_row

from fusewise.accel.explain.candidates import EdgeShare, candidates
from fusewise.accel.explain.catalogue import LEARNED, explainer_named
from fusewise.accel.explain.explainer import Edge, Explainer, Explanation, edges_inside
from fusewise.accel.explain.heuristics import CONTROLS
from fusewise.accel.explain.pgexplainer import pgexplainer, train_pg
from fusewise.accel.explain.quality import fidelities, truth
from fusewise.accel.explain.rgexplainer import policy_of, rgexplainer
from fusewise.accel.explain.rgtraining import train_rg
from fusewise.accel.gnn.data import split_by_group
from fusewise.accel.gnn.model import Classifier, load, read_tensors
from fusewise.accel.gnn.regenerate import learning_blocks
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.catalogue import scheme_named
from fusewise.accel.split.cut import Cutter
from fusewise.words import bytes_of

SETTINGS = ("mobilenet_v2:lbdf:128KiB", "resnet152:lbdf:256KiB", "mobilenet_v2:brr:128KiB", "resnet50:brr:128KiB")

COLUMNS = ("true drop", "best drop", "fidelity+", "fidelity-", "sparsity", "stability", "rectified %", "chance %")


def cut(costs: GroupCosts, group: int, edge: Edge) -> tuple[int, int]:
    return Cutter(costs.problem.network, group).cut(edge)


@cache
def classifier_of(scheme: str) -> Classifier:
    return load(read_tensors(scheme, "classifier"))


@cache
def trained_again(scheme: str, seed: int) -> dict[str, Explainer]:
    """PGExplainer and RG-Explainer trained from another seed."""
    classifier, corpus = classifier_of(scheme), collected(scheme)
    many, one = learning_blocks(classifier, corpus, split_by_group(corpus, 0), seed)
    return {
        "pg": pgexplainer(classifier, train_pg(classifier, many, seed=seed)),
        "rg": rgexplainer(policy_of(classifier, train_rg(classifier, one, seed=seed))),
    }


def by_seeds(name: str, options: argparse.Namespace, scheme: str) -> list[Explainer]:
    """The explainer, and the same from other seeds where those change anything."""
    if name in ("pg", "rg"):
        again = [trained_again(scheme, seed)[name] for seed in range(1, options.seeds)] if options.retrain else []
        return [explainer_named(name, scheme), *again]
    seeds = options.seeds if name in ("random", "gnne") else 1
    return [explainer_named(name, scheme, seed=seed) for seed in range(seeds)]


def best_drop(true: Explanation, named: Sequence[Edge]) -> float | None:
    """Of the largest drop, what the best of the named edges gives; None where no split lowers the need."""
    drops = dict(true.scores)
    most = max(drops.values())
    return max((drops[edge] for edge in named), default=0.0) / most if most > 0 else None


def mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def row_of(
    name: str, costs: GroupCosts, made: Sequence[Sequence[Explanation]], true: Sequence[Explanation], share: EdgeShare
) -> dict[str, Any]:
    """One line of the table; `made` are an explainer's explanations, from each of its seeds."""
    network, first = costs.problem.network, made[0]
    named = {one.group: candidates(network, one, share) for one in first}
    plus, minus = fidelities(classifier_of(costs.problem.scheme.name), costs, named)
    ranks_all = any(len({score for _, score in one.scores}) > 1 for one in first)
    rates = rate_row(name, costs, first, share.part, np.ones(len(first)))
    figures = (
        agreement(first, true) if ranks_all else None,
        mean([best_drop(best, named[best.group]) for best in true]),
        float(plus.mean()),
        float(minus.mean()),
        1 - rates["edges_percent"] / 100,
        mean([agreement(a, b) for a, b in itertools.combinations(made, 2)]),
        rates["rate_percent"],
        rates["chance_percent"],
    )
    return {"explainer": name, **dict(zip(COLUMNS, figures, strict=True))}


def table(setting: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    name, scheme, buffer = setting.split(":")
    problem = Problem(network_named(name), scheme_named(scheme), bytes_of(buffer))
    costs, groups = invalid_groups(problem, options.search, options.plans, 2 * options.groups)
    groups = [group for group in groups if len(edges_inside(problem.network, group)) > 2][: options.groups]
    print(f"\n{name}, {scheme}, {buffer}, {options.search} search: {len(groups)} groups of at least three edges\n")
    print(f"| explainer | {' | '.join(COLUMNS)} |\n| --- |{' ---: |' * len(COLUMNS)}")
    true, rows = truth(cut)(costs, groups), []
    for explainer in (*LEARNED, *CONTROLS, "truth"):
        known = [truth(cut)] if explainer == "truth" else by_seeds(explainer, options, scheme)
        row = row_of(explainer, costs, [explain(costs, groups) for explain in known], true, EdgeShare(options.share, 1))
        rows.append({"setting": setting, **row})
        cells = [text(row[column], column) for column in COLUMNS]
        print(f"| {explainer} | {' | '.join(cells)} |", flush=True)
    return rows


def text(value: float | None, column: str) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if column.endswith("%") else f"{value:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Explanations beside the truth.")
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=f"by default {', '.join(SETTINGS)}")
    parser.add_argument("--search", default="local", choices=("local", "random"))
    parser.add_argument("--share", default=0.3, type=float, help="of a group's edges, how many are named")
    parser.add_argument("--plans", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=150, help="at most so many groups")
    parser.add_argument("--seeds", type=int, default=3, help="for the column of stability")
    parser.add_argument("--retrain", action="store_true", help="train explainers from other seeds too")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    rows = list(itertools.chain.from_iterable(map(partial(table, options=options), options.settings or SETTINGS)))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
