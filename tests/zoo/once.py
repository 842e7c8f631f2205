"""Architectures of the zoo, but for those that only have the layers of another one more often."""

from __future__ import annotations

from fusewise.zoo.catalogue import MODELS

__all__ = ["ONCE"]

DEEPER = frozenset({"resnet34", "resnet101", "resnet152"})

ONCE = tuple(row.name for row in MODELS if row.name not in DEEPER)
"""For what is asked of every kind of layer, not of every network."""
