"""The table of explainers, and how to make one by name.

Those without a neural network are the controls of `accel.explain.heuristics`; the others ask the validity classifier, and trained
weights for the schemes in `accel.gnn.model.SHIPPED` come with the package.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from fusewise.accel.explain.explainer import Explainer
from fusewise.accel.explain.gnnexplainer import gnnexplainer
from fusewise.accel.explain.heuristics import CONTROLS
from fusewise.accel.explain.occlusion import occlusion
from fusewise.accel.explain.pgexplainer import pgexplainer
from fusewise.accel.explain.rgexplainer import policy_of, rgexplainer
from fusewise.accel.explain.saliency import saliency
from fusewise.accel.gnn.engine import require
from fusewise.accel.gnn.model import Classifier, load, read_tensors
from fusewise.errors import UsageError
from fusewise.words import nearest

__all__ = ["EXPLAINERS", "LEARNED", "Part", "explainer_named"]

Part = Callable[[str], dict[str, np.ndarray]]
"""The trained weights of one part: "pg" or "rg"."""

LEARNED: dict[str, Callable[[Classifier, Part, int], Explainer]] = {
    "gnne": lambda classifier, part, seed: gnnexplainer(classifier, seed=seed),
    "pg": lambda classifier, part, seed: pgexplainer(classifier, part("pg")),
    "rg": lambda classifier, part, seed: rgexplainer(policy_of(classifier, part("rg"))),
    "saliency": lambda classifier, part, seed: saliency(classifier),
    "occlusion": lambda classifier, part, seed: occlusion(classifier),
}
"""Explainers that ask the classifier: GNNExplainer, PGExplainer, RG-Explainer, and two without training of their own."""

EXPLAINERS = (*LEARNED, *CONTROLS)
"""Every explainer by the name users give."""


def explainer_named(name: str, scheme: str, *, seed: int = 0, weights: Path | None = None) -> Explainer:
    """The explainer called `name`, for groups under `scheme`; `weights` is a file to use instead of the package's own.

    `UsageError` for an unknown name (with the nearest one), when the extra `explain` is missing (with what to install), and
    when there are no trained weights for the scheme. `seed` is what `random` and `gnne` draw from.
    """
    if name in CONTROLS:
        return CONTROLS[name](seed)
    if name not in LEARNED:
        raise UsageError(f"there is no explainer called {name!r}; {nearest(name, EXPLAINERS)}")
    require(f"the explainer {name!r}")
    part = partial(read_tensors, scheme, path=weights)
    try:
        return LEARNED[name](load(part("classifier")), part, seed)
    except (KeyError, RuntimeError) as error:  # how PyTorch refuses names and shapes
        source = weights or f"for scheme {scheme!r}"
        raise UsageError(
            f"the weights {source} do not fit the explainer {name!r} of this release; train them anew."
        ) from error
