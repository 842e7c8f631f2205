"""Put what a rule wants in the place of what it matched: new nodes, their types, what goes, and what that saves.

A `Draft` is only a plan; many are made and few are carried out. Node counts are honest: of the nodes a match covers only
those go that nobody else reads. New nodes on constants alone are computed when the draft is carried out.
"""

from __future__ import annotations

import heapq
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from fusewise.errors import FusewiseError, InvalidModel
from fusewise.ir.deciding import hint
from fusewise.ir.graph import Attribute, Constant, Graph, Node, SizesConstant, attributes_of
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.evaluate import evaluate
from fusewise.ops.shapes.again import infer_again
from fusewise.records import record
from fusewise.rewrite.match import Bound, Match, Several
from fusewise.rewrite.pattern import Apply, Computed, Literal, Term
from fusewise.rewrite.rule import Rule, attributes_like
from fusewise.rewrite.work import NOTHING, Work, work_of

__all__ = ["Draft", "Refused", "Weigh", "carried_out", "computed", "draft_of", "folded", "is_static"]

LARGEST_FOLDED = 1 << 20
"""Elements up to which constants are folded whatever they grow from."""

_WEIGHTS = 256
"""Float constants of more elements are weights: no shape depends on them."""

_OF_ITS_OPERANDS = frozenset(
    "Add Sub Mul Div Max Min And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitwiseNot Not Neg Abs Sqrt Reciprocal Exp Log"
    " Relu Sigmoid Tanh Erf Floor Ceil Round Sign Softplus Identity".split()
)
"""Operators whose result has the dtype and the joint shape of their operands."""


class Refused(Exception):
    """A draft cannot be made; the text is the reason."""


Weigh = Callable[[Computed, Match], Constant]
"""Makes the constant that a computed term stands for: at once, or a promise of it."""


def _at_once(term: Computed, match: Match) -> Constant:
    return Constant(np.asarray(term.function(match)))


@record(frozen=True)
class Draft:
    """A planned substitution: `nodes` come in the place of those that write `removed`.

    It names values, not indexes, so it stays good while the graph changes elsewhere. `covered` are the values that the
    matched nodes write, `touched` also those that they or the new nodes read, and `same` roots that are another value.
    """

    rule: Rule
    match: Match
    nodes: tuple[Node, ...]
    types: Mapping[str, ValueType]
    constants: Mapping[str, Constant]
    same: Mapping[str, str]
    removed: frozenset[str]
    covered: frozenset[str]
    touched: frozenset[str]

    @cached_property
    def before(self) -> Work:
        """The work of the nodes that go."""
        graph, total = self.match.graph, NOTHING
        for i in sorted({graph.producer[x] for x in self.removed}):
            total = total.plus(work_of(graph.nodes[i], graph.types, {}))
        return total

    @cached_property
    def after(self) -> Work:
        """The work of the new nodes; those on constants alone are computed before the model runs."""
        graph, total = self.match.graph, NOTHING
        types: Mapping[str, ValueType] = ChainMap(self.types, graph.types)  # type: ignore[arg-type]  # only read
        known = set(self.constants)
        for node in self.nodes:
            if all(x in known or x in graph.constants for x in node.reads):
                known.update(node.writes)
            else:
                total = total.plus(work_of(node, types, {}))
        return total

    @property
    def saving(self) -> Work:
        return self.before.minus(self.after)


