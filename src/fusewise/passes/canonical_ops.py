"""Write special operators with basic ones. Numeric class reassociating.

What is written out can be folded, shared and fused by passes that know basic operators only. The clean-up goes the other way where
one operator is faster than several (`absorb_bias`, `recognise_activations`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusewise.ir.graph import Graph, Node
from fusewise.ops.spec import NotDefined
from fusewise.passes.decompositions.row import Decomposition
from fusewise.passes.decompositions.table import SPECIAL
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.passes.notation import Notation, TensorValue, call_of
from fusewise.trace import Trace

__all__ = ["LOWEST_OPSET", "canonical_ops", "change_to", "rule_of", "written_out"]

LOWEST_OPSET = 18
"""Decompositions are written with operators as they are from here on: reductions take their axes as an operand."""


def canonical_ops(graph: Graph, trace: Trace) -> Graph:
    """Special operators of known shapes become basic ones.

    y = Conv(x, w, b)   ->   y = Conv(x, w) + b          y = HardSwish(x)   ->   y = x * Clip(x / 6 + 0.5, 0, 1)

    Refused: forms of an operator that its row does not cover.
    """
    return sweep(graph, trace, _RULES) if graph.opset >= LOWEST_OPSET else graph


def rule_of(stem: str, row: Decomposition) -> LocalRule:
    """The row as a rule, which is called by its operator after `stem`."""
    return LocalRule(f"{stem}-{row.op.lower()}", (row.op,), lambda edit, node: written_out(edit, node, row))


_RULES = tuple(rule_of("canonical", row) for row in SPECIAL)


def written_out(edit: Edit, node: Node, row: Decomposition) -> Change | None:
    """A node as its row writes it; None where the row does not cover it, or a shape is not known."""
    if any(edit.static(value) is None for value in (*node.reads, *node.writes)):
        return None
    g = Notation(edit, node.label, folds=True)
    try:
        found = row.results(g, call_of(edit, node))
    except NotDefined:
        return None
    if found is None:
        return None
    return change_to(node, g, found, "written with basic operators")


def change_to(node: Node, g: Notation, found: Sequence[TensorValue], reason: str) -> Change:
    """What was written in place of a node: `found` are its results."""
    made = {value for new in g.nodes for value in new.outputs}
    wanted = [(old, new.name) for old, new in zip(node.outputs, found, strict=False) if old]
    names = {new: old for old, new in wanted if new in made}
    nodes = tuple(
        replace(
            new,
            inputs=tuple(names.get(value, value) for value in new.inputs),
            outputs=tuple(names.get(value, value) for value in new.outputs),
        )
        for new in g.nodes
    )
    same = {old: new for old, new in wanted if new not in made}
    return Change((node,), reason, nodes, same=same)
