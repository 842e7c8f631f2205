"""Find a pattern in a graph: which nodes it covers, which values its variables stand for.

In a pattern that is flat, operands of an operator that is associative and commutative are matched as a set: a chain
`(x * y) * z`, whose inner results nobody else reads, is one product of three factors in any order. A pattern of fewer operands
than there are leaves a rest, which a variable that occurs once takes, or which stays beside what replaces the pattern. Other
operands are matched in place. A value that others read too may be matched, unless the pattern is closed; it stays, and whoever
counts savings sees that it stays.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.records import record
from fusewise.rewrite.pattern import (
    MONOMIALS,
    Apply,
    Either,
    Literal,
    Monomial,
    Pattern,
    Term,
    Variable,
    regroups,
)

__all__ = [
    "WIDEST",
    "Bound",
    "Match",
    "Matchable",
    "Occurrence",
    "Only",
    "Several",
    "flattened",
    "is_tree_inside",
    "matches",
    "occurrences",
]

WIDEST = 12
"""Operands of one flattened tree. What is deeper in a tree than that stays as it is, so that time stays linear."""


@record(frozen=True, slots=True)
class Several:
    """Operands of a flattened tree together; no node computes them alone."""

    op: str
    values: tuple[str, ...]


Bound = str | Several
"""What a variable stands for; the empty string is an absent operand."""


class Matchable(Protocol):
    """What patterns are found in: a graph, or one that is being edited."""

    @property
    def nodes(self) -> Sequence[Node]: ...

    @property
    def producer(self) -> Mapping[str, int]: ...

    def array(self, value: str) -> np.ndarray | None: ...

    def is_inner(self, value: str, reads: int = 1) -> bool: ...


@record(frozen=True)
class Occurrence:
    """One place of a pattern.

    `roots` are the values the pattern computes, `nodes` the indexes of all nodes it covers, ascending, `bound` what each
    variable and each inner term is, `like` the node that gives each name its attributes. `rest` stays beside the pattern
    in its tree; `regrouped` names the operators whose operands were taken in another order than they stand.
    """

    roots: tuple[str, ...]
    nodes: tuple[int, ...]
    bound: Mapping[Term, Bound]
    like: Mapping[str, Node]
    rest: Several | None
    regrouped: frozenset[str]

    def values(self, variable: str) -> tuple[str, ...]:
        """The values a variable stands for, mostly one; none when it is absent."""
        found = next((what for term, what in self.bound.items() if _is_called(term, variable)), "")
        return found.values if isinstance(found, Several) else (found,) if found else ()

    def value(self, variable: str) -> str:
        """The one value a variable stands for; the empty string when it is absent."""
        return next(iter(self.values(variable)), "")


def _is_called(term: Term, variable: str) -> bool:
    return isinstance(term, Variable) and term.name == variable


@record(frozen=True)
class Match(Occurrence):
    """One place of a pattern in `graph`."""

    graph: Graph

    def type(self, variable: str) -> TensorType:
        """The type of a variable's value; of several, their common shape."""
        kinds = [self.graph.tensor(value) for value in self.values(variable)]
        if len(kinds) == 1:
            return kinds[0]
        return TensorType(kinds[0].dtype, np.broadcast_shapes(*(kind.dims for kind in kinds)))

    def array(self, variable: str) -> np.ndarray | None:
        """The contents of a variable that is one constant, else None."""
        values = self.values(variable)
        return self.graph.array(values[0]) if len(values) == 1 else None

    @cached_property
    def key(self) -> tuple[object, ...]:
        """Equal for places of one pattern where everything stands for the same values."""
        return self.roots, tuple(self.bound.values()), self.rest

    @property
    def labels(self) -> tuple[str, ...]:
        """How messages name the place."""
        return tuple(self.graph.nodes[i].label for i in self.nodes)


@record(frozen=True, slots=True)
class _State:
    """What has been found so far; never changed in place, so that a branch can be given up."""

    bound: Mapping[Term, Bound] = field(default_factory=dict)
    nodes: tuple[int, ...] = ()
    like: Mapping[str, Node] = field(default_factory=dict)
    rest: Several | None = None
    regrouped: frozenset[str] = frozenset()

    def binding(self, term: Term, what: Bound) -> _State:
        return _State({**self.bound, term: what}, self.nodes, self.like, self.rest, self.regrouped)

    def covering(self, nodes: tuple[int, ...], regrouped: frozenset[str] = frozenset()) -> _State:
        new = self.nodes + tuple(i for i in nodes if i not in self.nodes)
        return _State(self.bound, new, self.like, self.rest, self.regrouped | regrouped)


