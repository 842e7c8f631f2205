"""An If whose condition is known: the nodes of the branch that is taken. For `fold_constants`; numeric class exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fusewise.errors import InvalidModel
from fusewise.frontend.bodies import bodies_of, graph_of_body
from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, LocalRule

__all__ = ["KNOWN_BRANCH"]


def _branch(edit: Edit, node: Node) -> Change | None:
    """Refused: a type in the branch cannot be inferred."""
    condition = edit.operand(node, 0)
    if condition is None or condition.size != 1:
        return None
    wanted = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    subgraph, outer = next((body, outer) for name, body, outer in bodies_of(node) if name == wanted)
    body = graph_of_body(subgraph, edit.opset, edit.opsets)
    if len(body.outputs) != len(node.outputs):
        return None
    names = dict(zip(subgraph.captures, outer, strict=True))
    for value, constant in body.constants.items():
        names[value] = edit.constant(constant.array, f"{node.label}_{value}")
    wanted_as = {value: result for value, result in zip(body.outputs, node.outputs, strict=True) if result}
    nodes = []
    for k, inner in enumerate(body.nodes):
        taken = _taken(edit, replace(inner, name=f"{node.label}_{k}"), body, names, wanted_as)
        if taken is None:
            return None
        nodes.append(taken)
    pairs = zip(node.outputs, body.outputs, strict=True)
    same = {result: names[value] for result, value in pairs if result and names[value] != result}
    return Change((node,), "the condition is known", tuple(nodes), same)


def _taken(edit: Edit, inner: Node, body: Graph, names: dict[str, str], wanted_as: Mapping[str, str]) -> Node | None:
    """A node of the branch between outer values; those it writes are added to `names`. None where a type stays unknown."""

    def outer(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names[value] if value else "" for value in values)

    node = replace(inner, inputs=outer(inner.inputs), captured=outer(inner.captured))
    try:
        found = edit.inferred(node)
    except InvalidModel:
        found = {}
    for value in inner.writes:
        kind = found.get(value) or body.types.get(value)
        if value in wanted_as:
            names[value] = wanted_as[value]
        elif kind is not None:
            names[value] = edit.value(f"{inner.name}_{value}", kind)
        else:
            return None
    return replace(node, outputs=outer(inner.outputs))


KNOWN_BRANCH = LocalRule("known-branch", ("If",), _branch)
