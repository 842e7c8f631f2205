"""Training the classifier: minutes on a laptop, the same weights from the same seed.

Cross entropy weighted by how rare each class is, Adam, one cycle of the learning rate (Smith and Topin 2018), clipped gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fusewise.accel.gnn.data import BUFFERS, Corpus, DatasetSplit
from fusewise.accel.gnn.engine import at_work, require
from fusewise.accel.gnn.features import PUBLISHED
from fusewise.accel.gnn.model import Classifier, new_classifier, standard

__all__ = ["Progress", "Scores", "TrainingSettings", "score", "train"]

Progress = Callable[[str, float], None]
"""Told what is being done and which share of it is, 0 to 1."""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """`rate` is the highest learning rate, `clip` the longest gradient, `batch` counts graphs; `published` shows the classifier no
    other features than the paper names, where it trains for 50 epochs."""

    epochs: int = 10
    batch: int = 128
    rate: float = 3e-3
    clip: float = 1.0
    seed: int = 0
    published: bool = False


class Scores(NamedTuple):
    """How right a classifier is on some samples: accuracy; F1 of each class; recall of "too large"; how many samples."""

    accuracy: float
    f1_too_large: float
    f1_fits: float
    recall_too_large: float
    samples: int


def train(
    corpus: Corpus,
    split: DatasetSplit,
    settings: TrainingSettings | None = None,
    progress: Progress = lambda what, share: None,
) -> Classifier:
    """A classifier for the groups of `split.train`, each with every buffer of `BUFFERS`."""
    torch = require("training the classifier")
    settings = settings or TrainingSettings()
    rng = np.random.default_rng(settings.seed)
    groups, capacities = _samples(split.train)
    labels = corpus.fits(groups, capacities)
    with at_work(settings.seed):
        classifier = new_classifier(*_standard(corpus, split.train, settings.published))
        net = classifier.net
        steps = -(-len(groups) // settings.batch)
        optimizer = torch.optim.Adam(net.parameters(), lr=settings.rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, settings.rate, epochs=settings.epochs, steps_per_epoch=steps
        )
        loss = torch.nn.CrossEntropyLoss(weight=_weights(torch, labels))
        for epoch in range(settings.epochs):
            order = rng.permutation(len(groups))
            for step in range(steps):
                some = order[step * settings.batch : (step + 1) * settings.batch]
                given = classifier.tensors(corpus.batch(groups[some], capacities[some]))
                optimizer.zero_grad()
                loss(net(given.x, given.edges, given.graph, given.graphs), torch.from_numpy(labels[some])).backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), settings.clip)
                optimizer.step()
                schedule.step()
                if step % 16 == 0:
                    progress("classifier", (epoch + step / steps) / settings.epochs)
        net.eval()
        for parameter in net.parameters():
            parameter.requires_grad_(False)
    progress("classifier", 1.0)
    return classifier


def score(classifier: Classifier, corpus: Corpus, chosen: np.ndarray, capacity: int | None = None) -> Scores:
    """How right it is about some groups with every buffer, or with one."""
    groups, capacities = _samples(chosen) if capacity is None else (chosen, np.full(len(chosen), capacity))
    labels, found = corpus.fits(groups, capacities), np.empty(len(groups), np.int64)
    with at_work(0):
        for start in range(0, len(groups), 1024):
            part = slice(start, start + 1024)
            found[part] = classifier.logits(corpus.batch(groups[part], capacities[part])).argmax(axis=1)
    return scores_of(labels, found)


def scores_of(labels: np.ndarray, found: np.ndarray) -> Scores:
    """Both int [samples], 1 for "fits"."""
    f1 = []
    for kind in (0, 1):
        both, either = (
            int(((labels == kind) & (found == kind)).sum()),
            int((labels == kind).sum() + (found == kind).sum()),
        )
        f1.append(2 * both / either if either else 1.0)
    large = labels == 0
    recall = float((found[large] == 0).mean()) if large.any() else 1.0
    return Scores(float((labels == found).mean()), f1[0], f1[1], recall, len(labels))


def _samples(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every group with every buffer."""
    return np.repeat(groups, len(BUFFERS)), np.tile(np.array(BUFFERS, float), len(groups))


def _standard(corpus: Corpus, chosen: np.ndarray, published: bool) -> tuple[np.ndarray, np.ndarray]:
    return standard(corpus.batch(*_samples(chosen)).x, PUBLISHED if published else None)


def _weights(torch: Any, labels: np.ndarray) -> Any:
    """Half of the mean over the share of each class."""
    share = np.clip(np.bincount(labels, minlength=2) / len(labels), 1e-3, 1)
    return torch.tensor(0.5 / share, dtype=torch.float32)
