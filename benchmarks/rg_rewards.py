"""Why RG-Explainer named every edge: the best set under each reward, and how training goes.

    python -m benchmarks.rg_rewards [--network mobilenet_v2] [--scheme lbdf] [--buffer 128KiB] [--search local|random]
                                    [--groups 60] [--most 12] [--no-curves]

*Optimum*: of groups of up to `--most` operators that a search met and that did not fit, every connected set is tried, and the one
with the highest reward kept: the share of the group's edges inside it, how often it is the whole group, and how many of the groups
its edges alone split into groups that fit, beside as many random edges. *Curve*: the reward, and the share of edges inside the set
that the policy grows, after imitation (epoch 0) and after each epoch of reinforcement, over the groups trained on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import networkx as nx
import numpy as np
from benchmarks.explainers import collected, invalid_groups, network_named, rate_row

from fusewise.accel.bits import bits_of, is_connected, union_over
from fusewise.accel.explain.explainer import Explanation, edges_inside
from fusewise.accel.explain.reading import copies
from fusewise.accel.explain.rgexplainer import Policy, first_of, grow, locate
from fusewise.accel.explain.rgrewards import REWARDS, Reward, necessary, sufficient
from fusewise.accel.explain.rgtraining import train_rg
from fusewise.accel.gnn.data import split_by_group
from fusewise.accel.gnn.features import batch_of, node_table
from fusewise.accel.gnn.model import Classifier, Tensors, load, read_tensors
from fusewise.accel.gnn.regenerate import learning_blocks
from fusewise.accel.network import Network
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.catalogue import SCHEMES, scheme_named
from fusewise.words import bytes_of

TRIED: dict[str, Reward] = {
    "published": sufficient,
    "without likeness": partial(sufficient, likeness=0.0),
    "size x 10": partial(sufficient, likeness=0.0, size=0.1),
    "size x 100": partial(sufficient, likeness=0.0, size=1.0),
    "necessary (ships)": necessary,
}


def connected_sets(network: Network, group: int) -> list[int]:
    """Every connected set of operators of a group."""
    found, new = set[int](), [1 << v for v in bits_of(group)]
    while new:
        found.update(new)
        wider = {some | 1 << v for some in new for v in bits_of(union_over(network.neighbours, some) & group & ~some)}
        new = [some for some in wider if some not in found]
    assert all(is_connected(network.neighbours, some) for some in found)
    return sorted(found)


def centre(network: Network, some: int) -> int:
    """An operator of a connected set from which the farthest other is nearest: the seed that the reward likes best."""
    net = nx.Graph(edges_inside(network, some))
    net.add_nodes_from(bits_of(some))
    return int(min(nx.center(net)))


def best_set(classifier: Classifier, costs: GroupCosts, group: int, reward: Reward) -> int:
    """The connected set with the highest reward."""
    import torch

    network = costs.problem.network
    sets, members = connected_sets(network, group), list(bits_of(group))
    alone = classifier.tensors(batch_of(costs.problem, [group], node_table(network))[0])
    given = copies(alone, np.zeros(len(sets), np.int64))[0]
    inside = torch.tensor([bool(some >> v & 1) for some in sets for v in members])
    seeds = torch.tensor([i * len(members) + members.index(centre(network, some)) for i, some in enumerate(sets)])
    return sets[int(reward(classifier, given, inside, seeds).argmax())]


def optima(classifier: Classifier, costs: GroupCosts, groups: Sequence[int]) -> None:
    network = costs.problem.network
    print("| reward | share of edges in the best set | it is the whole group | rectified | chance |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, reward in TRIED.items():
        best = [best_set(classifier, costs, group, reward) for group in groups]
        whole = np.mean([some == group for some, group in zip(best, groups, strict=True)])
        made = [
            Explanation(group, tuple((edge, 0.0) for edge in edges_inside(network, some)), some)
            for some, group in zip(best, groups, strict=True)
        ]
        row = rate_row(name, costs, made, 0.0, np.ones(len(groups)))
        share = np.mean([len(one.scores) / len(edges_inside(network, one.group)) for one in made])
        print(
            f"| {name} | {share:.0%} | {whole:.0%} | {row['rate_percent']:.1f} % | {row['chance_percent']:.1f} % |",
            flush=True,
        )


def curve(classifier: Classifier, given: Tensors, reward: Reward) -> Iterator[tuple[float, float]]:
    """Mean reward and mean share of edges, after imitation and after each epoch."""
    import torch

    found = []

    def watch(policy: Policy, epoch: int) -> None:
        with torch.no_grad():
            seeds = first_of(locate(policy, given), given)
            inside = grow(policy, given, seeds) >= 0
        kept = inside[given.edges[0]] & inside[given.edges[1]]
        counts = [torch.bincount(given.edge_graph[some], minlength=given.graphs) for some in (kept, kept | ~kept)]
        share = float((counts[0] / counts[1]).mean())
        found.append((float(reward(classifier, given, inside, seeds).mean()), share))

    train_rg(classifier, given, reward=reward, watch=watch)
    yield from found


def curves(classifier: Classifier, scheme: str) -> None:
    corpus = collected(scheme)
    given = learning_blocks(classifier, corpus, split_by_group(corpus, 0), 0)[1]
    print(f"\n| epoch, over {given.graphs} groups | {' | '.join(f'{name}: reward | share' for name in REWARDS)} |")
    print(f"| ---: |{' ---: | ---: |' * len(REWARDS)}")
    lines: list[Any] = list(zip(*(curve(classifier, given, reward) for reward in REWARDS.values()), strict=True))
    for epoch, line in enumerate(lines):
        print(f"| {epoch} | {' | '.join(f'{worth:.3f} | {share:.0%}' for worth, share in line)} |")


def main() -> int:
    parser = argparse.ArgumentParser(description="Rewards of RG-Explainer: optima and training curves.")
    parser.add_argument("--network", default="mobilenet_v2")
    parser.add_argument("--scheme", default="lbdf", choices=list(SCHEMES))
    parser.add_argument("--buffer", default="128KiB")
    parser.add_argument("--search", default="local", choices=("local", "random"))
    parser.add_argument("--groups", type=int, default=60)
    parser.add_argument("--most", type=int, default=12, help="operators of a group, at most")
    parser.add_argument("--no-curves", action="store_true", help="do not train")
    options = parser.parse_args()
    problem = Problem(network_named(options.network), scheme_named(options.scheme), bytes_of(options.buffer))
    costs, groups = invalid_groups(problem, options.search, 1000, 5 * options.groups)
    some = [group for group in groups if group.bit_count() <= options.most][: options.groups]
    classifier = load(read_tensors(options.scheme, "classifier"))
    print(f"{options.network}, {options.scheme}, {options.buffer}, {options.search} search: {len(some)} groups\n")
    optima(classifier, costs, some)
    if not options.no_curves:
        curves(classifier, options.scheme)
    return 0


if __name__ == "__main__":
    sys.exit(main())
