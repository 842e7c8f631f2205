"""Rewrite a graph locally: one sweep in topological order, rules that look backwards, a new graph at the end.

A rule sees one node with its operands as they are by now, and answers with a `Change` or with None. What stands before the node is
looked for as a pattern (`rewrite.pattern`), of which nobody else reads an inner value; whoever asks about one operand alone asks
who made it. What a change makes is looked at again at once, so chains collapse in one sweep; nodes that lose their last
reader go at once too, so "has only this reader" is always true to the graph as it is by now. Cost: linear in nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.errors import InvalidModel
from fusewise.ir.deciding import known_below, known_equal
from fusewise.ir.graph import Constant, Graph, LazyConstant, Node, SizesConstant, attributes_of, constant_of
from fusewise.ir.size import SizeNeeded, Undecided
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.infer import DATA_LIMIT
from fusewise.ops.shapes.again import infer_again
from fusewise.records import record
from fusewise.rewrite.match import Occurrence, Only, occurrences
from fusewise.rewrite.pattern import Pattern, pattern_of
from fusewise.trace import Trace

__all__ = ["Change", "Edit", "LocalRule", "looking_for", "rebuilt", "sweep"]

_MOST_CHANGES = 64  # of one node of the old graph; only a pair of rules that undo each other gets there


@record(frozen=True)
class Change:
    """What a rule wants in place of the node it was shown.

    `matched`: the nodes it is about, for the event and for provenance. `nodes`: new nodes, in topological order, that
    write the old node's outputs; `same`: outputs that are simply another value; `known`: outputs that are constant.
    """

    matched: tuple[Node, ...]
    reason: str
    nodes: tuple[Node, ...] = ()
    same: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, np.ndarray | Constant] = field(default_factory=dict)


@record(frozen=True)
class LocalRule:
    """A rewrite under its name: `change` is asked about nodes whose operator is one of `roots` (empty: about all of the
    domain of ONNX's own); one of another domain is a root as `domain.Name`."""

    name: str
    roots: tuple[str, ...]
    change: Callable[[Edit, Node], Change | None]


def looking_for(
    name: str,
    before: Callable[..., Any],
    change: Callable[[Edit, Node, Occurrence], Change | None],
    only: Mapping[str, Only] = MappingProxyType({}),
) -> LocalRule:
    """A rule whose `change` is asked about every occurrence of a pattern, in graph notation, until it has an answer.

    `only` narrows what single variables may stand for.
    """
    pattern = pattern_of(before, closed=True)

    def changed(edit: Edit, node: Node) -> Change | None:
        for found in edit.occurrences(pattern, node, only):
            answer = change(edit, node, found)
            if answer is not None:
                return answer
        return None

    return LocalRule(name, tuple(pattern.starts), changed)


class Edit:
    """A graph while a sweep rewrites it. Rules read it; they only ever add constants."""

    def __init__(self, graph: Graph) -> None:
        self.opset = graph.opset
        self.opsets = graph.opsets
        self.outputs = graph.output_set
        self.types: dict[str, ValueType] = dict(graph.types)
        self.constants: dict[str, Constant] = dict(graph.constants)
        self.changed = False
        self.nodes: list[Node] = []  # also those that are gone
        self.producer: dict[str, int] = {}
        self._graph = graph
        self._gone: set[int] = set()
        self._asked: Node | None = None
        self._made_by: set[str] = set()  # the operators that made the operands of the node that was asked about last
        self._alias: dict[str, str] = {}
        self._named: dict[str, str] = {}  # value to the output of the graph it will be called in the end
        self._counts: dict[str, int] = {}
        self._reads: dict[str, int] = dict(graph.read_counts)

    # what rules ask

    def maker(self, value: str) -> Node | None:
        """The node that writes `value` by now; None for inputs, constants and absent operands."""
        position = self.producer.get(value)
        return None if position is None or position in self._gone else self.nodes[position]

    def occurrences(
        self, pattern: Pattern, node: Node, only: Mapping[str, Only] = MappingProxyType({})
    ) -> Sequence[Occurrence]:
        """Where a pattern ends in a node that has not been kept yet."""
        if self._asked is not node:
            self._asked = node
            self._made_by = {self.nodes[i].op for x in node.inputs if (i := self.producer.get(x)) is not None}
        if not pattern.may_end(node.op, self._made_by):
            return ()
        self.nodes.append(node)
        found = tuple(occurrences(pattern, self, len(self.nodes) - 1, only))
        self.nodes.pop()
        return found

    def covered(self, found: Occurrence, node: Node) -> tuple[Node, ...]:
        """The nodes of an occurrence that ends in `node`."""
        return (*(self.nodes[i] for i in found.nodes if i < len(self.nodes)), node)

    def made_by(self, value: str, *kinds: str) -> Node | None:
        """The node that writes `value`, if it is of one of these ONNX operators."""
        node = self.maker(value)
        return node if node is not None and node.op in kinds and not node.domain else None

    def sole(self, value: str, *kinds: str) -> Node | None:
        """Like `made_by`, if nothing but one operand of one node reads `value`."""
        node = self.made_by(value, *kinds)
        return node if node is not None and self.is_inner(value) else None

    def is_inner(self, value: str, reads: int = 1) -> bool:
        """Is the value just so many operands of nodes, and no output?"""
        return self.reads(value) == reads and not self.is_output(value)

    def reads(self, value: str) -> int:
        """How many operands `value` is."""
        return self._reads.get(value, 0)

    def is_output(self, value: str) -> bool:
        """Is `value` an output of the graph?"""
        return value in self.outputs or value in self._named

    def is_unused(self, value: str) -> bool:
        """Is the value absent, or neither read nor an output?"""
        return not value or (not self.reads(value) and not self.is_output(value))

    def array(self, value: str) -> np.ndarray | None:
        """The contents of a constant of numbers, else None: also where some are sizes that are not known yet."""
        constant = self.constants.get(value)
        return None if constant is None or isinstance(constant, SizesConstant) else constant.array

    def operand(self, node: Node, i: int) -> np.ndarray | None:
        """The contents of operand `i` when it is a constant of numbers, else None."""
        return self.array(node.inputs[i]) if i < len(node.inputs) else None

    def scalar(self, value: str) -> float | None:
        """The number that a constant of one element holds, else None."""
        array = self.array(value)
        return float(array.reshape(-1)[0]) if array is not None and array.size == 1 and array.dtype != object else None

    def static(self, value: str) -> TensorType | None:
        """The type of a tensor whose shape is known, else None."""
        kind = self.types.get(value)
        return kind if isinstance(kind, TensorType) and kind.is_static else None

    def same_type(self, a: str, b: str) -> bool:
        """Have both values one and the same known shape and dtype?"""
        kind = self.static(a)
        return kind is not None and kind == self.types.get(b)

    # what rules make

    def constant(self, array: np.ndarray, stem: str) -> str:
        """A new constant; it is dropped in the end if nothing reads it."""
        name = self.fresh(stem)
        self.constants[name] = constant_of(array)
        self.types[name] = self.constants[name].type
        return name

    def later(self, constant: LazyConstant, stem: str) -> str:
        """A new constant whose contents are computed when they are first read."""
        name = self.value(stem, constant.type)
        self.constants[name] = constant
        return name

    def fresh(self, stem: str) -> str:
        """A value name not used before: the stem, or the stem and a number."""
        name = stem
        while name in self.types:
            self._counts[stem] = self._counts.get(stem, 0) + 1
            name = f"{stem}_{self._counts[stem]}"
        return name

    def value(self, stem: str, kind: ValueType) -> str:
        """A new name for a value of a known type."""
        name = self.fresh(stem)
        self.types[name] = kind
        return name

    # what the sweep does

    def resolved(self, node: Node) -> Node:
        """The node with its operands as they are by now."""
        if not self._alias or not any(value in self._alias for value in node.inputs + node.captured):
            return node
        inputs = tuple(self._alias.get(v, v) for v in node.inputs)
        return replace(node, inputs=inputs, captured=tuple(self._alias.get(v, v) for v in node.captured))

    def keep(self, node: Node) -> None:
        """Append a node no rule changes."""
        if self.changed:
            self._refine(node)
        for value in node.writes:
            self.producer[value] = len(self.nodes)
        self.nodes.append(node)

    def landed(self, node: Node, change: Change) -> Change | None:
        """The change with every output of the graph under its own name; None where that leaves nothing to change.

        An output that is a value which has a name of its own already (an input, a constant, another output) is a copy of it.
        """
        targets: list[str] = []
        copies: dict[str, str] = {}
        for old, new in change.same.items():
            if old not in self.outputs:
                continue
            if new in self.producer and not self.is_output(new) and new not in targets:
                targets.append(new)
            else:
                copies[old] = new
        if copies and node.op == "Identity":
            return None
        if copies:
            made = tuple(replace(rebuilt(node, "Identity", (new,)), outputs=(old,)) for old, new in copies.items())
            same = {old: new for old, new in change.same.items() if old not in copies}
            change = replace(change, nodes=(*change.nodes, *made), same=same)
        whole = all(
            v in change.same or v in change.known or v in _written(change.nodes) or self.is_unused(v)
            for v in node.writes
        )
        return change if whole else None

    def make(self, node: Node, change: Change) -> None:
        """Carry out a change for `node`, which has not been kept; its new nodes are still to be kept."""
        self.changed = True
        for fresh in change.nodes:
            self._count(fresh.reads)
            self._infer(fresh)
        for old, new in change.same.items():
            if old in self.outputs:
                self._named[new] = old
            self._alias[old] = new
            if self.static(new) is None and self.static(old) is not None:
                self.types[new] = self.types[old]
            self._reads[new] = self._reads.get(new, 0) + self._reads.pop(old, 0)
        for value, found in change.known.items():
            self.constants[value] = found if isinstance(found, Constant) else constant_of(found)
            self.types[value] = self.constants[value].type
        self._release(node.reads)

    def finish(self) -> Graph:
        """The new graph; the old one itself when nothing was changed."""
        if not self.changed:
            return self._graph
        nodes: Iterable[Node] = (node for i, node in enumerate(self.nodes) if i not in self._gone)
        if self._named:
            nodes = (_renamed(node, self._named) for node in nodes)
        return self._graph.replace(nodes=tuple(nodes), types=self.types, constants=self.constants).pruned()

    def _count(self, values: Iterable[str]) -> None:
        for value in values:
            self._reads[value] = self._reads.get(value, 0) + 1

    def _release(self, values: Sequence[str]) -> None:
        """Take reads away; a node that nobody reads any more goes, and releases what it read."""
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            self._reads[value] -= 1
            position = self.producer.get(value)
            if position is None or position in self._gone:
                continue
            node = self.nodes[position]
            if all(self.is_unused(v) for v in node.writes):
                self._gone.add(position)
                waiting.extend(node.reads)

    def _infer(self, node: Node) -> None:
        """Types for outputs that have none yet."""
        if all(value in self.types for value in node.writes):
            return
        for value, kind in self.inferred(node).items():
            self.types.setdefault(value, kind)

    def _refine(self, node: Node) -> None:
        """Shapes that are known now that more constants are."""
        if not node.domain and any(self.static(value) is None for value in node.writes):
            with suppress(InvalidModel):
                found = self.inferred(node)
                better = (value for value, kind in found.items() if isinstance(kind, TensorType) and kind.is_static)
                self.types.update({value: found[value] for value in better})

    def inferred(self, node: Node) -> dict[str, ValueType]:
        """What inference knows of the outputs of a node, whatever types they have been given. Raises as `infer_outputs`."""
        kinds = tuple(self.types[v] if v else None for v in node.inputs)
        constants = (self.constants.get(v) for v in node.inputs)
        known = tuple(None if c is None or c.type.size > DATA_LIMIT else c.array for c in constants)
        found = zip(node.outputs, infer_again(node, kinds, known, self.opset), strict=True)
        return {value: kind for value, kind in found if value and kind is not None}


def may_be_empty(dims: Sequence[int]) -> dict[str, int]:
    """The attribute of a Reshape to `dims` where one of them may be 0: no dimension is copied then."""
    may = not all(known_below(0, dim) or known_equal(dim, -1) for dim in dims)
    return {"allowzero": 1} if may else {}


def sweep(graph: Graph, trace: Trace, rules: Sequence[LocalRule]) -> Graph:
    """Apply `rules`, the first that matches first, wherever they match and `trace` allows.

    Rules with higher positions see what earlier ones leave. The same graph comes back when nothing matched.
    """
    by_root: dict[str, list[LocalRule]] = {}
    kinds = {_root(node): node for node in graph.nodes}
    for rule in rules:
        for root in rule.roots or (name for name, node in kinds.items() if not node.domain):
            by_root.setdefault(root, []).append(rule)
    if kinds.keys().isdisjoint(by_root):
        return graph
    edit = Edit(graph)
    for node in graph.nodes:
        if _root(node) in by_root:
            _settle(edit, node, by_root, trace)
        else:
            edit.keep(edit.resolved(node))
    return edit.finish()


def _root(node: Node) -> str:
    return f"{node.domain}.{node.op}" if node.domain else node.op


def _settle(edit: Edit, first: Node, by_root: Mapping[str, list[LocalRule]], trace: Trace) -> None:
    """Rewrite one node, and what comes in its place, until no rule matches."""
    waiting = [first]
    for _ in range(_MOST_CHANGES):
        if not waiting:
            return
        node = edit.resolved(waiting.pop())
        change = _first_change(edit, node, by_root.get(_root(node), ()), trace)
        if change is None:
            edit.keep(node)
        else:
            origin = tuple(dict.fromkeys(name for part in change.matched for name in part.origin))
            fresh = tuple(replace(new, origin=origin) for new in change.nodes)
            edit.make(node, replace(change, nodes=fresh))
            waiting.extend(reversed(fresh))
    for node in reversed(waiting):
        edit.keep(edit.resolved(node))


def _first_change(edit: Edit, node: Node, rules: Iterable[LocalRule], trace: Trace) -> Change | None:
    for rule in rules:
        try:
            found = rule.change(edit, node)
        except (SizeNeeded, Undecided):
            continue  # the rule has to know more of sizes than is known
        change = None if found is None else edit.landed(node, found)
        if change is not None:
            where = tuple(part.label for part in change.matched)
            if trace.allows("rewrite", rule.name, where, change.reason):
                return change
    return None


def rebuilt(node: Node, op: str, inputs: Sequence[str], **attributes: Any) -> Node:
    """A node under the name of `node` and with its outputs, of another operator."""
    return Node(op, tuple(inputs), node.outputs, attributes_of(**attributes), name=node.name, origin=node.origin)


def _written(nodes: Iterable[Node]) -> set[str]:
    return {value for node in nodes for value in node.writes}


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    if not any(value in names for value in node.inputs + node.outputs + node.captured):
        return node
    return replace(
        node,
        inputs=tuple(names.get(v, v) for v in node.inputs),
        outputs=tuple(names.get(v, v) for v in node.outputs),
        captured=tuple(names.get(v, v) for v in node.captured),
    )
