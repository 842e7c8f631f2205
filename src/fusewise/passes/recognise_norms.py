"""Find layer and RMS normalisation that were written out, and write them as one operator. Numeric class reassociating.

First the core without scale and bias, then factors and sums behind it are taken in one by one, so a normalisation with
neither, one or both is the same few rules.

    x - mean(x)                       x
    -------------------------         -----------------------
    sqrt(mean((x - mean(x))^2) + e)   sqrt(mean(x^2) + e)

Layer normalisation: Ba et al., 2016. RMS normalisation: Zhang and Sennrich, NeurIPS 2019.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, LocalRule, looking_for, rebuilt, sweep
from fusewise.rewrite.match import Occurrence
from fusewise.rewrite.pattern import Term
from fusewise.trace import Trace

__all__ = ["RULES", "recognise_norms"]


def recognise_norms(graph: Graph, trace: Trace) -> Graph:
    """Normalisation over the last axes, as older exporters wrote it, becomes one node.

    d = Sub(x, ReduceMean(x, [-1])); v = ReduceMean(Pow(d, 2), [-1])
    y = Add(Mul(Div(d, Sqrt(Add(v, e))), scale), bias)                  ->   y = LayerNormalization(x, scale, bias)

    Refused: the axes are not the last ones or were dropped, the two means differ, or someone else reads an inner value.
    """
    return sweep(graph, trace, tuple(rule for since, rule in RULES if graph.opset >= since))


def _root_mean_square(g: Any, x: Term, epsilon: Term, axes: Term) -> Any:
    return g.Sqrt(g.ReduceMean(g.Pow(x, 2) | x * x, axes, like="squares") + epsilon)


def _over(g: Any, x: Term, root: Any) -> Any:
    return x / root | x * (g.Reciprocal(root) | 1 / root)


def _layer(g: Any, x: Any, axes: Term, epsilon: Term, again: Term) -> Any:
    """The division of the centred by its deviation."""
    centred = x - g.ReduceMean(x, axes, like="mean", shared=True)
    return _over(g, centred, _root_mean_square(g, centred, epsilon, again))


def _rms(g: Any, x: Any, axes: Term, epsilon: Term) -> Any:
    """The division of x by its root mean square."""
    return _over(g, x, _root_mean_square(g, x, epsilon, axes))


def _scaled(g: Any, x: Any, scale: Any, bias: Any, axes: Term, epsilon: Term, again: Term) -> Any:
    """x * slope + (bias - mean * slope), slope = scale / deviation: batch normalisation's formula, as TensorFlow has it."""
    mean = g.ReduceMean(x, axes, like="mean", shared=True)
    slope = scale * g.Reciprocal(_root_mean_square(g, x - mean, epsilon, again))
    return x * slope + (bias - mean * slope)


def _epsilon(edit: Edit, found: Occurrence) -> float | None:
    epsilon = edit.scalar(found.value("epsilon"))
    return None if epsilon is None or epsilon < 0 else epsilon


def _last_axes(edit: Edit, mean: Node) -> int | None:
    """How many axes, all of them last and kept as ones, a ReduceMean goes over; None for any other."""
    kind, axes = edit.static(mean.inputs[0]), edit.operand(mean, 1)
    if kind is None or axes is None or not axes.size or not mean.attribute("keepdims", 1):
        return None
    found = sorted(int(axis) % kind.rank for axis in axes.reshape(-1))
    return len(found) if found == list(range(kind.rank - len(found), kind.rank)) else None


def _axes_of_both(edit: Edit, found: Occurrence) -> int | None:
    """Over how many axes both means of a layer normalisation go; None when they differ."""
    axes = _last_axes(edit, found.like["squares"])
    return axes if _last_axes(edit, found.like["mean"]) == axes else None


