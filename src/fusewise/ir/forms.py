"""A graph written down in A-normal form and in graph normal form, for people. `ir.text` has the form that is read back."""

from __future__ import annotations

from fusewise.ir.graph import Graph, Node
from fusewise.ir.text import attribute_text

__all__ = ["FORMS", "a_normal_text", "graph_normal_text"]


def a_normal_text(graph: Graph) -> str:
    """A binding a line: every result has a name, and operands are names.

    let a = MatMul(x, w)
    let y = Add(a, b)
    in y
    """
    lines = [f"let {', '.join(value or '_' for value in node.outputs)} = {_applied(node, {})}" for node in graph.nodes]
    return "\n".join([*lines, f"in {', '.join(graph.outputs)}"]) + "\n"


def graph_normal_text(graph: Graph) -> str:
    """An expression for each output: a result that is read once stands where it is read, one that is shared has a line of its own.

    y = Add(MatMul(x, w), b)
    """
    inner: dict[str, str] = {}
    lines = []
    for node in graph.nodes:
        written = _applied(node, inner)
        (first, *others) = node.outputs
        if not others and graph.read_counts.get(first, 0) == 1 and first not in graph.output_set:
            inner[first] = written
        else:
            lines.append(f"{', '.join(value or '_' for value in node.outputs)} = {written}")
    return "\n".join([*lines, f"return {', '.join(graph.outputs)}"]) + "\n"


def _applied(node: Node, inner: dict[str, str]) -> str:
    operands = [inner.pop(value, value) or "_" for value in (*node.inputs, *node.captured)]
    stated = [f"{name}={attribute_text(value, False)}" for name, value in node.attributes]
    return f"{node.op}({', '.join([*operands, *stated])})"


FORMS = {"a-normal": a_normal_text, "graph-normal": graph_normal_text}
"""By name."""
