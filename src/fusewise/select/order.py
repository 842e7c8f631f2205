"""Search for an order of passes: sequences with repetitions, changed a little at a time, the best few kept.

What one pass more does, at the end or the beginning, is tried first, and then changes are drawn. Every candidate is run; graphs
that came up before, whatever order led there, are not priced again. Prices come in as an argument, and several candidates may be
priced at once by an executor. The search is a function of its seed and of prices: what it found so far can be given back to it,
and then it goes on where it stopped.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

from fusewise.ir.graph import Graph
from fusewise.select.pipeline import Pipeline
from fusewise.select.sequence import Outcome, run_pipeline

__all__ = ["Price", "Searched", "Tried", "search_orders", "tried_from"]

Price = Callable[[Outcome], float]
"""What an outcome costs; infinite when that cannot be told. With an executor of processes it must be possible to send it there."""

Run = Callable[[Pipeline, Graph], Outcome]
"""What a pipeline makes of a graph."""

_KEPT, _CHILDREN = 4, 6
_LONGEST = 64


@dataclass(frozen=True, slots=True)
class Tried:
    """An order that was tried: the key of its graph, and what it costs."""

    passes: tuple[str, ...]
    fusion: str
    key: str
    cost: float


@dataclass(frozen=True)
class Searched:
    """The best pipelines, the cost of the first, all that was tried in order, and how many graphs came up again."""

    leaders: tuple[Pipeline, ...]
    cost: float
    tried: tuple[Tried, ...]
    duplicates: int
    ended: str

    @property
    def best(self) -> Pipeline:
        return self.leaders[0]


def search_orders(
    graph: Graph,
    starts: Sequence[Pipeline],
    names: Sequence[str],
    price: Price,
    *,
    seed: int = 0,
    seconds: float = 60.0,
    budget: int = 200,
    run: Run = run_pipeline,
    known: Sequence[Tried] = (),
    executor: Executor | None = None,
    fusions: Sequence[str] = (),
    progress: Callable[[Sequence[Tried], float], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Searched:
    """Orders of `names` that cost less than the `starts`, after `seconds` or `budget` orders.

    The first start is the one to beat: another is better only by its price. `fusions` are planners to try. `known` is what an
    earlier search with the same arguments tried; `run` carries an order out. `progress` is told everything tried so far, and the
    share of the time spent.
    """
    search = _Search(graph, tuple(starts), tuple(names), tuple(fusions), price, run, executor)
    search.prices.update({one.key: one.cost for one in known})
    search.keys.update({(one.passes, one.fusion): one.key for one in known})
    rng, begin = random.Random(seed), clock()
    search.take(list(starts))
    waiting = search.neighbours(starts[0])
    ended = "finished"
    while True:
        spent = clock() - begin
        if progress is not None:
            progress(search.tried, min(1.0, spent / seconds if seconds else 1.0))
        if spent >= seconds or len(search.tried) >= budget:
            ended = "seconds" if spent >= seconds else "budget"
            break
        children, waiting = waiting[:_CHILDREN], waiting[_CHILDREN:]
        children = children or [search.child(rng) for _ in range(_CHILDREN)]
        fresh = [one for one in dict.fromkeys(children) if (one.passes, one.fusion) not in search.seen]
        search.idle = 0 if fresh else search.idle + 1
        if search.idle > 50:
            break
        search.take(fresh[: budget - len(search.tried)])
    leaders = tuple(pipeline for _, pipeline in search.ranked)
    return Searched(leaders, search.ranked[0][0], tuple(search.tried), search.duplicates, ended)


class _Search:
    """What is known so far: prices by graph, keys by order, the best few."""

    def __init__(
        self,
        graph: Graph,
        starts: tuple[Pipeline, ...],
        names: tuple[str, ...],
        fusions: tuple[str, ...],
        price: Price,
        run: Run,
        executor: Executor | None,
    ) -> None:
        self.graph, self.starts, self.names, self.fusions = graph, starts, names, fusions
        self.price, self.run, self.executor = price, run, executor
        self.prices: dict[str, float] = {}
        self.keys: dict[tuple[tuple[str, ...], str], str] = {}
        self.seen: set[tuple[tuple[str, ...], str]] = set()
        self.tried: list[Tried] = []
        self.ranked: list[tuple[float, Pipeline]] = []
        self.duplicates = 0
        self.idle = 0

    def take(self, pipelines: Sequence[Pipeline]) -> None:
        """Run and price pipelines, in their order; those with a known graph are not priced again."""
        outcomes: dict[str, Outcome] = {}
        keys = []
        for pipeline in pipelines:
            key = self.keys.get((pipeline.passes, pipeline.fusion))
            if key is None or key not in self.prices:
                outcome = self.run(pipeline, self.graph)
                key = outcome.cost_key
                if key not in self.prices:
                    outcomes.setdefault(key, outcome)
            keys.append(key)
        waiting = list(outcomes.items())
        at_once = map if self.executor is None else self.executor.map
        for (key, _), cost in zip(waiting, at_once(self.price, [outcome for _, outcome in waiting]), strict=True):
            self.prices[key] = cost
        for pipeline, key in zip(pipelines, keys, strict=True):
            self.duplicates += any(one.key == key for one in self.tried)
            self.seen.add((pipeline.passes, pipeline.fusion))
            self.tried.append(Tried(pipeline.passes, pipeline.fusion, key, self.prices[key]))
            self._rank(pipeline, self.prices[key])

    def _rank(self, pipeline: Pipeline, cost: float) -> None:
        if all(cost != other for other, _ in self.ranked):  # orders of one cost stand for each other
            self.ranked = sorted([*self.ranked, (cost, pipeline)], key=lambda pair: pair[0])[:_KEPT]

    def neighbours(self, start: Pipeline) -> list[Pipeline]:
        """A start with one pass more, at the end or the beginning, and with another planner."""
        orders = [order for name in self.names for order in ((*start.passes, name), (name, *start.passes))]
        found = [replace(start, name="searched", passes=order, about="") for order in orders]
        return found + [replace(start, name="searched", fusion=fusion, about="") for fusion in self.fusions]

    def child(self, rng: random.Random) -> Pipeline:
        """One of the best, changed in one to three places."""
        parent = rng.choice(self.ranked)[1]
        passes = list(parent.passes)
        fusion = parent.fusion
        for _ in range(rng.randint(1, 3)):
            change = rng.choice(("swap", "drop", "insert", "repeat", "move", "fuse"))
            if change == "fuse" and self.fusions:
                fusion = rng.choice(self.fusions)
            elif change == "insert" and self.names and len(passes) < _LONGEST:
                passes.insert(rng.randint(0, len(passes)), rng.choice(self.names))
            elif len(passes) > 1:
                _rearrange(passes, change, rng)
        return replace(parent, name="searched", passes=tuple(passes), fusion=fusion, about="")


def _rearrange(passes: list[str], change: str, rng: random.Random) -> None:
    i, j = rng.randrange(len(passes)), rng.randrange(len(passes))
    if change == "swap":
        passes[i], passes[j] = passes[j], passes[i]
    elif change == "drop":
        del passes[i]
    elif change == "repeat" and len(passes) < _LONGEST:
        passes.insert(j, passes[i])
    elif change == "move":
        passes.insert(j, passes.pop(i))


def tried_from(rows: Sequence[Mapping[str, Any]]) -> tuple[Tried, ...]:
    """What an earlier search tried, from plain JSON values. Raises `KeyError`, `TypeError` or `ValueError` for others."""
    return tuple(
        Tried(tuple(map(str, row["passes"])), str(row["fusion"]), str(row["key"]), float(row["cost"])) for row in rows
    )
