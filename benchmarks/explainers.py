"""What explanations are worth: the rectify rate of every explainer beside chance, how steady they are, what they take.

    python -m benchmarks.explainers [--network mobilenet_v2] [--scheme lbdf] [--buffer 128KiB] [--search local|random]
                                    [--shares 0.1,0.3,0.5] [--plans 2000] [--groups 300] [--classifier] [--published]
                                    [--leave-out] [--retrain] [--json FILE]

Groups are those that a search with random splits met and that did not fit. A group counts as rectified when the edges of its first
explanation alone, reused on all levels of the recursion, split it into groups that fit. *Chance* is the same number of random
edges for each group, the mean of five draws; *share* is the share of a group's edges that were returned. Where a rate does not lie
two standard errors of the paired difference above chance, the table says so. *Traffic* is the DRAM bytes of the parts over
those with all edges allowed.

`--classifier` scores the shipped classifier on held-out groups and on the groups that searches meet, `--published` one that is
shown the published features alone, `--leave-out` trains one for each network on the others, `--retrain` trains PGExplainer and
RG-Explainer from another seed to see whether they rank alike. Run it from the root of the repository, with the `explain` extra
installed, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.layer_fusion.printed import RATES

from fusewise.accel.explain.candidates import EdgeShare, candidates
from fusewise.accel.explain.catalogue import LEARNED, explainer_named
from fusewise.accel.explain.explainer import Explainer, Explanation, edges_inside
from fusewise.accel.explain.heuristics import CONTROLS
from fusewise.accel.explain.pgexplainer import pgexplainer, train_pg
from fusewise.accel.explain.quality import rank_correlation
from fusewise.accel.explain.rgexplainer import policy_of, rgexplainer
from fusewise.accel.explain.rgtraining import train_rg
from fusewise.accel.gnn.data import TABLE, Corpus, DatasetSplit, collect, corpus_of, met, names_for, split_by_group
from fusewise.accel.gnn.model import load, read_tensors
from fusewise.accel.gnn.regenerate import learning_blocks, networks
from fusewise.accel.gnn.train import TrainingSettings, score, train
from fusewise.accel.network import Network, network_of, prepare
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.catalogue import SCHEMES, scheme_named
from fusewise.accel.search.catalogue import search_named
from fusewise.accel.search.repair import Repair
from fusewise.accel.search.result import SearchBudget
from fusewise.accel.split.recursive import RecursiveSplitter
from fusewise.words import bytes_of
from fusewise.zoo.catalogue import build

RATES_SETTING = ("mobilenet_v2", "lbdf", 128 * 1024)

RANKED = "rg ranked"
"""RG-Explainer's edges in the order in which they are enclosed, without the rule that all edges of its set are returned."""

MET_BY_SEARCHES = (("mobilenet_v2", 128), ("squeezenet1_1", 128), ("efficientnet_b3", 256), ("resnet152", 256))
DRAWS = 5


def published(options: argparse.Namespace, name: str) -> tuple[float, float] | None:
    """The published figures for an explainer, where this setting is theirs."""
    here = (options.network, options.scheme, bytes_of(options.buffer))
    return RATES.get((options.search, name)) if here == RATES_SETTING else None


def network_named(name: str) -> Network:
    return network_of(prepare(build(name)))


def invalid_groups(problem: Problem, search: str, plans: int, most: int) -> tuple[GroupCosts, list[int]]:
    """Different groups that searches from several seeds met and that did not fit."""
    costs, found = GroupCosts(problem), dict[int, None]()
    for seed in range(20):
        repair = Repair(costs, seed=seed)
        search_named(search)(costs, SearchBudget(plans=plans), np.random.default_rng(seed), repair)
        found.update(dict.fromkeys(repair.splittings))
        if len(found) >= most:
            break
    return costs, list(found)[:most]


