"""The data set of the classifier: fusion groups of whole networks with the buffer that each needs.

Takes networks and a scheme; gives a `Corpus`. A group counts once for each buffer in `BUFFERS`, with the label "fits" or not. Half
of the groups are grown at random; the other half are those that searches meet, because a classifier that has only seen random
groups is too hopeful about the groups of a good search, which are just a little too large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from fusewise.accel.bits import bits_of, union_over
from fusewise.accel.explain.explainer import edges_inside
from fusewise.accel.gnn.features import Batch, node_table, spans, with_buffer
from fusewise.accel.network import Network
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.scheme import UNBOUNDED, Scheme
from fusewise.accel.search.local import local_search
from fusewise.accel.search.random_search import random_search
from fusewise.accel.search.result import SearchBudget

__all__ = [
    "BUFFERS",
    "SEARCHES",
    "TABLE",
    "Corpus",
    "DatasetSplit",
    "collect",
    "corpus_of",
    "grown",
    "met",
    "names_for",
    "split_by_group",
    "too_large",
]

TABLE: Mapping[str, int] = MappingProxyType(
    {
        "vgg16": 715,
        "squeezenet1_1": 795,
        "mobilenet_v2": 1100,
        "mobilenet_v3_small": 203,
        "mobilenet_v3_large": 251,
        "resnet18": 715,
        "resnet101": 3476,
        "efficientnet_b0": 1364,
        "efficientnet_b3": 2247,
    }
)
"""The nine networks of the data set, by their names in the zoo, and how many groups are taken of each: table I of Mills et al.

What their tables II to IV test, ResNet-50, ResNet-152 and DeepLabV3, is not among them."""

UNFRIENDLY: Mapping[str, tuple[str, ...]] = MappingProxyType({"brr": ("mobilenet_v3", "efficientnet")})
"""How the names of networks begin that no classifier of a scheme is trained on: BRR's gates (caption of their figure 3)."""

BUFFERS = tuple(size * 1024 for size in (128, 256, 512, 1024, 2048))
"""Buffers in bytes."""

GROWN_MOST = 20
"""Grown groups take up to so many steps; what convexity asks for comes on top."""

_NEAR, _MOST = 4.0, 32

Search = Callable[[GroupCosts, SearchBudget, np.random.Generator], object]

Searches = Sequence[tuple[Search, int]]
"""Searches, and how many plans each evaluates."""

SEARCHES: Searches = ((random_search, 100), (local_search, 500), (local_search, 1000))
"""The searches whose groups are taken."""


@dataclass(frozen=True)
class Corpus:
    """Groups of several networks.

    `table`, `sizes`: the networks' `node_table`s, one after the other. Per group g: `network[g]`, an index into `names`; its rows
    of `table` are `rows[row_start[g]:][:row_count[g]]`; its edges, as positions among them, the columns of `ends` from
    `end_start[g]` on, `end_count[g]` many; `need[g]`, bytes of buffer at 16 bits (infinite where the scheme refuses the
    group); `met[g]`, whether a search met it.
    """

    names: tuple[str, ...]
    table: np.ndarray
    sizes: np.ndarray
    network: np.ndarray
    rows: np.ndarray
    row_start: np.ndarray
    row_count: np.ndarray
    ends: np.ndarray
    end_start: np.ndarray
    end_count: np.ndarray
    need: np.ndarray
    met: np.ndarray

    def __len__(self) -> int:
        return len(self.need)

    def batch(self, chosen: np.ndarray, capacity: np.ndarray) -> Batch:
        """Some groups, each for a buffer of so many bytes; both arrays are [graphs]."""
        counts, edge_counts = self.row_count[chosen], self.end_count[chosen]
        rows = self.rows[spans(self.row_start[chosen], counts)]
        x = with_buffer(self.table[rows], self.sizes[rows], np.repeat(capacity.astype(float), counts))
        first = np.repeat(np.cumsum(counts) - counts, edge_counts)
        edges = self.ends[:, spans(self.end_start[chosen], edge_counts)] + first
        numbers = np.arange(len(chosen))
        return Batch(x, edges, np.repeat(numbers, counts), np.repeat(numbers, edge_counts), len(chosen))

    def fits(self, chosen: np.ndarray, capacity: np.ndarray) -> np.ndarray:
        """The labels: int64 [graphs], 1 where the group fits."""
        labels: np.ndarray = (self.need[chosen] < capacity).astype(np.int64)
        return labels


@dataclass(frozen=True)
class DatasetSplit:
    """Groups to train on, to choose by, and to test with; all buffers of a group are on one side."""

    train: np.ndarray
    choose: np.ndarray
    test: np.ndarray


def split_by_group(corpus: Corpus, seed: int) -> DatasetSplit:
    """80, 10 and 10 % of the groups, at random."""
    order = np.random.default_rng(seed).permutation(len(corpus))
    tenth = len(corpus) // 10
    return DatasetSplit(order[2 * tenth :], order[:tenth], order[tenth : 2 * tenth])


