"""The extended computational graph: what fusion needs to know beside the graph, derived from it and from the operator rows.

Per operator: mapping type, family, whether it has a loop nest, arithmetic cost, algebraic flags. Per edge: mapping type and
whether elements correspond one to one. Per value: bytes. Whether an intermediate result can be dropped follows from a set of
operators (DNNFusion, section 4.1). Nothing here is kept anywhere else, and everything is computed on first use.
"""

from __future__ import annotations

from collections.abc import Hashable, Set
from dataclasses import field
from enum import Enum
from typing import NamedTuple

from fusewise.fusion.mapping import edge_mappings, nest_depth, node_mapping
from fusewise.ir.deciding import hint
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.ir.walk import successors
from fusewise.ops.bijection import VIEWS, bijective_operands
from fusewise.ops.definition import call_of, flops_of
from fusewise.ops.spec import ANCHOR_FAMILIES, Mapping, OpSpec
from fusewise.ops.table import spec_of
from fusewise.records import record

__all__ = ["Demand", "ElementWork", "ExtendedGraph"]


class ElementWork(Enum):
    """What an operator does to an element: nothing but read it, arithmetic, a transcendental function."""

    NONE, FAST, SLOW = range(3)


class Demand(NamedTuple):
    """What computing one element of an operator's results takes, for whoever estimates (`cost`).

    `work` is its arithmetic. `reads` has every value it reads with how often it is gone through whole (0: only where it is asked
    for; None: element by element, with the result's own), and how many elements that can be at most.
    """

    writes: tuple[str, ...]
    reads: tuple[tuple[str, int | None, float], ...]
    work: ElementWork


@record
class ExtendedGraph:
    """A graph and what is derived of it; operators are named by their index into `graph.nodes`.

    `estimates` keeps costs of groups in nanoseconds, by their prices, and `demands` what they are made of, for whoever estimates
    them (`cost`).
    """

    graph: Graph
    estimates: dict[Hashable, dict[tuple[int, ...], float]] = field(default_factory=dict)
    demands: dict[int, Demand] = field(default_factory=dict)
    _types: dict[int, Mapping] = field(default_factory=dict)
    _edges: dict[int, dict[str, Mapping]] = field(default_factory=dict)
    _depths: dict[int, int | None] = field(default_factory=dict)
    _sized: dict[int, bool] = field(default_factory=dict)
    _readers: dict[int, frozenset[int]] = field(default_factory=dict)
    _bijective: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _flops: dict[int, int] = field(default_factory=dict)
    _views: dict[int, bool] = field(default_factory=dict)
    _sizes: dict[str, int | None] = field(default_factory=dict)

    def node(self, index: int) -> Node:
        return self.graph.nodes[index]

    def spec(self, index: int) -> OpSpec | None:
        node = self.node(index)
        return spec_of(node.op, node.domain)

    def mapping(self, index: int) -> Mapping:
        """The operator's type; Opaque when it has no loop nest."""
        if index not in self._types:
            self._types[index] = node_mapping(self.graph, self.node(index))
        return self._types[index]

    def edge(self, value: str, reader: int) -> Mapping:
        """The type along one edge."""
        if reader not in self._edges:
            self._edges[reader] = edge_mappings(self.graph, self.node(reader))
        return self._edges[reader][value]

    def is_sized(self, index: int) -> bool:
        """Are the sizes of all that the operator reads and writes known?"""
        if index not in self._sized:
            node = self.node(index)
            self._sized[index] = all(self.size(value) is not None for value in (*node.reads, *node.writes))
        return self._sized[index]

    def is_native(self, index: int) -> bool:
        """Has the operator a loop nest, so that it can be part of a group?"""
        return self.depth(index) is not None

    def depth(self, index: int) -> int | None:
        """Levels of the operator's element expression; None without a loop nest."""
        if index not in self._depths:
            self._depths[index] = nest_depth(self.graph, self.node(index))
        return self._depths[index]

    def readers(self, index: int) -> frozenset[int]:
        """The operators that read a result of this one."""
        if index not in self._readers:
            self._readers[index] = frozenset(successors(self.graph, index))
        return self._readers[index]

    def is_anchor(self, index: int) -> bool:
        """Has the operator kernels of its own?"""
        spec = self.spec(index)
        return spec is not None and spec.family in ANCHOR_FAMILIES and len(self.node(index).writes) == 1

    def is_view(self, index: int) -> bool:
        """Is the result, as a rule, only strides over the operand's memory?"""
        if index not in self._views:
            node = self.node(index)
            found = not node.domain and node.op in VIEWS and node.op not in ("DepthToSpace", "SpaceToDepth")
            if found and node.op == "Gather":
                found = node.inputs[1] in self.graph.constants and self.size(node.inputs[1]) == 1
            self._views[index] = found
        return self._views[index]

    def bijective(self, index: int) -> tuple[str, ...]:
        """Values whose elements correspond one to one to those of the operator's result."""
        if index not in self._bijective:
            node = self.node(index)
            self._bijective[index] = tuple(node.inputs[k] for k in bijective_operands(self.graph, node))
        return self._bijective[index]

    def flops(self, index: int) -> int:
        """Arithmetic operations of one application."""
        if index not in self._flops:
            spec, node = self.spec(index), self.node(index)
            self._flops[index] = 0 if spec is None else hint(flops_of(spec, call_of(self.graph, node)))
        return self._flops[index]

    def flags(self, index: int) -> frozenset[str]:
        """Algebraic properties: `associative`, `commutative`, `linear`, `idempotent`, and `distributive` over something."""
        spec = self.spec(index)
        if spec is None:
            return frozenset()
        return spec.flags | ({"distributive"} if spec.distributes_over else set())

    def size(self, value: str) -> int | None:
        """Elements of a value, at the hints where it depends on symbols; None when its shape is not known."""
        if value not in self._sizes:
            kind = self.graph.types.get(value)
            self._sizes[value] = hint(kind.size) if isinstance(kind, TensorType) and kind.is_static else None
        return self._sizes[value]

    def nbytes(self, value: str) -> int:
        """Bytes of a value in memory; 0 when its shape is not known."""
        size = self.size(value)
        return 0 if size is None else size * self.graph.tensor(value).dtype.itemsize

    def result_bytes(self, index: int) -> int | None:
        """Bytes of the operator's intermediate result; None when a shape is not known."""
        if any(self.size(value) is None for value in self.node(index).writes):
            return None
        return sum(self.nbytes(value) for value in self.node(index).writes)

    def is_removable(self, value: str, group: Set[int]) -> bool:
        """Need a value never be written, all its readers being fused with its producer?"""
        return value not in self.graph.output_set and all(reader in group for reader in self.graph.users[value])