def recorded(explanations: Sequence[Explanation]) -> Explainer:
    """Explanations made before, as an explainer."""
    known = {one.group: one for one in explanations}
    return lambda costs, groups: tuple(known[group] for group in groups)


def split_all(
    costs: GroupCosts, explanations: Sequence[Explanation], share: EdgeShare
) -> tuple[np.ndarray, np.ndarray]:
    """For each group: was it rectified, and the DRAM bytes of its parts."""
    done = RecursiveSplitter(costs, recorded(explanations), share, asking="once")([one.group for one in explanations])
    return np.array([one.rectified for one in done], float), np.array([costs.total(one.parts) for one in done])


def by_chance(costs: GroupCosts, explanations: Sequence[Explanation], share: EdgeShare, seed: int) -> list[Explanation]:
    """As many random edges for each group as the explanation returned."""
    network, found = costs.problem.network, []
    for one in explanations:
        edges = edges_inside(network, one.group)
        picked = np.random.default_rng([seed, one.group]).permutation(len(edges))[
            : len(candidates(network, one, share))
        ]
        found.append(Explanation(one.group, tuple((edges[i], 0.0) for i in picked)))
    return found


def rate_row(
    name: str, costs: GroupCosts, explanations: Sequence[Explanation], part: float, least: np.ndarray
) -> dict[str, Any]:
    """One line of the table of rates."""
    network, share = costs.problem.network, EdgeShare(part, 1)
    rectified, moved = split_all(costs, explanations, share)
    returned = [len(candidates(network, one, share)) / len(edges_inside(network, one.group)) for one in explanations]
    draws = [
        split_all(costs, by_chance(costs, explanations, share, seed), EdgeShare(1.0, 1))[0] for seed in range(DRAWS)
    ]
    chance = np.mean(draws, axis=0)
    above = rectified - chance
    error = float(above.std() / np.sqrt(len(above)))
    return {
        "explainer": name,
        "part": part,
        "rate_percent": 100 * float(rectified.mean()),
        "error_percent": 100 * float(rectified.std() / np.sqrt(len(rectified))),
        "edges_percent": 100 * float(np.mean(returned)),
        "chance_percent": 100 * float(chance.mean()),
        "better_than_chance": bool(above.mean() > 2 * error and above.mean() > 0),
        "traffic": float(np.mean(moved / least)),
    }


def rates(options: argparse.Namespace) -> list[dict[str, Any]]:
    problem = Problem(network_named(options.network), scheme_named(options.scheme), bytes_of(options.buffer))
    costs, groups = invalid_groups(problem, options.search, options.plans, options.groups)
    sizes = [group.bit_count() for group in groups]
    print(
        f"\n{options.network}, {options.scheme}, {options.buffer}, {options.search} search: {len(groups)} different groups"
        f" that did not fit, {np.mean(sizes):.1f} operators each (median {np.median(sizes):.0f})"
    )
    print("explainer      part   rate %         edges %  chance %  verdict               traffic  ms/group  paper %")
    least = split_all(costs, CONTROLS["all"](0)(costs, groups), EdgeShare(1.0, 1))[1]
    rows = []
    for name in (*LEARNED, RANKED, *CONTROLS):
        started = time.process_time()
        explain = explainer_named(name.removesuffix(" ranked"), options.scheme)
        explanations = explain(costs, groups)
        each_ms = 1e3 * (time.process_time() - started) / len(groups)
        if name == RANKED:
            explanations = [replace(one, nodes=0) for one in explanations]
        for part in (1.0,) if name == "all" else options.shares:
            row = rate_row(name, costs, explanations, part, least) | {"ms_per_group": each_ms}
            rows.append(row)
            verdict = "better than chance" if row["better_than_chance"] else "no better than chance"
            paper = published(options, name)
            print(
                f"{name:13} {part:5.1f} {row['rate_percent']:7.1f} ± {row['error_percent']:3.1f} {row['edges_percent']:11.1f}"
                f" {row['chance_percent']:9.1f}  {'—' if name in ('random', 'all') else verdict:21} {row['traffic']:7.2f}"
                f" {each_ms:9.2f}  {'' if paper is None else paper[0]}",
                flush=True,
            )
    return rows


