"""Where each value lies: which buffer, at what offset, with what strides.

Three ideas keep data from moving. Values of spatial operators are laid out channels last. A value that is only another
view of one already in memory (Reshape, Transpose, Slice, Split, Expand, a Gather of one row) is given strides over that
one's buffer instead of a copy. A value whose one purpose is to be concatenated is written where the concatenation wants
it.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import field

from fusewise.errors import UnsupportedModel
from fusewise.ir.deciding import hint, known_below, known_one, known_zero
from fusewise.ir.graph import Graph, Node
from fusewise.ir.partition import Group, Partition
from fusewise.ir.size import Size
from fusewise.ir.types import TensorType, ValueType
from fusewise.lower.compose import OUTSIDE, NodeElements
from fusewise.lower.index import Simplifier
from fusewise.lower.places import places, strides_at
from fusewise.ops.bijection import VIEWS
from fusewise.ops.expr import const
from fusewise.ops.spec import ANCHOR_FAMILIES, NotDefined
from fusewise.ops.table import spec_of
from fusewise.records import record

__all__ = ["Layout", "Storage", "channels_last", "plan_layout", "row_major", "strides_in_order"]

SPATIAL_FAMILIES = frozenset("conv conv_integer conv_transpose max_pool average_pool lp_pool".split())

CHANGED, CHANGED_ON_HOST = frozenset(("ScatterElements", "ScatterND", "TensorScatter")), frozenset(("ScatterND",))
"""Operators whose result is their first operand, changed in places."""


@record(frozen=True, slots=True)
class Storage:
    """A value in memory: element (j0, j1, ...) lies `offset + sum(j * stride)` elements into the buffer that `root` owns."""

    root: str
    offset: int
    strides: tuple[int, ...]

    def order(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Dimensions from the slowest to the fastest; ties (unit or broadcast dimensions) keep ONNX's order."""
        return tuple(
            sorted(range(len(shape)), key=lambda d: (0 if known_below(shape[d], 2) else -hint(self.strides[d]), d))
        )


@record(frozen=True)
class Layout:
    """`storage` for every value that is ever in memory; `views` are those that cost nothing to make; `assembled` the
    results of a Concat whose pieces are written each to its place, and those pieces; `copied` outputs that are parts of a value in
    memory, and where they lie there."""

    storage: Mapping[str, Storage]
    views: frozenset[str]
    assembled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    copied: Mapping[str, Storage] = field(default_factory=dict)


