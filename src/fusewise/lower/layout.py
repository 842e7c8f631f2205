"""Where each value lies: which buffer, at what offset, with what strides.

Three ideas keep data from moving. Values of spatial operators are laid out channels last. A value that is only another
view of one already in memory (Reshape, Transpose, Slice, Split, Expand, a Gather of one row) is given strides over that
one's buffer instead of a copy. A value whose one purpose is to be concatenated is written where the concatenation wants
it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fusewise.ir.graph import Graph, Node
from fusewise.ir.partition import Group, Partition
from fusewise.ir.types import TensorType
from fusewise.lower.compose import OUTSIDE, element_of
from fusewise.lower.index import Simplifier
from fusewise.ops.expr import const
from fusewise.ops.spec import NotDefined
from fusewise.ops.table import spec_of

__all__ = ["Layout", "Storage", "plan_layout", "row_major"]

SPATIAL_FAMILIES = frozenset("conv conv_transpose max_pool average_pool lp_pool".split())
_VIEW_OPS = frozenset(
    "Identity Reshape Flatten Squeeze Unsqueeze Transpose Slice Split Expand Gather DepthToSpace SpaceToDepth".split()
)


@dataclass(frozen=True, slots=True)
class Storage:
    """A value in memory: element (j0, j1, ...) lies `offset + sum(j * stride)` elements into the buffer that `root` owns."""

    root: str
    offset: int
    strides: tuple[int, ...]

    def order(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Dimensions from the slowest to the fastest; ties (unit or broadcast dimensions) keep ONNX's order."""
        return tuple(sorted(range(len(shape)), key=lambda d: (-self.strides[d] if shape[d] > 1 else 0, d)))


@dataclass(frozen=True)
class Layout:
    """`storage` for every value that is ever in memory; `views` are those that cost nothing to make."""

    storage: Mapping[str, Storage]
    views: frozenset[str]


