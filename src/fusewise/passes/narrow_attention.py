"""Let Attention multiply the short floats that its operands are. Numeric class approximate.

Most machines compute it in float32, so short floats are cast before it, and its result behind it. Where one multiplies them and
adds up in float32, both casts are for nothing, and only exponentials are rounded otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fusewise.ir.dtypes import FLOAT32, DType
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.passes.drop_dead import drop_dead
from fusewise.passes.runner import Pass
from fusewise.trace import Trace

__all__ = ["attention_of"]

_MOVEMENT = ("Reshape", "Transpose")


def attention_of(dtypes: Collection[DType], least: int) -> Pass:
    """A pass: Attention of at least so many queries, which are known to be, multiplies operands of one of these types as they are.

    y = Cast(Transpose(Attention(Cast(q), Cast(k), Cast(v), m)))   ->   y = Transpose(Attention(q, k, v, m))

    Refused: the result is read as float32.
    """

    def narrow_attention(graph: Graph, trace: Trace) -> Graph:
        nodes, types, gone = list(graph.nodes), dict(graph.types), set[int]()
        for number, node in enumerate(graph.nodes):
            casts = _casts(graph, node, dtypes, least)
            behind = _behind(graph, number, casts[0].inputs[0]) if casts else ()
            if not behind:
                continue
            dtype = _type(graph, casts[0].inputs[0]).dtype
            if not trace.allows("rewrite", "narrow_attention", (node.label,), f"products of {dtype.name}"):
                continue
            nodes[number] = node = replace(node, inputs=(*(cast.inputs[0] for cast in casts), *node.inputs[3:]))
            *moved, cast = number, *behind
            for one in moved:
                value = nodes[one].outputs[0]
                types[value] = replace(_type(graph, value), dtype=dtype)
            nodes[moved[-1]] = replace(nodes[moved[-1]], outputs=graph.nodes[cast].outputs)
            gone.add(cast)
        if not gone:
            return graph
        kept = tuple(node for number, node in enumerate(nodes) if number not in gone)
        return drop_dead(graph.replace(nodes=kept, types=types).pruned(), trace)

    return narrow_attention


def _type(graph: Graph, value: str) -> TensorType:
    kind = graph.types[value]
    assert isinstance(kind, TensorType), "operands of an attention are tensors"
    return kind


def _casts(graph: Graph, node: Node, dtypes: Collection[DType], least: int) -> list[Node]:
    """What widens the queries, keys and values of an attention, of one type; nothing where it is another, or takes others."""
    if node.op != "Attention" or node.domain or len(node.inputs) > 4 or len(node.outputs) > 1:
        return []
    makers = [graph.producer_of(value) for value in node.inputs[:3]]
    casts = [maker for maker in makers if maker is not None and maker.op == "Cast" and not maker.domain]
    given = [graph.types[cast.inputs[0]] for cast in casts]
    if len(given) < 3 or not all(isinstance(kind, TensorType) and kind.is_static for kind in given):
        return []
    kinds = [_type(graph, cast.inputs[0]) for cast in casts]
    same = len({kind.dtype for kind in kinds}) == 1 and _type(graph, node.inputs[0]).dtype == FLOAT32
    return casts if same and kinds[0].dtype in dtypes and kinds[0].dims[-2] >= least else []


def _behind(graph: Graph, number: int, narrow: str) -> tuple[int, ...]:
    """Nodes that move the result of a node, each the only one to read what is before it, and last the cast to the type of
    `narrow`; nothing where there is none."""
    found: list[int] = []
    while True:
        (value,) = graph.nodes[found[-1] if found else number].outputs
        readers = graph.users[value]
        if len(readers) != 1 or value in graph.output_set:
            return ()
        found.append(readers[0])
        reader = graph.nodes[readers[0]]
        if reader.domain or reader.inputs[0] != value:
            return ()
        if reader.op == "Cast":
            return tuple(found) if _type(graph, reader.outputs[0]).dtype == _type(graph, narrow).dtype else ()
        if reader.op not in _MOVEMENT:
            return ()
