"""Remove what no output needs. Numeric class exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import onnx

from fusewise.ir.graph import Graph, Node
from fusewise.trace import Trace

__all__ = ["drop_dead"]

_PAIR = (1, 2)
_PAIRED: Mapping[str, Callable[[Node], bool]] = {
    "Attention": lambda node: any(node.inputs[4:6]),  # what is past comes with what is present
    "BatchNormalization": lambda node: bool(node.attribute("training_mode", 0)),
}
"""Operators whose outputs at `_PAIR` are there both or not at all by ONNX's text, though its schemas call each optional; and
when they must be there whether anybody reads them or not."""


def drop_dead(graph: Graph, trace: Trace) -> Graph:
    """Keep only what some output needs; optional outputs that nobody reads are not asked for.

    a = Relu(x); b = Exp(x); return a   ->   a = Relu(x); return a
    """
    needed = set(graph.outputs)
    kept: list[Node] = []
    dropped: list[str] = []
    trimmed: list[str] = []
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.outputs):
            dropped.append(node.label)
            continue
        needed.update(node.reads)
        fewer = _without_unused(node, needed, graph.opset)
        if fewer is not node:
            trimmed.append(node.label)
        kept.append(fewer)
    if not dropped and not trimmed:
        # constants may still have lost their readers
        live = graph.pruned()
        return graph if len(live.types) == len(graph.types) else live
    if not trace.allows("rewrite", "drop_dead", tuple(reversed(dropped + trimmed)), "no output needs it"):
        return graph
    return graph.replace(nodes=tuple(reversed(kept))).pruned()


def _without_unused(node: Node, needed: set[str], opset: int) -> Node:
    if len(node.outputs) == 1 or all(value in needed for value in node.outputs):
        return node
    optional = _optional_outputs(node.op, node.domain, opset)
    if node.op in _PAIRED and not node.domain:
        read = any(node.outputs[i] in needed for i in _PAIR if i < len(node.outputs))
        optional -= frozenset(_PAIR) if read or _PAIRED[node.op](node) else frozenset()
    outputs = ["" if i in optional and value not in needed else value for i, value in enumerate(node.outputs)]
    while not outputs[-1]:
        outputs.pop()
    return node if tuple(outputs) == node.outputs else replace(node, outputs=tuple(outputs))


@cache
def _optional_outputs(op: str, domain: str, opset: int) -> frozenset[int]:
    """Positions of the outputs an operator need not be asked for; none for operators of other domains."""
    if domain or not onnx.defs.has(op, max_inclusive_version=opset):
        return frozenset()
    formal = onnx.defs.get_schema(op, opset).outputs
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    return frozenset(i for i, output in enumerate(formal) if output.option == optional)