_NOTHING = _State()


def flattened(graph: Matchable, index: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The operands of the tree of one operator that ends in node `index`, and its nodes, the root first.

    An operand is replaced by its own operands when the same operator makes it and nobody else reads it, and there are not too many.
    """
    node = graph.nodes[index]
    operands, nodes = list(node.inputs), [index]
    position = 0
    while position < len(operands) <= WIDEST:
        value = operands[position]
        inner = graph.producer.get(value)
        if inner is None or not _continues(graph, node, inner, value):
            position += 1
            continue
        more = graph.nodes[inner].inputs
        if len(operands) + len(more) - 1 > WIDEST:
            break
        operands[position : position + 1] = more
        nodes.append(inner)
    return tuple(operands), tuple(nodes)


def _continues(graph: Matchable, node: Node, inner: int, value: str) -> bool:
    """Does the tree of `node` go on in the node `inner`, which makes its operand `value`?"""
    made = graph.nodes[inner]
    if made.op != node.op or made.domain or made.attributes or len(made.outputs) != 1:
        return False
    return graph.is_inner(value)


Only = Callable[[Any, str, str], bool]
"""May a variable stand for this value? Told the graph, the value and the root's value."""


def occurrences(
    pattern: Pattern, graph: Matchable, index: int, only: Mapping[str, Only] = MappingProxyType({})
) -> Iterator[Occurrence]:
    """Every way to find a pattern of one root at node `index`. `only` as for `matches`."""
    search = _Search(pattern, graph, only, graph.nodes[index].outputs[0])
    for root, state in search.rooted(pattern.roots[0], index, _NOTHING):
        yield Occurrence((root,), tuple(sorted(state.nodes)), state.bound, state.like, state.rest, state.regrouped)


def matches(
    pattern: Pattern, graph: Graph, index: int, only: Mapping[str, Only] = MappingProxyType({})
) -> Iterator[Match]:
    """Every way to find `pattern`, which must be flat, with its first root at node `index`.

    `only` narrows what single variables may stand for, before anything else is looked at.
    """
    search = _Search(pattern, graph, only, graph.nodes[index].outputs[0])
    seen: set[frozenset[int]] = set()
    for state, roots in search.all_roots(graph, index):
        covered = frozenset(state.nodes)
        if len(roots) > 1:
            mirrored = pattern.is_symmetric and any(graph.producer[root] < index for root in roots)
            if covered in seen or mirrored:  # the same places with roots in another order
                continue
            seen.add(covered)
        yield Match(roots, tuple(sorted(covered)), state.bound, state.like, state.rest, state.regrouped, graph)


class _Search:
    def __init__(self, pattern: Pattern, graph: Matchable, only: Mapping[str, Only], root: str) -> None:
        self.graph = graph
        self.pattern = pattern
        self.roots = pattern.roots
        self.only = only
        self.root = root

    def all_roots(self, graph: Graph, index: int) -> Iterator[tuple[_State, tuple[str, ...]]]:
        found: list[tuple[_State, tuple[str, ...]]] = [
            (state, (value,)) for value, state in self.rooted(self.roots[0], index, _NOTHING)
        ]
        for k, term in enumerate(self.roots[1:], start=1):
            found = [
                (more, (*values, value))
                for state, values in found
                for candidate in self._candidates(graph, k, state, values)
                for value, more in self.rooted(term, candidate, state)
                if value not in values
            ]
        return iter(found)

    def _candidates(self, graph: Graph, k: int, state: _State, values: tuple[str, ...]) -> list[int]:
        """Nodes where root number `k` may be: that of an earlier root, or readers of a value that is bound already."""
        term = self.roots[k]
        assert isinstance(term, Apply)
        for earlier, root in zip(self.roots, values, strict=False):
            if isinstance(earlier, Apply) and earlier.node == term.node:
                return [graph.producer[root]]
        for operand in term.operands:
            value = state.bound.get(operand)
            if isinstance(value, str) and value:
                return [i for i in graph.users[value] if i not in state.nodes]
        return [i for i, node in enumerate(graph.nodes) if node.op == term.op and i not in state.nodes]

    def rooted(self, term: Term, index: int, state: _State) -> Iterator[tuple[str, _State]]:
        """Every way in which node `index` makes what `term` is, and the value that is."""
        for way in term.terms if isinstance(term, Either) else (term,):
            assert isinstance(way, Apply | Monomial)
            output = way.index if isinstance(way, Apply) else 0
            outputs = self.graph.nodes[index].outputs
            if output < len(outputs) and outputs[output]:
                for found in self._made(way, index, state, len(self.roots) == 1):
                    if not self.pattern.closed or self._is_closed(found, way, index):
                        yield outputs[output], found

    def _is_closed(self, state: _State, root: Term, index: int) -> bool:
        """Are inner values read by nothing but the nodes that are covered, as what they are there?"""
        inner = {x for term, x in state.bound.items() if isinstance(term, Apply | Monomial) and not term.shared}
        beside = {x for term, x in state.bound.items() if isinstance(term, Variable)}.union(self._left(root, index))
        for term, value in state.bound.items():
            if isinstance(term, Apply) and isinstance(value, str):
                beside.update(self._left(term, self.graph.producer[value]))
        if not inner.isdisjoint(beside):
            return False
        reads = Counter(value for i in state.nodes for value in self.graph.nodes[i].reads)
        return all(isinstance(value, str) and self.graph.is_inner(value, reads[value]) for value in inner)

    def _left(self, term: Term, index: int) -> tuple[str, ...]:
        """The operands that an open term leaves."""
        return self.graph.nodes[index].inputs[len(term.operands) :] if isinstance(term, Apply) and term.open else ()

    def _term(self, term: Term, value: str, state: _State) -> Iterator[_State]:
        known = state.bound.get(term)
        if known is not None:
            if known == value:
                yield state
        elif isinstance(term, Variable):
            only = self.only.get(term.name)
            if (value or term.optional) and (only is None or only(self.graph, value, self.root)):
                yield state.binding(term, value)
        elif isinstance(term, Literal):
            array = self.graph.array(value) if value else None
            if array is not None and _is_uniform(array, term.value):
                yield state
        elif isinstance(term, Either):
            for way in term.terms:
                yield from self._term(way, value, state)
        elif isinstance(term, Apply | Monomial):
            index = self.graph.producer.get(value)
            if index is not None and self._may_make(term, self.graph.nodes[index], value):
                for found in self._made(term, index, state, False):
                    yield found.binding(term, value)

    def _may_make(self, term: Apply | Monomial, node: Node, value: str) -> bool:
        if isinstance(term, Monomial):
            return node.op in MONOMIALS
        return node.op == term.op and node.outputs.index(value) == term.index

    def _made(self, term: Apply | Monomial, index: int, state: _State, top: bool) -> Iterator[_State]:
        return self._node(term, index, state, top) if isinstance(term, Apply) else self._monomial(term, index, state)

    def _node(self, term: Apply, index: int, state: _State, top: bool) -> Iterator[_State]:
        node = self.graph.nodes[index]
        if node.op != term.op or node.domain or len(node.outputs) < term.outputs or any(node.outputs[term.outputs :]):
            return
        tagged = self._attributes(term, node, state)
        if tagged is None:
            return
        if term.regroups and self.pattern.regroups:
            yield from self._regrouped(term, index, tagged, top)
            return
        inputs = node.inputs + ("",) * (len(term.operands) - len(node.inputs))
        if len(inputs) != len(term.operands) and not term.open:
            return
        covering = tagged.covering((index,))
        yield from self._in_order(term.operands, inputs, covering)
        if term.commutes and len(inputs) == 2 and inputs[0] != inputs[1]:
            yield from self._in_order(term.operands, inputs[::-1], covering)

    def _attributes(self, term: Apply, node: Node, state: _State) -> _State | None:
        """The state with the node's attributes noted, or None when they do not fit."""
        if term.attributes and any(node.attribute(name) != value for name, value in term.attributes):
            return None
        if not term.like:
            return state if len(node.attributes) == len(term.attributes) else None
        first = state.like.get(term.like)
        if first is not None:
            return state if first.attributes == node.attributes else None
        return replace(state, like={**state.like, term.like: node})

    def _monomial(self, term: Monomial, index: int, state: _State) -> Iterator[_State]:
        coefficient, factors, nodes = _monomial_of(self.graph, index)
        if len(factors) == len(term.factors) and math.isclose(coefficient, term.coefficient, rel_tol=_RELATIVE):
            ordered = sorted(term.factors, key=lambda each: isinstance(each, Variable))
            for found, _ in self._assigned(ordered, factors, state.covering(nodes)):
                yield found

    def _in_order(self, terms: tuple[Term, ...], values: tuple[str, ...], state: _State) -> Iterator[_State]:
        if not terms:
            yield state
            return
        for found in self._term(terms[0], values[0], state):
            yield from self._in_order(terms[1:], values[1:], found)

    def _regrouped(self, term: Apply, index: int, state: _State, top: bool) -> Iterator[_State]:
        operands, nodes = flattened(self.graph, index)
        if not len(term.operands) <= len(operands) <= WIDEST:
            return
        state = state.covering(nodes, frozenset((term.op,)) if len(operands) > 2 else frozenset())
        # what is most particular first; a variable met only here comes last and takes what is left
        ordered = sorted(term.operands, key=lambda each: (isinstance(each, Variable), self._is_free(each)))
        last = ordered[-1]
        collects = len(operands) > len(ordered) and self._is_free(last)
        if len(operands) > len(ordered) and not (collects or top):
            return  # nothing takes what is left; at the root it stands beside the pattern
        for found, left in self._assigned(ordered[:-1] if collects else ordered, operands, state):
            if collects:
                yield found.binding(last, Several(term.op, left))
            else:
                yield replace(found, rest=Several(term.op, left)) if left else found

    def _is_free(self, term: Term) -> bool:
        return isinstance(term, Variable) and term.name in self.pattern.once

    def _assigned(
        self, terms: Sequence[Term], operands: tuple[str, ...], state: _State
    ) -> Iterator[tuple[_State, tuple[str, ...]]]:
        """Every way to give each term an operand of its own, with the operands that are left."""
        if not terms:
            yield state, operands
            return
        for i, value in enumerate(operands):
            if value not in operands[:i]:
                for found in self._term(terms[0], value, state):
                    yield from self._assigned(terms[1:], operands[:i] + operands[i + 1 :], found)


_RELATIVE = 1e-6
"""By how much the coefficient of a monomial may differ, as float32 does."""

_MOST_FACTORS = 6


def _monomial_of(graph: Matchable, index: int) -> tuple[float, tuple[str, ...], tuple[int, ...]]:
    """The coefficient, factors and nodes of the monomial that ends in node `index`, whose inner values nobody else reads."""
    coefficient, root = 1.0, graph.nodes[index]
    factors: list[str] = []
    nodes: list[int] = []
    waiting: list[tuple[str, int | None]] = [(root.outputs[0], index)]
    while waiting:
        value, maker = waiting.pop()
        number = _number(graph, value)
        if number is not None:
            coefficient *= number
            continue
        node = None if maker is None else graph.nodes[maker]
        divisor = _number(graph, node.inputs[1]) if node is not None and node.op in ("Div", "Pow") else None
        ends = node is None or len(factors) + len(waiting) > _MOST_FACTORS or (node.op != "Mul" and not divisor)
        if ends or node is None or maker is None or (node.op == "Pow" and divisor not in (2.0, 3.0)):
            factors.append(value)
            continue
        nodes.append(maker)
        if node.op == "Div" and divisor:
            coefficient /= divisor
        times = int(divisor) if node.op == "Pow" and divisor else 1
        for operand in node.inputs if node.op == "Mul" else node.inputs[:1] * times:
            waiting.append((operand, _written_with(graph, operand) if times == 1 else None))
    return coefficient, tuple(factors), tuple(nodes)


def _written_with(graph: Matchable, value: str) -> int | None:
    """The node that makes an inner value of a monomial."""
    maker = graph.producer.get(value)
    if maker is None or graph.nodes[maker].domain or graph.nodes[maker].op not in MONOMIALS:
        return None
    return maker if graph.is_inner(value) else None


def _number(graph: Matchable, value: str) -> float | None:
    """The number that a constant of one element holds, else None."""
    array = graph.array(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 and array.dtype != object else None


def _is_uniform(array: np.ndarray, value: float) -> bool:
    """Is every element `value`? Most large constants are told apart by their first."""
    if not array.size or array.dtype == object:
        return False
    return bool(array.flat[0] == value) and bool(np.all(array == value))


def is_tree_inside(graph: Graph, index: int) -> bool:
    """Is the node part of a larger tree of its own operator, whose root speaks for it?"""
    node = graph.nodes[index]
    if not regroups(node.op) or node.attributes or len(node.outputs) != 1:
        return False
    value = node.outputs[0]
    users = graph.users[value]
    if len(users) != 1:
        return False
    above = graph.nodes[users[0]]
    return _continues(graph, above, index, value)
