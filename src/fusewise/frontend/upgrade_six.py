"""Operators of opset 6 in terms of opset 7: the step before `upgrade`.

Until opset 6 a small operand was lined up with a large one by the attributes `broadcast` and `axis`; since then by the rule
of NumPy. PyTorch's first exporter wrote such models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fusewise.errors import InvalidModel, UnsupportedModel
from fusewise.frontend.upgrade import OLDEST_OPSET, UpgradeSite, step
from fusewise.frontend.upgrade import upgraded as upgraded_from_seven
from fusewise.ir.graph import Node
from fusewise.ir.types import TensorType

__all__ = ["SIX", "upgraded"]


def upgraded(node: Node, version: int, site: UpgradeSite) -> list[Node]:
    """The nodes of the pinned opset that do what `node` does in opset `version`. Their origin is the node's."""
    adapt = SIX.get(node.op) if version < OLDEST_OPSET and not node.domain else None
    if adapt is None:
        return upgraded_from_seven(node, version, site)
    *before, last = adapt(node, site)
    return [*before, *upgraded_from_seven(last, OLDEST_OPSET, site)]


def lined_up(node: Node, site: UpgradeSite) -> list[Node]:
    """The second operand starts at dimension `axis` of the first, by default so that both end together.

    y = Add(x, b, broadcast=1, axis=1)   ->   c = Unsqueeze(b, [1, 2]); y = Add(x, c)      for x [n, c, h, w], b [c]
    """
    plain = node.with_attributes(broadcast=None, axis=None)
    axis = node.attribute("axis")
    if not node.attribute("broadcast", 0) or axis is None:
        return [plain]
    large, small = _rank(node, site, 0), _rank(node, site, 1)
    if not -large <= axis < max(large, 1):
        raise InvalidModel(
            f"node {node.label!r} ({node.op}) has the axis {axis}, but its first operand {large} dimensions"
        )
    return _with_trailing_ones(plain, site, small, large - (axis % large if large else 0) - small)


def slope(node: Node, site: UpgradeSite) -> list[Node]:
    """A slope for each channel is along dimension 1, not the last."""
    small = _rank(node, site, 1)
    dims = _shape(node, site, 1)
    if small != 1 or dims == (1,):
        return [node]
    return _with_trailing_ones(node, site, small, _rank(node, site, 0) - 2)


def batch_normalization(node: Node, site: UpgradeSite) -> list[Node]:
    """`is_test` told inference from training."""
    if not node.attribute("is_test", 0):
        raise UnsupportedModel(
            f"node {node.label!r} (BatchNormalization) of opset 6 is in training mode; export it again with is_test=1"
        )
    return [node.with_attributes(is_test=None)]


def upsample(node: Node, site: UpgradeSite) -> list[Node]:
    """Scales were given for height and width alone."""
    scales = [1.0, 1.0, float(node.attribute("height_scale")), float(node.attribute("width_scale"))]
    return [node.with_attributes(height_scale=None, width_scale=None, scales=scales)]


def without(*names: str) -> Callable[[Node, UpgradeSite], list[Node]]:
    """Attributes that mean nothing to inference."""
    dropped: dict[str, None] = dict.fromkeys(names)
    return lambda node, site: [node.with_attributes(**dropped)]


def _shape(node: Node, site: UpgradeSite, position: int) -> tuple[object, ...]:
    kind = site.type_of(node.inputs[position])
    if not isinstance(kind, TensorType) or kind.shape is None:
        raise UnsupportedModel(
            f"node {node.label!r} ({node.op}) of opset 6: the rank of operand {position} is not known"
        )
    return kind.shape


def _rank(node: Node, site: UpgradeSite, position: int) -> int:
    return len(_shape(node, site, position))


def _with_trailing_ones(node: Node, site: UpgradeSite, rank: int, count: int) -> list[Node]:
    """The node with `count` dimensions of 1 appended to its second operand of rank `rank`."""
    if count <= 0:
        return [node]
    axes = site.constant(np.arange(rank, rank + count), f"{node.label}_axes")
    wide = step(node, site, "Unsqueeze", node.inputs[1], axes)
    return [wide, replace(node, inputs=(node.inputs[0], wide.outputs[0]))]


SIX: dict[str, Callable[[Node, UpgradeSite], list[Node]]] = {
    "Add": lined_up,
    "And": lined_up,
    "AveragePool": without(),
    "BatchNormalization": batch_normalization,
    "Div": lined_up,
    "Dropout": without("is_test"),
    "Equal": lined_up,
    "GRU": without("output_sequence"),
    "Gemm": without("broadcast"),
    "Greater": lined_up,
    "LSTM": without("output_sequence"),
    "Less": lined_up,
    "Mul": lined_up,
    "Or": lined_up,
    "PRelu": slope,
    "Pow": lined_up,
    "RNN": without("output_sequence"),
    "Sub": lined_up,
    "Upsample": upsample,
    "Xor": lined_up,
}
"""Every operator that opset 7 changed."""
