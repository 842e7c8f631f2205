"""A module with inputs, its outputs' names, and the file that PyTorch's exporter writes of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.frontend.exports import enliven

__all__ = ["Build", "exported", "picked"]


@dataclass(frozen=True)
class Build:
    """A module that takes and returns tensors, its example inputs by name, and the names of its outputs.

    A `lively` one gets weights under which activations keep their size, so that scores are not all alike and the best of them
    do not change places for a rounding.
    """

    module: torch.nn.Module
    inputs: dict[str, torch.Tensor]
    outputs: tuple[str, ...]
    lively: bool = False


def picked(model: Any, outputs: Sequence[str], inputs: Sequence[str] = ("pixel_values",)) -> torch.nn.Module:
    """A model of `transformers` as a function of positional tensors, called `inputs`, that returns some of its outputs."""

    class Picked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found = self.model(**dict(zip(inputs, given, strict=True)), return_dict=True)
            return tuple(found[name] for name in outputs)

    return Picked()


def exported(build: Build, path: Path, dynamo: bool) -> dict[str, np.ndarray]:
    """Write the model to `path`, by the exporter built on `torch.export` or the one that traces; returns example inputs."""
    module = build.module.eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if build.lively:
            enliven(module, tuple(build.inputs.values()))
        torch.onnx.export(
            module,
            tuple(build.inputs.values()),
            str(path),
            input_names=list(build.inputs),
            output_names=list(build.outputs),
            dynamo=dynamo,
            opset_version=18 if dynamo else 17,
            verbose=False,
        )
    return {name: value.numpy() for name, value in build.inputs.items()}
