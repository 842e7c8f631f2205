"""Group to task: definitions substituted into one another until only loads from outside and the anchor's result remain.

A load of a value made inside the group is replaced by that value's own element expression at the load's index, so a
Reshape, Transpose, Slice, Concat or Expand inside a group costs index arithmetic and no copy (DNNFusion, section 4.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from fusewise.errors import BrokenGraph
from fusewise.ir.deciding import known_equal
from fusewise.ir.dtypes import INT64, DType
from fusewise.ir.graph import Graph, Node
from fusewise.lower.index import Simplifier
from fusewise.lower.places import hub_index, strides_at
from fusewise.lower.program import DataPosition
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.definition import call_of, definition
from fusewise.ops.expr import Expr, Index, const, index, load, substitute, walk
from fusewise.ops.spec import Call, NotDefined, OpSpec
from fusewise.ops.table import spec_of
from fusewise.records import record

__all__ = ["OUTSIDE", "BoundTask", "BufferView", "IndexSpace", "NodeElements", "compose"]

OUTSIDE = "@"
"""Marks, until operands get their names, a load of a value made outside the group."""


Straight = tuple[tuple[int, ...], tuple[int, ...], int]
"""A view of a value as an operand: shape, strides, offset, in elements."""


@record(frozen=True, slots=True)
class BufferView:
    """How a value lies in its buffer: strides in elements, one per dimension."""

    strides: tuple[int, ...]
    alignment: int = 64


@record(frozen=True)
class BoundTask:
    """A task, the value that each of its operands stands for, and where it reads positions from data, by number."""

    task: Task
    values: Mapping[str, str]
    sites: tuple[DataPosition, ...] = ()


@record(frozen=True, slots=True)
class IndexSpace:
    """What a task counts over: the indices of the value `hub`; `places` has the index of every output in terms of them."""

    hub: str
    places: Mapping[str, Index]


@record
class _Composer:
    """Substitutes definitions within one group; names loads by value until the task is finished."""

    graph: Graph
    inside: Mapping[str, Node]
    anchored: str = ""
    _templates: dict[str, tuple[Expr, tuple[Expr, ...]]] = field(default_factory=dict)
    _elements: dict[tuple[str, tuple[Expr, ...]], Expr] = field(default_factory=dict)
    _calls: dict[int, Call] = field(default_factory=dict)
    _reductions: int = 0

    def element(self, value: str, at: tuple[Expr, ...]) -> Expr:
        """The element of `value` at an index: one operator after another, since a group may be deeper than Python's stack."""
        waiting = [(value, at)]
        while waiting:
            key = waiting[-1]
            missing: list[tuple[str, tuple[Expr, ...]]] = []
            if key not in self._elements:
                found = self._find(*key, missing)
                if not missing:
                    self._elements[key] = found
            if missing:
                waiting.extend(reversed(missing))
            else:
                waiting.pop()
        return self._elements[value, at]

    def _find(self, value: str, at: tuple[Expr, ...], missing: list[tuple[str, tuple[Expr, ...]]]) -> Expr:
        """The element from those of the operands; what of these is not known yet is added to `missing`."""
        dtype = self.graph.tensor(value).dtype
        if value == self.anchored:
            return load(ACC, dtype, at)
        if value not in self.inside:
            scalar = self._scalar(value, dtype, at)
            return load(OUTSIDE + value, dtype, at) if scalar is None else scalar
        template, holes = self._template(value)
        names = {hole.value: position for hole, position in zip(holes, at, strict=True)}
        node = self.inside[value]

        def put_in(e: Expr) -> Expr | None:
            if e.op == "index":
                return names.get(e.value)
            if not _is_open(e):
                return None
            key = (node.inputs[int(e.value[1:])], e.args)
            known = self._elements.get(key)
            if known is None and not (missing and any(_is_open(part) for a in e.args for part in walk(a))):
                missing.append(key)
            return known

        return substitute(template, put_in)

    def _scalar(self, value: str, dtype: DType, at: tuple[Expr, ...]) -> Expr | None:
        constant = self.graph.constants.get(value)
        if any(e.op == "bounded" for place in at for e in walk(place)):
            return None
        if constant is None or constant.type.size != 1 or dtype.kind not in ("float", "int", "uint", "bool"):
            return None
        return const(constant.array.reshape(()).item(), dtype)

    def _template(self, value: str) -> tuple[Expr, tuple[Expr, ...]]:
        """The definition of a value with a hole per dimension, its reduction axes renamed apart, simplified once."""
        known = self._templates.get(value)
        if known is not None:
            return known
        node = self.inside[value]
        dims = self.graph.tensor(value).dims
        holes = tuple(index(f"hole{d}") for d in range(len(dims)))
        spec = spec_of(node.op, node.domain)
        if spec is None:
            raise NotDefined(f"{node.op} has no row")
        call = self._calls.get(id(node))
        if call is None:
            call = self._calls[id(node)] = call_of(self.graph, node)
        body = definition(spec, call, node.outputs.index(value), holes)
        body = self._apart(_sited(body, node))
        body = Simplifier({hole.value: extent for hole, extent in zip(holes, dims, strict=True)}).simplify(body)
        self._templates[value] = (body, holes)
        return body, holes

    def _apart(self, body: Expr) -> Expr:
        fresh: dict[str, Expr] = {}
        for node in walk(body):
            if node.op == "reduce":
                for axis, _ in node.value[1]:
                    if axis not in fresh:
                        fresh[axis] = index(f"r{self._reductions}")
                        self._reductions += 1

        def rename(e: Expr) -> Expr | None:
            if e.op == "index":
                return fresh.get(e.value)
            if e.op == "reduce":
                kind, axes = e.value
                return Expr("reduce", e.dtype, e.args, (kind, tuple((fresh[a].value, n) for a, n in axes)))
            return None

        return substitute(body, rename) if fresh else body


