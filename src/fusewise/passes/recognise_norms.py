"""Find layer and RMS normalisation that were written out, and write them as one operator. Numeric class reassociating.

First the core without scale and bias, then factors and sums behind it are taken in one by one, so a normalisation with
neither, one or both is the same few rules.

    x - mean(x)                       x
    -------------------------         -----------------------
    sqrt(mean((x - mean(x))^2) + e)   sqrt(mean(x^2) + e)

Layer normalisation: Ba et al., 2016. RMS normalisation: Zhang and Sennrich, NeurIPS 2019.
"""

from __future__ import annotations

import numpy as np

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, LocalRule, rebuilt, sweep
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["RULES", "recognise_norms"]


def recognise_norms(graph: Graph, trace: Trace) -> Graph:
    """Normalisation over the last axes, as older exporters wrote it, becomes one node.

    d = Sub(x, ReduceMean(x, [-1])); v = ReduceMean(Pow(d, 2), [-1])
    y = Add(Mul(Div(d, Sqrt(Add(v, e))), scale), bias)                  ->   y = LayerNormalization(x, scale, bias)

    Refused: the axes are not the last ones or were dropped, the two means differ, or someone else reads an inner value.
    """
    return sweep(graph, trace, tuple(rule for since, rule in RULES if graph.opset >= since))


@record(frozen=True)
class _Root:
    """1 / sqrt(mean(squared^2) + epsilon) over the last `axes` axes, and the nodes it is written with."""

    squared: str
    epsilon: float
    axes: int
    nodes: tuple[Node, ...]


def _divided(edit: Edit, node: Node) -> tuple[str, Node, tuple[Node, ...]] | None:
    """What `node` divides, the Sqrt it divides by, and the nodes between: a / sqrt(b), or a * (1 / sqrt(b))."""
    if node.op == "Div":
        root = edit.sole(node.inputs[1], "Sqrt")
        return None if root is None else (node.inputs[0], root, ())
    for value, other in (node.inputs, node.inputs[::-1]):
        inverse = edit.sole(other, "Reciprocal", "Div")
        if inverse is None or (inverse.op == "Div" and edit.scalar(inverse.inputs[0]) != 1):
            continue
        root = edit.sole(inverse.inputs[-1], "Sqrt")
        if root is not None:
            return value, root, (inverse,)
    return None


def _root_mean_square(edit: Edit, root: Node) -> _Root | None:
    total = edit.sole(root.inputs[0], "Add")
    for i in (0, 1) if total is not None else ():
        assert total is not None
        epsilon, mean = edit.scalar(total.inputs[1 - i]), edit.sole(total.inputs[i], "ReduceMean")
        axes = None if mean is None else _last_axes(edit, mean)
        if epsilon is None or epsilon < 0 or mean is None or axes is None:
            continue
        square = edit.sole(mean.inputs[0], "Pow", "Mul")
        if square is None:
            continue
        by_power = square.op == "Pow" and edit.scalar(square.inputs[1]) == 2
        if by_power or (square.op == "Mul" and square.inputs[0] == square.inputs[1]):
            return _Root(square.inputs[0], epsilon, axes, (square, mean, total, root))
    return None


def _last_axes(edit: Edit, mean: Node) -> int | None:
    """How many axes, all of them last and kept as ones, a ReduceMean goes over; None for any other."""
    kind, axes = edit.static(mean.inputs[0]), edit.operand(mean, 1)
    if kind is None or axes is None or not axes.size or not mean.attribute("keepdims", 1):
        return None
    found = sorted(int(axis) % kind.rank for axis in axes.reshape(-1))
    return len(found) if found == list(range(kind.rank - len(found), kind.rank)) else None


def _layer_core(edit: Edit, node: Node) -> Change | None:
    """The division of the centred by its deviation."""
    parts = _divided(edit, node)
    found = None if parts is None else _root_mean_square(edit, parts[1])
    if parts is None or found is None or found.squared != parts[0]:
        return None
    centred = edit.made_by(parts[0], "Sub")
    mean = None if centred is None else edit.made_by(centred.inputs[1], "ReduceMean")
    if centred is None or mean is None or mean.inputs[0] != centred.inputs[0] or _last_axes(edit, mean) != found.axes:
        return None
    if edit.is_output(parts[0]) or edit.reads(parts[0]) != 1 + _reads_of_square(found):
        return None
    x = centred.inputs[0]
    return _normalised(edit, node, "LayerNormalization", x, found, (mean, centred, *found.nodes, *parts[2]))


def _scaled_norm(edit: Edit, node: Node) -> Change | None:
    """x * slope + (bias - mean * slope), slope = scale / deviation: batch normalisation's formula, as TensorFlow has it."""
    for first, second in (node.inputs, node.inputs[::-1]):
        product, shift = edit.sole(first, "Mul"), edit.sole(second, "Sub")
        back = None if shift is None else edit.sole(shift.inputs[1], "Mul")
        if product is None or shift is None or back is None:
            continue
        for x, slope in (product.inputs, product.inputs[::-1]):
            change = _from_slope(edit, node, (product, back, shift), x, slope)
            if change is not None:
                return change
    return None