def strides_in_order(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Dense strides when dimensions are laid out in `order`, slowest first."""
    strides = [0] * len(shape)
    step = 1
    for d in reversed(order):
        strides[d] = step
        step *= max(1, shape[d])
    return tuple(strides)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Dense strides in ONNX's own order."""
    return strides_in_order(shape, range(len(shape)))


def channels_last(rank: int) -> tuple[int, ...]:
    """N, spatial dimensions, C."""
    return (0, *range(2, rank), 1)


@dataclass
class _Planner:
    graph: Graph
    partition: Partition
    host: frozenset[int]
    storage: dict[str, Storage] = field(default_factory=dict)
    views: set[str] = field(default_factory=set)
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    parents: dict[str, tuple[str, int]] = field(default_factory=dict)

    def run(self) -> Layout:
        for value in (*self.graph.inputs, *self.graph.constants):
            kind = self.graph.types[value]
            if isinstance(kind, TensorType) and kind.is_static:
                self.storage[value] = Storage(value, 0, row_major(kind.dims))
        self._find_orders()
        self._find_parents()
        for position, group in enumerate(self.partition.groups):
            for value in group.outputs(self.graph):
                kind = self.graph.types[value]
                if isinstance(kind, TensorType) and kind.is_static and value not in self.storage:
                    self._place(group, value, kind, position in self.host)
        return Layout(self.storage, frozenset(self.views))

    def _place(self, group: Group, value: str, kind: TensorType, on_host: bool) -> None:
        if value not in self.graph.output_set and not on_host and len(group.nodes) == 1:
            view = self._as_view(self.graph.nodes[group.nodes[0]], value)
            if view is not None:
                self.storage[value] = view
                self.views.add(value)
                return
        if on_host:
            self.storage[value] = Storage(value, 0, row_major(kind.dims))
        self._place_root(value)

    def _place_root(self, value: str) -> None:
        if value in self.storage:
            return
        if value in self.parents:
            concatenated, start = self.parents[value]
            self._place_root(concatenated)
            whole = self.storage[concatenated]
            self.storage[value] = Storage(whole.root, whole.offset + start, whole.strides)
            return
        shape = self.graph.tensor(value).dims
        order = range(len(shape)) if value in self.graph.output_set else self.orders.get(value, range(len(shape)))
        self.storage[value] = Storage(value, 0, strides_in_order(shape, tuple(order)))

    # --- views ----------------------------------------------------------------------------------------------------

    def _as_view(self, node: Node, value: str) -> Storage | None:
        if node.op not in _VIEW_OPS or node.domain:
            return None
        try:
            body, at = element_of(self.graph, node, value)
        except NotDefined:
            return None
        if body.op != "load" or not body.value.startswith(OUTSIDE):
            return None
        source = self.storage.get(body.value[len(OUTSIDE) :])
        if source is None or source.root in self.graph.constants:
            return None
        shape = self.graph.tensor(value).dims
        if 0 in shape:
            return None
        ranges = Simplifier({i.value: extent for i, extent in zip(at, shape, strict=True)})
        position = const(0)
        for subscript, stride in zip(body.args, source.strides, strict=True):
            position = position + subscript * stride
        form = ranges.linear(position)
        coefficients = {atom.value: c for atom, c in form.terms if atom.op == "index"}
        if len(coefficients) != len(form.terms):
            return None
        strides = [coefficients.get(i.value, 0) for i in at]
        for d in reversed(range(len(shape))):
            if shape[d] == 1:
                strides[d] = strides[d + 1] * shape[d + 1] if d + 1 < len(shape) else 1
        return Storage(source.root, source.offset + form.constant, tuple(strides))

    # --- orders ---------------------------------------------------------------------------------------------------

    def _find_orders(self) -> None:
        """The preferred order of dimensions of every produced value, producers first."""
        wanted = self._wanted_by_transposes()
        for node in self.graph.nodes:
            for value in node.writes:
                kind = self.graph.types.get(value)
                if isinstance(kind, TensorType) and kind.is_static and kind.rank:
                    order = self._order(node, value, kind, wanted)
                    if order != tuple(range(kind.rank)):
                        self.orders[value] = order

    def _order(
        self, node: Node, value: str, kind: TensorType, wanted: Mapping[str, tuple[int, ...]]
    ) -> tuple[int, ...]:
        plain = tuple(range(kind.rank))
        if value in self.graph.output_set and not self.graph.users[value]:
            return plain
        spec = spec_of(node.op, node.domain)
        family = "" if spec is None else spec.family
        if family in SPATIAL_FAMILIES and kind.rank >= 3:
            return channels_last(kind.rank)
        if value in wanted:
            return wanted[value]
        if node.op == "Transpose":
            source = node.inputs[0]
            permutation = node.attribute("perm", plain[::-1])
            before = self.orders.get(source, plain)
            return tuple(permutation.index(d) for d in before)
        if family in ("matmul", "gemm") or node.op in ("Reshape", "Flatten"):
            return plain
        for source in node.inputs:
            found = self.orders.get(source)
            if found is not None and len(found) == kind.rank:
                return found
        return plain

    def _wanted_by_transposes(self) -> dict[str, tuple[int, ...]]:
        """Products whose only reader is a Transpose that feeds only Reshapes: write them as the Reshape wants them."""
        wanted: dict[str, tuple[int, ...]] = {}
        for node in self.graph.nodes:
            if node.op != "Transpose":
                continue
            source, value = node.inputs[0], node.outputs[0]
            maker = self.graph.producer_of(source)
            permutation = node.attribute("perm")
            readers = [self.graph.nodes[u].op for u in self.graph.users[value]]
            if (
                maker is not None
                and maker.op == "MatMul"
                and permutation is not None
                and permutation[-1] == len(permutation) - 1
                and len(self.graph.users[source]) == 1
                and readers
                and all(op in ("Reshape", "Flatten") for op in readers)
            ):
                wanted[source] = tuple(permutation)
        return wanted

    # --- concatenation in place -----------------------------------------------------------------------------------

    def _find_parents(self) -> None:
        """Values that can be written straight into the result of the one Concat that reads them."""
        for position, group in enumerate(self.partition.groups):
            node = self.graph.nodes[group.nodes[0]]
            if len(group.nodes) != 1 or node.op != "Concat" or node.domain or position in self.host:
                continue
            output = node.outputs[0]
            kind = self.graph.types[output]
            if not isinstance(kind, TensorType) or not kind.is_static:
                continue
            axis = node.attribute("axis", 0) % kind.rank
            order = range(kind.rank) if output in self.graph.output_set else self.orders.get(output, range(kind.rank))
            step = strides_in_order(kind.dims, tuple(order))[axis]
            start = 0
            for value in node.inputs:
                if self._may_move(value, node):
                    self.parents[value] = (output, start * step)
                start += self.graph.tensor(value).dims[axis]

    def _may_move(self, value: str, concat: Node) -> bool:
        index = self.graph.producer.get(value)
        if index is None or value in self.graph.output_set or value in self.parents:
            return False
        owner = self.partition.group_of[index]
        group = self.partition.groups[owner]
        maker = self.graph.nodes[index]
        plain_view = len(group.nodes) == 1 and maker.op in _VIEW_OPS
        return owner not in self.host and not plain_view and concat.inputs.count(value) == 1


def plan_layout(graph: Graph, partition: Partition, host: frozenset[int] = frozenset()) -> Layout:
    """Storage for every static value that groups exchange. `host` are the positions of groups that run as host steps.

    Host steps read and write ONNX's own order; lowering copies where a value lies otherwise.
    """
    return _Planner(graph, partition, host).run()


def is_dense(storage: Storage, shape: Sequence[int]) -> bool:
    """Is the value exactly row-major, apart from unit dimensions?"""
    return math.prod(shape) == 0 or all(
        s == r for s, r, n in zip(storage.strides, row_major(shape), shape, strict=True) if n > 1
    )
