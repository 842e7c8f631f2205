"""How much memory a model will take, before it is planned."""

from __future__ import annotations

from fusewise.ir.deciding import hinted_bytes
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph
from fusewise.ops.table import spec_of

__all__ = ["expected_bytes"]

_PACKED = frozenset({"conv", "conv_transpose", "gemm", "matmul"})
"""Families whose kernels pack their second operand."""

_ALIVE = 3
"""The arena in units of the largest intermediate result: 1.6 to 3 in convolutional networks, 2.1 in BERT."""


def expected_bytes(graph: Graph) -> int:
    """About what a program for this graph will take: packed float32 weights of convolutions and products, and its arena."""
    names = {name for node in graph.nodes if _packs(node.op, node.domain) for name in node.inputs[1:2]}
    kinds = (graph.constants[name].type for name in names if name in graph.constants)
    weights = sum(kind.nbytes for kind in kinds if kind.dtype == FLOAT32)
    known = set(graph.constants)
    for node in graph.nodes:  # what follows from constants is folded, or stays as it is stored
        if node.reads and known.issuperset(node.reads):
            known.update(node.writes)
    between = {name for node in graph.nodes for name in node.writes} - set(graph.outputs) - known
    return weights + _ALIVE * max((hinted_bytes(graph.types[name]) for name in between), default=0)


def _packs(op: str, domain: str) -> bool:
    spec = spec_of(op, domain)
    return spec is not None and spec.family in _PACKED