def _from_slope(edit: Edit, node: Node, around: tuple[Node, Node, Node], x: str, slope: str) -> Change | None:
    product, back, shift = around
    scaled = edit.made_by(slope, "Mul")
    if scaled is None or back.inputs.count(slope) != 1 or edit.reads(slope) != 2 or edit.is_output(slope):
        return None
    mean = edit.made_by(next(value for value in back.inputs if value != slope), "ReduceMean")
    for inverse, scale in (scaled.inputs, scaled.inputs[::-1]):
        reciprocal = edit.sole(inverse, "Reciprocal")
        root = None if reciprocal is None else edit.sole(reciprocal.inputs[0], "Sqrt")
        found = None if root is None else _root_mean_square(edit, root)
        centred = None if found is None else edit.made_by(found.squared, "Sub")
        if mean is None or reciprocal is None or found is None or centred is None:
            continue
        if centred.inputs != (x, mean.outputs[0]) or mean.inputs[0] != x or _last_axes(edit, mean) != found.axes:
            continue
        if edit.is_output(found.squared) or edit.reads(found.squared) != _reads_of_square(found):
            continue
        bias = shift.inputs[0]
        if _fits_norm(edit, x, found.axes, scale) and _fits_norm(edit, x, found.axes, bias):
            matched = (mean, centred, *found.nodes, reciprocal, scaled, product, back, shift, node)
            new = rebuilt(node, "LayerNormalization", (x, scale, bias), axis=-found.axes, epsilon=found.epsilon)
            return Change(matched, "written out", (new,)) if edit.same_type(x, node.outputs[0]) else None
    return None


def _fits_norm(edit: Edit, x: str, axes: int, operand: str) -> bool:
    """Is a constant of the shape of the last axes?"""
    kind, own = edit.static(x), edit.static(operand)
    if kind is None or own is None or operand not in edit.constants:
        return False
    return kind.dtype == own.dtype == FLOAT32 and own.dims == kind.dims[kind.rank - axes :]


def _rms_core(edit: Edit, node: Node) -> Change | None:
    """The division of x by its root mean square."""
    parts = _divided(edit, node)
    found = None if parts is None else _root_mean_square(edit, parts[1])
    if parts is None or found is None or found.squared != parts[0]:
        return None
    return _normalised(edit, node, "RMSNormalization", parts[0], found, (*found.nodes, *parts[2]))


def _reads_of_square(found: _Root) -> int:
    return 2 if found.nodes[0].op == "Mul" else 1


def _normalised(edit: Edit, node: Node, op: str, x: str, found: _Root, matched: tuple[Node, ...]) -> Change | None:
    kind = edit.static(x)
    if kind is None or kind.dtype != FLOAT32 or not edit.same_type(x, node.outputs[0]):
        return None
    ones = edit.constant(np.ones(kind.dims[kind.rank - found.axes :], dtype=np.float32), f"{node.label}_scale")
    new = rebuilt(node, op, (x, ones), axis=-found.axes, epsilon=found.epsilon)
    return Change((*matched, node), "written out", (new,))


def _normalised_shape(edit: Edit, norm: Node) -> tuple[int, ...]:
    kind = edit.static(norm.inputs[0])
    return () if kind is None else kind.dims[norm.attribute("axis", -1) % kind.rank :]


def _take_scale(edit: Edit, node: Node) -> Change | None:
    """A factor behind a normalisation whose own scale is one."""
    for value, factor in (node.inputs, node.inputs[::-1]):
        norm = edit.sole(value, "LayerNormalization", "RMSNormalization")
        if norm is None or len(norm.inputs) != 2 or len(norm.writes) != 1:
            continue
        own, kind = edit.operand(norm, 1), edit.static(factor)
        if own is None or not np.all(own == 1) or kind is None or not edit.same_type(value, node.outputs[0]):
            continue
        if kind.dims == _normalised_shape(edit, norm) and kind.dtype == FLOAT32:
            new = Node(norm.op, (norm.inputs[0], factor), node.outputs, norm.attributes, name=node.name)
            return Change((norm, node), "its scale was one", (new,))
    return None


def _take_bias(edit: Edit, node: Node) -> Change | None:
    """A sum behind a layer normalisation without a bias."""
    for value, term in (node.inputs, node.inputs[::-1]):
        norm, kind = edit.sole(value, "LayerNormalization"), edit.static(term)
        if norm is None or kind is None or len(norm.inputs) != 2 or len(norm.writes) != 1:
            continue
        fits = kind.dims == _normalised_shape(edit, norm) and kind.dtype == FLOAT32
        if fits and term in edit.constants and edit.same_type(value, node.outputs[0]):
            new = Node(norm.op, (*norm.inputs, term), node.outputs, norm.attributes, name=node.name)
            return Change((norm, node), "it had no bias", (new,))
    return None


RULES: tuple[tuple[int, LocalRule], ...] = (
    (17, LocalRule("recognise-layer-norm", ("Div", "Mul"), _layer_core)),
    (17, LocalRule("recognise-scaled-norm", ("Add",), _scaled_norm)),
    (23, LocalRule("recognise-rms-norm", ("Div", "Mul"), _rms_core)),
    (17, LocalRule("norm-takes-scale", ("Mul",), _take_scale)),
    (17, LocalRule("norm-takes-bias", ("Add",), _take_bias)),
)
"""Each rule with the first opset that has the operator it writes; a layer normalisation is tried before an RMS one."""
