"""What a graph is, in numbers: size, cost, operators, mapping types."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fusewise.ir.graph import Graph
from fusewise.ops.definition import call_of, mapping_of
from fusewise.ops.spec import Mapping
from fusewise.ops.table import spec_of
from fusewise.passes.unused_functions import unused_functions
from fusewise.zoo import count

__all__ = ["description"]


def description(graph: Graph) -> dict[str, Any]:
    """Size and cost of a graph, as plain data; `macs` is None when a shape is not known.

    `mapping_types` counts the nodes of each mapping type, all types in order of complexity.
    """
    kinds: Counter[Mapping] = Counter()
    for node in graph.nodes:
        spec = spec_of(node.op, node.domain)
        kinds[Mapping.OPAQUE if spec is None else mapping_of(spec, call_of(graph, node))] += 1
    try:
        macs: int | None = count.macs(graph)
    except (TypeError, ValueError):
        macs = None
    return {
        "model": graph.name,
        "opset": graph.opset,
        "inputs": {name: str(graph.types[name]) for name in graph.inputs},
        "outputs": {name: str(graph.types[name]) for name in graph.outputs},
        "nodes": len(graph.nodes),
        "unused_functions": list(unused_functions(graph)),
        "parameters": count.parameters(graph),
        "macs": macs,
        "operators": dict(Counter(node.op for node in graph.nodes).most_common()),
        "mapping_types": {kind.name.lower(): kinds[kind] for kind in Mapping},
    }
