"""The documents of verbs that make no machine code (optimize, passes, plan): the graphs, and the part of the verb."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fusewise.benchmarking.machine import this_machine
from fusewise.cards import counted
from fusewise.fusion.ecg import ExtendedGraph
from fusewise.ir.graph import Graph
from fusewise.optimizing import Optimization
from fusewise.planning import Planning
from fusewise.reporting.document.about import model_part
from fusewise.reporting.document.decisions import decision_parts
from fusewise.reporting.document.graphs import graph_part, names_of
from fusewise.reporting.document.passes import passes_part
from fusewise.reporting.document.plan import plan_part
from fusewise.reporting.document.schema import SCHEMA, SCHEMA_VERSION
from fusewise.reporting.document.searches import search_part
from fusewise.runtime.host import worker_count
from fusewise.selecting import Selection
from fusewise.trace import Trace
from fusewise.version import VERSION

__all__ = ["graph_document", "optimize_document", "passes_document", "plan_document"]

_NAMED = 3
"""Operators that the title of a planned group names."""

_MOST_BOXES = 200
"""Boxes of a plan that are drawn side by side; where there are more, the graph is folded as others are."""


def graph_document(name: str, loaded: Graph, verb: str, threads: int | None = None) -> dict[str, Any]:
    """The document of a model called `name` that was only loaded, for `threads` workers (None: all)."""
    return {
        "schema": SCHEMA,
        "version": SCHEMA_VERSION,
        "title": name,
        "verb": verb,
        "made": {"fusewise": VERSION, "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "command": None},
        "model": model_part(name, loaded),
        "machine": this_machine(worker_count(threads)),
        "options": {},
        "stages": [_stage("written", "As written", "written", "The model as it was read.")],
        "graphs": {"written": graph_part(loaded, names_of(loaded))},
        "groups": [],
        "verdicts": [],
        "kernels": [],
        "steps": [],
        "decisions": [],
        "times": None,
    }


def optimize_document(
    name: str,
    loaded: Graph,
    found: Optimization,
    trace: Trace,
    *,
    threads: int | None = None,
    **search: Any,
) -> dict[str, Any]:
    """What `optimize` made of a graph, with its decisions. `search` are further arguments of `search_part`."""
    document = graph_document(name, loaded, "optimize", threads)
    what = "What the passes and the search leave." if found.search != "none" else "What the passes leave."
    document["stages"].append(_stage("clean", "Better", "clean", what))
    document["graphs"]["clean"] = graph_part(found.graph, names_of(loaded))
    document["decisions"] = decision_parts(trace)
    return {**document, "search": search_part(found, loaded, **search)}


def passes_document(name: str, loaded: Graph, found: Selection, *, threads: int | None = None) -> dict[str, Any]:
    """What was found of passes for a graph, and the graph that they leave."""
    document = graph_document(name, loaded, "passes", threads)
    document["stages"].append(_stage("clean", "After the passes", "clean", "What the order that was chosen leaves."))
    document["graphs"]["clean"] = graph_part(found.outcome.graph, names_of(loaded))
    return {**document, "passes": passes_part(found, loaded)}


def plan_document(name: str, loaded: Graph, found: Planning) -> dict[str, Any]:
    """A plan: the prepared graph with the plan's groups as its boxes, `loaded` being the model it was prepared from."""
    document = graph_document(name, loaded, "plan")
    part = plan_part(found)
    groups = _groups(found, part["boundaries"])
    runs: dict[int, dict[str, Any]] = {
        node: {"group": group["id"], "how": f"in group {group['id']} of the plan"}
        for group in groups
        for node in group["nodes"]
    }
    runs |= {one["node"]: {"how": f"left out: {one['reason']}"} for one in part["excluded"]}
    native = graph_part(found.graph, names_of(loaded), runs, groups)
    if len(groups) + len(part["excluded"]) <= _MOST_BOXES:
        native["outline"] = _outline(found.graph, groups, part["excluded"])
    document["graphs"]["native"] = native
    document["stages"].append(
        _stage("groups", "Groups of the plan", "native", "Each group keeps its data in the buffer.")
    )
    return {**document, "groups": groups, "plan": part}


def _outline(
    graph: Graph, groups: Sequence[Mapping[str, Any]], excluded: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The graph as the plan has it: a box for each group, and what is left out beside them."""

    def item(node: int) -> dict[str, Any]:
        return {"kind": "node", "title": graph.nodes[node].label, "node": node}

    found = [
        (
            min(group["nodes"]),
            {
                "kind": "group",
                "title": group["title"],
                "group": group["id"],
                "children": [item(node) for node in group["nodes"]],
            },
        )
        for group in groups
    ]
    found += [(one["node"], item(one["node"])) for one in excluded]
    return [each for _, each in sorted(found, key=lambda row: row[0])]


def _stage(name: str, title: str, graph: str, what: str) -> dict[str, Any]:
    return {"id": name, "title": title, "graph": graph, "ms": None, "what": what}


def _groups(found: Planning, boundaries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The plan's groups as groups of the graph."""
    graph, ecg = found.graph, ExtendedGraph(found.graph)
    stops: dict[int, list[str]] = {}
    for row in boundaries:
        for end in {row["before"], row["after"]} - {None}:
            stops.setdefault(end, []).append(row["sentence"])
    return [
        {
            "id": number,
            "title": f"{number}: {counted(Counter(graph.nodes[v].op for v in group.operators), _NAMED)}",
            "nodes": list(group.operators),
            "mapping": max(map(ecg.mapping, group.operators)).name.lower(),
            "anchor": None,
            "bytes_saved": _kept(graph, ecg, frozenset(group.operators)),
            "flops": sum(int(ecg.flops(v)) for v in group.operators if ecg.is_sized(v)),
            "bytes": group.dram_bytes,
            "stopped_by": list(dict.fromkeys(stops.get(number, ()))),
            "steps": [],
        }
        for number, group in enumerate(found.plan.groups)
    ]


def _kept(graph: Graph, ecg: ExtendedGraph, members: frozenset[int]) -> int:
    """Bytes of results that nobody outside a group reads: they do not leave the buffer."""
    made = (value for v in members for value in graph.nodes[v].writes)
    return sum(ecg.nbytes(value) for value in made if ecg.is_removable(value, members))