def agreement(one: Sequence[Explanation], other: Sequence[Explanation]) -> float:
    """Spearman's rank correlation, the mean over groups that have one."""
    found = [rank_correlation(a, b) for a, b in zip(one, other, strict=True)]
    return float(np.mean([each for each in found if each is not None]))


def steadiness(options: argparse.Namespace) -> dict[str, float]:
    """Rank correlation between two seeds: of the starting mask for GNNExplainer, of training for the others."""
    problem = Problem(network_named(options.network), scheme_named(options.scheme), bytes_of(options.buffer))
    costs, groups = invalid_groups(problem, options.search, options.plans, options.groups)
    pairs = {"gnne": [explainer_named("gnne", options.scheme, seed=seed) for seed in (0, 1)]}
    if options.retrain:
        classifier = load(read_tensors(options.scheme, "classifier"))
        corpus = collected(options.scheme)
        split = split_by_group(corpus, 0)
        many, one = learning_blocks(classifier, corpus, split, 1)
        again = pgexplainer(classifier, train_pg(classifier, many, seed=1))
        pairs["pg"] = [explainer_named("pg", options.scheme), again]
        again = rgexplainer(policy_of(classifier, train_rg(classifier, one, seed=1)))
        pairs["rg"] = [explainer_named("rg", options.scheme), again]
    print("\nrank correlation between two seeds")
    found = {}
    for name, (first, second) in pairs.items():
        found[name] = agreement(first(costs, groups), second(costs, groups))
        print(f"{name:13} {found[name]:6.3f}", flush=True)
    return found


