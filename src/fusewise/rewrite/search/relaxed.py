"""Substitutions chosen by a search that goes up to come down (Z. Jia et al., Optimizing DNN Computation with Relaxed Graph
Substitutions, SysML 2019).

Graphs wait in a queue ordered by cost. The cheapest is expanded: every substitution anywhere in it gives another graph, which
waits too if it costs less than `alpha` times the best so far; with alpha = 1 only improvements are followed. Of graphs that
cost the same the newest goes first, so that steps which only pay together are taken one after the other. A waiting graph is
only a substitution to be carried out in its parent, priced by what changes: it is built when its turn comes.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field

from fusewise.errors import UsageError
from fusewise.ir.graph import Constant, Graph
from fusewise.records import record
from fusewise.rewrite.cost import Cost
from fusewise.rewrite.rule import Rule
from fusewise.rewrite.search.key import edited_names, names_key, search_key
from fusewise.rewrite.search.options import Option, Options, Priced, gone
from fusewise.rewrite.search.promise import kept
from fusewise.rewrite.search.stated import stated
from fusewise.rewrite.substitute import Draft, Refused, carried_out

__all__ = ["Found", "Limits", "Step", "evenly", "search"]


_DIGITS = 9  # prices that differ by less are the same, summed up in another order


@record(frozen=True)
class Limits:
    """How long to search: graphs expanded, seconds (None: no limit), and graphs that wait at most."""

    graphs: int = 300
    seconds: float | None = None
    waiting: int = 50_000

    def __post_init__(self) -> None:
        if self.graphs < 1:
            raise UsageError(f"the budget of a search is {self.graphs} graphs; it must be at least 1")
        if self.seconds is not None and not self.seconds > 0:
            raise UsageError(f"the budget of a search is {self.seconds:g} seconds; it must be above 0")


@record(frozen=True, slots=True)
class Step:
    """One substitution on the way: its number, rule, the nodes it replaced, and the cost of the graph before and after."""

    serial: int
    rule: str
    where: tuple[str, ...]
    cost_before: float
    cost_after: float


@record(frozen=True)
class Found:
    """What a search gives: the graphs it liked best, the best first, each with its way there; the input is always among them.

    `explored` counts expanded graphs, `duplicates` those met again; `ended` says why it stopped: `searched` (nothing was left
    within alpha), `graphs`, `seconds` or `interrupted`.
    """

    best: tuple[tuple[Graph, float, tuple[Step, ...]], ...]
    cost_before: float
    explored: int
    duplicates: int
    seconds: float
    ended: str

    @property
    def graph(self) -> Graph:
        return self.best[0][0]

    @property
    def cost(self) -> float:
        return self.best[0][1]

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.best[0][2]


@record(frozen=True, eq=False)
class _State:
    """A graph that was built, and how it came about."""

    graph: Graph
    cost: float
    parent: _State | None = None
    draft: Draft | None = None
    options: tuple[Option, ...] = ()

    def steps(self) -> tuple[Step, ...]:
        way: list[_State] = []
        state: _State | None = self
        while state is not None and state.parent is not None:
            way.append(state)
            state = state.parent
        return tuple(_step(serial, state) for serial, state in enumerate(reversed(way), start=1))


def _step(serial: int, state: _State) -> Step:
    assert state.parent is not None and state.draft is not None
    match = state.draft.match
    return Step(serial, state.draft.rule.name, match.labels, state.parent.cost, state.cost)


@record
class _Search:
    """The queue and what has been seen; lives for one call of `search`."""

    options: Options
    cost: Cost
    alpha: float
    limits: Limits
    queue: list[tuple[float, int, float, _State, Option]] = field(default_factory=list)
    serial: Iterator[int] = field(default_factory=itertools.count)
    seen: set[object] = field(default_factory=set)
    constants: dict[str, tuple[Constant, int]] = field(default_factory=dict)
    explored: int = 0
    duplicates: int = 0
    states: list[_State] = field(default_factory=list)
    best: float = float("inf")
    unit: float = 1.0

    def expand(self, state: _State) -> None:
        """Take a graph in, and let what may come of it wait."""
        self.explored += 1
        self.states.append(state)
        self.best = min(self.best, state.cost)
        graph, key = state.graph, names_key(state.graph)
        for option in state.options:
            price = state.cost + option.change
            if price >= self.alpha * self.best:
                continue
            name = edited_names(graph, key, option.draft, graph.producer)
            if name is not None and name in self.seen:
                self.duplicates += 1
                continue
            self.seen.add(name)
            heapq.heappush(self.queue, (round(price / self.unit, _DIGITS), -next(self.serial), price, state, option))
        if len(self.queue) > self.limits.waiting:
            self.queue = heapq.nsmallest(self.limits.waiting // 2, self.queue)

    def next(self) -> _State | None:
        """The cheapest graph that waits, built; None when nothing worth it is left."""
        while self.queue:
            _, _, price, parent, option = heapq.heappop(self.queue)
            if price >= self.alpha * self.best:
                return None
            draft = option.draft
            try:
                graph = carried_out(parent.graph, [draft])
            except Refused:  # a cycle
                continue
            key = search_key(graph, self.constants)
            if key in self.seen:
                self.duplicates += 1
                continue
            self.seen.add(key)
            shrunk = len(graph.nodes) < len(parent.graph.nodes) - len(gone(parent.graph, draft)) + len(draft.nodes)
            cost = self.cost(graph) if shrunk else price
            options = self.options.after(Priced(graph, self.cost), parent.options, draft, shrunk)
            return _State(graph, cost, parent, draft, options)
        return None


def search(
    graph: Graph,
    rules: Sequence[Rule],
    cost: Cost,
    *,
    alpha: float = 1.05,
    limits: Limits | None = None,
    keep: int = 1,
    progress: Callable[[float], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Found:
    """The cheapest graph that `rules` lead to, others on the way there, `keep` in all, and the input; the same for the same
    cost table.

    Whoever interrupts it (Ctrl-C) gets the best so far. `UsageError` when alpha is below 1.
    """
    if not alpha >= 1:
        raise UsageError(f"alpha is {alpha:g}; it must be at least 1 (1 follows improvements only)")
    limits = Limits() if limits is None else limits
    run = _Search(Options(rules), cost, alpha, limits)
    begin, ended = clock(), "searched"
    start = _State(graph, cost(graph))
    run.unit = start.cost or 1.0
    try:
        first = stated(graph)
        run.seen.add(search_key(first, run.constants))
        state: _State | None = _State(first, start.cost, options=run.options.everywhere(Priced(first, cost)))
        while state is not None:
            run.expand(state)
            if progress is not None:
                progress(run.explored / limits.graphs)
            if run.explored >= limits.graphs:
                ended = "graphs"
                break
            if limits.seconds is not None and clock() - begin >= limits.seconds:
                ended = "seconds"
                break
            state = run.next()
    except KeyboardInterrupt:
        ended = "interrupted"
    best = _best(run.states or [start], start, keep)
    return Found(best, start.cost, run.explored, run.duplicates, clock() - begin, ended)


def _best(states: Sequence[_State], start: _State, keep: int) -> tuple[tuple[Graph, float, tuple[Step, ...]], ...]:
    """The cheapest state, cheaper ones than the input on the way there, evenly spread, and the input; weights computed.

    What gains most comes first on the way, so the graphs differ in how far they trust the costs.
    """
    way: list[_State] = []
    state: _State | None = min(states, key=lambda state: state.cost)
    while state is not None and state.parent is not None:
        if state.cost < start.cost:
            way.append(state)
        state = state.parent
    found: list[tuple[Graph, float, tuple[Step, ...]]] = []
    for state in sorted((way[k] for k in evenly(len(way), keep)), key=lambda state: state.cost):
        with suppress(Refused):  # a weight overflows
            found.append((kept(state.graph), state.cost, state.steps()))
    return (*found, (start.graph, start.cost, ()))


def evenly(count: int, keep: int) -> list[int]:
    """At most `keep` of so many indexes, the first among them, evenly spread."""
    return [k for k in dict.fromkeys(round(k * count / keep) for k in range(keep)) if k < count]