class _Writing:
    """The new nodes of one draft while they are written."""

    def __init__(self, rule: Rule, match: Match, weigh: Weigh) -> None:
        self.rule, self.match, self.graph, self.weigh = rule, match, match.graph, weigh
        self.nodes: list[Node] = []
        self.types: dict[str, ValueType] = {}
        self.constants: dict[str, Constant] = {}
        self._done: dict[Term, Bound] = dict(match.bound)
        self._count = 0
        self._stem = match.roots[0]
        self._origin = tuple(dict.fromkeys(x for i in match.nodes for x in self.graph.nodes[i].origin))

    def type(self, value: str) -> ValueType:
        found = self.types.get(value)
        return self.graph.types[value] if found is None else found

    def fresh(self) -> str:
        while True:
            self._count += 1
            name = f"{self._stem}_{self._count}"
            if name not in self.graph.types:
                return name

    def value(self, term: Term, beside: TensorType | None = None) -> str:
        """The value of a term; `beside` is the type of another operand, for literals."""
        if isinstance(term, Literal):
            if beside is None:
                raise Refused("a literal stands alone")
            return self.constant(Constant(np.array(term.value).astype(beside.dtype.numpy)))
        found = self._done.get(term)
        if found is None and isinstance(term, Computed):
            found = self._done[term] = self.constant(self.weigh(term, self.match))
        if found is None:
            assert isinstance(term, Apply)
            outputs = self.apply(term)
            for index, output in enumerate(outputs):
                self._done[replace(term, index=index)] = output
            return outputs[term.index]
        if isinstance(found, Several):
            found = self._done[term] = self.several(found.op, found.values)
        return found

    def constant(self, constant: Constant) -> str:
        name = self.fresh()
        self.constants[name] = constant
        self.types[name] = constant.type
        return name

    def several(self, op: str, values: Iterable[str]) -> str:
        """A tree of one operator, the smallest operands first."""
        first, *others = sorted(values, key=self._size)
        for other in others:
            first = self.node(op, (first, other), ())[0]
        return first

    def _size(self, value: str) -> int:
        kind = self.type(value)
        return hint(kind.size) if isinstance(kind, TensorType) else 0

    def apply(self, term: Apply) -> tuple[str, ...]:
        values: list[str] = [""] * len(term.operands)
        beside: TensorType | None = None
        for k, operand in enumerate(term.operands):
            if not isinstance(operand, Literal):
                values[k] = self.value(operand)
                kind = self.type(values[k]) if values[k] else None
                beside = kind if beside is None and isinstance(kind, TensorType) else beside
        for k, operand in enumerate(term.operands):
            if isinstance(operand, Literal):
                values[k] = self.value(operand, beside)
        while values and not values[-1]:
            values.pop()
        attributes = dict(attributes_like(self.match, term.like)) if term.like else {}
        for name, stated in term.attributes:
            attributes[name] = stated.function(self.match) if isinstance(stated, Computed) else stated
        return self.node(term.op, tuple(values), attributes_of(**attributes), term.outputs)

    def node(
        self, op: str, inputs: tuple[str, ...], attributes: tuple[tuple[str, Attribute], ...], outputs: int = 1
    ) -> tuple[str, ...]:
        names = tuple(self.fresh() for _ in range(outputs))
        node = Node(op, inputs, names, attributes, name=names[0], origin=self._origin)
        self.types.update(zip(names, self._inferred(node), strict=True))
        self.nodes.append(node)
        return names

    def _inferred(self, node: Node) -> tuple[ValueType, ...]:
        kinds = tuple(self.type(x) if x else None for x in node.inputs)
        if node.op in _OF_ITS_OPERANDS:
            static = [kind for kind in kinds if isinstance(kind, TensorType) and kind.is_fixed]
            if len(static) == len(kinds) and len({kind.dtype for kind in static}) == 1:
                try:
                    return (TensorType(static[0].dtype, np.broadcast_shapes(*(kind.dims for kind in static))),)
                except ValueError:
                    raise Refused("shapes do not fit") from None
        known = tuple(self.array(x) if x else None for x in node.inputs)
        try:
            found = infer_again(node, kinds, known, self.graph.opset)
        except InvalidModel:
            raise Refused("types do not fit") from None
        if any(not isinstance(kind, TensorType) or not kind.is_static for kind in found):
            raise Refused("a shape cannot be inferred")
        return found  # type: ignore[return-value]

    def array(self, value: str) -> np.ndarray | None:
        """What a shape may depend on; weights are not looked into."""
        constant = self.constants.get(value) or self.graph.constants.get(value)
        weights = constant is not None and constant.dtype.is_float and constant.type.size > _WEIGHTS
        return None if constant is None or weights else constant.array


