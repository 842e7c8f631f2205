"""Scale what is read at positions from data before it is joined, and not behind. Numeric class exact.

Deformable attention reads several maps, joins what was read and weighs it. Read and weighed by one kernel, it is not written and
read again before it is added up.
"""

from __future__ import annotations

from typing import Any

from fusewise.ir.graph import Graph, Node
from fusewise.passes.canonical_ops import LOWEST_OPSET, change_to
from fusewise.passes.edit import Change, Edit, looking_for, sweep
from fusewise.passes.notation import Notation
from fusewise.rewrite.match import Occurrence
from fusewise.trace import Trace

__all__ = ["scale_samples"]


def scale_samples(graph: Graph, trace: Trace) -> Graph:
    """Products with what several GridSamples read are taken of each.

    y = Reshape(Concat(a, b)) * w   ->   y = Reshape(Concat(a * v, b * u)), where v and u are the parts of w

    Refused: what others read too, and factors whose shape does not divide as the maps do.
    """
    return sweep(graph, trace, _RULES) if graph.opset >= LOWEST_OPSET else graph


def _before(g: Any, shape: Any, factor: Any) -> Any:
    joined = g.Concat(..., like="joined")
    return (g.Reshape(joined, shape, like="reshape") | joined) * factor


def _scaled(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    concat, factor = found.like["joined"], found.value("factor")
    if len(set(concat.inputs)) < len(concat.inputs) or not all(_is_read(edit, v) for v in concat.inputs):
        return None
    kinds = [edit.static(value) for value in (*concat.outputs, *node.outputs, factor)]
    if any(kind is None for kind in kinds):
        return None
    apart, result, scale = (kind.dims for kind in kinds if kind is not None)
    axis = concat.attribute("axis") % len(apart)
    merged = (*apart[:axis], apart[axis] * apart[axis + 1], *apart[axis + 2 :]) if axis + 1 < len(apart) else None
    if len(scale) != len(result) or (result != apart and result != merged):
        return None
    if scale[axis] not in (1, result[axis]):  # which of both, sizes may leave open
        return None
    g = Notation(edit, node.label, folds=True)
    weights = g.value(factor)
    if result != apart:
        whole = scale[axis] == result[axis]
        weights = g.reshape(
            weights, [*scale[:axis], *(apart[axis : axis + 2] if whole else (1, 1)), *scale[axis + 1 :]]
        )
    start, parts = 0, []
    for value in concat.inputs:
        part = g.value(value)
        end = start + part.dims[axis]
        parts.append(part * (weights if weights.dims[axis] == 1 else g.slice(weights, axis, start, end)))
        start = end
    return change_to(node, g, (g.reshape(g.Concat(*parts, axis=axis), result),), "each part by itself")


def _is_read(edit: Edit, value: str) -> bool:
    """Is it what a GridSample reads, for this reader alone?"""
    maker = edit.sole(value, "Unsqueeze", "Reshape", "GridSample")
    if maker is not None and maker.op != "GridSample":
        maker = edit.sole(maker.inputs[0], "GridSample")
    return maker is not None


_RULES = (looking_for("scale_samples", _before, _scaled),)
