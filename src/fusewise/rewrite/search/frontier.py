"""What searches that go up to come down have in common: a queue of graphs ordered by cost, what was met before, when to end.

A graph that waits is only a substitution to be carried out in its parent, priced by what changes: it is built when its turn
comes. Which graphs wait, and what is done to one whose turn it is, is what searches differ in.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from fusewise.errors import UsageError
from fusewise.ir.graph import Constant, Graph
from fusewise.records import record
from fusewise.rewrite.cost import Cost
from fusewise.rewrite.engine import released
from fusewise.rewrite.rule import Rule
from fusewise.rewrite.search.found import Found, SearchLimits, SearchState, the_best
from fusewise.rewrite.search.key import edited_names, search_key
from fusewise.rewrite.search.options import Option, OptionFinder, PricedGraph, gone
from fusewise.rewrite.search.stated import stated
from fusewise.rewrite.substitute import Refused, carried_out

__all__ = ["Expand", "Frontier", "explored", "started", "unless_below_one"]

_DIGITS = 9  # prices that differ by less are the same, summed up in another order


@record
class Frontier:
    """The queue and what has been seen; lives for one search. `ceiling` is the cost from which on a waiting graph is not worth
    building, `unit` the cost of the first graph, `ended` why nothing more may be built."""

    options: OptionFinder
    cost: Cost
    limits: SearchLimits
    best: SearchState
    tell: Callable[[float], None] | None = None
    begin: float = 0.0
    unit: float = 1.0
    ceiling: float = float("inf")
    queue: list[tuple[float, int, float, SearchState, Option]] = field(default_factory=list)
    serial: Iterator[int] = field(default_factory=itertools.count)
    seen: set[object] = field(default_factory=set)
    constants: dict[str, tuple[Constant, int]] = field(default_factory=dict)
    explored: int = 0
    duplicates: int = 0
    ended: str = ""

    def enter(self, state: SearchState) -> None:
        """Count a graph that was built, and see whether another one may be."""
        self.explored += 1
        if state.cost < self.best.cost:
            self.best = state
        graphs, seconds = self.explored / self.limits.graphs, 0.0
        if self.limits.seconds is not None:
            seconds = (self.limits.clock() - self.begin) / self.limits.seconds
        if self.tell is not None:
            self.tell(min(1.0, max(graphs, seconds)))
        if graphs >= 1:
            self.ended = "graphs"
        elif seconds >= 1:
            self.ended = "seconds"

    def let_wait(self, state: SearchState, option: Option, key: int) -> None:
        """Queue what an option makes of a state whose `names_key` is `key`, unless it was met before."""
        name = edited_names(state.graph, key, option.draft, state.graph.producer)
        if name is not None and name in self.seen:
            self.duplicates += 1
            return
        self.seen.add(name)
        price = state.cost + option.change
        heapq.heappush(self.queue, (self.rounded(price), -next(self.serial), price, state, option))

    def shorten(self) -> None:
        """Drop the dearest half of a queue that is too long."""
        if len(self.queue) > self.limits.waiting:
            self.queue = heapq.nsmallest(self.limits.waiting // 2, self.queue)

    def rounded(self, price: float) -> float:
        """A price by which graphs are ordered, in parts of the first graph's."""
        return round(price / self.unit, _DIGITS)

    def next(self) -> SearchState | None:
        """The cheapest graph that waits, built; None when nothing worth it is left."""
        while self.queue:
            _, _, price, parent, option = heapq.heappop(self.queue)
            if price >= self.ceiling:
                return None
            state = self.built(parent, option)
            if state is not None:
                return state
        return None

    def built(self, parent: SearchState, option: Option, again: bool = False) -> SearchState | None:
        """The graph that an option makes of its parent; None where that is a cycle or, unless `again`, was built before."""
        draft = option.draft
        try:
            graph = carried_out(parent.graph, [draft])
        except Refused:  # a cycle
            return None
        key = search_key(graph, self.constants)
        if key in self.seen:
            self.duplicates += 1
            if not again:
                return None
        self.seen.add(key)
        shrunk = len(graph.nodes) < len(parent.graph.nodes) - len(gone(parent.graph, draft)) + len(draft.nodes)
        cost = self.cost(graph) if shrunk else parent.cost + option.change
        lost = released(parent.graph, graph) if shrunk else set[str]()
        options = self.options.after(PricedGraph(graph, self.cost), parent.options, draft, lost)
        return SearchState(graph, cost, parent, draft, options)


Expand = Callable[[Frontier, SearchState], None]
"""What a search does to a graph whose turn it is: lets others wait that come of it."""


def unless_below_one(alpha: float) -> None:
    """`UsageError` for an alpha that would refuse improvements."""
    if not alpha >= 1:
        raise UsageError(f"alpha is {alpha:g}; it must be at least 1 (1 follows improvements only)")


def started(
    graph: Graph,
    rules: Sequence[Rule],
    cost: Cost,
    limits: SearchLimits | None = None,
    progress: Callable[[float], None] | None = None,
) -> Frontier:
    """The frontier of a search that begins now, at `graph`."""
    limits = SearchLimits() if limits is None else limits
    begin = limits.clock()
    start = SearchState(graph, cost(graph))
    return Frontier(OptionFinder(rules), cost, limits, start, progress, begin, start.cost or 1.0)


def explored(run: Frontier, expand: Expand, keep: int) -> Found:
    """Expand the input, and then whatever is cheapest of what waits, until nothing does or the limits are reached."""
    start = run.best
    try:
        first = stated(start.graph)
        run.seen.add(search_key(first, run.constants))
        state: SearchState | None = SearchState(
            first, start.cost, options=run.options.everywhere(PricedGraph(first, run.cost))
        )
        while state is not None:
            run.enter(state)
            expand(run, state)
            if run.ended:
                break
            state = run.next()
    except KeyboardInterrupt:
        run.ended = "interrupted"
    best, seconds = the_best(run.best, start, keep), run.limits.clock() - run.begin
    return Found(best, start.cost, run.explored, run.duplicates, seconds, run.ended or "searched")
