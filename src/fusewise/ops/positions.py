"""Positions in the operands of nodes that run on the host: which operand holds them, and what they may be.

Evaluators take some that are out of bounds for others; they are looked at before, so that every way to run a node refuses the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.errors import InvalidData
from fusewise.ir.graph import Node
from fusewise.ops.grids import FARTHEST

__all__ = ["check_positions", "holds_positions", "refuses_itself"]

Operands = Sequence[Any]

Positions = tuple[int, np.ndarray, Any, Any]
"""The operand, what it holds, and the least and the largest allowed: numbers, or arrays that broadcast."""


def holds_positions(node: Node) -> bool:
    """Does an operand of the node hold positions that are looked at?"""
    return not node.domain and node.op in _RULES


def refuses_itself(node: Node) -> bool:
    """Does whatever evaluates the node on the host refuse the same positions as `check_positions`, so that this need only be asked
    what is wrong? It goes over them twice, which takes longer than a small Gather."""
    return not node.domain and node.op == "Gather"


def check_positions(node: Node, operands: Operands) -> None:
    """Raise `InvalidData` when an operand of the node holds a position that is out of bounds; None stands for absent ones."""
    rule = _RULES.get(node.op) if not node.domain else None
    if rule is None:
        return
    try:
        operand, found, low, high = rule(node, operands)
    except (AttributeError, IndexError, TypeError, ValueError):
        return  # shapes that do not fit are the evaluator's to refuse
    if not found.size or (isinstance(low, int) and low <= found.min() and found.max() <= high):
        return  # the usual case, without arrays of that size
    wrong = (found < low) | (found > high)
    if not wrong.any():
        return
    at = tuple(np.argwhere(wrong)[0].tolist())
    least, most = (int(np.broadcast_to(bound, found.shape)[at]) for bound in (low, high))
    allowed = f"only {least} to {most} are allowed" if least <= most else "there is nothing to choose from"
    raise InvalidData(
        f"node {node.label!r} ({node.op}) finds {int(found[at])} in its operand {node.inputs[operand]!r}, where {allowed}: "
        "check the data"
    )


def _along_axis(node: Node, operands: Operands) -> Positions:
    extent = operands[0].shape[node.attribute("axis", 0)]
    return 1, operands[1], -extent, extent - 1


def _in_every_axis(node: Node, operands: Operands) -> Positions:
    """The last axis of the indices has a position for each of so many axes of the data."""
    batch = node.attribute("batch_dims", 0)
    shape = operands[0].shape[batch : batch + operands[1].shape[-1]]
    extents = shape[0] if len(shape) == 1 else np.array(shape, np.int64)
    return 1, operands[1], -extents, extents - 1


def _in_classes(node: Node, operands: Operands) -> Positions:
    ignored, classes = node.attribute("ignore_index"), operands[0].shape[1]
    target = operands[1]
    return 1, target if ignored is None else np.where(target == ignored, 0, target), 0, classes - 1


def _of_images(node: Node, operands: Operands) -> Positions:
    return 2, operands[2], 0, len(operands[0]) - 1


def _of_boxes(node: Node, operands: Operands) -> Positions:
    """The first number of each box is the image it lies in."""
    images = operands[1][:, 0]
    return 1, np.where(np.abs(images) < FARTHEST, np.trunc(images), -1), 0, len(operands[0]) - 1


def _lengths(node: Node, operands: Operands) -> Positions:
    return 1, operands[1], 0, operands[0].shape[node.attribute("time_axis", 0)]


def _cache_rows(node: Node, operands: Operands) -> Positions:
    return 3, operands[3], 0, len(operands[1]) - 1


def _kept(node: Node, operands: Operands) -> Positions:
    return 1, operands[1], 0, operands[0].shape[node.attribute("axis", -1)]


def _size(node: Node, operands: Operands) -> Positions:
    return 0, np.atleast_1d(operands[0]), 0, 2**62


_RULES: Mapping[str, Callable[[Node, Operands], Positions]] = MappingProxyType(
    {
        "BlackmanWindow": _size,
        "Gather": _along_axis,
        "GatherElements": _along_axis,
        "GatherND": _in_every_axis,
        "HammingWindow": _size,
        "HannWindow": _size,
        "MaxRoiPool": _of_boxes,
        "NegativeLogLikelihoodLoss": _in_classes,
        "ReverseSequence": _lengths,
        "RoiAlign": _of_images,
        "RotaryEmbedding": _cache_rows,
        "Scatter": _along_axis,
        "ScatterElements": _along_axis,
        "ScatterND": _in_every_axis,
        "SoftmaxCrossEntropyLoss": _in_classes,
        "TopK": _kept,
    }
)