def too_large(corpus: Corpus, chosen: np.ndarray, most: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Up to `most` of the chosen groups, each with a buffer that does not hold it: what explainers learn from.

    Groups that a search met, of at least two operators, neither too many nor more than `_NEAR` times too large: what good
    searches meet.
    """
    some = chosen[corpus.met[chosen] & (corpus.end_count[chosen] > 0) & (corpus.row_count[chosen] <= _MOST)]
    groups, capacities = np.repeat(some, len(BUFFERS)), np.tile(np.array(BUFFERS, float), len(some))
    near = (corpus.need[groups] >= capacities) & (corpus.need[groups] < _NEAR * capacities)
    picked = np.random.default_rng(seed).permutation(np.flatnonzero(near))[:most]
    return groups[picked], capacities[picked]


def names_for(scheme: str) -> tuple[str, ...]:
    """The networks of `TABLE` that classifiers for a scheme are trained on."""
    return tuple(name for name in TABLE if not name.startswith(UNFRIENDLY.get(scheme, ())))


def collect(
    networks: Mapping[str, Network],
    scheme: Scheme,
    *,
    wanted: Mapping[str, int] = TABLE,
    seed: int = 0,
    searches: Searches = SEARCHES,
    executor: Executor | None = None,
) -> Corpus:
    """Up to `wanted[name]` groups of every network, half of them met by the searches and the others grown; each group once.

    A chain of n operators has but n (n + 1) / 2 groups: VGG16 cannot give as many as the table asks for. With an executor the
    networks are dealt out to its workers; the result is the same.
    """
    jobs = [
        (network, scheme, wanted[name], searches, seed + 1000 * i) for i, (name, network) in enumerate(networks.items())
    ]
    found = list(map(_gather, jobs) if executor is None else executor.map(_gather, jobs))
    return corpus_of(networks, scheme, found)


def corpus_of(networks: Mapping[str, Network], scheme: Scheme, groups: Sequence[Mapping[int, bool]]) -> Corpus:
    """Given groups, and whether a search met them, for each of the networks in order."""
    names = tuple(networks)
    tables = [node_table(network) for network in networks.values()]
    places, rows, ends, need, met = [], [], [], [], []
    start = 0
    for place, (network, some) in enumerate(zip(networks.values(), groups, strict=True)):
        for group, was_met in some.items():
            members = list(bits_of(group))
            position = {v: i for i, v in enumerate(members)}
            places.append(place)
            rows.append(np.array(members, np.int64) + start)
            inside = [(position[u], position[v]) for u, v in edges_inside(network, group)]
            ends.append(np.array(inside, np.int64).reshape(-1, 2).T)
            found = scheme.buffer_bytes(network, group)
            need.append(np.inf if found >= UNBOUNDED else found * 16 / scheme.bits)
            met.append(was_met)
        start += len(network)
    counts, end_counts = (np.array([some.shape[-1] for some in parts], np.int64) for parts in (rows, ends))
    return Corpus(
        names,
        np.concatenate([table for table, _ in tables]),
        np.concatenate([sizes for _, sizes in tables]),
        np.array(places),
        np.concatenate(rows),
        np.cumsum(counts) - counts,
        counts,
        np.concatenate(ends, axis=1),
        np.cumsum(end_counts) - end_counts,
        end_counts,
        np.array(need),
        np.array(met),
    )


def met(problem: Problem, search: Search, plans: int, rng: np.random.Generator) -> list[int]:
    """The groups that a search asks about, ascending."""
    costs = GroupCosts(problem)
    search(costs, SearchBudget(plans=plans), rng)
    return sorted(group for group in costs.buffer_known if _labelled(problem.scheme, group))


def grown(network: Network, allowed: int, rng: np.random.Generator) -> int:
    """A connected, convex group inside `allowed`: a random operator and what random steps to neighbours, and the paths
    between them, add. The number of steps is drawn from 1 to `GROWN_MOST`, small ones more often."""
    starts = list(bits_of(allowed))
    group, steps = 1 << starts[rng.integers(len(starts))], int(GROWN_MOST ** rng.random())
    for _ in range(steps):
        around = list(bits_of(union_over(network.neighbours, group) & ~group & allowed))
        if not around:
            break
        larger = group | 1 << around[rng.integers(len(around))]
        larger |= union_over(network.descendants, larger) & union_over(network.ancestors, larger)
        if larger & ~allowed:
            break
        group = larger
    return group


def _gather(job: tuple[Network, Scheme, int, Searches, int]) -> dict[int, bool]:
    """The groups of one network, in an order that the seed alone decides, and whether a search met them."""
    network, scheme, wanted, searches, seed = job
    rng = np.random.default_rng(seed)
    problems = [Problem(network, scheme, size * scheme.bits // 16) for size in BUFFERS]
    found: dict[int, bool] = {}
    each = -(-wanted // (2 * len(searches) * len(BUFFERS)))
    for search, plans in searches:
        for problem in problems:
            if problem.fuseable:
                groups = met(problem, search, plans, rng)
                new = [groups[i] for i in rng.permutation(len(groups)) if groups[i] not in found][:each]
                found.update(dict.fromkeys(new, True))
    for number in range(5 * wanted):
        if len(found) >= wanted:
            break
        allowed = problems[number % len(problems)].fuseable
        group = grown(network, allowed, rng) if allowed else 0
        if group and group not in found and _labelled(scheme, group):
            found[group] = False
    return found


def _labelled(scheme: Scheme, group: int) -> bool:
    """Does the buffer decide the label of the group?"""
    return bool(group & (group - 1)) or not scheme.singles_always_fit
