"""Training: it learns, it repeats itself, it leaves PyTorch as it was; and what ships is as right as it should be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.accel.pinned import pinned

from fusewise.accel.gnn.data import BUFFERS, collect, corpus_of, met, split_by_group
from fusewise.accel.gnn.features import BUFFER_COLUMNS, KINDS, OPERATORS, PUBLISHED, SHAPE_COLUMNS
from fusewise.accel.gnn.model import load, read_tensors, weights_of
from fusewise.accel.gnn.train import TrainingSettings, score, scores_of, train
from fusewise.accel.problem import Problem
from fusewise.accel.schemes.catalogue import scheme_named
from fusewise.accel.search.local import local_search
from fusewise.accel.search.random_search import random_search

SEARCHES = ((random_search, 10), (local_search, 60))


def test_a_small_data_set_is_learned_and_the_same_each_time() -> None:
    corpus = collect(
        {"squeezenet1_1": pinned("squeezenet1_1")},
        scheme_named("lbdf"),
        wanted={"squeezenet1_1": 120},
        searches=SEARCHES,
    )
    split, settings, reports = split_by_group(corpus, 0), TrainingSettings(epochs=8, batch=64, seed=1), []
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    classifier = train(corpus, split, settings, lambda what, share: reports.append(share))
    assert torch.get_num_threads() == threads and torch.equal(torch.get_rng_state(), state)
    assert reports == sorted(reports) and reports[-1] == 1.0
    found = score(classifier, corpus, split.train)
    guess = corpus.fits(np.repeat(split.train, 5), np.tile(np.array(BUFFERS, float), len(split.train))).mean()
    assert found.accuracy > (1 + max(guess, 1 - guess)) / 2
    again = weights_of(train(corpus, split, settings))
    assert all(np.array_equal(array, again[name]) for name, array in weights_of(classifier).items())


def test_what_was_never_seen_or_is_not_shown_says_nothing() -> None:
    nets, wanted = {"squeezenet1_1": pinned("squeezenet1_1")}, {"squeezenet1_1": 60}
    corpus = collect(nets, scheme_named("lbdf"), wanted=wanted, searches=SEARCHES)
    split, names = split_by_group(corpus, 0), [*OPERATORS, *KINDS, *SHAPE_COLUMNS, *BUFFER_COLUMNS]
    some = corpus.batch(split.test, np.full(len(split.test), float(BUFFERS[0])))
    for published in (False, True):
        classifier = train(corpus, split, TrainingSettings(epochs=1, published=published))
        silent = np.isinf(classifier.scale)
        assert silent[names.index("HardSwish")] and not silent[names.index("Relu")]
        assert silent[~PUBLISHED].all() == published
        other = some.x.copy()
        other[:, silent] += 1
        assert np.array_equal(classifier.logits(some), classifier.logits(some._replace(x=other)))


@pytest.mark.parametrize(("scheme", "unseen"), [("lbdf", ["Resize"]), ("brr", ["Resize", "HardSwish", "Sigmoid"])])
def test_what_ships_saw_none_of_the_networks_that_it_is_tested_on(scheme: str, unseen: list[str]) -> None:
    """DeepLabV3 alone has a Resize; under BRR, gates were kept out."""
    scale = read_tensors(scheme, "classifier")["scale"]
    assert np.isinf(scale[[OPERATORS.index(name) for name in unseen]]).all()
    assert np.isfinite(
        scale[[OPERATORS.index(name) for name in ("Conv", "Relu", "Clip", "Concat", "Add", "Gemm")]]
    ).all()


def test_scores_are_counted_by_hand() -> None:
    labels, found = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 1, 1, 0])
    scores = scores_of(labels, found)
    assert scores.accuracy == pytest.approx(4 / 6)
    assert scores.f1_too_large == pytest.approx(2 * 2 / (3 + 3))
    assert scores.recall_too_large == pytest.approx(2 / 3)
    assert scores.samples == 6


@pytest.mark.parametrize("scheme", ["lbdf", "brr"])
def test_the_shipped_classifier_is_right_on_fresh_groups(scheme: str) -> None:
    """Groups drawn anew, and networks as another exporter wrote them."""
    classifier = load(read_tensors(scheme, "classifier"))
    nets = {name: pinned(name) for name in ("mobilenet_v2", "resnet18", "squeezenet1_1")}
    corpus = collect(nets, scheme_named(scheme), wanted=dict.fromkeys(nets, 120), seed=4321, searches=SEARCHES)
    found = score(classifier, corpus, np.arange(len(corpus)))
    assert min(found.accuracy, found.f1_too_large, found.f1_fits) > 0.95


@pytest.mark.parametrize("scheme", ["lbdf", "brr"])
def test_the_shipped_classifier_is_right_on_what_a_search_meets(scheme: str) -> None:
    network, rng = pinned("mobilenet_v2"), np.random.default_rng(8765)
    groups = met(Problem(network, scheme_named(scheme), BUFFERS[0]), local_search, 500, rng)
    corpus = corpus_of({"mobilenet_v2": network}, scheme_named(scheme), [dict.fromkeys(groups, True)])
    assert score(load(read_tensors(scheme, "classifier")), corpus, np.arange(len(corpus)), BUFFERS[0]).accuracy > 0.95
