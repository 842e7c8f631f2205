"""The table of architectures, and the one function that builds any of them by name.

Published figures are those of the stated source: trained parameters, and multiply-accumulates of one inference at the
stated input. A builder is named, not imported, so that reading the table costs nothing.
"""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from fusewise.errors import UsageError

if TYPE_CHECKING:
    from fusewise.ir.graph import Graph

__all__ = ["MODELS", "ZooModel", "build", "model_named"]

_VISION = "torchvision model table"


@dataclass(frozen=True, slots=True)
class ZooModel:
    """One architecture.

    `builder` is `module.function` below `fusewise.zoo`. `parameters` and `macs` are the published figures, None where
    nobody published one for this form of the model; `source` says where they are from.
    """

    name: str
    builder: str
    family: str
    task: str
    input: str
    parameters: int | None
    macs: float | None
    source: str


MODELS: tuple[ZooModel, ...] = (
    ZooModel("resnet18", "resnet.resnet18", "resnet", "classification", "x 3x224x224", 11_689_512, 1.814e9, _VISION),
    ZooModel("resnet34", "resnet.resnet34", "resnet", "classification", "x 3x224x224", 21_797_672, 3.664e9, _VISION),
    ZooModel("resnet50", "resnet.resnet50", "resnet", "classification", "x 3x224x224", 25_557_032, 4.089e9, _VISION),
    ZooModel("resnet101", "resnet.resnet101", "resnet", "classification", "x 3x224x224", 44_549_160, 7.801e9, _VISION),
    ZooModel("resnet152", "resnet.resnet152", "resnet", "classification", "x 3x224x224", 60_192_808, 11.514e9, _VISION),
    ZooModel("resnext50", "resnet.resnext50", "resnet", "classification", "x 3x224x224", 25_028_904, 4.23e9, _VISION),
    ZooModel("vgg16", "vgg.vgg16", "vgg", "classification", "x 3x224x224", 138_357_544, 15.470e9, _VISION),
    ZooModel(
        "mobilenet_v1",
        "mobilenet.mobilenet_v1",
        "mobilenet",
        "classification",
        "x 3x224x224",
        4_231_976,
        0.569e9,
        "paper (569 M), Keras",
    ),
    ZooModel(
        "mobilenet_v2",
        "mobilenet.mobilenet_v2",
        "mobilenet",
        "classification",
        "x 3x224x224",
        3_504_872,
        0.301e9,
        _VISION,
    ),
    ZooModel(
        "mobilenet_v3_small",
        "mobilenet.mobilenet_v3_small",
        "mobilenet",
        "classification",
        "x 3x224x224",
        2_542_856,
        0.057e9,
        _VISION,
    ),
    ZooModel(
        "mobilenet_v3_large",
        "mobilenet.mobilenet_v3_large",
        "mobilenet",
        "classification",
        "x 3x224x224",
        5_483_032,
        0.217e9,
        _VISION,
    ),
    ZooModel("bert_base", "bert.bert_base", "transformer", "encoding", "ids 128", 109_482_240, 11.2e9, "HF"),
    ZooModel("distilbert", "bert.distilbert", "transformer", "encoding", "ids 128", 66_362_880, None, "HF"),
    ZooModel("tinybert", "bert.tinybert", "transformer", "encoding", "ids 128", 14_350_248, None, "HF"),
    ZooModel("albert", "bert.albert", "transformer", "encoding", "ids 128", 11_683_584, None, "HF"),
)

_BY_NAME = {row.name: row for row in MODELS}


def model_named(name: str) -> ZooModel:
    """The row called `name`; `UsageError` with the nearest name when there is none."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    near = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else "'fusewise zoo list' names them all."
    raise UsageError(f"the zoo has no model called {name!r}; {hint}")


def build(name: str, *, batch: int = 1, seed: int = 0, decomposed: bool = False) -> Graph:
    """The architecture called `name` with random weights that follow from `seed` alone.

    `decomposed` writes LayerNorm, GELU, HardSwish and Mish with elementary operators, as older exporters did, with the
    same weights. `UsageError` for an unknown name or a batch below one.
    """
    row = model_named(name)
    if batch < 1:
        raise UsageError(f"the batch of zoo model {name!r} must be at least 1, not {batch}")
    from fusewise.zoo.net import start

    module, function = row.builder.split(".")
    builder = getattr(importlib.import_module(f"fusewise.zoo.{module}"), function)
    return cast("Graph", builder(start(name, seed=seed, decomposed=decomposed), batch))
