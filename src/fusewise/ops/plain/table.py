"""Operators that are a few calls of NumPy: what host steps run where shapes depend on data, without ONNX's evaluator.

That takes a tenth of a millisecond for a node, and a fifth of a second to import. Each row is tested against it, and where one does
not understand its operands, the evaluator is asked, so errors are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.ir.graph import Node
from fusewise.ops.plain.chance import CHANCE
from fusewise.ops.plain.classic import CLASSIC
from fusewise.ops.plain.elementwise import ELEMENTWISE
from fusewise.ops.plain.encoders import ENCODERS
from fusewise.ops.plain.machines import MACHINES
from fusewise.ops.plain.movement import MOVEMENT
from fusewise.ops.plain.picking import PICKING
from fusewise.ops.plain.products import PRODUCTS
from fusewise.ops.plain.reductions import REDUCTIONS
from fusewise.ops.plain.row import Evaluator, Other, Plain, is_number
from fusewise.ops.plain.sequences import SEQUENCES
from fusewise.ops.plain.spectra import SPECTRA
from fusewise.ops.plain.text import TEXT
from fusewise.ops.registered import REGISTERED

__all__ = ["PLAIN", "QUIET", "plain_evaluator"]

PLAIN: Mapping[tuple[str, str], Plain] = MappingProxyType(
    {
        (row.domain, row.op): row
        for rows in (
            CHANCE,
            CLASSIC,
            ELEMENTWISE,
            ENCODERS,
            MACHINES,
            MOVEMENT,
            PICKING,
            PRODUCTS,
            REDUCTIONS,
            SEQUENCES,
            SPECTRA,
            TEXT,
        )
        for row in rows
    }
)
"""By domain and operator."""

QUIET = frozenset(
    (row.domain, row.op)
    for row in PLAIN.values()
    if row in SEQUENCES
    or row in ENCODERS
    or row.op in ("Compress", "Gather", "GatherElements", "GatherND", "NonZero")
    or row.op in ("RegexFullMatch", "StringConcat", "StringSplit", "ZipMap")
)
"""Operators without arithmetic, which NumPy could warn of."""

_NOT_FOR_NUMPY = (Other, ValueError, IndexError, TypeError, AttributeError, MemoryError, OverflowError)


def plain_evaluator(node: Node, opset: int, reference: Evaluator) -> Evaluator | None:
    """`node` by NumPy, and by `reference` where operands are not for it or do not fit; None for an operator that is not here.

    `opset` is that of the node's domain.
    """
    added = REGISTERED.get(node.domain, node.op) if node.domain else None
    if added is not None and added.compute is not None:
        return _evaluator(node, added.compute(node))
    row = PLAIN.get((node.domain, node.op))
    if row is None or opset < row.since:
        return None
    compute, numbers = _evaluator(node, row.make(node)), row.numbers

    def run(*operands: Any) -> list[Any]:
        if numbers:
            for operand in operands:
                if not is_number(operand.dtype):
                    return reference(*operands)
        try:
            return compute(*operands)
        except _NOT_FOR_NUMPY:
            return reference(*operands)

    return run


def _evaluator(node: Node, compute: Callable[..., Any]) -> Evaluator:
    """A function of the operands by place, as one of those that are there."""
    present = [place for place, name in enumerate(node.inputs) if name]
    order = [present.index(place) if name else -1 for place, name in enumerate(node.inputs)]
    all_there = len(present) == len(order)

    def run(*operands: Any) -> list[Any]:
        found = compute(*(operands if all_there else [operands[k] if k >= 0 else None for k in order]))
        if isinstance(found, tuple):
            return [_whole(one) for one in found]
        return [_whole(found)]

    return run


def _whole(value: Any) -> Any:
    """NumPy hands back scalars for tensors without dimensions."""
    return np.asarray(value) if isinstance(value, np.generic) else value
