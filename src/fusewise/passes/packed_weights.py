"""Which weights stay as small as they are: those that a product dequantises or widens while it runs, and rows that are gathered.

A product takes them where a scale belongs to a run of its depth, or to all of it:

    y = MatMul(x, DequantizeLinear(w, s, z))                         w[K, N] in blocks along axis 0
    y = MatMul(x, Transpose(DequantizeLinear(w, s, z)))              w[N, K] in blocks along axis 1
    y = Gemm(x, DequantizeLinear(w, s, z), c) {transB=1}             the same

Weights may be numbers of a table, too:

    y = MatMul(x, DequantizeLinear(Gather(t, Cast(w)), s))           w of four bits, t[16]

Weights may be floats of 16 bits, too, which need no scale:

    y = MatMul(x, Cast(w)),  y = Gemm(x, Cast(w), c)                 w[K, N] or w[N, K] of float16 or bfloat16, Cast(w) of float32
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT8, UINT8, dtype_named
from fusewise.ir.graph import Graph, Node
from fusewise.ir.size import Size
from fusewise.ir.types import TensorType
from fusewise.passes.later import SHORT_FLOATS

__all__ = [
    "BLOCK_STEPS",
    "PACKED_TYPES",
    "TABLE_SIZE",
    "UINT4",
    "dequantised_rows",
    "dequantised_weights",
    "is_for_products",
    "packed_weights",
    "widened_caches",
]

UINT4 = dtype_named("uint4")
"""The type of places in a table."""

PACKED_TYPES = (*map(dtype_named, ("int4", "uint4", "int2", "uint2")), INT8, UINT8)
"""Types that products dequantise in registers."""

TABLE_SIZE = 16
"""Numbers of a table, which as many codes name as four bits have."""

BLOCK_STEPS = 16
"""A run of the depth with one scale is a multiple of so many steps."""

MOST_QUERIES = 31
"""Queries of an Attention that widens keys and values for itself; matrix units take more, and have other ways."""

_FLOATS = (FLOAT32, FLOAT16, BFLOAT16)
_PRODUCTS = frozenset({"Gemm", "MatMul"})


def packed_weights(graph: Graph) -> frozenset[str]:
    """The dequantised or widened constants all of whose readers take them as they are stored, and what a table makes of such on the
    way."""
    return frozenset(
        one.outputs[0]
        for node in graph.nodes
        if node.op in ("Cast", "DequantizeLinear")
        and not node.domain
        and node.outputs[0] not in graph.output_set
        and _stored(graph, node) in graph.constants
        and _is_taken(graph, node, node.outputs[0])
        for one in (*_looked_up(graph, node), node)
    )


def _stored(graph: Graph, node: Node) -> str:
    """What a DequantizeLinear reads, as it is stored."""
    looked_up = _looked_up(graph, node)
    return looked_up[0].inputs[0] if looked_up else node.inputs[0]


def _looked_up(graph: Graph, node: Node) -> tuple[Node, ...]:
    """The Cast and the Gather by which a DequantizeLinear reads numbers of a table, none where it does not."""
    gather = graph.producer_of(node.inputs[0])
    cast = None if gather is None or gather.op != "Gather" or gather.domain else graph.producer_of(gather.inputs[1])
    if gather is None or cast is None or cast.op != "Cast" or cast.domain or len(node.reads) != 2:
        return ()
    table, codes = graph.types.get(gather.inputs[0]), graph.types.get(cast.inputs[0])
    if (
        not isinstance(table, TensorType)
        or not isinstance(codes, TensorType)
        or gather.inputs[0] not in graph.constants
    ):
        return ()
    return (cast, gather) if table.dims == (TABLE_SIZE,) and codes.dtype == UINT4 else ()


def _is_taken(graph: Graph, weights: Node, value: str) -> bool:
    """Do all readers of a value, which is `weights` or they turned, take that as it is stored?"""
    readers = [graph.nodes[n] for n in graph.users.get(value, ())]
    return bool(readers) and all(_takes(graph, weights, value, reader) for reader in readers)


def _takes(graph: Graph, weights: Node, value: str, reader: Node) -> bool:
    if _is_between(graph, reader):
        return reader.outputs[0] not in graph.output_set and _is_taken(graph, weights, reader.outputs[0])
    found = _dequantised(graph, reader)
    return any(one is weights for one in found) and reader.inputs.count(value) == 1


def _is_between(graph: Graph, node: Node) -> bool:
    """May it stand between weights and their product: does it turn a matrix, or cast it to another float?"""
    if node.domain or node.op not in ("Cast", "Transpose"):
        return False
    kind = graph.types.get(node.outputs[0])
    return isinstance(kind, TensorType) and kind.is_fixed and kind.rank == 2 and kind.dtype in _FLOATS


def dequantised_weights(graph: Graph, product: Node) -> tuple[Node, ...]:
    """The DequantizeLinear or Cast of constants that a product takes as they are stored, behind what reads a table and before what
    turns it, in order; none where there is no such."""
    found = _dequantised(graph, product)
    made = {one.outputs[0] for one in found}
    return found if all(value in graph.constants or value in made for one in found for value in one.reads) else ()


def dequantised_rows(graph: Graph, product: Node) -> tuple[Node, ...]:
    """The DequantizeLinear of a MatMul's left operand, where that is bytes with a scale for each block of the depth and weights are
    dequantised integers, too; none where there is no such."""
    maker = graph.producer_of(product.inputs[0]) if product.op == "MatMul" and product.inputs else None
    if maker is None or not is_for_products(maker):
        return ()
    weights = dequantised_weights(graph, product)
    if (
        not weights
        or any(one.op == "Gather" for one in weights)
        or all(one.op != "DequantizeLinear" for one in weights)
    ):
        return ()
    kind, result = graph.types.get(maker.inputs[0]), graph.types.get(maker.outputs[0])
    if not isinstance(kind, TensorType) or not isinstance(result, TensorType) or not kind.is_static:
        return ()
    is_last = int(maker.attribute("axis", 1)) in (-1, kind.rank - 1)
    is_byte = kind.dtype == INT8 and result.dtype == FLOAT32 and maker.inputs[0] not in graph.constants
    return (maker,) if is_last and is_byte and len(maker.reads) == 2 else ()


def widened_caches(graph: Graph, attention: Node) -> tuple[Node, ...]:
    """The Casts of keys and values of 16 bits to float32, in order, that an Attention does itself: of a few queries, or of a number
    that is not known. For many it is better to have a copy. None where there are no two such."""
    if attention.op != "Attention" or attention.domain or len(attention.inputs) < 3:
        return ()
    makers = [graph.producer_of(value) for value in attention.inputs[1:3]]
    queries = graph.types.get(attention.inputs[0])
    casts = tuple(node for node in makers if node is not None and node.op == "Cast" and not node.domain)
    if len(casts) < 2 or casts[0] is casts[1] or not isinstance(queries, TensorType) or not queries.is_static:
        return ()
    given, made = (
        [graph.types.get(value) for value in values]
        for values in zip(*((c.inputs[0], c.outputs[0]) for c in casts), strict=True)
    )
    are_wide = all(isinstance(kind, TensorType) and kind.dtype == FLOAT32 for kind in (queries, *made))
    kinds = {kind.dtype for kind in given if isinstance(kind, TensorType)}
    count = queries.dims[-2]
    is_many = not isinstance(count, Size) and count > MOST_QUERIES
    return casts if are_wide and len(kinds) == 1 and kinds <= set(SHORT_FLOATS) and not is_many else ()


def is_for_products(node: Node) -> bool:
    """Is it a DequantizeLinear by blocks, which products do themselves, each for itself?"""
    return node.op == "DequantizeLinear" and not node.domain and bool(node.attribute("block_size", 0))


def _dequantised(graph: Graph, product: Node) -> tuple[Node, ...]:
    """The same of values that may be found to be constant later."""
    if product.op not in _PRODUCTS or product.domain or len(product.inputs) < 2:
        return ()
    depth = 1 if product.attribute("transB", 0) else 0
    found: list[Node] = []
    value = product.inputs[1]
    while (node := graph.producer_of(value)) is not None and _is_between(graph, node):
        if node.op == "Transpose" and tuple(node.attribute("perm", (1, 0))) == (1, 0):
            depth = 1 - depth
        found.insert(0, node)
        value = node.inputs[0]
    if _are_widened(graph, found) and product.attribute("alpha", 1.0) == 1.0:
        return tuple(found)
    if node is None or node.op != "DequantizeLinear" or node.domain or not _is_along(graph, node, depth):
        return ()
    return (*_looked_up(graph, node), node, *found)


def _are_widened(graph: Graph, found: Sequence[Node]) -> bool:
    """Is it a Cast of a constant of 16 bits to float32, and what turns that?"""
    if not found or found[0].op != "Cast" or any(node.op != "Transpose" for node in found[1:]):
        return False
    weights, result = graph.constants.get(found[0].inputs[0]), graph.types[found[0].outputs[0]]
    is_wide = isinstance(result, TensorType) and result.dtype == FLOAT32
    return weights is not None and weights.dtype in SHORT_FLOATS and is_wide


def _is_along(graph: Graph, node: Node, depth: int) -> bool:
    """Are these weights of rank 2 with a scale for runs of the axis `depth`, or for all of it?"""
    data, scale, result = (graph.types.get(v) for v in (_stored(graph, node), node.inputs[1], node.outputs[0]))
    if not all(isinstance(kind, TensorType) and kind.is_fixed for kind in (data, scale, result)):
        return False
    assert isinstance(data, TensorType) and isinstance(scale, TensorType) and isinstance(result, TensorType)
    if data.dtype not in PACKED_TYPES or result.dtype not in _FLOATS or data.rank != 2 or data.size == 0:
        return False
    if scale.size == 1:
        return True
    axis = int(node.attribute("axis", 1)) % 2
    block = int(node.attribute("block_size", 0))
    if block:
        return axis == depth and (block % BLOCK_STEPS == 0 or block >= data.dims[depth])
    return axis != depth
