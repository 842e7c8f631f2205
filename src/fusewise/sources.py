"""Models as users name them: a path, or one that is made here, `zoo:NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from fusewise.ir.graph import Graph

__all__ = ["ZOO", "made_here", "name_of"]

ZOO = "zoo:"
"""How names of models begin that are made here."""

_Model = TypeVar("_Model")


def made_here(model: _Model) -> _Model | Graph:
    """A model of the zoo, by name, as its graph; everything else as it is."""
    if isinstance(model, str) and model.startswith(ZOO):
        from fusewise.zoo import catalogue

        return catalogue.build(model.removeprefix(ZOO))
    return model


def name_of(model: object, graph: Graph) -> str:
    """What people call a model: as it was given, or as its graph is called."""
    return str(model) if isinstance(model, str | Path) else graph.name
