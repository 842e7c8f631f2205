"""Every decomposition: special operators, which CanonicalizeOps writes out, normalisations, which SimplifyInference does,
attention, which only gradients are taken through, and what is always written out for native code."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusewise.ir.graph import Node
from fusewise.passes.decompositions.activations import ACTIVATIONS
from fusewise.passes.decompositions.attention import ATTENTION
from fusewise.passes.decompositions.bodies import BODIES
from fusewise.passes.decompositions.classic import CLASSIC, CLASSIC_DOMAIN
from fusewise.passes.decompositions.forests import FORESTS
from fusewise.passes.decompositions.grams import GRAMS
from fusewise.passes.decompositions.integers import INTEGERS
from fusewise.passes.decompositions.losses import LOSSES
from fusewise.passes.decompositions.movement import MOVEMENT
from fusewise.passes.decompositions.norms import NORMS
from fusewise.passes.decompositions.optionals import OPTIONALS
from fusewise.passes.decompositions.products import PRODUCTS
from fusewise.passes.decompositions.quantized import QUANTIZED
from fusewise.passes.decompositions.recurrences import RECURRENCES
from fusewise.passes.decompositions.reductions import REDUCTIONS
from fusewise.passes.decompositions.row import Decomposition
from fusewise.passes.decompositions.sampled import SAMPLED
from fusewise.passes.decompositions.stateful import STATEFUL
from fusewise.passes.decompositions.transforms import TRANSFORMS
from fusewise.passes.decompositions.whole_attention import WHOLE_ATTENTION

__all__ = ["DECOMPOSITIONS", "NATIVE", "NORMS", "SPECIAL", "UNDEFINED", "decomposition_of"]

SPECIAL: tuple[Decomposition, ...] = (*ACTIVATIONS, *MOVEMENT, *PRODUCTS, *REDUCTIONS)
"""Operators that are others in a row under one name."""

NATIVE: tuple[Decomposition, ...] = (*QUANTIZED, *INTEGERS, *SAMPLED, *TRANSFORMS, *LOSSES, *RECURRENCES)
"""Operators that native code runs as others, having none of its own for them, or slower one."""

DECOMPOSITIONS: Mapping[str, Decomposition] = MappingProxyType({row.op: row for row in (*SPECIAL, *NORMS, *ATTENTION)})

UNDEFINED: Mapping[str, Decomposition] = MappingProxyType(
    {row.op: row for row in (*WHOLE_ATTENTION, *STATEFUL, *BODIES, *OPTIONALS, *GRAMS)}
    | {f"{CLASSIC_DOMAIN}.{row.op}": row for row in (*CLASSIC, *FORESTS)}
)
"""How operators run natively that code has no definition for, or not with all of their options; those of another domain as
`domain.Name`."""


def decomposition_of(node: Node) -> Decomposition | None:
    """The row of a node's operator, if there is one."""
    return None if node.domain else DECOMPOSITIONS.get(node.op)
