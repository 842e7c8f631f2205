"""The data-flow tree of a group, drawn: as lines of text, and for Graphviz.

`tree` is what `api.inspect` gives under `tree` (`fusion.tree`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["tree_dot", "tree_lines"]

Tree = Mapping[str, Any]

_CONTINUED = {"": "", "├─ ": "│  ", "└─ ": "   "}
_SHAPES = {"operator": "box", "input": "ellipse", "constant": "ellipse, style=dashed"}


def tree_lines(tree: Tree) -> list[str]:
    """A line for each value, results first and operands below their reader; what stands above already is only named."""
    rows = {row["value"]: row for row in tree["values"]}
    found: list[str] = []
    drawn: set[str] = set()
    waiting = [(root, "", "", "a result") for root in reversed(tree["roots"])]
    while waiting:
        value, margin, branch, use = waiting.pop()
        row, again = rows[value], value in drawn
        found.append(f"{margin}{branch}{_name(row)}  {row['type']}  {_told(row)}, {use}{', as above' if again else ''}")
        operands = () if again else row.get("operands", ())
        drawn.add(value)
        for k, operand in reversed(list(enumerate(operands))):
            end = "└─ " if k == len(operands) - 1 else "├─ "
            waiting.append((operand["value"], margin + _CONTINUED[branch], end, f"read {_words(operand['along'])}"))
    return found


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['op']} {row['node']}" if row["kind"] == "operator" else str(row["value"])


def _told(row: Mapping[str, Any]) -> str:
    if row["kind"] != "operator":
        return str(row["kind"])
    own, together = _words(row["mapping"]), _words(row["together"])
    return own if own == together else f"{own}, together {together}"


def _words(mapping: str) -> str:
    return mapping.replace("_", "-")


def tree_dot(tree: Tree) -> str:
    """The tree as a directed graph in DOT, edges from readers to what they read; what several read stands there once."""
    numbers = {row["value"]: f"n{k}" for k, row in enumerate(tree["values"])}
    lines = [f"digraph group_{tree['group']} {{", "  node [fontname=monospace];", "  edge [fontname=monospace];"]
    for row in tree["values"]:
        label = _quoted(f"{_name(row)}\n{row['type']}\n{_told(row)}")
        bold = ", penwidth=2" if row["value"] in tree["roots"] else ""
        lines.append(f"  {numbers[row['value']]} [shape={_SHAPES[row['kind']]}{bold}, label={label}];")
        lines.extend(
            f"  {numbers[row['value']]} -> {numbers[operand['value']]} [label={_quoted(_words(operand['along']))}];"
            for operand in row.get("operands", ())
        )
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    """A text of any characters as a string of DOT, its lines centred."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