def strides_in_order(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Dense strides when dimensions are laid out in `order`, slowest first."""
    strides = [0] * len(shape)
    step = 1
    for d in reversed(order):
        strides[d] = step
        step *= shape[d] if isinstance(shape[d], Size) else max(1, shape[d])
    return tuple(strides)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Dense strides in ONNX's own order."""
    return strides_in_order(shape, range(len(shape)))


def channels_last(rank: int) -> tuple[int, ...]:
    """N, spatial dimensions, C."""
    return (0, *range(2, rank), 1)


@record
class _Planner:
    graph: Graph
    partition: Partition
    host: frozenset[int]
    storage: dict[str, Storage] = field(default_factory=dict)
    views: set[str] = field(default_factory=set)
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    parents: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    assembled: dict[str, tuple[str, ...]] = field(default_factory=dict)
    copied: dict[str, Storage] = field(default_factory=dict)
    elements: NodeElements | None = None
    moves: bool = True
    orders_wanted: bool = True

    def run(self) -> Layout:
        for value in (*self.graph.inputs, *self.graph.constants):
            kind = self.graph.types[value]
            if isinstance(kind, TensorType) and kind.is_static:
                self.storage[value] = Storage(value, 0, row_major(kind.dims))
        if self.orders_wanted:
            self._find_orders()
        for value, given in self.graph.grown.items():
            self._lay_in_place(value, given)
        self._find_parents()
        for position, group in enumerate(self.partition.groups):
            for value in group.outputs(self.graph):
                kind = self.graph.types[value]
                if isinstance(kind, TensorType) and kind.is_static and value not in self.storage:
                    self._place(group, value, kind, position in self.host)
            for node in group.members(self.graph):
                if node.writes and node.outputs[0] in self.assembled:
                    self._place_pieces(group, node)
        require_in_place(self.graph, self.assembled)
        return Layout(self.storage, frozenset(self.views), self.assembled, self.copied)

    def _lay_in_place(self, value: str, given: str) -> None:
        """A value that grows from an input lies there, and so does its first piece, which is the part of that that is filled."""
        whole = self.storage[value] = Storage(given, 0, self.storage[given].strides)
        first = self.graph.nodes[self.graph.producer[value]].inputs[0]
        if first not in self.graph.producer:
            return
        group = self.partition.groups[self.partition.group_of[self.graph.producer[first]]]
        found = self._seen(group, first, {})
        wide = [d for d, dim in enumerate(self.graph.tensor(first).dims) if not known_one(dim)]
        begins = found is not None and found.root == given and known_zero(found.offset)
        if found is not None and begins and all(found.strides[d] == whole.strides[d] for d in wide):
            self.storage[first] = whole
            self.views.add(first)

    def _place(self, group: Group, value: str, kind: TensorType, on_host: bool) -> None:
        over = self._over(group, value, on_host)
        if over is not None:
            self.storage[value] = over
        elif on_host:
            self.storage[value] = Storage(value, 0, row_major(kind.dims))
        elif self.moves and value not in self.graph.output_set and value not in self.parents:
            found: dict[str, Storage] = {}
            if self._as_view(group, value, found) is not None:
                self.storage.update(found)
                self.views.update(v for v, storage in found.items() if storage.root != v and v not in self.parents)
                return
        elif self.moves and value in self.graph.output_set and len(group.nodes) == 1:
            source = self._seen(group, value, {})
            if source is not None and source.offset:
                self.copied[value] = source
        self._place_root(value)

    def _over(self, group: Group, value: str, on_host: bool) -> Storage | None:
        """The memory of what a scatter changes, when nobody reads any of that afterwards: then nothing need be copied."""
        node = self.graph.nodes[self.graph.producer[value]]
        changed = CHANGED_ON_HOST if on_host else CHANGED
        source = self.storage.get(node.inputs[0]) if node.op in changed and not node.domain else None
        fixed = (*self.graph.inputs, *self.graph.constants)
        if (
            not self.moves
            or source is None
            or len(group.nodes) > 1
            or source.root in fixed
            or source.root in self.parents
            or value in self.parents
            or any(name in self.storage and self.storage[name].root == source.root for name in node.inputs[1:])
        ):
            return None
        same = self.graph.types[node.inputs[0]] == self.graph.types[value]
        if not same or source.offset or not is_dense(source, self.graph.tensor(value).dims):
            return None
        if self.graph.tensor(source.root) != self.graph.tensor(value) or value in self.graph.output_set:
            return None
        alike = [other for other, storage in self.storage.items() if storage.root == source.root]
        readers = {user for other in alike for user in self.graph.users[other]}
        here = self.partition.group_of[group.nodes[0]]
        late = any(self.partition.group_of[user] >= here and user not in group.nodes for user in readers)
        return None if late or not self.graph.output_set.isdisjoint(alike) else source

    def _place_pieces(self, group: Group, concat: Node) -> None:
        """What the group itself puts into an assembled Concat is stored, in its place if it may be."""
        self._place_root(concat.outputs[0])
        for value in self.assembled[concat.outputs[0]]:
            if self.graph.producer.get(value) in group.nodes:
                self._place_root(value)

    def _place_root(self, value: str) -> None:
        if value not in self.storage:
            self.storage[value] = self._root(value)

    def _root(self, value: str) -> Storage:
        """Memory of its own for a value, or its part of the Concat it is written into."""
        if value in self.parents:
            concatenated, axis, start = self.parents[value]
            self._place_root(concatenated)
            whole = self.storage[concatenated]
            return Storage(whole.root, whole.offset + start * whole.strides[axis], whole.strides)
        shape = self.graph.tensor(value).dims
        order = range(len(shape)) if value in self.graph.output_set else self.orders.get(value, range(len(shape)))
        return Storage(value, 0, strides_in_order(shape, tuple(order)))

    # --- views ----------------------------------------------------------------------------------------------------

    def _as_view(self, group: Group, value: str, found: dict[str, Storage]) -> Storage | None:
        """A value as a view of one in memory, or of one that its group then writes; what is thus placed goes to `found`."""
        if value in self.storage:
            return self.storage[value]
        if value in self.graph.output_set or value in self.parents:
            return None
        return self._seen(group, value, found)

    def _seen(self, group: Group, value: str, found: dict[str, Storage]) -> Storage | None:
        """Where the elements of a value already lie, whatever is to become of it."""
        node = self.graph.nodes[self.graph.producer[value]]
        if node.op not in VIEWS or node.domain:
            return None
        try:
            body, at = self._elements_of(node).of(value)
        except NotDefined:
            return None
        if body.op != "load" or not body.value.startswith(OUTSIDE):
            return None
        name = body.value[len(OUTSIDE) :]
        source = self.storage.get(name)
        before: dict[str, Storage] = {}
        if source is None and self.graph.producer.get(name) in group.nodes:
            source = self._as_view(group, name, before)
            if source is None and self._worth_writing(group, name, value):
                source = self._root(name)
                before = {name: source}
        shape = self.graph.tensor(value).dims
        if source is None or source.root in self.graph.constants or 0 in shape:
            return None
        position = const(0)
        for subscript, stride in zip(body.args, source.strides, strict=True):
            position = position + subscript * stride
        ranges = Simplifier({i.value: extent for i, extent in zip(at, shape, strict=True)})
        form = ranges.linear(position)
        coefficients = {atom.value: c for atom, c in form.terms if atom.op == "index"}
        if len(coefficients) != len(form.terms):
            return None
        strides = [coefficients.get(i.value, 0) for i in at]
        for d in reversed(range(len(shape))):
            if shape[d] == 1:
                strides[d] = strides[d + 1] * shape[d + 1] if d + 1 < len(shape) else 1
        found |= before
        found[value] = Storage(source.root, source.offset + form.constant, tuple(strides))
        return found[value]

    def _worth_writing(self, group: Group, source: str, part: str) -> bool:
        """Is a value to be written whole when only views of it are read outside? Yes, unless a part alone can be computed."""
        whole = self.graph.tensor(source).size
        if (
            hint(self.graph.tensor(part).size) >= hint(whole)
            or self.graph.nodes[self.graph.producer[part]].op == "Split"
        ):
            return True
        families = [spec_of(node.op, node.domain) for node in group.members(self.graph)]
        return any(spec is not None and spec.family in ANCHOR_FAMILIES for spec in families)

    def _elements_of(self, node: Node) -> NodeElements:
        """What the results of a node are: one by one of the same node, they are looked at in turn."""
        if self.elements is None or self.elements.node is not node:
            self.elements = NodeElements(self.graph, node)
        return self.elements

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
        if family == "sampled" and kind.rank >= 3 and self._stays(value, channels_last(kind.rank)):
            return channels_last(kind.rank)
        if value in wanted:
            return wanted[value]
        if node.op == "Transpose":
            source = node.inputs[0]
            permutation = node.attribute("perm", plain[::-1])
            before = self.orders.get(source, plain)
            return tuple(permutation.index(d) for d in before)
        if node.op in ("Reshape", "Flatten", "Unsqueeze", "Squeeze"):
            source = node.inputs[0]
            order = _reshaped(self.orders.get(source), self.graph.types[source], kind)
            known = self.graph.array(node.inputs[1]) if node.op == "Unsqueeze" and order != plain else None
            return order if known is None else _beside(order, [int(axis) % kind.rank for axis in known.reshape(-1)])
        if family in ("matmul", "matmul_integer", "gemm"):
            return plain
        for source in node.inputs:
            found = self.orders.get(source)
            if found is not None and len(found) == kind.rank:
                return found
        return plain

    def _stays(self, value: str, order: tuple[int, ...]) -> bool:
        """Does no reader reshape the value into what cannot lie in that order?"""
        readers = [self.graph.nodes[user] for user in self.graph.users[value]]
        made = [self.graph.types[node.outputs[0]] for node in readers if node.op in ("Reshape", "Flatten")]
        shapes = [kind for kind in made if isinstance(kind, TensorType) and kind.is_static]
        before = self.graph.types[value]
        return all(_reshaped(order, before, kind) != tuple(range(kind.rank)) for kind in shapes)

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
        known: dict[tuple[int, tuple[str, ...]], str] = {}
        for position, group in enumerate(self.partition.groups):
            for node in group.members(self.graph):
                if position not in self.host and self._is_assembled(group, node):
                    self._move_operands(node, known)
        for position, group in enumerate(self.partition.groups):
            if position not in self.host and len(group.nodes) == 1:
                self._move_base(group.members(self.graph)[0])

    def _move_base(self, node: Node) -> None:
        """Have what a scatter changes be written straight into its result, an output of the graph, where nobody else reads it."""
        base, value = (node.inputs[0], node.outputs[0]) if node.op in CHANGED and not node.domain else ("", "")
        if not self.moves or value not in self.graph.output_set or value in self.parents:
            return
        alone = self.graph.users[base] == (self.graph.producer[value],) and self._may_move(base, node.inputs)
        if not alone or self.graph.types[base] != self.graph.types[value]:
            return
        for name in node.inputs[1:]:
            if self.parents.get(name, ("",))[0] == base:  # what is read may not lie where it is written
                del self.parents[name]
        self.parents[base] = value, 0, 0

    def _is_assembled(self, group: Group, node: Node) -> bool:
        """Is a Concat there only to be stored? Otherwise whoever reads it chooses the operand to read."""
        if node.op != "Concat" or node.domain:
            return False
        kind = self.graph.types[node.outputs[0]]
        if not isinstance(kind, TensorType) or not kind.is_static or not kind.size:
            return False
        inside = [n for n in group.nodes if n in self.graph.users[node.outputs[0]]]
        return not any(self.graph.nodes[reader].op not in VIEWS for reader in inside)

    def _move_operands(self, node: Node, known: dict[tuple[int, tuple[str, ...]], str]) -> None:
        """Give the operands their places; those that an earlier Concat joined alike (DenseNet's chains) move as one."""
        output = node.outputs[0]
        axis = node.attribute("axis", 0) % self.graph.tensor(output).rank
        pieces = node.inputs
        for end in range(len(pieces) - 1, 1, -1):
            if self.moves and (axis, pieces[:end]) in known:
                pieces = (known[axis, pieces[:end]], *pieces[end:])
                break
        self.assembled[output] = pieces
        known.setdefault((axis, node.inputs), output)
        start = 0
        for value in pieces:
            if self.moves and value not in self.storage and self._may_move(value, pieces):
                self.parents[value] = (output, axis, start)
            start += self.graph.tensor(value).dims[axis]

    def _may_move(self, value: str, pieces: tuple[str, ...]) -> bool:
        index = self.graph.producer.get(value)
        if index is None or value in self.graph.output_set or value in self.parents:
            return False
        owner = self.partition.group_of[index]
        group = self.partition.groups[owner]
        if owner in self.host or pieces.count(value) != 1:
            return False
        return self.graph.nodes[index].op not in VIEWS or self._is_even(group, value)

    def _is_even(self, group: Group, value: str) -> bool:
        """Can a moved value be stored through regular strides by the group that computes it?"""
        nodes = group.members(self.graph)
        heavy = next((n for n in nodes if (s := spec_of(n.op, n.domain)) and s.family in ANCHOR_FAMILIES), None)
        if heavy is None:
            return len(nodes) > 1 and any(node.op not in VIEWS for node in nodes)
        hub = heavy.outputs[0]
        place = places(self.graph, nodes, hub).get(value)
        dims = self.graph.tensor(hub).dims
        ranges = {f"i{d}": extent for d, extent in enumerate(dims)}
        return place is not None and strides_at(place, row_major(self.graph.tensor(value).dims), ranges) is not None


def require_in_place(graph: Graph, assembled: Mapping[str, tuple[str, ...]]) -> None:
    """Raise `UnsupportedModel` for an output that grows from an input, but is not written piece by piece."""
    for value, given in graph.grown.items():
        if value not in assembled:
            node = graph.nodes[graph.producer[value]]
            told = f"it is not written by node {node.label!r} ({node.op}) alone"
            raise UnsupportedModel(f"output {value!r} cannot grow in the place of input {given!r}: {told}")


def _reshaped(order: tuple[int, ...] | None, before: ValueType, after: TensorType) -> tuple[int, ...]:
    """The order in which a reshaped value lies as its source does; ONNX's own where there is none.

    (1, 768, 14, 14) laid out N H W C  ->  (1, 768, 196) laid out N HW C
    """
    plain = tuple(range(after.rank))
    if order is None or not isinstance(before, TensorType) or not before.is_static or known_below(after.size, 2):
        return plain
    starts, ends = (list(itertools.accumulate(shape, operator.mul)) for shape in (before.dims, after.dims))
    common = (set(starts) & set(ends)) - {1}
    # dimensions that are made of each other have the same number of common ends before them
    source = [len(common.intersection(starts[:d])) for d in range(before.rank)]
    result = [len(common.intersection(ends[:d])) for d in range(after.rank)]
    kept = [d for d in order if before.dims[d] != 1]
    runs = [list(run) for _, run in itertools.groupby(kept, key=lambda d: source[d])]
    turns = [source[run[0]] for run in runs]
    if len(set(turns)) < len(turns) or any(run != sorted(run) for run in runs):
        return plain
    wide = sorted((d for d in plain if after.dims[d] != 1), key=lambda d: (turns.index(result[d]), d))
    return plain if wide == sorted(wide) else (*(d for d in plain if after.dims[d] == 1), *wide)


def _beside(order: tuple[int, ...], axes: Sequence[int]) -> tuple[int, ...]:
    """The order with these axes each right before the one that follows it, which is where a Concat along them joins."""
    found = [d for d in order if d not in axes]
    for d in sorted(axes, reverse=True):
        found.insert(found.index(d + 1) if d + 1 in found else len(found), d)
    return tuple(found)


def plan_layout(
    graph: Graph,
    partition: Partition,
    host: frozenset[int] = frozenset(),
    *,
    by_index: bool = True,
    by_dominant: bool = True,
) -> Layout:
    """Storage for every static value that groups exchange. `host` are the positions of groups that run as host steps.

    Host steps read and write ONNX's own order; lowering copies where a value lies otherwise. Without `by_index` movement
    is done by copying (no views, no Concat in place); without `by_dominant` every value lies in ONNX's order and not in
    the one that the dominant operator likes (DNNFusion's intra-block and inter-block optimisations, section 4.4.3).
    """
    return _Planner(graph, partition, host, moves=by_index, orders_wanted=by_dominant).run()


def is_dense(storage: Storage, shape: Sequence[int]) -> bool:
    """Is the value exactly row-major, apart from unit dimensions?"""
    return math.prod(shape) == 0 or all(
        s == r for s, r, n in zip(storage.strides, row_major(shape), shape, strict=True) if n != 1
    )
