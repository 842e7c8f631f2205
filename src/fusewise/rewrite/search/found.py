"""What searches are told and what they give: limits, steps, graphs found and the way to each."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from fusewise.errors import UsageError
from fusewise.ir.graph import Graph
from fusewise.records import record
from fusewise.rewrite.search.change import GraphChange, change_between
from fusewise.rewrite.search.options import Option
from fusewise.rewrite.search.promise import kept
from fusewise.rewrite.substitute import Draft, Refused

__all__ = ["Found", "SearchLimits", "SearchState", "SubstitutionStep", "evenly", "the_best"]


@record(frozen=True)
class SearchLimits:
    """How long to search: graphs expanded, seconds by the `clock` (None: no limit), and graphs that wait at most."""

    graphs: int = 300
    seconds: float | None = None
    waiting: int = 50_000
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        if self.graphs < 1:
            raise UsageError(f"the budget of a search is {self.graphs} graphs; it must be at least 1")
        if self.seconds is not None and not self.seconds > 0:
            raise UsageError(f"the budget of a search is {self.seconds:g} seconds; it must be above 0")


@record(frozen=True, slots=True)
class SubstitutionStep:
    """One substitution on the way: its number, rule, the nodes it replaced, the cost of the graph before and after, and what it
    did to the graph, where the search took substitutions one by one."""

    serial: int
    rule: str
    where: tuple[str, ...]
    cost_before: float
    cost_after: float
    change: GraphChange | None = None


@record(frozen=True)
class Found:
    """What a search gives: the graphs it liked best, the best first, each with its way there; the input is always among them.

    `explored` counts graphs that were built and looked at, `duplicates` those met again; `ended` says why it stopped:
    `searched` (nothing was left within alpha), `graphs`, `seconds` or `interrupted`.
    """

    best: tuple[tuple[Graph, float, tuple[SubstitutionStep, ...]], ...]
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
    def steps(self) -> tuple[SubstitutionStep, ...]:
        return self.best[0][2]


@record(frozen=True, eq=False)
class SearchState:
    """A graph that was built, how it came about, and what may be done to it next."""

    graph: Graph
    cost: float
    parent: SearchState | None = None
    draft: Draft | None = None
    options: tuple[Option, ...] = ()

    def steps(self) -> tuple[SubstitutionStep, ...]:
        way: list[SearchState] = []
        state: SearchState | None = self
        while state is not None and state.parent is not None:
            way.append(state)
            state = state.parent
        return tuple(_step(serial, state) for serial, state in enumerate(reversed(way), start=1))


def _step(serial: int, state: SearchState) -> SubstitutionStep:
    assert state.parent is not None and state.draft is not None
    change = change_between(state.parent.graph, state.graph)
    labels = state.draft.match.labels
    return SubstitutionStep(serial, state.draft.rule.name, labels, state.parent.cost, state.cost, change)


def the_best(
    best: SearchState, start: SearchState, keep: int
) -> tuple[tuple[Graph, float, tuple[SubstitutionStep, ...]], ...]:
    """The best state, cheaper ones than the input on the way there, evenly spread, and the input; weights computed.

    What gains most comes first on the way, so the graphs differ in how far they trust the costs.
    """
    way: list[SearchState] = []
    state: SearchState | None = best
    while state is not None and state.parent is not None:
        if state.cost < start.cost:
            way.append(state)
        state = state.parent
    found: list[tuple[Graph, float, tuple[SubstitutionStep, ...]]] = []
    for state in sorted((way[k] for k in evenly(len(way), keep)), key=lambda state: state.cost):
        with suppress(Refused):  # a weight overflows
            found.append((kept(state.graph), state.cost, state.steps()))
    return (*found, (start.graph, start.cost, ()))


def evenly(count: int, keep: int) -> list[int]:
    """At most `keep` of so many indexes, the first among them, evenly spread."""
    return [k for k in dict.fromkeys(round(k * count / keep) for k in range(keep)) if k < count]
