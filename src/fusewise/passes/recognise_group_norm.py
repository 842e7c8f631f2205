"""Find group normalisation that was written out (Wu and He, ECCV 2018). Numeric class reassociating.

Exporters write it as instance normalisation of a tensor whose channels a Reshape has put into groups. The Reshape fixes the order
of elements in memory: as one operator the normalisation takes any layout, and so do the convolutions around it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, Find, LocalRule, rebuilt, sweep
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


def _between_reshapes(edit: Edit, node: Node) -> Change | None:
    norm = edit.sole(node.inputs[0], "InstanceNormalization")
    grouping = None if norm is None else edit.sole(norm.inputs[0], "Reshape")
    if norm is None or grouping is None or not edit.same_type(grouping.inputs[0], node.outputs[0]):
        return None
    kind, grouped = edit.static(node.outputs[0]), edit.static(norm.inputs[0])
    scale, bias = edit.operand(norm, 1), edit.operand(norm, 2)
    if kind is None or grouped is None or scale is None or bias is None or kind.rank < 3 or not kind.size:
        return None
    samples, channels, groups = kind.dims[0], kind.dims[1], grouped.dims[1]
    if grouped.dims[0] != samples or channels % groups:
        return None
    names = [
        edit.constant(np.repeat(per_group, channels // groups), f"{norm.label}_{what}")
        for per_group, what in ((scale, "scale"), (bias, "bias"))
    ]
    epsilon = norm.attribute("epsilon", 1e-5)
    new = rebuilt(node, "GroupNormalization", (grouping.inputs[0], *names), num_groups=groups, epsilon=epsilon)
    return Change((grouping, norm, node), "written out", (new,))


def _takes(change: Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> Find:
    """A constant per channel behind a group normalisation; `change(scale, bias, constant)` gives its new scale and bias."""

    def find(edit: Edit, node: Node) -> Change | None:
        for value, other in (node.inputs, node.inputs[::-1]):
            norm = edit.sole(value, "GroupNormalization")
            kind, per_channel = edit.static(value), edit.array(other)
            if norm is None or kind is None or per_channel is None or not edit.same_type(value, node.outputs[0]):
                continue
            scale, bias = edit.operand(norm, 1), edit.operand(norm, 2)
            spread = (1,) * (kind.rank - per_channel.ndim) + per_channel.shape
            if scale is None or bias is None or any(size != 1 for k, size in enumerate(spread) if k != 1):
                continue
            new = change(scale, bias, per_channel.reshape(-1))
            names = [
                edit.constant(array, f"{node.label}_{what}") for array, what in zip(new, ("scale", "bias"), strict=True)
            ]
            merged = Node(norm.op, (norm.inputs[0], *names), node.outputs, norm.attributes, name=node.name)
            return Change((norm, node), "constant per channel", (merged,))
        return None

    return find


RULES: tuple[LocalRule, ...] = (
    LocalRule("recognise-group-norm", ("Reshape",), _between_reshapes),
    LocalRule("group-norm-takes-scale", ("Mul",), _takes(lambda scale, bias, c: (scale * c, bias * c))),
    LocalRule("group-norm-takes-bias", ("Add",), _takes(lambda scale, bias, c: (scale, bias + c))),
)
