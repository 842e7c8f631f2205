"""Every decomposition: special operators, which CanonicalizeOps writes out, normalisations, which SimplifyInference does, and
attention, which only gradients are taken through."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusewise.ir.graph import Node
from fusewise.passes.decompositions.activations import ACTIVATIONS
from fusewise.passes.decompositions.attention import ATTENTION
from fusewise.passes.decompositions.movement import MOVEMENT
from fusewise.passes.decompositions.norms import NORMS
from fusewise.passes.decompositions.products import PRODUCTS
from fusewise.passes.decompositions.reductions import REDUCTIONS
from fusewise.passes.decompositions.row import Decomposition

__all__ = ["DECOMPOSITIONS", "NORMS", "SPECIAL", "decomposition_of"]

SPECIAL: tuple[Decomposition, ...] = (*ACTIVATIONS, *MOVEMENT, *PRODUCTS, *REDUCTIONS)
"""Operators that are others in a row under one name."""

DECOMPOSITIONS: Mapping[str, Decomposition] = MappingProxyType({row.op: row for row in (*SPECIAL, *NORMS, *ATTENTION)})


def decomposition_of(node: Node) -> Decomposition | None:
    """The row of a node's operator, if there is one."""
    return None if node.domain else DECOMPOSITIONS.get(node.op)