def times(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A whole search from nothing, splitting by each explainer with 0.3 of the edges."""
    network = network_named(options.network)
    problem = Problem(network, scheme_named(options.scheme), bytes_of(options.buffer))
    print(f"\n{options.search} search, {options.plans} plans, from nothing, part 0.3")
    print("explainer     seconds  CPU s  invalid  rectified %   best MB  paper s")
    rows = []
    for name in (*LEARNED, *(control for control in CONTROLS)):
        costs = GroupCosts(problem)
        explain = explainer_named(name, options.scheme)
        splitter = RecursiveSplitter(costs, explain, EdgeShare(0.3, 1))
        cpu = time.process_time()
        search = search_named(options.search)
        result = search(costs, SearchBudget(plans=options.plans), np.random.default_rng(0), Repair(costs, splitter))
        cpu = time.process_time() - cpu
        rate = result.rectify_rate_once
        rows.append(
            {"explainer": name, "seconds": result.seconds, "cpu_s": cpu, "invalid": result.invalid}
            | {"rate_percent": None if rate is None else 100 * rate, "best_mb": result.cost / 1e6}
        )
        paper = published(options, name)
        print(
            f"{name:13} {result.seconds:7.2f} {cpu:6.2f} {result.invalid:8} {'' if rate is None else f'{100 * rate:12.1f}'}"
            f" {result.cost / 1e6:9.3f}  {'' if paper is None else paper[1]}",
            flush=True,
        )
    return rows


def collected(scheme: str, each: int | None = None) -> Corpus:
    """The data set of the shipped classifier, or up to `each` groups of every network."""
    nets, names = networks(), names_for(scheme)
    wanted = {name: TABLE[name] if each is None else each for name in names}
    return collect({name: nets[name] for name in names}, scheme_named(scheme), wanted=wanted)


def classifier(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The shipped classifier on groups that it was not trained on, and on those that searches meet."""
    shipped = load(read_tensors(options.scheme, "classifier"))
    corpus = collected(options.scheme)
    held_out = split_by_group(corpus, 0).test
    rows = [{"groups": "held out", **score(shipped, corpus, held_out)._asdict()}]
    for name, size in MET_BY_SEARCHES:
        network = network_named(name)
        problem = Problem(network, scheme_named(options.scheme), size * 1024)
        for search in ("local", "random"):
            plans = options.plans if search == "local" else 100
            groups = met(problem, search_named(search), plans, np.random.default_rng(99))
            some = corpus_of({name: network}, scheme_named(options.scheme), [dict.fromkeys(groups, True)])
            found = score(shipped, some, np.arange(len(some)), size * 1024)
            rows.append({"groups": f"{search} search, {name}, {size} KiB", **found._asdict()})
    print(
        f"\nthe shipped classifier, {options.scheme}; {len(corpus)} groups of {len(corpus.names)} networks x 5 buffers"
    )
    print_scores(rows)
    return rows


def published_features(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A classifier trained as the paper says: the features it names, 50 epochs; four layers of 128 are ours, too."""
    corpus = collected(options.scheme)
    split = split_by_group(corpus, 0)
    found = train(corpus, split, TrainingSettings(epochs=50, batch=512, published=True))
    rows = [{"groups": "held out, published features", **score(found, corpus, split.test)._asdict()}]
    print(f"\nthe classifier of the published features, {options.scheme}, 50 epochs")
    print_scores(rows)
    return rows


def leave_out(options: argparse.Namespace, epochs: int = 3, each: int = 600) -> list[dict[str, Any]]:
    """Classifiers trained without one network, on the groups of that network."""
    corpus = collected(options.scheme, each)
    print(f"\ntrained without the network, {options.scheme}, {epochs} epochs, up to {each} groups of a network")
    rows = []
    for place, name in enumerate(corpus.names):
        inside = np.flatnonzero(corpus.network == place)
        others = np.flatnonzero(corpus.network != place)
        found = train(corpus, DatasetSplit(others, inside, inside), TrainingSettings(epochs=epochs))
        rows.append({"groups": name, **score(found, corpus, inside)._asdict()})
        print_scores(rows[-1:], head=not place)
    return rows


def print_scores(rows: Sequence[dict[str, Any]], head: bool = True) -> None:
    if head:
        print(
            "groups                                     accuracy %  F1 too large  F1 fits  recall too large %  samples"
        )
    for row in rows:
        print(
            f"{row['groups']:42} {100 * row['accuracy']:10.2f} {row['f1_too_large']:13.4f} {row['f1_fits']:8.4f}"
            f" {100 * row['recall_too_large']:19.2f} {row['samples']:8}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Explainers beside chance.")
    parser.add_argument("--network", default="mobilenet_v2")
    parser.add_argument("--scheme", default="lbdf", choices=list(SCHEMES))
    parser.add_argument("--buffer", default="128KiB")
    parser.add_argument("--search", default="local", choices=("local", "random"))
    parser.add_argument("--shares", default=(0.1, 0.3, 0.5), type=lambda text: tuple(map(float, text.split(","))))
    parser.add_argument("--plans", type=int, default=2000)
    parser.add_argument("--groups", type=int, default=300, help="at most so many groups")
    parser.add_argument("--classifier", action="store_true", help="score the shipped classifier too")
    parser.add_argument("--published", action="store_true", help="train one on the published features too, 50 epochs")
    parser.add_argument("--leave-out", action="store_true", help="train without each network too")
    parser.add_argument("--retrain", action="store_true", help="train explainers from another seed too")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    figures: dict[str, Any] = {"setting": {key: str(value) for key, value in vars(options).items()}}
    figures["rates"] = rates(options)
    figures["rank_correlation"] = steadiness(options)
    figures["times"] = times(options)
    if options.classifier:
        figures["classifier"] = classifier(options)
    if options.published:
        figures["published_features"] = published_features(options)
    if options.leave_out:
        figures["leave_out"] = leave_out(options)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
