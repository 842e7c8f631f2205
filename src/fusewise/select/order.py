"""Search for an order of passes, over the graphs that orders lead to.

Each distinct graph is priced once, and expanded from: one pass more is put somewhere into the order that led to it, one is taken
out, or another planner fuses it. What a pass makes of a graph is remembered, so only what lies behind the change is run, and an
order that leads to a known graph costs no price: a budget of prices is a budget of different graphs. The cheapest graphs are
expanded first, by the moves that promise most, after what earlier searches learned and what this one has seen (`select.prior`).

Prices come in as an argument, and several candidates may be priced at once by an executor. The search is a function of its seed, of
prices and of what was learned before it: what it found so far can be given back to it, and then it goes on where it stopped.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Any

from fusewise.ir.graph import Graph
from fusewise.passes.runner import PassRun
from fusewise.select.pipeline import Pipeline
from fusewise.select.prior import Count, Move, Prior
from fusewise.select.sequence import Outcome, graph_key, run_pipeline

__all__ = ["Earlier", "Ending", "OrderSpace", "Price", "PricedOrder", "Searched", "search_orders", "tried_from"]

Price = Callable[[Outcome], float]
"""What an outcome costs; infinite when that cannot be told. With an executor of processes it must be possible to send it there."""

Run = Callable[[Pipeline, Graph], Outcome]
"""What a pipeline makes of a graph."""

_KEPT, _AT_ONCE, _LOOKS = 4, 4, 64
"""How many graphs are expanded side by side, how many new ones are priced at once, and after how many orders at most."""

_LONGEST = 64


@dataclass(frozen=True)
class OrderSpace:
    """Where to search: orders of `names`, from `starts`, the first of which is to be beaten. `fusions` are planners to try, `run`
    carries an order out."""

    graph: Graph
    starts: tuple[Pipeline, ...]
    names: tuple[str, ...]
    fusions: tuple[str, ...] = ()
    run: Run = run_pipeline


@dataclass(frozen=True)
class Ending:
    """When to stop: after so many seconds, or so many different graphs."""

    seconds: float = 60.0
    budget: int = 200
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class PricedOrder:
    """A graph that was priced: the order that led to it, its key, and what it costs."""

    passes: tuple[str, ...]
    fusion: str
    key: str
    cost: float


@dataclass(frozen=True)
class Earlier:
    """What a search with the same arguments tried, to go on from, and what others learned."""

    tried: tuple[PricedOrder, ...] = ()
    moves: Mapping[Move, Count] = field(default_factory=dict)


@dataclass(frozen=True)
class Searched:
    """The best pipelines, the cost of the first, all graphs in the order in which they were priced, how many orders led to one of
    them again, why the search ended, and what it learned that was not known before."""

    leaders: tuple[Pipeline, ...]
    cost: float
    tried: tuple[PricedOrder, ...]
    duplicates: int
    ended: str
    learned: Mapping[Move, Count]

    @property
    def best(self) -> Pipeline:
        return self.leaders[0]


def search_orders(
    space: OrderSpace,
    price: Price,
    ending: Ending,
    *,
    seed: int = 0,
    earlier: Earlier | None = None,
    executor: Executor | None = None,
    progress: Callable[[Sequence[PricedOrder], float], None] | None = None,
) -> Searched:
    """Orders that cost less than the first start. `progress` is told all graphs so far, and the share of the time spent."""
    search = _Search(space, price, random.Random(seed), earlier or Earlier(), executor)
    begin = ending.clock()
    search.begin(max(1, ending.budget))
    ended = "finished"
    while True:
        spent = ending.clock() - begin
        if progress is not None:
            progress(search.tried, min(1.0, spent / ending.seconds if ending.seconds else 1.0))
        if spent >= ending.seconds or len(search.tried) >= ending.budget:
            ended = "seconds" if spent >= ending.seconds else "budget"
            break
        if not search.expand(ending.budget - len(search.tried)):
            break
    best: dict[float, Pipeline] = {}
    for one in sorted(search.reached.values(), key=lambda one: one.cost):
        best.setdefault(one.cost, one.way.pipeline)  # graphs of one cost stand for each other
    costs = list(best)[:_KEPT]
    leaders = tuple(best[cost] for cost in costs)
    return Searched(leaders, costs[0], tuple(search.tried), search.duplicates, ended, dict(search.learned))


@dataclass(frozen=True, slots=True)
class _Way:
    """A pipeline all of whose passes change something, the keys of the graphs on its way, the first included, and its runs."""

    pipeline: Pipeline
    keys: tuple[str, ...]
    runs: tuple[PassRun, ...]


@dataclass(frozen=True, slots=True)
class _Edit:
    """A move at a place of an order. `turn` decides between edits that promise the same."""

    move: Move
    place: int
    turn: tuple[int, float]


@dataclass(slots=True)
class _Reached:
    """A priced graph, and the edits of its order that were not looked at yet."""

    way: _Way
    cost: float
    edits: list[_Edit]


@dataclass(frozen=True, slots=True)
class _Look:
    """An edit that was carried out: where from, where to, and whether its pass changed anything where it was put."""

    parent: _Reached
    edit: _Edit
    key: str
    changed: bool


class _Search:
    """Graphs by key, what passes make of them, and those that were priced."""

    def __init__(
        self, space: OrderSpace, price: Price, rng: random.Random, earlier: Earlier, executor: Executor | None
    ) -> None:
        self.space, self.price, self.rng, self.executor = space, price, rng, executor
        self.known = {one.key: one.cost for one in earlier.tried}
        self.replays = bool(self.known)
        self.prior = Prior(earlier.moves)
        self.learned: defaultdict[Move, Count] = defaultdict(Count)
        root = graph_key(space.graph, False)
        self.root = root
        self.graphs: dict[str, Graph] = {root: space.graph}
        self.steps: dict[tuple[str, str], tuple[str, PassRun]] = {}
        self.outcomes: dict[tuple[str, str], tuple[str, Outcome]] = {}
        self.reached: dict[str, _Reached] = {}
        self.tried: list[PricedOrder] = []
        self.duplicates = 0

    def begin(self, budget: int) -> None:
        """Price the starts, the first in any case."""
        new: dict[str, _Way] = {}
        for start in self.space.starts:
            if len(new) == budget:
                break
            way = self._walk(_Way(replace(start, passes=()), (self.root,), ()), start.passes)
            self._note(self._key(way), way, new)
        self._take(new)

    def expand(self, budget: int) -> bool:
        """Look at edits of the cheapest graphs until some lead to new ones, and price these; False when none are left."""
        parents = [one for one in sorted(self.reached.values(), key=lambda one: one.cost) if one.edits][:_KEPT]
        promised = [
            (-self.prior.promise(edit.move) * 0.5**rank, edit.turn, rank)
            for rank, parent in enumerate(parents)
            for edit in parent.edits
        ]
        edits = {(rank, edit.turn): edit for rank, parent in enumerate(parents) for edit in parent.edits}
        new: dict[str, _Way] = {}
        looks: list[_Look] = []
        for _, turn, rank in sorted(promised):
            if len(new) == min(_AT_ONCE, budget) or len(looks) == _LOOKS:
                break
            looks.append(self._look(parents[rank], edits[rank, turn], new))
        for rank, parent in enumerate(parents):
            done = {look.edit for look in looks if look.parent is parent}
            parents[rank].edits = [edit for edit in parent.edits if edit not in done]
        self.replays = self.replays and all(key in self.known for key in new)
        self._take(new)
        for look in looks:
            self._learn(look)
        return bool(looks)

    # --- ways through the graphs ---------------------------------------------------------------------------------------

    def _look(self, parent: _Reached, edit: _Edit, new: dict[str, _Way]) -> _Look:
        """Carry an edit out."""
        way, place, name = parent.way, edit.place, edit.move.name
        order = way.pipeline.passes
        if name in self.space.fusions:
            found, changed = replace(way, pipeline=replace(way.pipeline, name="searched", fusion=name, about="")), True
        else:
            begin = replace(way.pipeline, name="searched", passes=order[:place], about="")
            before = _Way(begin, way.keys[: place + 1], way.runs[:place])
            middle = self._walk(before, (name,)) if edit.move.put else before
            changed = not edit.move.put or len(middle.keys) > len(before.keys)
            found = way
            if changed:
                found = self._walk(middle, order[place if edit.move.put else place + 1 :])
        key = self._key(found)
        self._note(key, found, new)
        return _Look(parent, edit, key, changed)

    def _walk(self, way: _Way, names: Iterable[str]) -> _Way:
        """On from the end of a way by further passes; those that change nothing leave no trace."""
        passes, keys, runs = list(way.pipeline.passes), list(way.keys), list(way.runs)
        for name in names:
            step = self.steps.get((keys[-1], name))
            if step is None:
                step = self.steps[keys[-1], name] = self._run(way.pipeline, keys[-1], name)
            if step[0] != keys[-1] and len(passes) < _LONGEST:
                passes.append(name)
                keys.append(step[0])
                runs.append(step[1])
        return _Way(replace(way.pipeline, passes=tuple(passes)), tuple(keys), tuple(runs))

    def _run(self, pipeline: Pipeline, key: str, name: str) -> tuple[str, PassRun]:
        """What a pass makes of a graph that is known by its key."""
        outcome = self.space.run(replace(pipeline, passes=(name,), settle=False), self.graphs[key])
        run = outcome.runs[0]
        after = graph_key(outcome.graph, False) if run.changed else key  # a pass may only note something
        self.graphs.setdefault(after, outcome.graph)
        return after, run

    def _key(self, way: _Way) -> str:
        """The key by which the end of a way is priced: its graph, and how it is fused."""
        place = way.keys[-1], way.pipeline.fusion
        if place not in self.outcomes:
            outcome = self.space.run(replace(way.pipeline, passes=()), self.graphs[place[0]])
            self.outcomes[place] = outcome.cost_key, outcome
        return self.outcomes[place][0]

    # --- prices --------------------------------------------------------------------------------------------------------

    def _note(self, key: str, way: _Way, new: dict[str, _Way]) -> None:
        """Put a way among the new ones if it leads to a graph that is."""
        if key in self.reached or key in new:
            self.duplicates += 1
        else:
            new[key] = way

    def _take(self, new: Mapping[str, _Way]) -> None:
        """Price graphs, and those that were priced by an earlier search not again."""
        asked = [key for key in new if key not in self.known]
        at_once = map if self.executor is None else self.executor.map
        costs = dict(zip(asked, at_once(self.price, [self._outcome(new[key]) for key in asked]), strict=True))
        for key, way in new.items():
            cost = self.known[key] if key in self.known else costs[key]
            self.reached[key] = _Reached(way, cost, list(self._edits(way)))
            self.tried.append(PricedOrder(way.pipeline.passes, way.pipeline.fusion, key, cost))

    def _outcome(self, way: _Way) -> Outcome:
        """What a way leads to, with all its runs."""
        _, outcome = self.outcomes[way.keys[-1], way.pipeline.fusion]
        return replace(outcome, pipeline=way.pipeline, runs=way.runs)

    def _edits(self, way: _Way) -> Iterator[_Edit]:
        """A pass more at the end or the beginning, another planner, a pass more in between, one left out: in turn by these kinds,
        and by chance among equals."""
        order, fusion = way.pipeline.passes, way.pipeline.fusion
        before = ("", *order)
        last = len(order)

        def edit(move: Move, place: int, kind: int) -> _Edit:
            return _Edit(move, place, (kind, self.rng.random()))

        for place in range(last + 1):
            for name in self.space.names:
                yield edit(Move(before[place], name), place, 2 if 0 < place < last else 0)
        for planner in self.space.fusions:
            if planner != fusion:
                yield edit(Move(before[last], planner), last, 1)
        for place, name in enumerate(order):
            yield edit(Move(before[place], name, put=False), place, 3)

    def _learn(self, look: _Look) -> None:
        """Count what a move did; what the search that this one goes on from has counted is not learned again."""
        before, after = look.parent.cost, self.reached[look.key].cost
        priced = look.changed and isfinite(before) and after < inf
        count = Count(1, int(look.changed), int(priced), int(priced and after < before))
        self.prior.add(look.edit.move, count)
        if not self.replays:
            self.learned[look.edit.move] += count


def tried_from(rows: Sequence[Mapping[str, Any]]) -> tuple[PricedOrder, ...]:
    """What an earlier search tried, from plain JSON values. Raises `KeyError`, `TypeError` or `ValueError` for others."""
    return tuple(
        PricedOrder(tuple(map(str, row["passes"])), str(row["fusion"]), str(row["key"]), float(row["cost"]))
        for row in rows
    )
