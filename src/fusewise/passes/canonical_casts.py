"""Give every reader of a widening cast a cast of its own. Numeric class exact.

A group that fuses its own cast reads the narrow tensor; one shared cast would have to be written out wide. Merging equal nodes
puts them together again, so nothing should do that behind this pass.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.ops.table import spec_of
from fusewise.trace import Trace

__all__ = ["canonical_casts"]


def canonical_casts(graph: Graph, trace: Trace) -> Graph:
    """A Cast to a wider type is repeated for each elementwise operator that reads it.

    c = Cast(x); a = Relu(c); b = Exp(c)   ->   c = Cast(x); d = Cast(x); a = Relu(c); b = Exp(d)
    """
    types = dict(graph.types)
    nodes: list[Node] = []
    readers: dict[str, int] = {}
    for node in graph.nodes:
        for value in dict.fromkeys(node.inputs):
            cast = _shared_cast(graph, value, node)
            if cast is None:
                continue
            readers[value] = readers.get(value, 0) + 1
            copies = readers[value] - 1
            if not copies or not trace.allows("rewrite", "CanonicalizeCast", (cast.label, node.label), "read twice"):
                continue
            own = _fresh(f"{value}_{copies}", types)
            types[own] = types[value]
            nodes.append(replace(cast, outputs=(own,), name=own if cast.name else ""))
            node = node.with_inputs(own if v == value else v for v in node.inputs)
        nodes.append(node)
    return graph if len(nodes) == len(graph.nodes) else graph.replace(nodes=tuple(nodes), types=types)


def _shared_cast(graph: Graph, value: str, reader: Node) -> Node | None:
    """The widening Cast that makes `value`, when several nodes read it and `reader` is elementwise."""
    cast = graph.producer_of(value) if value else None
    if cast is None or cast.op != "Cast" or cast.domain or len(graph.users[value]) < 2:
        return None
    wide, narrow = graph.types.get(value), graph.types.get(cast.inputs[0])
    if not (isinstance(wide, TensorType) and isinstance(narrow, TensorType) and narrow.dtype.bits < wide.dtype.bits):
        return None
    spec = spec_of(reader.op, reader.domain)
    return cast if spec is not None and spec.scalar is not None else None


def _fresh(stem: str, taken: Container[str]) -> str:
    name, count = stem, 0
    while name in taken:
        count += 1
        name = f"{stem}_{count}"
    return name
