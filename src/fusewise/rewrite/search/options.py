"""What a search may do next to a graph: its substitutions, each with what it adds to the cost.

Most of them were there before the last step. They are kept, priced again only where what their price rests on has changed, and a
pattern is looked for again only where it reaches the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import field
from functools import cached_property

from fusewise.ir.graph import Constant, Graph, Node
from fusewise.ir.types import ValueType
from fusewise.records import record
from fusewise.rewrite.cost import Cost, WholeGraph, looks_around
from fusewise.rewrite.engine import by_operator, distances, drafts_near, drafts_of
from fusewise.rewrite.rule import Rule
from fusewise.rewrite.search.promise import Promises, deferred
from fusewise.rewrite.substitute import Draft, Refused

__all__ = ["Option", "OptionFinder", "PricedGraph", "gone", "option_of", "survives"]


@record(frozen=True, eq=False)
class PricedGraph:
    """A graph and the prices of its nodes, each found when it is first asked for."""

    graph: Graph
    cost: Cost
    _known: dict[int, float] = field(default_factory=dict, repr=False)

    @cached_property
    def _around(self) -> WholeGraph:
        return WholeGraph(self.graph)

    def of(self, index: int) -> float:
        """The share of one node."""
        found = self._known.get(index)
        if found is None:
            found = self._known[index] = self.cost.of(self.graph.nodes[index], self._around)
        return found


@record(frozen=True)
class _After:
    """The surroundings in the graph that a deferred draft would give, without building it."""

    graph: Graph
    draft: Draft
    gone: frozenset[int]
    made: Mapping[str, Node]

    @cached_property
    def types(self) -> Mapping[str, ValueType]:
        return _Either(self.draft.types, self.graph.types)

    def maker(self, value: str) -> Node | None:
        found = self.made.get(value)
        if found is not None:
            return found
        index = self.graph.producer.get(value)
        return None if index is None or index in self.gone else self.graph.nodes[index]

    def readers(self, value: str) -> int:
        names = [value, *(old for old, new in self.draft.same.items() if new == value)]
        stay = {i for name in names for i in self.graph.users.get(name, ()) if i not in self.gone}
        return len(stay) + sum(value in node.reads for node in self.draft.nodes) + (value in self.graph.output_set)

    def constant(self, value: str) -> Constant | None:
        return self.draft.constants.get(value) or self.graph.constants.get(value)


class _Either(dict[str, ValueType]):
    """One table before another, cheaper to make than a union."""

    def __init__(self, first: Mapping[str, ValueType], second: Mapping[str, ValueType]) -> None:
        super().__init__(first)
        self._second = second

    def __missing__(self, name: str) -> ValueType:
        return self._second[name]


def gone(graph: Graph, draft: Draft) -> frozenset[int]:
    """The nodes that a draft removes."""
    return frozenset(graph.producer[x] for x in draft.removed)


@record(frozen=True, slots=True, eq=False)
class Option:
    """A substitution that may be carried out: how much it adds to the cost, and the values whose surroundings that rests on."""

    draft: Draft
    change: float
    rests_on: frozenset[str]

    @property
    def key(self) -> tuple[str, object]:
        """Equal for the same rule at the same place."""
        return self.draft.rule.name, self.draft.match.key


def option_of(priced: PricedGraph, draft: Draft) -> Option:
    """What a deferred draft adds to the cost of a graph: only nodes around the change are priced."""
    graph, cost = priced.graph, priced.cost
    dead = gone(graph, draft)
    made = {x: node for node in draft.nodes for x in node.writes}
    after = _After(graph, draft, dead, made)
    users = graph.users
    beside = {i for x in draft.touched for i in users.get(x, ()) if x in draft.same or looks_around(graph.nodes[i])}
    beside -= dead
    nodes = [*sorted(dead), *sorted(beside)]
    saved = sum(map(priced.of, nodes), 0.0)
    stay = (_renamed(graph.nodes[i], draft.same) for i in sorted(beside))
    added = sum((cost.of(node, after) for node in (*draft.nodes, *stay)), 0.0)
    return Option(draft, added - saved, draft.touched.union(*(graph.nodes[i].reads for i in nodes)))


def _renamed(node: Node, same: Mapping[str, str]) -> Node:
    return node.with_inputs(same.get(x, x) for x in node.inputs) if same else node


def survives(draft: Draft, done: Draft) -> bool:
    """Is a draft as good after another was carried out? Nothing that it covers went, and the same nodes read what lies inside."""
    if not draft.covered.isdisjoint(done.removed) or not (draft.covered - set(draft.match.roots)).isdisjoint(
        done.touched
    ):
        return False
    return not done.same or draft.touched.isdisjoint(done.same)


class OptionFinder:
    """Finds the options of graphs with the rules of one search."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._by_operator = by_operator(rules)
        self._place = {rule.name: k for k, rule in enumerate(rules)}
        self._promises = Promises()

    def everywhere(self, priced: PricedGraph) -> tuple[Option, ...]:
        """All options of a graph."""
        return tuple(_options(priced, drafts_of(priced.graph, self._rules, weigh=self._promises)))

    def after(self, priced: PricedGraph, options: Iterable[Option], done: Draft, lost: Set[str]) -> tuple[Option, ...]:
        """The options of a graph: those of the graph before `done`, as far as they survive it, and new ones around it, last.

        `lost` are values that nodes read which went though `done` does not name them, because nobody read these any more.
        """
        graph = priced.graph
        near = distances(graph, [done], lost)
        far: list[Option] = []
        kept: dict[object, Option] = {}
        for option in options:
            draft = option.draft
            if draft is done or not survives(draft, done) or (lost and not draft.covered <= graph.producer.keys()):
                continue
            if not option.rests_on.isdisjoint(done.touched | lost):
                option = option_of(priced, draft)
            if graph.producer[draft.match.roots[0]] in near:
                kept[option.key] = option
            else:
                far.append(option)
        new = _options(priced, drafts_near(graph, self._by_operator, near, self._promises, kept))

        def place(option: Option) -> tuple[int, int]:
            return graph.producer[option.draft.match.roots[0]], self._place[option.draft.rule.name]

        return (*far, *sorted([*kept.values(), *new], key=place))


def _options(priced: PricedGraph, drafts: Iterable[Draft]) -> Iterator[Option]:
    for draft in drafts:
        with suppress(Refused):
            yield option_of(priced, deferred(draft))
