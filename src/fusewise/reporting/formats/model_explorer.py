"""A report as graphs for Model Explorer (its built-in JSON loader), and the times of a run as its node data.

Names of fields are those of `ai-edge-model-explorer` 0.1.34 (`graph_builder`, `node_data_builder`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fusewise.errors import UsageError

__all__ = ["model_explorer", "node_data"]

_SLASH = "\N{DIVISION SLASH}"
"""In place of the one in a name: that parts layers."""

_GRADIENT = ({"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#e2725b"})


def model_explorer(document: Mapping[str, Any]) -> dict[str, Any]:
    """A collection of the graphs of a document. Layers are scopes of names, repeats with a layer for each copy, and groups of
    several nodes. `UsageError` for a document without graphs."""
    graphs = document.get("graphs") or {}
    if not graphs:
        raise UsageError("the report has no graph to draw")
    groups = document.get("groups") or ()
    return {"label": document["title"], "graphs": [_graph(name, graph, groups) for name, graph in graphs.items()]}


def node_data(document: Mapping[str, Any]) -> dict[str, Any]:
    """The milliseconds of each group of a run, or by an estimate, at its heavy operator or else its first node, by graph and node.

    `UsageError` for a document without times.
    """
    times, estimates = document.get("times"), document.get("estimates")
    timed = times or estimates
    if not timed:
        raise UsageError("the report has no times: make it without --no-times")
    ms = {row["group"]: row["ms"] for row in timed["groups"]}
    results = {}
    for group in document["groups"]:
        if group["id"] in ms:
            node = group["nodes"][0] if group["anchor"] is None else group["anchor"]
            results[str(node)] = {"value": ms[group["id"]]}
    return {
        "native": {
            "name": "ms of a run" if times else "ms of launches, estimated",
            "results": results,
            "gradient": list(_GRADIENT),
        }
    }


def _graph(name: str, graph: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    layers = _layers(graph["outline"])
    makers = {value: (f"input{k}", "0") for k, value in enumerate(graph["inputs"])}
    makers |= {value: (str(n["id"]), str(k)) for n in graph["nodes"] for k, value in enumerate(n["outputs"]) if value}
    nodes = [_port(f"input{k}", value, graph, ()) for k, value in enumerate(graph["inputs"])]
    nodes += [_node(node, graph, _path(node, layers, groups), makers) for node in graph["nodes"]]
    nodes += [_port(f"output{k}", value, graph, _edges([value], makers)) for k, value in enumerate(graph["outputs"])]
    return {"id": name, "nodes": nodes}


def _path(node: Mapping[str, Any], layers: Mapping[int, Sequence[str]], groups: Sequence[Mapping[str, Any]]) -> str:
    path = list(layers.get(node["id"], ()))
    if node["group"] is not None and len(groups[node["group"]]["nodes"]) > 1:
        path.append(f"group {node['group']}: {groups[node['group']]['title']}")
    return "/".join(part.replace("/", _SLASH) for part in path)


def _layers(items: Iterable[Mapping[str, Any]], above: tuple[str, ...] = ()) -> dict[int, tuple[str, ...]]:
    """The titles of the scopes and copies that each node is in; groups are left to who knows them."""
    found: dict[int, tuple[str, ...]] = {}
    for item in items:
        kind = item["kind"]
        if kind == "node":
            found[item["node"]] = above
        elif kind == "repeat":
            first, *others = item["copies"]
            inside = _layers(item["children"], (*above, item["title"], "1"))
            found |= inside
            for number, copy in enumerate(others, 2):
                for node, twin in zip(copy, first, strict=True):
                    path = inside.get(twin, above)
                    found[node] = (*above, item["title"], str(number), *path[len(above) + 2 :])
        else:
            own = (*above, item["title"]) if kind == "scope" else above
            found |= _layers(item.get("children") or (), own)
    return found


def _node(
    node: Mapping[str, Any], graph: Mapping[str, Any], namespace: str, makers: Mapping[str, tuple[str, str]]
) -> dict[str, Any]:
    about = {"name": node["name"], "mapping type": node["mapping"].replace("_", "-"), **node["attributes"]}
    about |= {"operations": f"{node['flops']:,}", "bytes": f"{node['bytes']:,}"}
    if node["runs"]:
        about |= {"runs": node["runs"], "how": node["how"]}
    return {
        "id": str(node["id"]),
        "label": f"{node['domain']}.{node['op']}" if node["domain"] else node["op"],
        "namespace": namespace,
        "attrs": _attributes(about),
        "incomingEdges": _edges(node["inputs"], makers),
        "outputsMetadata": [_metadata(k, value, graph) for k, value in enumerate(node["outputs"]) if value],
    }


def _port(name: str, value: str, graph: Mapping[str, Any], edges: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """An input or an output of the graph as a node."""
    made = [] if edges else [_metadata(0, value, graph)]
    return {"id": name, "label": value, "namespace": "", "incomingEdges": list(edges), "outputsMetadata": made}


def _edges(values: Sequence[str], makers: Mapping[str, tuple[str, str]]) -> list[dict[str, str]]:
    return [
        {"sourceNodeId": makers[value][0], "sourceNodeOutputId": makers[value][1], "targetNodeInputId": str(k)}
        for k, value in enumerate(values)
        if value in makers
    ]


def _metadata(number: int, value: str, graph: Mapping[str, Any]) -> dict[str, Any]:
    about = {"tensor_name": value, "tensor_shape": graph["values"][value]["type"]}
    return {"id": str(number), "attrs": _attributes(about)}


def _attributes(about: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in about.items()]
