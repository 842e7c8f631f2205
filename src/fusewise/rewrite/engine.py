"""Rewrite a graph with rules until none helps: DNNFusion's mathematical-property rewriting (Niu et al., PLDI 2021, 4.2).

The graph falls into parts at every operator that no rule knows. In each part the match that saves most arithmetic goes
first, then the one that reads less, then the one with fewer operators; matches that do not touch each other go in one step.
Every step makes the work of the graph smaller in that order, so the end is reached. What did not change is not
matched again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from fusewise.ir.graph import Graph
from fusewise.ir.size import SizeNeeded, Undecided
from fusewise.ir.types import TensorType
from fusewise.rewrite.match import WIDEST, Match, flattened, is_tree_inside, matches
from fusewise.rewrite.pattern import regroups
from fusewise.rewrite.rule import FLOATS, Rule, numeric_class, refusal
from fusewise.rewrite.substitute import Draft, Refused, Weigh, carried_out, draft_of, folded, is_static
from fusewise.rewrite.work import NOTHING
from fusewise.trace import Trace

__all__ = [
    "around",
    "by_operator",
    "distances",
    "drafts_at",
    "drafts_near",
    "drafts_of",
    "parts",
    "released",
    "rewrite",
]

_REACH = 6
"""How many nodes deep patterns look, trees of one operator counting as one."""

_CLASSES = ("exact", "reassociating", "approximate")


def parts(graph: Graph, operators: frozenset[str]) -> tuple[tuple[int, ...], ...]:
    """The connected parts of the graph that are made of these operators only; nodes ascending."""
    part: dict[int, int] = {}

    def root(i: int) -> int:
        while part[i] != i:
            part[i] = part[part[i]]
            i = part[i]
        return i

    for i, node in enumerate(graph.nodes):
        if node.op in operators and not node.domain:
            part[i] = i
            for value in node.reads:
                before = graph.producer.get(value)
                if before in part:
                    part[root(before)] = i
    found: dict[int, list[int]] = {}
    for i in part:
        found.setdefault(root(i), []).append(i)
    return tuple(tuple(nodes) for nodes in found.values())


def drafts_at(
    graph: Graph,
    index: int,
    rules: Iterable[Rule],
    weigh: Weigh | None = None,
    known: Container[object] = (),
    *,
    refused: bool = False,
) -> Iterator[Draft]:
    """Every substitution of `rules`, whose first roots' operator is that of node `index`, that types and guards allow there.

    Those whose rule and `Match.key` are `known` are left out; `weigh` as for `draft_of`. With `refused`, substitutions that a guard
    refuses are given too, so that it can be told why; but not those of one node, of which there are many.
    """
    for rule, match in _matches_at(graph, index, rules):
        if (known and (rule.name, match.key) in known) or not is_static(match):
            continue
        with suppress(Refused, SizeNeeded, Undecided):  # or the rule has to know more of sizes than is known
            if (rule.is_single or not refused) and refusal(rule, match) is not None:
                continue
            yield draft_of(rule, match) if weigh is None else draft_of(rule, match, weigh)


def _matches_at(graph: Graph, index: int, rules: Iterable[Rule]) -> Iterator[tuple[Rule, Match]]:
    inside = is_tree_inside(graph, index)  # then the root of the tree speaks for this node
    operands = flattened(graph, index)[0] if regroups(graph.nodes[index].op) else graph.nodes[index].inputs
    made_by = {graph.nodes[maker].op for x in operands if (maker := graph.producer.get(x)) is not None}
    for rule in rules:
        if (inside and regroups(rule.root)) or not made_by >= rule.beneath:
            continue
        for match in matches(rule.flat, graph, index, rule.only):
            yield rule, match


def by_operator(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    """The rules under the operator of their first root, in their order."""
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        found.setdefault(rule.root, []).append(rule)
    return found


def drafts_of(
    graph: Graph, rules: Iterable[Rule], indexes: Iterable[int] | None = None, weigh: Weigh | None = None
) -> Iterator[Draft]:
    """Every substitution that types and guards allow, whatever it costs, rooted at these nodes or anywhere.

    `weigh` as for `draft_of`.
    """
    fitting = by_operator(rules)
    for index in range(len(graph.nodes)) if indexes is None else indexes:
        yield from drafts_at(graph, index, fitting.get(graph.nodes[index].op, ()), weigh)


def drafts_near(
    graph: Graph,
    rules: Mapping[str, Sequence[Rule]],
    near: Mapping[int, int],
    weigh: Weigh,
    known: Container[object] = (),
) -> Iterator[Draft]:
    """The substitutions that may be new after a change, for a search; those whose `Match.key` is known are left out.

    `rules` are `by_operator`, `near` the `distances` from the change: a pattern sees no further than it is deep.
    """
    for index in sorted(near):
        fitting = [rule for rule in rules.get(graph.nodes[index].op, ()) if rule.depth > near[index]]
        if fitting:
            yield from drafts_at(graph, index, fitting, weigh, known)


def rewrite(graph: Graph, rules: Sequence[Rule], trace: Trace, *, worst: str = "reassociating") -> Graph:
    """The graph after `rules`, applied where they save work and `trace` allows; the same object when nothing applies.

    `worst` is the worst numeric class an application may have. Every application leaves a gated event with the arithmetic
    before and after; so does, ungated, every place where a rule would save work but its guard refused, with the reason.
    """
    state = _State(rules, trace, worst)
    operators = frozenset(op for rule in rules for op in rule.before.operators)
    single = frozenset(rule.root for rule in rules if rule.is_single)
    stale: Iterable[int] = [
        i for part in parts(graph, operators) if len(part) > 1 or graph.nodes[part[0]].op in single for i in part
    ]
    while True:
        state.match(graph, stale)
        chosen = state.choose(graph)
        if not chosen:
            return graph
        before, graph = graph, carried_out(graph, chosen)
        stale = around(graph, chosen, released(before, graph))
        state.forget(graph, stale)


class _State:
    """What is known between two steps: the drafts rooted at each value, and what was refused for good."""

    def __init__(self, rules: Iterable[Rule], trace: Trace, worst: str) -> None:
        self.trace = trace
        self.worst = _CLASSES.index(worst)
        self.drafts: dict[str, list[Draft]] = {}
        self.refused: set[tuple[str, str]] = set()
        self.by_operator = by_operator(
            rule for rule in rules if rule.on != FLOATS or _CLASSES.index(rule.numeric) <= self.worst
        )

    def match(self, graph: Graph, indexes: Iterable[int]) -> None:
        """Find the drafts rooted at these nodes that save work and may be used."""
        for index in indexes:
            node = graph.nodes[index]
            rules = () if node.domain else self.by_operator.get(node.op, ())
            kind = graph.types.get(node.outputs[0]) if rules else None
            if not isinstance(kind, TensorType):
                continue
            fitting = [rule for rule in rules if kind.dtype.kind in rule.on]
            found = [
                draft
                for draft in drafts_at(graph, index, fitting, refused=True)
                if draft.saving > NOTHING and self.may(draft)
            ]
            if found:
                self.drafts[node.outputs[0]] = found

    def may(self, draft: Draft) -> bool:
        """Is the draft of an allowed class, and does its rule's guard let it pass?"""
        if _CLASSES.index(numeric_class(draft.rule, draft.match)) > self.worst:
            return False
        reason = refusal(draft.rule, draft.match)
        if reason is not None and len(draft.rule.before.operators) > 1:  # a single operator is no news
            self.refuse(draft, reason)
        return reason is None

    def refuse(self, draft: Draft, reason: str) -> None:
        key = draft.rule.name, draft.match.roots[0]
        if key not in self.refused:
            self.refused.add(key)
            self.trace.add("rewrite", draft.rule.name, draft.match.labels, reason, applied=False)

    def choose(self, graph: Graph) -> list[Draft]:
        """The best drafts that do not touch each other, computed and allowed."""
        every = [draft for found in self.drafts.values() for draft in found]
        every.sort(key=lambda draft: (tuple(-x for x in draft.saving), graph.producer[draft.match.roots[0]]))
        chosen: list[Draft] = []
        covered: set[str] = set()
        touched: set[str] = set()
        for draft in every:
            if (draft.rule.name, draft.match.roots[0]) in self.refused:
                continue
            if not (touched.isdisjoint(draft.covered) and covered.isdisjoint(draft.touched)):
                continue
            try:
                ready = folded(draft)
            except Refused as reason:
                self.refuse(draft, str(reason))
                continue
            if self.allowed(ready):
                chosen.append(ready)
                covered |= draft.covered
                touched |= draft.touched
        return chosen

    def allowed(self, draft: Draft) -> bool:
        before, after = draft.before, draft.after
        note = (
            f"operations {before.flops} to {after.flops}, elements read {before.loads} to {after.loads},"
            f" operators {before.operators} to {after.operators}"
        )
        name, where = draft.rule.name, draft.match.labels
        if self.trace.allows("rewrite", name, where, note, before=float(before.flops), after=float(after.flops)):
            return True
        self.refused.add((name, draft.match.roots[0]))
        return False

    def forget(self, graph: Graph, indexes: Iterable[int]) -> None:
        """Drop drafts rooted at these nodes, or at nodes that are gone."""
        stale = {graph.nodes[i].outputs[0] for i in indexes}
        self.drafts = {
            root: found for root, found in self.drafts.items() if root in graph.producer and root not in stale
        }


