"""Graphs as parts of the document: nodes by number, values by name, each node with where it comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fusewise.fusion.ecg import ExtendedGraph
from fusewise.ir.deciding import hint
from fusewise.ir.graph import Attribute, Constant, Graph, SizesConstant, Subgraph
from fusewise.ir.types import TensorType
from fusewise.reporting.document.outline import outline

__all__ = ["graph_part", "names_of", "value_bytes", "with_types"]

_LONGEST_ATTRIBUTE = 400
"""Characters of an attribute that are shown; what a node has beyond is counted."""

_FEW = 16
"""Elements of a constant that are shown."""

_OPERATORS = 6
"""Operators of a body that are named."""


def with_types(graph: Graph, known: Graph) -> Graph:
    """The graph as it was written, with types that are known better of a graph it became."""
    types = {value: known.types.get(value, kind) for value, kind in graph.types.items()}
    return graph.replace(types=types)


def names_of(written: Graph) -> frozenset[str]:
    """Every name that `origin` may have: those of nodes, and of what nodes were written with other operators."""
    return frozenset(name for node in written.nodes for name in (node.label, *node.origin))


def graph_part(
    graph: Graph,
    names: Collection[str],
    runs: Mapping[int, Mapping[str, Any]] = MappingProxyType({}),
    groups: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The part of a graph. `names` are those of the model as it was written. Of the graph that code was made of, `runs` has by
    number what runs a node, and its group, and `groups` are the parts of these."""
    ecg = ExtendedGraph(graph)
    nodes = [
        {
            "id": number,
            "name": node.label,
            "op": node.op,
            "domain": node.domain,
            "inputs": [*node.inputs, *node.captured],
            "outputs": list(node.outputs),
            "attributes": {name: _text(value) for name, value in node.attributes},
            "mapping": ecg.mapping(number).name.lower(),
            "flops": _flops(ecg, number),
            "bytes": sum(ecg.nbytes(value) for value in dict.fromkeys((*node.reads, *node.writes))),
            "origin": [name for name in dict.fromkeys(node.origin or (node.label,)) if name in names],
            "group": None,
            "runs": None,
            "how": "",
            **runs.get(number, {}),
        }
        for number, node in enumerate(graph.nodes)
    ]
    part: dict[str, Any] = {
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "nodes": nodes,
        "values": {value: _value(graph, value) for value in _values(graph)},
    }
    return part | {"outline": outline(part, groups)}


def value_bytes(graph: Graph, value: str) -> int | None:
    """Bytes of a value in memory, at the sizes to plan for; None where that is not known."""
    kind = graph.types.get(value)
    if not isinstance(kind, TensorType) or not kind.is_static:
        return None
    return int(hint(kind.nbytes))


def _values(graph: Graph) -> Iterable[str]:
    """Every value that somebody reads or writes, once."""
    return dict.fromkeys(
        (*graph.inputs, *(v for node in graph.nodes for v in (*node.reads, *node.writes)), *graph.outputs)
    )


def _value(graph: Graph, value: str) -> dict[str, Any]:
    kind = graph.types.get(value)
    return {
        "type": "unknown" if kind is None else str(kind),
        "bytes": value_bytes(graph, value),
        "constant": value in graph.constants,
    }


def _flops(ecg: ExtendedGraph, number: int) -> int:
    """Arithmetic operations, 0 where sizes are not known."""
    return int(ecg.flops(number)) if ecg.is_sized(number) else 0


def _text(value: Attribute) -> str:
    """An attribute for people."""
    if isinstance(value, Subgraph):
        return _body(value)
    if isinstance(value, Constant):
        return _constant(value)
    if isinstance(value, bytes):
        return _shortened(value.decode("utf-8", "backslashreplace"))
    if isinstance(value, tuple):
        listed = ", ".join(_text(item) for item in value[:_LONGEST_ATTRIBUTE])
        return _shortened(f"[{listed}]")
    return _shortened(str(value))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_ATTRIBUTE else f"{text[:_LONGEST_ATTRIBUTE]}... ({len(text):,} characters)"


def _constant(value: Constant) -> str:
    kind = value.type
    if isinstance(value, SizesConstant) or not kind.is_fixed or kind.size > _FEW:
        return str(kind)
    return _shortened(f"{kind} = {value.array.tolist()}")


def _body(value: Subgraph) -> str:
    """What a body is, in short: how many nodes, and the operators it has most of."""
    import onnx

    body = onnx.GraphProto.FromString(value.body)
    counted = Counter(node.op_type for node in body.node).most_common()
    named = ", ".join(f"{count} {op}" if count > 1 else op for op, count in counted[:_OPERATORS])
    more = ", ..." if len(counted) > _OPERATORS else ""
    nodes = f"{len(body.node)} node{'' if len(body.node) == 1 else 's'}"
    reads = f"; reads {', '.join(value.captures)} from outside" if value.captures else ""
    return _shortened(f"a graph of {nodes}: {named}{more}{reads}")