def _sited(body: Expr, node: Node) -> Expr:
    """A node's definition whose positions from data say where they come from."""

    def one(e: Expr) -> Expr | None:
        if e.op != "bounded":
            return None
        low, high, (operand, wraps) = e.value
        return Expr(
            e.op,
            e.dtype,
            e.args,
            (low, high, DataPosition(node.label, node.op, node.inputs[operand], low, high, wraps)),
        )

    return substitute(body, one) if any(e.op == "bounded" for e in walk(body)) else body


def _is_open(e: Expr) -> bool:
    """Is it a load of an operand by its position, whose element is still to be put in?"""
    return e.op == "load" and bool(e.value.startswith("#"))


@record
class NodeElements:
    """The simplified element expressions of one node's results over its operands, which are named `@value`."""

    graph: Graph
    node: Node
    _composer: _Composer = field(init=False)

    def __post_init__(self) -> None:
        self._composer = _Composer(self.graph, dict.fromkeys(self.node.writes, self.node))

    def of(self, value: str) -> tuple[Expr, tuple[Expr, ...]]:
        """The element expression of a result, and its index variables."""
        dims = self.graph.tensor(value).dims
        at = tuple(index(f"i{d}") for d in range(len(dims)))
        ranges = {f"i{d}": extent for d, extent in enumerate(dims)}
        return Simplifier(ranges).simplify(self._composer.element(value, at)), at


