"""A key for graphs: equal for graphs that differ only in names and in the order of independent nodes.

Every value is hashed from what makes it, every node also from what becomes of its results, and the graph from its outputs
and the multiset of its nodes. That is one round of colour refinement in each direction: linear, and enough to tell graphs
apart that compute different things or share work differently.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from fusewise.ir.graph import Attribute, Constant, Graph, Node, Subgraph

__all__ = ["structural_key"]

_WEIGHT_ELEMENTS = 64  # float constants with more elements count as weights


def structural_key(graph: Graph, with_weights: bool = True) -> str:
    """A hexadecimal digest of the graph's structure, the same in every process.

    Names of values, nodes and the graph, provenance and metadata do not enter; the order of inputs and outputs does, and
    their types. Without `with_weights` only dtype and shape of large float constants enter: models that differ in
    trained weights alone then have one key.
    """
    values = {name: _hash("input", i, str(graph.types[name])) for i, name in enumerate(graph.inputs)}
    for name, constant in graph.constants.items():
        values[name] = _hash("constant", _contents(constant, with_weights))
    made = [_made(node, values) for node in graph.nodes]
    read = _read(graph, made)
    nodes = sorted(_hash(*pair) for pair in zip(made, read, strict=True))
    outputs = (_hash(values[name], str(graph.types[name])) for name in graph.outputs)
    versions = (graph.opset, *sorted(graph.opsets))
    return _hash("graph", repr(versions), len(graph.inputs), len(graph.outputs), *outputs, *nodes)


def _hash(*parts: str | int) -> str:
    texts = [str(part).encode() for part in parts]
    data = b"".join([b"%d:%b" % (len(text), text) for text in texts])  # lengths keep neighbours apart
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _made(node: Node, values: dict[str, str]) -> str:
    """The hash of a node from what it reads; enters the hashes of its outputs into `values`."""
    attributes = (f"{name}={_attribute(value)}" for name, value in node.attributes)
    operands = (values[name] if name else "" for name in (*node.inputs, "", *node.captured))
    outputs = "".join("1" if name else "0" for name in node.outputs)
    found = _hash("node", node.domain, node.op, outputs, len(node.attributes), *attributes, *operands)
    for i, name in enumerate(node.outputs):
        if name:
            values[name] = _hash("output", found, i)
    return found


def _read(graph: Graph, made: list[str]) -> list[str]:
    """The hash of each node from who reads its outputs, and how."""
    positions = {name: f"output {i}" for i, name in reversed(tuple(enumerate(graph.outputs)))}
    readers: dict[str, list[str]] = {}
    found = [""] * len(graph.nodes)
    for i in reversed(range(len(graph.nodes))):
        node = graph.nodes[i]
        uses: Iterable[str] = (
            _hash(k, positions.get(name, ""), *sorted(readers.get(name, ())))
            for k, name in enumerate(node.outputs)
            if name
        )
        found[i] = _hash(made[i], *uses)
        for k, name in enumerate((*node.inputs, "", *node.captured)):
            if name in graph.producer:
                readers.setdefault(name, []).append(_hash(k, found[i]))
    return found


def _contents(constant: Constant, with_weights: bool) -> str:
    weights = constant.dtype.is_float and constant.type.size > _WEIGHT_ELEMENTS
    return constant.digest if with_weights or not weights else str(constant.type)


def _attribute(value: Attribute) -> str:
    if isinstance(value, Constant):
        return f"tensor {value.digest}"
    if isinstance(value, Subgraph):
        return f"body {hashlib.blake2b(value.body, digest_size=16).hexdigest()} {value.captures!r}"
    if isinstance(value, tuple):
        return f"[{', '.join(_attribute(item) for item in value)}]"
    return repr(value)
