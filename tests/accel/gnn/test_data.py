"""The data set: groups as they should be, labels that are true, nothing leaks, nothing depends on the workers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from tests.accel.pinned import pinned

from fusewise.accel.bits import is_connected, mask_of
from fusewise.accel.gnn.data import BUFFERS, TABLE, Corpus, collect, grown, names_for, split_by_group, too_large
from fusewise.accel.gnn.features import batch_of, node_table
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.catalogue import scheme_named
from fusewise.accel.search.local import local_search
from fusewise.accel.search.random_search import random_search

SEARCHES = ((random_search, 10), (local_search, 50))
NAMES = ("squeezenet1_1", "mobilenet_v2")
WANTED = dict.fromkeys(NAMES, 120)


@cache
def small(scheme: str) -> Corpus:
    return collect({name: pinned(name) for name in NAMES}, scheme_named(scheme), wanted=WANTED, searches=SEARCHES)


def group_of(corpus: Corpus, number: int) -> tuple[str, int]:
    """A group's network and the group."""
    place = int(corpus.network[number])
    first = sum(len(pinned(name)) for name in NAMES[:place])
    start, count = corpus.row_start[number], corpus.row_count[number]
    return NAMES[place], mask_of((corpus.rows[start : start + count] - first).tolist())


def test_the_networks_are_those_of_the_published_table() -> None:
    """Table I as printed, and the caption of figure 3; what tables II to IV test beside them is not among them."""
    names = ["vgg16", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large"]
    names += ["resnet18", "resnet101", "efficientnet_b0", "efficientnet_b3"]
    assert list(TABLE) == names == list(names_for("lbdf"))
    assert list(TABLE.values()) == [715, 795, 1100, 203, 251, 715, 3476, 1364, 2247]
    assert names_for("brr") == ("vgg16", "squeezenet1_1", "mobilenet_v2", "resnet18", "resnet101")


def test_as_many_groups_are_taken_as_are_wanted() -> None:
    corpus = small("lbdf")
    assert [int((corpus.network == place).sum()) for place in range(len(NAMES))] == [120, 120]


@pytest.mark.parametrize("scheme", ["lbdf", "brr"])
def test_labels_are_what_the_scheme_says(scheme: str) -> None:
    corpus = small(scheme)
    assert len(corpus) > 150
    everything = np.arange(len(corpus))
    for size in BUFFERS:
        labels = corpus.fits(everything, np.full(len(corpus), float(size)))
        for number in everything:
            name, group = group_of(corpus, number)
            costs = GroupCosts(Problem(pinned(name), scheme_named(scheme), size))
            assert bool(labels[number]) == costs.fits(group), (name, group, size)


def test_groups_are_different_and_of_both_kinds() -> None:
    corpus = small("lbdf")
    groups = [group_of(corpus, number) for number in range(len(corpus))]
    assert len(set(groups)) == len(groups)
    assert 0.3 < corpus.met.mean() < 0.7


def test_a_corpus_and_the_explainers_read_groups_alike() -> None:
    corpus, network = small("lbdf"), pinned("mobilenet_v2")
    chosen = np.flatnonzero(corpus.network == 1)[:30]
    groups = [group_of(corpus, number)[1] for number in chosen]
    theirs = corpus.batch(chosen, np.full(len(chosen), 262144.0))
    ours = batch_of(Problem(network, scheme_named("lbdf"), 262144), groups, node_table(network))[0]
    assert all(np.array_equal(a, b) for a, b in zip(theirs, ours, strict=True))


def test_workers_and_repetition_change_nothing() -> None:
    with ThreadPoolExecutor(2) as executor:
        nets = {name: pinned(name) for name in NAMES}
        again = collect(nets, scheme_named("lbdf"), wanted=WANTED, searches=SEARCHES, executor=executor)
    for field in ("network", "rows", "ends", "need", "met"):
        assert np.array_equal(getattr(again, field), getattr(small("lbdf"), field))


def test_all_buffers_of_a_group_are_on_one_side() -> None:
    corpus = small("lbdf")
    split = split_by_group(corpus, 3)
    parts = [split.train, split.choose, split.test]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(corpus)))
    assert len(split.test) == len(split.choose) == len(corpus) // 10


def test_explainers_learn_from_groups_that_are_a_little_too_large() -> None:
    corpus = small("lbdf")
    groups, capacities = too_large(corpus, split_by_group(corpus, 0).train, 40, 0)
    assert 0 < len(groups) <= 40
    assert not corpus.fits(groups, capacities).any()
    assert corpus.met[groups].all() and (corpus.end_count[groups] > 0).all()


def test_grown_groups_are_connected_convex_and_inside() -> None:
    network, rng = pinned("squeezenet1_1"), np.random.default_rng(2)
    allowed = Problem(network, scheme_named("lbdf"), BUFFERS[0]).fuseable
    sizes = set()
    for _ in range(200):
        group = grown(network, allowed, rng)
        sizes.add(group.bit_count())
        assert not group & ~allowed
        assert is_connected(network.neighbours, group) and network.is_convex(group)
    assert len(sizes) > 8