def compose(
    graph: Graph,
    nodes: tuple[Node, ...],
    space: IndexSpace,
    views: Mapping[str, BufferView],
    *,
    anchor: Node | None = None,
    exact: bool = False,
) -> BoundTask:
    """The task that computes the outputs of a group that have a place in the index space.

    `views` tell how the outputs and every value read from outside lie in memory. `anchor` is the node whose result the
    stores read as `acc`; without it every node is composed from its definition. Raises `NotDefined` when a definition
    is missing, or when an output needs another element of the anchor's result.
    """
    anchored = anchor.outputs[0] if anchor is not None else ""
    composer = _Composer(graph, {v: n for n in nodes if n is not anchor for v in n.writes}, anchored)
    extents = graph.tensor(space.hub).dims
    at = hub_index(len(extents))
    simplifier = Simplifier({f"i{d}": extent for d, extent in enumerate(extents)})
    for value, place in space.places.items():
        _check_written(graph, value, place, simplifier)
    bodies = [simplifier.simplify(composer.element(value, place)) for value, place in space.places.items()]
    if anchored:
        _check_aligned(bodies, tuple(simplifier.simplify(e) for e in at), anchored)
        bodies = [substitute(body, _acc_first) for body in bodies]
    names = _Names(graph, views)
    stores = []
    for (value, place), body in zip(space.places.items(), bodies, strict=True):
        operand, index_there = names.output(value, place, extents)
        stores.append(Store(operand, index_there, names.rename(body, extents if anchored else None)))
    described = None if anchor is None else _anchor(graph, anchor, composer, names)
    operands = tuple(names.operands.values())
    return BoundTask(Task(extents, operands, tuple(stores), described, exact), dict(names.values), tuple(names.sites))


def _check_written(graph: Graph, value: str, place: Index, simplifier: Simplifier) -> None:
    """Is an output written where it has elements? Everything that writes is made by `places` from shapes that were checked."""
    for at, extent in zip(place, graph.tensor(value).dims, strict=True):
        low, high = simplifier.range_of(simplifier.linear(at))
        fits = simplifier.at_most(0, low) and simplifier.at_most(high, extent - 1)
        if not fits and not any(known_equal(n, 0) for n in graph.tensor(value).dims):
            raise BrokenGraph(f"value {value!r} would be written at {low} to {high} along an axis of {extent}")


def _acc_first(e: Expr) -> Expr | None:
    """The anchor's result as the first operand of what commutes, so that one kernel serves both ways of writing a sum."""
    if e.op not in ("add", "mul") or e.args[1].op != "load" or e.args[1].value != ACC:
        return None
    return Expr(e.op, e.dtype, e.args[::-1])


def _check_aligned(bodies: list[Expr], at: tuple[Expr, ...], anchored: str) -> None:
    """Does every store read the anchor's result at its own index?"""
    for body in bodies:
        for node in walk(body):
            if node.op == "load" and node.value == ACC and node.args != at:
                raise NotDefined(f"another element of {anchored} is read")


def _anchor(graph: Graph, node: Node, composer: _Composer, names: _Names) -> Anchor:
    spec = spec_of(node.op, node.domain)
    assert spec is not None
    call: Call = call_of(graph, node)
    kinds = tuple(call.input(i) if call.has(i) else None for i in range(len(call.inputs)))
    prologue: list[Expr | None] = []
    for position, (value, kind) in enumerate(zip(node.inputs, kinds, strict=True)):
        if kind is None:
            prologue.append(None)
            continue
        at = tuple(index(f"p{d}") for d in range(kind.rank))
        if value in composer.inside:
            simplifier = Simplifier({f"p{d}": extent for d, extent in enumerate(kind.dims)})
            element = simplifier.simplify(composer.element(value, at))
            prologue.append(names.rename(element, kind.dims, "p", position))
        else:
            prologue.append(load(names.input(value, reader=position), kind.dtype, at))
    if "chooses" in spec.flags:
        for position, site in _choices(spec, call, node).items():
            chosen = prologue[position]
            assert chosen is not None
            prologue[position] = names.bounded(chosen, site)
    return Anchor(node.op, spec.family, node.attributes, kinds, tuple(prologue), call.output(0))