def released(before: Graph, after: Graph) -> set[str]:
    """Values that are left and were read by nodes which are not."""
    gone = (node for node in before.nodes if node.outputs and node.outputs[0] not in after.producer)
    return {x for node in gone for x in node.reads if x in after.types}


def around(graph: Graph, drafts: Iterable[Draft], released: Iterable[str] = ()) -> list[int]:
    """The nodes from which a pattern may see something that these drafts, now carried out, changed."""
    return sorted(distances(graph, drafts, released))


def distances(graph: Graph, drafts: Iterable[Draft], released: Iterable[str] = ()) -> dict[int, int]:
    """How far below what these drafts, now carried out, changed the nodes `around` it are; a tree of one operator is one.

    `released` are values that lost a reader with them.
    """
    touched = {x for draft in drafts for x in draft.touched}.union(released)
    changed = touched.union(*(node.writes for draft in drafts for node in draft.nodes))
    near = {i for x in changed if (i := graph.producer.get(x)) is not None}
    near |= {i for x in touched for i in graph.users.get(x, ())}
    found = dict.fromkeys(near, 0)
    for distance in range(_REACH):
        further: set[int] = set()
        trees = [(i, WIDEST) for i in near]
        while trees:
            i, left = trees.pop()
            op = graph.nodes[i].op
            for user in {user for value in graph.nodes[i].writes for user in graph.users[value]}:
                same_tree = bool(left) and graph.nodes[user].op == op and regroups(op)
                if found.get(user, _REACH + 1) <= distance + (not same_tree):
                    continue
                found[user] = distance + (not same_tree)
                if same_tree:
                    trees.append((user, left - 1))
                    further.discard(user)
                else:
                    further.add(user)
        near = further
    return found
