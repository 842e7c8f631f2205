"""Batch normalisations that no convolution stands before or behind, folded into a convolution beside them where that is legal.

RepVGG's blocks add up Conv(x, w), Conv(x, v) and BatchNormalization(x). The clean-up makes a product and a sum of the latter; an
accelerator would carry their weights. A product by channel is a convolution with one tap, and convolutions of the same input add
up to one; so the slope goes onto the middle tap of a convolution in the sum, and the shift into the bias of any.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fusewise.ir.dtypes import FLOAT32, FLOAT64
from fusewise.ir.graph import Graph, LazyConstant, Node
from fusewise.passes.channels import Affine, per_channel, scaled
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.trace import Trace

__all__ = ["fold_lone_norms", "lone_norms"]


def fold_lone_norms(graph: Graph, trace: Trace) -> Graph:
    """Products and shifts by channel in a sum go into the weights of a convolution in the same sum. Reassociating.

    Add(Conv(x, w, b), Add(Mul(x, slope), shift))   ->   Conv(x, w', b')

    Refused for the slope: the convolution reads something else, changes the size or the channels, or has no middle tap.
    """
    return sweep(graph, trace, (LocalRule("lone-norm-into-convolution", ("Add",), _into_sibling),))


def lone_norms(graph: Graph, prepared: Graph) -> tuple[str, ...]:
    """The batch normalisations of a graph that still are a product of their own once it is prepared."""
    norms = {node.name for node in graph.nodes if node.op == "BatchNormalization" and node.name}
    left = (name for node in prepared.nodes if node.op == "Mul" for name in node.origin if name in norms)
    return tuple(dict.fromkeys(left))


class _Terms(NamedTuple):
    """What a sum of images adds up: the values, shifts by channel, and the Adds it is made of, the last first."""

    values: list[str]
    shifts: list[np.ndarray]
    adds: list[Node]


def _into_sibling(edit: Edit, node: Node) -> Change | None:
    terms = _terms(edit, node)
    if terms is None:
        return None
    convolutions = [conv for value in terms.values if (conv := edit.sole(value, "Conv")) is not None]
    for value in terms.values:
        product = edit.sole(value, "Mul")
        scale = None if product is None else _slope(edit, product)
        if product is None or scale is None:
            continue
        for conv in convolutions:
            if conv.inputs[0] == scale[0] and (merged := _with_slope(edit, conv, scale[1])) is not None:
                return _summed(edit, node, terms, conv, merged, product)
    if terms.shifts and convolutions:
        return _summed(edit, node, terms, convolutions[0], convolutions[0], None)
    return None


def _terms(edit: Edit, node: Node) -> _Terms | None:
    """The sum that ends in `node`, whose Adds nobody else reads; None for one that is not of images of one size and shifts by
    channel."""
    kind = edit.static(node.outputs[0])
    if kind is None or kind.rank < 3 or not isinstance(kind.dims[1], int):
        return None
    found, waiting = _Terms([], [], []), [node]
    while waiting:
        add = waiting.pop()
        found.adds.append(add)
        for value in reversed(add.inputs):
            shift = per_channel(edit.array(value), 1 - kind.rank, kind.dims[1])
            inner = edit.sole(value, "Add")
            if shift is not None:
                found.shifts.append(shift)
            elif not edit.same_type(value, node.outputs[0]):
                return None
            elif inner is not None:
                waiting.append(inner)
            else:
                found.values.append(value)
    return found


def _slope(edit: Edit, product: Node) -> tuple[str, np.ndarray] | None:
    """What a product by channel scales, and by how much, float64 [channels] or [1]."""
    kind = edit.static(product.outputs[0])
    if kind is None:
        return None
    for value, factor in (product.inputs, product.inputs[::-1]):
        slope = per_channel(edit.array(factor), 1 - kind.rank, int(kind.dims[1]))
        if slope is not None and edit.same_type(value, product.outputs[0]):
            return value, slope
    return None


def _with_slope(edit: Edit, conv: Node, slope: np.ndarray) -> Node | None:
    """The convolution that adds `slope` times its input; None where it has no tap over the pixel that it computes."""
    weights, group = edit.constants.get(conv.inputs[1]), int(conv.attribute("group", 1))
    if weights is None or weights.dtype not in (FLOAT32, FLOAT64):
        return None
    outputs, inputs, *taps = weights.type.dims
    steps = conv.attribute("dilations", [1] * len(taps))
    middle = [(tap - 1) // 2 * step for tap, step in zip(taps, steps, strict=True)]
    centred = list(conv.attribute("pads", [0] * 2 * len(taps))) == [*middle, *middle]
    plain = all(step == 1 for step in conv.attribute("strides", [1] * len(taps)))
    if (
        not centred
        or not plain
        or any(tap % 2 == 0 for tap in taps)
        or conv.attribute("auto_pad", "NOTSET") != "NOTSET"
    ):
        return None
    if outputs != inputs * group:
        return None
    recipe = (id(weights), slope.tobytes(), "identity", group)
    later = LazyConstant(weights.type, lambda: _with_identity(weights.read_once(), slope), recipe)
    return conv.with_inputs((conv.inputs[0], edit.later(later, f"{conv.inputs[1]}_folded"), *conv.inputs[2:]))


def _with_identity(weights: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Weights [out, in / group, taps...] with `slope` added where an output channel meets its own input at the middle tap."""
    found = weights.astype(np.float64)
    channels = np.arange(weights.shape[0])
    middle = tuple(tap // 2 for tap in weights.shape[2:])
    found[(channels, channels % weights.shape[1], *middle)] += slope
    return found.astype(weights.dtype)


def _summed(edit: Edit, node: Node, terms: _Terms, conv: Node, merged: Node, gone: Node | None) -> Change | None:
    """The sum with `conv` in another form, which takes the shifts, and without the product that is `gone`."""
    final = scaled(edit, merged, Affine(shift=sum(terms.shifts, np.zeros(1)) if terms.shifts else None))
    if final is None:
        return None
    left = (conv, *([] if gone is None else [gone]))
    rest = [value for value in terms.values if value not in [one.outputs[0] for one in left]]
    total, kind = edit.value(f"{conv.label}_summed", edit.types[node.outputs[0]]), edit.types[node.outputs[0]]
    nodes = [replace(final, outputs=(total if rest else node.outputs[0],))]
    for add, value in zip(reversed(terms.adds[: len(rest)]), rest, strict=True):
        partial, total = total, edit.value(f"{add.label}_summed", kind)
        nodes.append(replace(add, inputs=(partial, value), outputs=(total,)))
    nodes[-1] = replace(nodes[-1], outputs=node.outputs)
    return Change((*left, *reversed(terms.adds)), "the sum holds a convolution", tuple(nodes))