def _choices(spec: OpSpec, call: Call, node: Node) -> dict[int, DataPosition]:
    """The operands of an anchor that hold positions, which its definition bounds where it reads them."""
    at = tuple(index(f"i{d}") for d in range(call.output(0).rank))
    found = (e.value for e in walk(_sited(definition(spec, call, 0, at), node)) if e.op == "bounded")
    return {node.inputs.index(site.operand): site for _, _, site in found}


STORES = -1
"""Who reads an operand, if it is the stores; else the position of the anchor's input."""


class _Names:
    """Hands out canonical operand names in order of first use.

    A constant is an operand of its own for each input of the anchor that reads it, and one for the stores: kernels have constants
    rearranged, and even scaled, for what they read by one of them.
    """

    def __init__(self, graph: Graph, views: Mapping[str, BufferView]) -> None:
        self.graph = graph
        self.views = views
        self.operands: dict[str, Operand] = {}
        self.values: dict[str, str] = {}
        self.sites: dict[DataPosition, int] = {}
        self._given: dict[object, str] = {}

    def _add(self, stem: str, value: str, straight: Straight | None = None) -> str:
        name = f"{stem}{sum(1 for n in self.operands if n.startswith(stem))}"
        kind, view = self.graph.tensor(value), self.views[value]
        shape, strides, offset = (kind.dims, view.strides, 0) if straight is None else straight
        self.operands[name] = Operand(
            name, kind.dtype, shape, strides, offset, constant=stem == "const", alignment=view.alignment
        )
        self.values[name] = value
        return name

    def output(self, value: str, place: Index, extents: tuple[int, ...]) -> tuple[str, tuple[Expr, ...]]:
        """The operand to write, and where: at (i0, i1, ...) of a view of the value when there is such a view."""
        at = hub_index(len(extents))
        if place == at:
            return self._add("out", value), at
        straight = self._straight(value, place, extents, "i")
        return (self._add("out", value), place) if straight is None else (self._add("out", value, straight), at)

    def _straight(self, value: str, place: Index, extents: tuple[int, ...], letter: str) -> Straight | None:
        """An access as a view over the whole index space; None when it does not move evenly."""
        ranges = {f"{letter}{d}": extent for d, extent in enumerate(extents)}
        found = strides_at(place, self.views[value].strides, ranges)
        if found is None or not found[0].keys() <= ranges.keys():
            return None
        return extents, tuple(found[0].get(name, 0) for name in ranges), found[1]

    def input(self, value: str, straight: Straight | None = None, reader: int = STORES) -> str:
        is_constant = value in self.graph.constants
        key = value, straight, reader if is_constant else STORES
        if key not in self._given:
            self._given[key] = self._add("const" if is_constant else "in", value, straight)
        return self._given[key]

    def bounded(self, position: Expr, site: DataPosition) -> Expr:
        """A position from data, by the number of its site."""
        number = self.sites.setdefault(site, len(self.sites))
        return Expr("bounded", INT64, (position,), (site.low, site.high, number))

    def rename(
        self, body: Expr, extents: tuple[int, ...] | None = None, letter: str = "i", reader: int = STORES
    ) -> Expr:
        """Loads by operand name. With `extents`, those that move evenly over that index space read a view at (i0, i1, ...),
        since that is all that anchored kernels look for."""
        guarded = any(node.op == "select" for node in walk(body))

        def one(e: Expr) -> Expr | None:
            if e.op == "bounded":
                return self.bounded(e.args[0], e.value[2])
            if e.op != "load" or not e.value.startswith(OUTSIDE):
                return None
            value = e.value[len(OUTSIDE) :]
            if extents is not None and not guarded and any(a.op not in ("index", "const") for a in e.args):
                straight = self._straight(value, e.args, extents, letter)
                if straight is not None:
                    at = tuple(index(f"{letter}{d}") for d in range(len(extents)))
                    return load(self.input(value, straight, reader), e.dtype, at)
            return load(self.input(value, reader=reader), e.dtype, e.args)

        return substitute(body, one)
