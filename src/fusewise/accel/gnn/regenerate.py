"""The one command that makes the trained weights of the package, from seeds: data set, classifier, explainers.

    python -m fusewise.accel.gnn.regenerate [--scheme lbdf|brr] [--seed 0] [--reward necessary|sufficient] [--folder FOLDER]

It takes minutes on two cores and needs the extra `explain`. The same seed gives the same weights on the same machine and version of
PyTorch; elsewhere sums may be rounded differently, which training amplifies.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fusewise.accel.explain.pgexplainer import train_pg
from fusewise.accel.explain.rgrewards import REWARDS, Reward, necessary
from fusewise.accel.explain.rgtraining import train_rg
from fusewise.accel.gnn.data import TABLE, Corpus, DatasetSplit, collect, names_for, split_by_group, too_large
from fusewise.accel.gnn.engine import at_work, require
from fusewise.accel.gnn.model import SHIPPED, Classifier, Tensors, weights_of
from fusewise.accel.gnn.train import Scores, TrainingSettings, score, train
from fusewise.accel.network import Network, network_of, prepare
from fusewise.accel.schemes.catalogue import scheme_named
from fusewise.errors import FusewiseError
from fusewise.files import written_whole
from fusewise.zoo.catalogue import build

__all__ = ["Trained", "learning_blocks", "networks", "regenerate", "write"]

Progress = Callable[[str, float], None]

PG_GROUPS, PG_BATCH, RG_GROUPS = 1000, 32, 300


class Trained(NamedTuple):
    """What came of it: all weights by part and name, and how right the classifier is on the groups kept for testing."""

    weights: dict[str, np.ndarray]
    scores: Scores


def networks(progress: Progress = lambda what, share: None) -> dict[str, Network]:
    """The networks of the data set."""
    found = {}
    for number, name in enumerate(TABLE):
        found[name] = network_of(prepare(build(name)))
        progress("networks", (number + 1) / len(TABLE))
    return found


def regenerate(
    scheme: str,
    nets: Mapping[str, Network],
    *,
    seed: int = 0,
    settings: TrainingSettings | None = None,
    reward: Reward = necessary,
    progress: Progress = lambda what, share: None,
) -> Trained:
    """Train everything for one scheme, on those of the networks that it is trained on."""
    progress("data set", 0.0)
    corpus = collect({name: nets[name] for name in names_for(scheme)}, scheme_named(scheme), seed=seed)
    split = split_by_group(corpus, seed)
    classifier = train(corpus, split, settings or TrainingSettings(seed=seed), progress)
    many, one = learning_blocks(classifier, corpus, split, seed)
    parts = {
        "classifier": weights_of(classifier),
        "pg": train_pg(classifier, many, seed=seed, progress=progress),
        "rg": train_rg(classifier, one, seed=seed, reward=reward, progress=progress),
    }
    weights = {f"{part}.{name}": array for part, own in parts.items() for name, array in own.items()}
    return Trained(weights, score(classifier, corpus, split.test))


def learning_blocks(
    classifier: Classifier, corpus: Corpus, split: DatasetSplit, seed: int
) -> tuple[list[Tensors], Tensors]:
    """What PGExplainer and RG-Explainer learn from: groups that are too large, of those to train on."""
    blocks = []
    for most, size in ((PG_GROUPS, PG_BATCH), (RG_GROUPS, RG_GROUPS)):
        groups, capacities = too_large(corpus, split.train, most, seed)
        starts = range(0, len(groups), size)
        with at_work(seed):
            blocks.append(
                [classifier.tensors(corpus.batch(groups[i : i + size], capacities[i : i + size])) for i in starts]
            )
    return blocks[0], blocks[1][0]


def write(weights: Mapping[str, np.ndarray], path: Path) -> None:
    """A file of weights, whole or not at all."""
    from safetensors.numpy import save

    with written_whole(path) as (draft,):
        draft.write_bytes(save({name: np.ascontiguousarray(array) for name, array in weights.items()}))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fusewise.accel.gnn.regenerate", description="Train the shipped weights."
    )
    parser.add_argument("--scheme", choices=SHIPPED, action="append", help="only this one; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reward", choices=tuple(REWARDS), default="necessary", help="of RG-Explainer")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "weights")
    options = parser.parse_args()
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    try:
        require("training")
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("", total=1.0)
            nets = networks(lambda what, share: bar.update(task, description=what, completed=share))
            for scheme in options.scheme or SHIPPED:
                trained = regenerate(
                    scheme,
                    nets,
                    seed=options.seed,
                    reward=REWARDS[options.reward],
                    progress=lambda what, share, scheme=scheme: bar.update(  # type: ignore[misc]
                        task, description=f"{scheme}: {what}", completed=share
                    ),
                )
                write(trained.weights, options.folder / f"{scheme}.safetensors")
                found = trained.scores
                bar.console.print(
                    f"{scheme}: {found.accuracy:.2%} of {found.samples} held-out samples right,"
                    f" F1 {found.f1_too_large:.4f} too large, {found.f1_fits:.4f} fits"
                )
    except FusewiseError as error:
        console.print(f"error: {error}", markup=False)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