def draft_of(rule: Rule, match: Match, weigh: Weigh = _at_once) -> Draft:
    """The substitution of `rule` at `match`, with what it saves. Raises `Refused` when types do not allow it.

    `weigh` makes new constants; a search that only wants the cost gives promises.
    """
    graph = match.graph
    if not is_static(match):
        raise Refused("a shape is not known")
    writing = _Writing(rule, match, weigh)
    results = [writing.value(root) for root in rule.after.roots]
    if match.rest is not None:
        results = [writing.several(match.rest.op, (results[0], *match.rest.values))]
    for root, result in zip(match.roots, results, strict=True):
        if writing.type(result) != graph.types[root]:
            raise Refused("the result would have another type")
    same = _landed(writing, results)
    removed = _removed(graph, match, {*same.values(), *(x for node in writing.nodes for x in node.reads)})
    gone = frozenset(x for i in removed for x in graph.nodes[i].writes)
    covered = frozenset(x for i in match.nodes for x in graph.nodes[i].writes)
    touched = covered.union(
        *(graph.nodes[i].reads for i in match.nodes), *(node.reads for node in writing.nodes), same.values()
    )
    return Draft(
        rule,
        match,
        tuple(writing.nodes),
        writing.types,
        writing.constants,
        same,
        gone,
        covered,
        touched,
    )


def is_static(match: Match) -> bool:
    """Do all values around the match have a known shape?"""
    graph = match.graph
    kinds = (graph.types[x] for i in match.nodes for x in (*graph.nodes[i].reads, *graph.nodes[i].writes))
    return all(isinstance(kind, TensorType) and kind.is_static for kind in kinds)


def _landed(writing: _Writing, results: Sequence[str]) -> dict[str, str]:
    """Call the new results as the roots are called; what is an old value goes by its own name, given back as a table."""
    names: dict[str, str] = {}
    same: dict[str, str] = {}
    for root, result in zip(writing.match.roots, results, strict=True):
        if result in writing.types and result not in writing.constants and result not in names:
            names[result] = root
        elif root in writing.graph.output_set or result in names:
            (copy,) = writing.node("Identity", (result,), ())
            names[copy] = root
        else:
            same[root] = result
    writing.nodes = [
        replace(
            node,
            inputs=tuple(names.get(x, x) for x in node.inputs),
            outputs=tuple(names.get(x, x) for x in node.outputs),
            name=names.get(node.outputs[0], node.name),
        )
        for node in writing.nodes
    ]
    for name, root in names.items():
        writing.types[root] = writing.types.pop(name)
    return {root: names.get(value, value) for root, value in same.items()}


def _removed(graph: Graph, match: Match, read: set[str]) -> tuple[int, ...]:
    """Of the nodes covered, those whose results nobody needs any more: not outside, not among the new nodes."""
    gone: set[int] = set()
    for i in reversed(match.nodes):
        if all(
            x in match.roots or (x not in read and x not in graph.output_set and gone.issuperset(graph.users[x]))
            for x in graph.nodes[i].writes
        ):
            gone.add(i)
    return tuple(sorted(gone))


def folded(draft: Draft) -> Draft:
    """The draft with its constant parts computed. Raises `Refused` when they would grow, overflow or vanish."""
    graph, constants, nodes = draft.match.graph, dict(draft.constants), []
    types = dict(draft.types)
    for node in draft.nodes:
        known = [graph.constants.get(x) or constants.get(x) for x in node.reads]
        if any(constant is None or isinstance(constant, SizesConstant) for constant in known):
            nodes.append(node)
            continue
        arrays = [constant.array for constant in known if constant is not None]
        made = sum(kind.size for x in node.writes if isinstance(kind := types[x], TensorType))
        if made > max(LARGEST_FOLDED, sum(array.size for array in arrays)):
            raise Refused("a constant would grow")
        for name, array in zip(node.outputs, computed(node, arrays, graph), strict=True):
            constants[name] = Constant(array)
            types[name] = constants[name].type
    return replace(draft, nodes=tuple(nodes), constants=constants, types=types)