def _layer_norm(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    return _normalised(edit, node, "LayerNormalization", found, _axes_of_both(edit, found))


def _rms_norm(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    return _normalised(edit, node, "RMSNormalization", found, _last_axes(edit, found.like["squares"]))


def _scaled_norm(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    axes, epsilon = _axes_of_both(edit, found), _epsilon(edit, found)
    x, scale, bias = map(found.value, ("x", "scale", "bias"))
    if axes is None or epsilon is None or not edit.same_type(x, node.outputs[0]):
        return None
    if not (_fits_norm(edit, x, axes, scale) and _fits_norm(edit, x, axes, bias)):
        return None
    new = rebuilt(node, "LayerNormalization", (x, scale, bias), axis=-axes, epsilon=epsilon)
    return Change(edit.covered(found, node), "written out", (new,))


def _fits_norm(edit: Edit, x: str, axes: int, operand: str) -> bool:
    """Is a constant of the shape of the last axes?"""
    kind, own = edit.static(x), edit.static(operand)
    if kind is None or own is None or operand not in edit.constants:
        return False
    return kind.dtype == own.dtype == FLOAT32 and own.dims == kind.dims[kind.rank - axes :]


def _normalised(edit: Edit, node: Node, op: str, found: Occurrence, axes: int | None) -> Change | None:
    x, epsilon = found.value("x"), _epsilon(edit, found)
    kind = edit.static(x)
    if axes is None or epsilon is None or kind is None or kind.dtype != FLOAT32:
        return None
    if not edit.same_type(x, node.outputs[0]) or not all(isinstance(n, int) for n in kind.dims[kind.rank - axes :]):
        return None
    ones = edit.constant(np.ones(kind.dims[kind.rank - axes :], dtype=np.float32), f"{node.label}_scale")
    new = rebuilt(node, op, (x, ones), axis=-axes, epsilon=epsilon)
    return Change(edit.covered(found, node), "written out", (new,))


def _normalised_shape(edit: Edit, norm: Node) -> tuple[int, ...]:
    kind = edit.static(norm.inputs[0])
    return () if kind is None else kind.dims[norm.attribute("axis", -1) % kind.rank :]


def _take_scale(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    """A factor behind a normalisation whose own scale is one."""
    norm, factor = found.like["norm"], found.value("factor")
    kind = edit.static(factor)
    if kind is None or not edit.same_type(norm.outputs[0], node.outputs[0]):
        return None
    if kind.dims != _normalised_shape(edit, norm) or kind.dtype != FLOAT32:
        return None
    new = Node(norm.op, (norm.inputs[0], factor), node.outputs, norm.attributes, name=node.name)
    return Change((norm, node), "its scale was one", (new,))


def _take_bias(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    """A sum behind a layer normalisation without a bias."""
    norm, bias = found.like["norm"], found.value("bias")
    kind = edit.static(bias)
    if kind is None or kind.dims != _normalised_shape(edit, norm) or kind.dtype != FLOAT32:
        return None
    if bias not in edit.constants or not edit.same_type(norm.outputs[0], node.outputs[0]):
        return None
    new = Node(norm.op, (*norm.inputs, bias), node.outputs, norm.attributes, name=node.name)
    return Change((norm, node), "it had no bias", (new,))


_NORMS = ("LayerNormalization", "RMSNormalization")

RULES: tuple[tuple[int, LocalRule], ...] = (
    (17, looking_for("recognise-layer-norm", _layer, _layer_norm)),
    (17, looking_for("recognise-scaled-norm", _scaled, _scaled_norm)),
    (23, looking_for("recognise-rms-norm", _rms, _rms_norm)),
    (
        17,
        looking_for("norm-takes-scale", lambda g, x, factor: g.one_of(_NORMS, x, 1, like="norm") * factor, _take_scale),
    ),
    (
        17,
        looking_for(
            "norm-takes-bias",
            lambda g, x, scale, bias: g.LayerNormalization(x, scale, like="norm") + bias,
            _take_bias,
        ),
    ),
)
"""Each rule with the first opset that has the operator it writes; a layer normalisation is tried before an RMS one."""
