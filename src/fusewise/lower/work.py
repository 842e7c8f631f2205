"""A partition as a list of work: tasks for the code generator, nodes for the host, nothing for what is only a view.

A group whose definitions cannot be composed falls apart into its nodes; a node that has none runs on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import partial
from types import MappingProxyType

from fusewise.ir.deciding import hint, known_equal
from fusewise.ir.dtypes import UINT8
from fusewise.ir.graph import Graph, Node
from fusewise.ir.partition import Group, Partition
from fusewise.ir.size import SizeNeeded, Undecided
from fusewise.ir.types import TensorType
from fusewise.lower.compose import BoundTask, BufferView, IndexSpace, compose
from fusewise.lower.inside import Proofs
from fusewise.lower.layout import Layout, Storage, channels_last, is_dense, plan_layout, row_major, strides_in_order
from fusewise.lower.places import hub_index, places, strides_at
from fusewise.lower.task import Operand, Store, Task
from fusewise.lower.whole import FAMILIES, whole_family
from fusewise.ops.bijection import VIEWS
from fusewise.ops.definition import call_of, definition
from fusewise.ops.expr import Index, const, index, load
from fusewise.ops.spec import ANCHOR_FAMILIES, NotDefined
from fusewise.ops.table import spec_of
from fusewise.records import record
from fusewise.trace import INTER_BLOCK, INTRA_BLOCK, Trace

__all__ = ["HostWork", "Lowered", "TaskWork", "host_reason", "lower_partition"]


@record(frozen=True)
class TaskWork:
    """One task. `places` gives, for each operand, the buffer's root value and the offset in elements.

    `nodes` names what it is for: the nodes that it computes, that of the hub first; of a copy the nodes that need it, or the value.
    `label` and `group` are the title and the number of their group. `plain` composes the same outputs without an anchor, for when
    no anchored kernel accepts the task. Of a task for one of several samples `between` has, for each operand that holds them all,
    how many elements apart they lie.
    """

    bound: BoundTask
    places: dict[str, tuple[str, int]]
    label: str
    group: int
    nodes: tuple[str, ...]
    plain: Callable[[], TaskWork] | None = None
    between: Mapping[str, int] = field(default_factory=dict)


@record(frozen=True)
class HostWork:
    """The nodes of one group for the host, and why each.

    `reads` gives, for each value read from outside, where it lies (root, offset in elements, and strides where these are not
    ONNX's own), or None for a value that is not in native memory; `writes` are the results that others read.
    """

    nodes: tuple[Node, ...]
    reasons: tuple[str, ...]
    group: int
    reads: dict[str, tuple[str, int, tuple[int, ...] | None] | None]
    writes: tuple[str, ...]


@record(frozen=True)
class Lowered:
    """All work in order, where values lie, and the groups that the work is numbered by."""

    graph: Graph
    layout: Layout
    work: tuple[TaskWork | HostWork, ...]
    groups: tuple[Group, ...] = ()


def host_reason(graph: Graph, node: Node, proofs: Proofs | None = None) -> str:
    """Why a node cannot run natively; empty when it can.

    With `proofs`, one that can is required to read nothing but elements that its operands have: else `InvalidModel`, or a reason
    where sizes that are not known decide that."""
    if family := whole_family(node):
        kinds = (graph.types.get(value) for value in (*node.reads, *node.writes))
        of_sizes = any(isinstance(kind, TensorType) and kind.is_static and not kind.is_fixed for kind in kinds)
        if of_sizes and not FAMILIES[family].of_sizes:
            return f"{node.op} of sizes that are not known"
        try:
            return FAMILIES[family].reason(graph, node)
        except (SizeNeeded, Undecided) as size:
            return f"{node.op} of sizes that are not known: {size}"
    spec = spec_of(node.op, node.domain)
    if spec is None or (spec.scalar is None and spec.define is None):
        return "no element definition"
    call = call_of(graph, node)
    for k, value in enumerate(node.outputs):
        if not value:
            continue
        kind = graph.types.get(value)
        if not isinstance(kind, TensorType) or not kind.is_static:
            return "shape depends on data"
        try:
            body = definition(spec, call, k, tuple(index(f"i{d}") for d in range(kind.rank)))
        except NotDefined as reason:
            return str(reason)
        if proofs is not None and (doubt := proofs.require(graph, node, value, body)):
            return doubt
    return ""


_NONE: Mapping[int, str] = MappingProxyType({})


def lower_partition(
    partition: Partition,
    trace: Trace,
    *,
    exact: bool = False,
    refused: Mapping[int, str] = _NONE,
    anywhere: bool = False,
) -> Lowered:
    """Turn every group into work. A group of host nodes and others is first taken apart. `refused` has nodes by number that are
    for the host whatever they are, and why. `anywhere`: kernels read and write any element as well as its neighbour, so that
    nothing is copied for them to find it in even steps.

    `trace.disabled` may name the layout optimisations `INTRA_BLOCK` and `INTER_BLOCK`. Raises `InvalidModel` for a node that needs
    more of an operand than there is.
    """
    graph, proofs = partition.graph, Proofs()
    found = ((i, host_reason(graph, node, proofs) or refused.get(i, "")) for i, node in enumerate(graph.nodes))
    reasons = {i: reason for i, reason in found if reason}
    whole = {i: family for i, node in enumerate(graph.nodes) if i not in reasons and (family := whole_family(node))}
    reasons |= {i: "refused" for i, family in whole.items() if not _may_run(graph.nodes[i], family, trace)}
    partition = _refine(partition, frozenset(reasons))
    host = frozenset(p for p, group in enumerate(partition.groups) if group.nodes[0] in reasons)
    layout = plan_layout(
        graph,
        partition,
        host,
        by_index=INTRA_BLOCK not in trace.disabled,
        by_dominant=INTER_BLOCK not in trace.disabled,
    )
    lowering = _Lowering(graph, layout, exact, INTRA_BLOCK not in trace.disabled, anywhere)
    work: list[TaskWork | HostWork] = []
    for position, group in enumerate(partition.groups):
        if position in host:
            for n in group.nodes:
                trace.add("host", graph.nodes[n].op, (graph.nodes[n].label,), reasons[n])
            work.extend(lowering.host(group, tuple(reasons[n] for n in group.nodes), position))
        else:
            work.extend(lowering.tasks(group, position))
    produced = {v for node in graph.nodes for v in node.writes}
    for value in dict.fromkeys(graph.outputs):
        if value not in produced and not lowering.is_object(value):
            work.append(lowering.output_copy(value, len(partition.groups)))
    return Lowered(graph, layout, tuple(work), partition.groups)


def _may_run(node: Node, family: str, trace: Trace) -> bool:
    """A node that is one task has no other way to run natively than its family's kernels, so that is asked for before."""
    return trace.allows("kernel", family, (node.label,), "the only kernel")


def _reads_anywhere(nodes: tuple[Node, ...], value: str) -> bool:
    """Do host nodes read a value just as well when it does not lie in ONNX's own order? RoiAlign likes channels last."""
    return all(
        node.op == "RoiAlign" and not node.domain and node.inputs[0] == value and value not in node.inputs[1:]
        for node in nodes
        if value in node.reads
    )


def _refine(partition: Partition, on_host: frozenset[int]) -> Partition:
    groups: list[Group] = []
    for group in partition.groups:
        alone = any(whole_family(partition.graph.nodes[n]) for n in group.nodes) and not on_host.issuperset(group.nodes)
        alone = alone or _reads_what_grows(partition.graph, group)
        if 0 < len(on_host.intersection(group.nodes)) < len(group.nodes) or (alone and len(group.nodes) > 1):
            groups.extend(Group((node,)) for node in group.nodes)
        else:
            groups.append(group)
    return partition if len(groups) == len(partition.groups) else Partition.ordered(partition.graph, groups)


def _reads_what_grows(graph: Graph, group: Group) -> bool:
    """Does a group make more of what it writes in the place of an input? It is written first."""
    made = {value for n in group.nodes for value in graph.nodes[n].writes if value in graph.grown}
    return any(not made.isdisjoint(node.reads) and node.op not in VIEWS for node in group.members(graph))


_SQUARE = 16
"""Channels and places of an image from which on copying it channels last costs less than windows that do not find it so."""


def _by_channel(graph: Graph, anchor: Node) -> bool:
    """Does a window read one channel only for each element?"""
    if anchor.op != "Conv":
        return anchor.op in ("AveragePool", "LpPool", "MaxPool")
    return anchor.attribute("group", 1) > 1 and graph.tensor(anchor.inputs[1]).dims[1] == 1


@record(frozen=True)
class _Group:
    """A group being lowered, or what is left of it once some of its values have been stored."""

    nodes: tuple[Node, ...]
    label: str
    position: int

    def without(self, value: str) -> _Group:
        return replace(self, nodes=tuple(node for node in self.nodes if value not in node.writes))

    def places(self, graph: Graph, hub: str) -> dict[str, Index]:
        return places(graph, self.nodes, hub)

    def computing(self, hub: str, values: Iterable[str]) -> tuple[str, ...]:
        """The names of the nodes that values are computed by, that of the hub first."""
        makers = {value: node for node in self.nodes for value in node.writes}
        waiting, found = [hub, *values], dict[int, Node]()
        while waiting:
            node = makers.get(waiting.pop(0))
            if node is not None and id(node) not in found:
                found[id(node)] = node
                waiting += node.reads
        return tuple(dict.fromkeys(node.label for node in found.values()))


@record
class _Lowering:
    graph: Graph
    layout: Layout
    exact: bool
    by_index: bool
    anywhere: bool
    storage: dict[str, Storage] = field(init=False)

    def __post_init__(self) -> None:
        self.storage = dict(self.layout.storage)

    def tasks(self, group: Group, position: int) -> list[TaskWork]:
        """The tasks of one native group, nearly always one; none when all its outputs are views."""
        nodes = group.members(self.graph)
        if whole_family(nodes[0]):
            return self._whole(nodes[0], position)
        made = [v for node in nodes for v in node.writes if v in self.storage and v not in self.layout.views]
        assembled = [node for node in nodes if node.outputs[0] in self.layout.assembled]
        wanted = [v for v in made if v not in self.layout.assembled and v not in self.layout.copied]
        copied = [v for v in made if v in self.layout.copied]
        work = _Group(nodes, "+".join(node.op for node in nodes), position)
        parts = [
            self._copy(v, self.layout.copied[v], self.storage[v], nodes[0].op, position, work.computing(v, ())[:1])
            for v in copied
        ]
        found, work = self._by_channels(work, wanted)
        while wanted:
            direct = self._direct(work, wanted[0], wanted)
            found.append(self._task(work, wanted[0], direct, None))
            wanted = [v for v in wanted if v not in direct]
        for node in assembled:
            found.extend(self._concat(node, position))
        return found + parts

    def _by_channels(self, work: _Group, wanted: list[str]) -> tuple[list[TaskWork], _Group]:
        """As `_anchored`. A window over one channel each, whose data do not lie channels last, gets a copy that does; a result in
        ONNX's own order, if it is all the group stores, is turned back behind it."""
        anchor = self._anchor(work.nodes)
        turns = self.by_index and not self.anywhere
        fits = anchor is not None and wanted and turns and _by_channel(self.graph, anchor)
        if anchor is None or not fits or not self._turns(anchor.inputs[0]):
            return self._anchored(work, wanted)
        data, results = anchor.inputs[0], wanted if len(wanted) == 1 and self._turns(wanted[0]) else ()
        usual = {value: self.storage[value] for value in (data, *results)}
        turned = {value: self._turned(value, work.position) for value in usual}
        label, position, names = "Transpose", work.position, (anchor.label,)
        before = self._copy(data, usual[data], turned[data], label, position, names)
        behind = [self._copy(v, turned[v], usual[v], label, position, names) for v in results]
        self.storage = {**self.storage, **turned}
        found, left = self._anchored(work, wanted)
        self.storage = {**self.storage, **usual}
        return [before, *found, *(() if wanted else behind)], left

    def _turns(self, value: str) -> bool:
        """Is an image stored, in ONNX's own order, and large enough to be turned by squares?"""
        kind, storage = self.graph.tensor(value), self.storage.get(value)
        if storage is None or kind.rank != 4 or kind.dtype.itemsize != 4 or storage.strides != row_major(kind.dims):
            return False
        return hint(kind.dims[1]) >= _SQUARE and hint(kind.dims[2] * kind.dims[3]) >= _SQUARE

    def _turned(self, value: str, position: int) -> Storage:
        dims = self.graph.tensor(value).dims
        return Storage(f"turned:{position}:{value}", 0, strides_in_order(dims, channels_last(len(dims))))

    def _anchored(self, work: _Group, wanted: list[str]) -> tuple[list[TaskWork], _Group]:
        """The task around the group's anchor and what is left of the group; what the task stores is taken from `wanted`.

        When something needs other elements of the anchor's result than its own, that result is stored, and the rest of
        the group reads it from memory.
        """
        anchor = self._anchor(work.nodes)
        if anchor is None or not wanted:
            return [], work
        hub = anchor.outputs[0]
        direct = self._direct(work, hub, wanted, even=True)
        try:
            task = self._task(work, hub, direct, anchor) if len(direct) == len(wanted) else None
        except NotDefined:
            task = None
        if task is None:
            if hub not in self.storage:
                self.storage[hub] = Storage(hub, 0, row_major(self.graph.tensor(hub).dims))
            direct = {hub: hub_index(self.graph.tensor(hub).rank)}
            task = self._task(work, hub, direct, anchor)
            work = work.without(hub)
        wanted[:] = [v for v in wanted if v not in direct]
        return [task], work

    def _direct(self, work: _Group, hub: str, wanted: list[str], even: bool = False) -> dict[str, Index]:
        """Those of `wanted` that can be stored from the index space of `hub`, with their places in it."""
        found = work.places(self.graph, hub)
        dims = self.graph.tensor(hub).dims
        if not even:
            alike = {v: hub_index(len(dims)) for v in wanted if v not in found and self.graph.tensor(v).dims == dims}
            return {v: found[v] if v in found else alike[v] for v in wanted if v in found or v in alike}
        ranges = {f"i{d}": extent for d, extent in enumerate(dims)}
        return {
            value: found[value]
            for value in wanted
            if value in found
            and (
                value == hub
                or self.anywhere
                or strides_at(found[value], self.storage[value].strides, ranges) is not None
            )
        }

    def _anchor(self, nodes: tuple[Node, ...]) -> Node | None:
        """The one node with a kernel of its own."""
        found = [n for n in nodes if (spec := spec_of(n.op, n.domain)) is not None and spec.family in ANCHOR_FAMILIES]
        return found[0] if len(found) == 1 and len(found[0].writes) == 1 else None

    def _task(self, work: _Group, hub: str, direct: Mapping[str, Index], anchor: Node | None) -> TaskWork:
        space, views = IndexSpace(hub, direct), self._views(work.nodes, tuple(direct))
        bound = compose(self.graph, work.nodes, space, views, anchor=anchor, exact=self.exact)
        values = {name: self._place(value) for name, value in bound.values.items()}
        plain = None
        if anchor is not None:
            plain = partial(self._plain, self.storage, work, hub, direct)
        return TaskWork(bound, values, work.label, work.position, work.computing(hub, direct), plain)

    def _plain(self, storage: dict[str, Storage], work: _Group, hub: str, direct: Mapping[str, Index]) -> TaskWork:
        """The task without its anchor, where values lay when that was made."""
        same = _Lowering(self.graph, self.layout, self.exact, self.by_index, self.anywhere)
        same.storage = storage
        return same._task(work, hub, direct, None)

    def _views(self, nodes: tuple[Node, ...], outputs: tuple[str, ...]) -> dict[str, BufferView]:
        inside = {v for node in nodes for v in node.writes}
        needed = [v for node in nodes for v in node.reads if v not in inside]
        return {v: self._view(v, self.storage[v]) for v in (*outputs, *needed) if v in self.storage}

    def _view(self, value: str, storage: Storage) -> BufferView:
        itemsize = self.graph.tensor(value).dtype.itemsize
        aligned = storage.root not in self.graph.inputs and known_equal(storage.offset * itemsize % 64, 0)
        return BufferView(storage.strides, 64 if aligned else itemsize)

    def _place(self, value: str) -> tuple[str, int]:
        storage = self.storage[value]
        return storage.root, storage.offset

    def _whole(self, node: Node, position: int) -> list[TaskWork]:
        """All outputs that anybody reads, by one task, after what they begin with."""
        family = FAMILIES[whole_family(node)]
        if not any(value in self.storage for value in node.writes):
            return []
        bound = family.task(self.graph, node, self._views((node,), node.writes), self.exact)
        at = {name: self._place(value) for name, value in bound.values.items()}
        work = TaskWork(bound, at, node.op, position, (node.label,))
        return [work] if family.base is None else [*self._begun(node, family.base(node), position), work]

    def _begun(self, node: Node, base: str, position: int) -> list[TaskWork]:
        """The task that gives the result of a node the contents of another value, or makes it zeros."""
        value = node.outputs[0]
        there = self.storage[value]
        if base:
            here = self.storage[base]
            return [] if here == there else [self._copy(base, here, there, node.op, position, (node.label,))]
        kind, view = self.graph.tensor(value), self._view(value, there)
        out = Operand("out0", kind.dtype, kind.dims, view.strides, alignment=view.alignment)
        at = tuple(index(f"i{d}") for d in range(kind.rank))
        task = Task(kind.dims, (out,), (Store("out0", at, const(0, kind.dtype)),), exact=self.exact)
        bound = BoundTask(task, {"out0": value})
        return [TaskWork(bound, {"out0": self._place(value)}, node.op, position, (node.label,))]

    def _concat(self, node: Node, position: int) -> list[TaskWork]:
        """A copy for each operand that was not written in place."""
        output = node.outputs[0]
        whole = self.storage[output]
        axis = node.attribute("axis", 0) % self.graph.tensor(output).rank
        start = 0
        tasks: list[TaskWork] = []
        for value in self.layout.assembled.get(output, node.inputs):
            there = Storage(whole.root, whole.offset + start * whole.strides[axis], whole.strides)
            start += self.graph.tensor(value).dims[axis]
            if self.storage[value] != there and self.graph.tensor(value).size:
                tasks.append(self._copy(value, self.storage[value], there, "Concat", position, (node.label,)))
        return tasks

    def is_object(self, value: str) -> bool:
        """Is the value kept as a Python object, having no form in native memory?"""
        kind = self.graph.types[value]
        return not isinstance(kind, TensorType) or kind.dtype.kind in ("string", "complex")

    def host(self, group: Group, reasons: tuple[str, ...], position: int) -> list[TaskWork | HostWork]:
        """A host step, after copies of the values that do not lie in ONNX's order and are wanted in it."""
        before: list[TaskWork | HostWork] = []
        reads: dict[str, tuple[str, int, tuple[int, ...] | None] | None] = {}
        nodes, writes = group.members(self.graph), group.outputs(self.graph)
        for value in group.inputs(self.graph):
            storage = self.storage.get(value)
            if storage is None or value in self.graph.constants or self.is_object(value):
                reads[value] = None
            elif is_dense(storage, self.graph.tensor(value).dims):
                reads[value] = storage.root, storage.offset, None
            elif _reads_anywhere(nodes, value):
                reads[value] = storage.root, storage.offset, storage.strides
            else:
                root = f"dense:{position}:{value}"
                there = Storage(root, 0, row_major(self.graph.tensor(value).dims))
                readers = tuple(dict.fromkeys(node.label for node in nodes if value in node.reads))
                before.append(self._copy(value, storage, there, "Identity", position, readers))
                reads[value] = root, 0, None
        return [*before, HostWork(nodes, reasons, position, reads, writes)]

    def output_copy(self, value: str, position: int) -> TaskWork:
        """A graph output that is an input or a constant: its contents are copied out."""
        shape = self.graph.tensor(value).dims
        there = Storage(f"output:{value}", 0, row_major(shape))
        return self._copy(value, self.storage[value], there, "Identity", position, (value,))

    def _copy(
        self, value: str, lies: Storage, there: Storage, label: str, position: int, names: tuple[str, ...]
    ) -> TaskWork:
        """Moves a value from where it lies; floats that nothing native computes on are bytes. `names` are of what needs it."""
        kind = self.graph.tensor(value)
        dtype = UINT8 if kind.dtype.is_float and kind.dtype.bits <= 8 else kind.dtype
        here = self._view(value, lies)
        at = tuple(index(f"i{d}") for d in range(kind.rank))
        source = Operand("in0", dtype, kind.dims, here.strides, alignment=here.alignment)
        target = Operand("out0", dtype, kind.dims, there.strides, alignment=dtype.itemsize)
        task = Task(kind.dims, (target, source), (Store("out0", at, load("in0", dtype, at)),), exact=self.exact)
        bound = BoundTask(task, {"in0": value, "out0": value})
        ends = {"in0": (lies.root, lies.offset), "out0": (there.root, there.offset)}
        return TaskWork(bound, ends, label, position, names)
