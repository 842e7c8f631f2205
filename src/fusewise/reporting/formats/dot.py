"""The compiled graph of a report in DOT, for Graphviz: nodes as boxes, groups as clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusewise.errors import UsageError

__all__ = ["dot"]

_COLOURS: Mapping[str, str] = {
    "one_to_one": "#dbe9f6",
    "reorganize": "#e5f5e0",
    "shuffle": "#fdf0d5",
    "one_to_many": "#efe3f3",
    "many_to_many": "#fde0dd",
    "opaque": "#eeeeee",
}
"""Of mapping types; each box names its own, too."""

_LONGEST = 60


def dot(document: Mapping[str, Any]) -> str:
    """The graph that code was made of: inputs, nodes and outputs, edges with the types of what they carry, a cluster for each
    group of several nodes. `UsageError` for a document without graphs."""
    graph = (document.get("graphs") or {}).get("native")
    if graph is None:
        raise UsageError("the report has no graph to draw")
    lines = [
        f"digraph {_quoted(document['title'])} {{",
        '  node [shape=box, style=filled, fontname="Helvetica", fontsize=11];',
        '  edge [fontname="Helvetica", fontsize=9];',
        f"  label={_quoted(document['title'])};",
    ]
    drawn = {node["id"]: _node(node) for node in graph["nodes"]}
    for group in document.get("groups") or ():
        inside = [drawn.pop(node) for node in group["nodes"]]
        if len(inside) == 1:
            lines.append(f"  {inside[0]}")
            continue
        lines.append(f"  subgraph cluster_{group['id']} {{")
        lines.append(f"    label={_quoted('group ' + str(group['id']))}; style=rounded; color=gray;")
        lines.extend(f"    {one}" for one in inside)
        lines.append("  }")
    lines.extend(f"  {one}" for one in drawn.values())
    return "\n".join([*lines, *_edges(graph), "}"]) + "\n"


def _node(node: Mapping[str, Any]) -> str:
    where = " (on the host)" if node["runs"] == "host" else ""
    text = f"{node['op']}{where}\n{_short(node['name'])}\n{node['mapping'].replace('_', '-')}"
    return f'n{node["id"]} [label={_quoted(text)}, fillcolor="{_COLOURS[node["mapping"]]}"];'


def _edges(graph: Mapping[str, Any]) -> list[str]:
    """Ports, and an edge for each value from its producer to each reader; constants are left out."""
    makers = {value: f"n{node['id']}" for node in graph["nodes"] for value in node["outputs"] if value}
    found: list[str] = []
    for kind, ports in (("input", graph["inputs"]), ("output", graph["outputs"])):
        for number, value in enumerate(ports):
            text = f"{value}\n{graph['values'][value]['type']}"
            found.append(f"  {kind}{number} [shape=ellipse, style=solid, label={_quoted(_short(text))}];")
    makers |= {value: f"input{number}" for number, value in enumerate(graph["inputs"])}
    ends = [(value, f"n{node['id']}") for node in graph["nodes"] for value in dict.fromkeys(node["inputs"])]
    ends += [(value, f"output{number}") for number, value in enumerate(graph["outputs"])]
    for value, end in ends:
        if value in makers:
            kind = graph["values"][value]["type"]
            found.append(f"  {makers[value]} -> {end} [label={_quoted(_short(kind))}];")
    return found


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2 - 1]}…{text[-(_LONGEST // 2) :]}"


def _quoted(text: str) -> str:
    """A text of any characters as a string of DOT, its lines centred."""
    shown = "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
