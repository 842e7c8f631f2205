"""Find group normalisation that was written out (Wu and He, ECCV 2018). Numeric class reassociating.

Exporters write it as instance normalisation of a tensor whose channels a Reshape has put into groups. The Reshape fixes the order
of elements in memory: as one operator the normalisation takes any layout, and so do the convolutions around it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, LocalRule, looking_for, rebuilt, sweep
from fusewise.rewrite.match import Occurrence
from fusewise.trace import Trace

__all__ = ["recognise_group_norm"]

_FIRST_OPSET = 21
"""Before it GroupNormalization had a scale per group."""


def recognise_group_norm(graph: Graph, trace: Trace) -> Graph:
    """Instance normalisation between two Reshapes, with a factor and a sum per channel behind it, becomes one node.

    r = InstanceNormalization(Reshape(x, [0, groups, -1]), ones, zeros)
    y = Add(Mul(Reshape(r, shape of x), scale), bias)            ->   y = GroupNormalization(x, scale, bias) {num_groups}

    Refused: the shape behind is not that in front, groups are not runs of channels, scales or biases are not constant, or
    someone else reads an inner value.
    """
    return sweep(graph, trace, RULES) if graph.opset >= _FIRST_OPSET else graph


def _reshaped(g: Any, x: Any, groups: Any, scale: Any, bias: Any, shape: Any) -> Any:
    norm = g.InstanceNormalization(g.Reshape(x, groups, like="grouping"), scale, bias, like="norm")
    return g.Reshape(norm, shape, like="back")


def _between_reshapes(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    norm, x = found.like["norm"], found.value("x")
    if not edit.same_type(x, node.outputs[0]):
        return None
    kind, grouped = edit.static(node.outputs[0]), edit.static(norm.inputs[0])
    scale, bias = edit.operand(norm, 1), edit.operand(norm, 2)
    if kind is None or grouped is None or scale is None or bias is None or kind.rank < 3 or not kind.size:
        return None
    samples, channels, groups = kind.dims[0], kind.dims[1], grouped.dims[1]
    if not isinstance(channels, int) or not isinstance(groups, int):
        return None
    if grouped.dims[0] != samples or channels % groups:
        return None
    names = [
        edit.constant(np.repeat(per_group, channels // groups), f"{norm.label}_{what}")
        for per_group, what in ((scale, "scale"), (bias, "bias"))
    ]
    epsilon = norm.attribute("epsilon", 1e-5)
    new = rebuilt(node, "GroupNormalization", (x, *names), num_groups=groups, epsilon=epsilon)
    return Change(edit.covered(found, node), "written out", (new,))


def _takes(
    name: str, op: str, change: Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
) -> LocalRule:
    """A constant per channel behind a group normalisation; `change(scale, bias, constant)` gives its new scale and bias."""

    def before(g: Any, x: Any, scale: Any, bias: Any, constant: Any) -> Any:
        return getattr(g, op)(g.GroupNormalization(x, scale, bias, like="norm"), constant)

    def taken(edit: Edit, node: Node, found: Occurrence) -> Change | None:
        norm = found.like["norm"]
        kind, per_channel = edit.static(norm.outputs[0]), edit.array(found.value("constant"))
        if kind is None or per_channel is None or not edit.same_type(norm.outputs[0], node.outputs[0]):
            return None
        scale, bias = edit.operand(norm, 1), edit.operand(norm, 2)
        spread = (1,) * (kind.rank - per_channel.ndim) + per_channel.shape
        if scale is None or bias is None or any(size != 1 for k, size in enumerate(spread) if k != 1):
            return None
        new = change(scale, bias, per_channel.reshape(-1))
        names = [
            edit.constant(array, f"{node.label}_{what}") for array, what in zip(new, ("scale", "bias"), strict=True)
        ]
        merged = Node(norm.op, (norm.inputs[0], *names), node.outputs, norm.attributes, name=node.name)
        return Change((norm, node), "constant per channel", (merged,))

    return looking_for(name, before, taken)


RULES: tuple[LocalRule, ...] = (
    looking_for("recognise-group-norm", _reshaped, _between_reshapes),
    _takes("group-norm-takes-scale", "Mul", lambda scale, bias, c: (scale * c, bias * c)),
    _takes("group-norm-takes-bias", "Add", lambda scale, bias, c: (scale, bias + c)),
)