def computed(node: Node, arrays: list[np.ndarray], graph: Graph) -> tuple[np.ndarray, ...]:
    """What a node gives for these constants. Raises `Refused` when that overflows, vanishes or cannot be computed."""
    try:
        with np.errstate(all="ignore"):
            found = evaluate(node, dict(zip(node.reads, arrays, strict=True)), graph.opset, graph.opsets)
    except FusewiseError:
        raise Refused("a constant cannot be computed") from None
    results = tuple(np.asarray(array) for array in found)
    finite = all(bool(np.all(np.isfinite(array))) for array in arrays if array.dtype.kind == "f")
    for result in results:
        if finite and result.dtype.kind == "f" and not bool(np.all(np.isfinite(result))):
            raise Refused("a constant would leave the range of its type")
        whole = (
            node.op in ("Mul", "Div", "Reciprocal")
            and result.dtype.kind == "f"
            and all(bool(np.all(a)) for a in arrays)
        )
        if whole and bool(np.any(np.abs(result) < np.finfo(result.dtype).tiny)):
            raise Refused("a constant would vanish")
    return results


def carried_out(graph: Graph, drafts: Sequence[Draft]) -> Graph:
    """The graph after folded drafts that do not touch each other. Raises `Refused` when it would have a cycle."""
    same = {old: new for draft in drafts for old, new in draft.same.items()}
    removed = frozenset[str]().union(*(draft.removed for draft in drafts))
    landing: dict[int, list[Draft]] = {}
    for draft in drafts:
        landing.setdefault(max(graph.producer[root] for root in draft.match.roots), []).append(draft)
    nodes: list[Node] = []
    for i, node in enumerate(graph.nodes):
        for draft in landing.get(i, ()):
            nodes.extend(draft.nodes)
        if not node.outputs or removed.isdisjoint(node.writes):
            nodes.append(node)
    if same:
        nodes = [_renamed(node, same) for node in nodes]
    types: dict[str, ValueType] = dict(graph.types)
    constants = dict(graph.constants)
    for draft in drafts:
        types.update(draft.types)
        constants.update(draft.constants)
    if any(len(draft.match.roots) > 1 for draft in drafts):
        nodes = _ordered(nodes)
    return graph.replace(nodes=_live(nodes, graph.output_set), types=types, constants=constants).pruned()


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    if not any(x in names for x in node.reads):
        return node
    inputs = tuple(names.get(x, x) for x in node.inputs)
    return replace(node, inputs=inputs, captured=tuple(names.get(x, x) for x in node.captured))


def _live(nodes: Sequence[Node], outputs: Iterable[str]) -> tuple[Node, ...]:
    """The nodes that some output needs."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):
        if any(x in needed for x in node.writes):
            kept.append(node)
            needed.update(node.reads)
    return tuple(reversed(kept))


def _ordered(nodes: Sequence[Node]) -> list[Node]:
    """The nodes with every one after those it reads from, otherwise in their order."""
    maker = {x: i for i, node in enumerate(nodes) for x in node.writes}
    waits = [{maker[x] for x in node.reads if x in maker} for node in nodes]
    readers: dict[int, list[int]] = {}
    for i, before in enumerate(waits):
        for j in before:
            readers.setdefault(j, []).append(i)
    ready = [i for i, before in enumerate(waits) if not before]
    heapq.heapify(ready)
    ordered = []
    while ready:
        i = heapq.heappop(ready)
        ordered.append(nodes[i])
        for j in readers.get(i, ()):
            waits[j].discard(i)
            if not waits[j]:
                heapq.heappush(ready, j)
    if len(ordered) < len(nodes):
        raise Refused("the graph would have a cycle")
    return ordered
