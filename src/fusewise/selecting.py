"""Architecture-aware selection as a user asks for it: which passes matter for a graph, in which order, measured.

Everything here has effects or joins rooms that do not know each other: fused blocks for the passes, compiling and timing for the
search. What is decided, and how, stands in `select`.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from fusewise.benchmarking.accuracy import worst_error
from fusewise.benchmarking.inputs import random_feeds
from fusewise.benchmarking.ranking import DuelResult, contest, program_opener
from fusewise.benchmarking.timing import Timing, TimingBudget, race
from fusewise.codegen.legalize import stand_ins
from fusewise.errors import FusewiseError, UsageError
from fusewise.files import write_text
from fusewise.ir.graph import Graph
from fusewise.measuring import Figures, FiguresDict, executable_of, figures_of, program_of
from fusewise.outcomes import auto, blocks_of, run_here
from fusewise.partitioning import regions_of
from fusewise.passes.published import step_named, step_names
from fusewise.rewrite.cost import analytic_metrics, machine_named, parsed_cost
from fusewise.runtime.host import host_target
from fusewise.runtime.measure import machine_name
from fusewise.runtime.profile import ProfileDatabase
from fusewise.select.enabling import enabling
from fusewise.select.families import Classification, classify, family_named
from fusewise.select.features import features_of
from fusewise.select.objective import Objective, objective_named
from fusewise.select.order import Earlier, Ending, OrderSpace, Price, PricedOrder, Searched, search_orders, tried_from
from fusewise.select.pipeline import DEFAULT, FAMILY_SETS, PAPER, Pipeline
from fusewise.select.prior import Count, Move
from fusewise.select.relevance import Agreement, agreement, distinct_names, matched, relevance
from fusewise.select.sequence import Outcome

__all__ = [
    "OrderSearch",
    "Selection",
    "experiment",
    "price_of",
    "searched",
    "selection",
    "space_of",
    "with_figures",
    "with_search",
]

_MARGIN = 0.03
_QUICK = TimingBudget(runs=5, seconds=0.2, limit_seconds=10.0, warmup=1)
_FINAL = TimingBudget(runs=15, seconds=1.0, limit_seconds=20.0, warmup=2)

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Selection:
    """What was found about a graph, and the pipeline to use. `metrics` are empty when nothing was measured; `orders` are the graphs
    that a search priced, in their order."""

    classification: Classification
    relevant: tuple[str, ...]
    outcome: Outcome
    agreement: Agreement | None
    metrics: Figures | None = None
    batches: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)
    finding_ms: float = 0.0
    orders: tuple[PricedOrder, ...] = ()

    @property
    def pipeline(self) -> Pipeline:
        """The runs that change something, in their order."""
        return self.outcome.effective

    @property
    def summary(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        found, agreed = self.classification, self.agreement
        return {
            "family": found.family,
            "confidence": found.confidence,
            "nearest": [{"family": name, "score": score} for name, score in found.nearest],
            "relevant": list(self.relevant),
            "order": list(self.pipeline.passes),
            "fusion": self.outcome.fusion,
            "unchanged": list(self.outcome.unchanged),
            "pass_ms": [
                {"pass": run.name, "ms": run.ms, "changed": run.changed, "why": run.why} for run in self.outcome.runs
            ],
            "total_pass_ms": self.outcome.total_ms,
            "finding_ms": self.finding_ms,
            "metrics": {**({} if self.metrics is None else self.metrics.plain), **self.batches},
            "agreement": None
            if agreed is None
            else {
                "set": FAMILY_SETS[agreed.family].name,
                "recall": agreed.recall,
                "precision": agreed.precision,
                "both": list(agreed.both),
                "found_only": list(agreed.found_only),
                "listed_only": list(agreed.listed_only),
                "idle": list(agreed.idle),
            },
            "search": dict(self.search),
        }


def selection(
    graph: Graph,
    *,
    family: str | None = None,
    exact: bool = False,
    clock: Callable[[], float] | None = None,
) -> Selection:
    """The family of a graph, the passes that matter, and the order in which they act. Nothing is compiled.

    `family` overrides what the features say; `UsageError` when there is no such family.
    """
    tick = time.process_time if clock is None else clock
    begin = tick()
    found = classify(features_of(graph))
    if family is not None:
        found = replace(found, family=family_named(family), confidence=1.0)
    counts = matched(graph, stand_ins(host_target()))
    outcome = auto(graph, exact=exact, counts=counts)
    relevant = _with_twins((*relevance(graph, enabling(), counts).names, *outcome.effective.passes))
    return Selection(found, relevant, outcome, agreement(found.family, relevant), finding_ms=(tick() - begin) * 1e3)


def _with_twins(names: Iterable[str]) -> tuple[str, ...]:
    """These passes under all their names, in the order of the tables."""
    functions = {step_named(name).function for name in names}
    every = (step_named(name) for name in step_names())
    return tuple(step.name for step in every if step.function in functions and not step.idle)


def experiment(
    graph: Graph,
    pipelines: Sequence[Pipeline] = PAPER,
    *,
    look_inside: bool = False,
    progress: Progress = lambda what, share: None,
    **how: Unpack[FiguresDict],
) -> list[dict[str, Any]]:
    """A row for each pipeline: its figures, taken as `how` says, what changed nothing, the time of each pass, and which earlier
    ones give the same.

    Pipelines that lead to the same graph and fusion are measured once, and none without a `budget`. `look_inside` lets passes
    behind FuseOps rewrite nodes inside fused blocks.
    """
    rows: list[dict[str, Any]] = []
    timed: FiguresDict = {"budget": _FINAL, **how}
    known: dict[str, tuple[str, Figures | None]] = {}
    for k, pipeline in enumerate(pipelines):
        progress(pipeline.name, k / len(pipelines))
        outcome = run_here(pipeline, graph, blocks=None if look_inside else blocks_of)
        same, figures = known.get(outcome.key, ("", None))
        if not same:
            figures = None if timed["budget"] is None else figures_of(outcome, **timed)
            known[outcome.key] = pipeline.name, figures
        rows.append(
            {
                "pipeline": pipeline.name,
                "about": pipeline.about,
                "same_as": same,
                "nodes": len(outcome.graph.nodes),
                "fusion": outcome.fusion,
                "total_pass_ms": outcome.total_ms,
                "unchanged": list(outcome.unchanged),
                "held": {run.name: run.held for run in outcome.runs if run.held},
                "pass_ms": [
                    {"pass": run.name, "ms": run.ms, "changed": run.changed, "why": run.why} for run in outcome.runs
                ],
                "regions": {} if (parted := regions_of(outcome.graph)) is None else dict(Counter(parted.back_ends)),
                "metrics": {} if figures is None else figures.plain,
            }
        )
    return rows


def with_figures(found: Selection, **how: Unpack[FiguresDict]) -> Selection:
    """The selection with the figures of what it leads to, compiled and timed here as `how` says."""
    timed: FiguresDict = {"budget": _FINAL, **how}
    return replace(found, metrics=figures_of(found.outcome, **timed))


def with_search(
    found: Selection, graph: Graph, how: OrderSearch, *, progress: Progress = lambda what, share: None
) -> Selection:
    """The selection with a better order, if the search finds one."""
    outcome, record, orders = _searched(graph, found, how, None, progress)
    return replace(found, outcome=outcome, search=record, orders=orders)


def best_batch(
    graph_of: Callable[[int], Graph],
    batches: Sequence[int],
    **how: Unpack[FiguresDict],
) -> dict[str, Any]:
    """The batch with the highest throughput, and the throughput of each: items per second after the passes that matter."""
    quick: FiguresDict = {"budget": _QUICK, **how}
    found = {batch: figures_of(auto(graph_of(batch)), **quick).throughput for batch in batches}
    best = max(found, key=lambda batch: found[batch])
    return {"best_batch": best, "best_throughput_per_s": found[best], "throughput_by_batch": found}


@dataclass(frozen=True)
class _Price:
    """What an outcome costs by an objective: an analytic figure, or compiled and timed here. Travels to a worker process."""

    objective: Objective
    threads: int | None
    seed: int
    cache: Path | None

    def __call__(self, outcome: Outcome) -> float:
        figures: dict[str, float] = {}
        if "estimate" in self.objective.names:
            metrics = {metric.name: metric for metric in analytic_metrics(machine_named("cpu"))}
            figures["estimate"] = parsed_cost("time", metrics)(outcome.graph)
        if self.objective.names != ("estimate",):
            try:
                found = figures_of(outcome, threads=self.threads, seed=self.seed, budget=_QUICK, cache=self.cache)
            except FusewiseError:
                return float("inf")
            figures |= found.costs
        return self.objective.cost(figures)


@dataclass(frozen=True)
class OrderSearch:
    """What to search an order for, and how: for so many seconds or different graphs, timed on so many threads (None: all cores).

    `state` is a JSON file that keeps what was tried, to go on from. `cache` keeps kernels, and beside measurements what searches
    learned of passes.
    """

    objective: str = "latency"
    seconds: float = 60.0
    budget: int = 200
    seed: int = 0
    threads: int | None = None
    exact: bool = False
    approximate: bool = False
    state: Path | None = None
    cache: Path | None = None


def searched(
    graph: Graph,
    start: Selection,
    how: OrderSearch,
    *,
    executor: Executor | None = None,
    progress: Progress = lambda what, share: None,
) -> tuple[Outcome, dict[str, Any]]:
    """A better order for an objective, and the record of the search.

    The graphs that orders of the relevant passes lead to are tried; what the default does is the one to beat, and stays unless
    another wins a duel (`benchmarking.ranking`), or is better by 3 % where nothing is timed. Of one that takes approximations the
    record has the `difference` of its answers: to the largest value of the default's, on one random input.
    """
    return _searched(graph, start, how, executor, progress)[:2]


def _searched(
    graph: Graph, start: Selection, how: OrderSearch, executor: Executor | None, progress: Progress
) -> tuple[Outcome, dict[str, Any], tuple[PricedOrder, ...]]:
    """`searched`, and the graphs that were priced."""
    wanted = objective_named(how.objective)
    default = run_here(replace(DEFAULT, approximate=how.approximate), graph, exact=how.exact)
    space = space_of(graph, start, exact=how.exact, approximate=how.approximate)
    database = None if how.cache is None else ProfileDatabase(how.cache, machine_name())
    header = {"objective": str(wanted), "seed": how.seed, "starts": [list(one.passes) for one in space.starts]}
    tried, rows = _known(how.state, header, [] if database is None else database.moves(str(wanted)))

    def told(tried: Sequence[PricedOrder], share: float) -> None:
        progress("searching", share)
        if how.state is not None:
            kept = {**header, "moves": rows, "tried": [_plain(one) for one in tried]}
            write_text(how.state, json.dumps(kept))

    found = search_orders(
        space,
        price_of(how.objective, threads=how.threads, seed=how.seed, cache=how.cache),
        Ending(how.seconds, how.budget),
        seed=how.seed,
        earlier=Earlier(tried, _moves(rows)),
        executor=executor,
        progress=told,
    )
    if database is not None:
        database.add_moves(str(wanted), [(*astuple(move), *astuple(count)) for move, count in found.learned.items()])
        database.close()
    leaders = [run_here(one, graph, exact=how.exact, blocks=blocks_of) for one in found.leaders]
    return *_chosen(default, leaders, found, wanted, how.threads, how.seed), found.tried


def price_of(objective: str, *, threads: int | None = None, seed: int = 0, cache: Path | None = None) -> Price:
    """What an outcome costs here by an objective; kernels come from a cache unless compiling is what counts."""
    wanted = objective_named(objective)
    return _Price(wanted, threads, seed, None if "compile-time" in wanted.names else cache)


def space_of(graph: Graph, start: Selection, *, exact: bool = False, approximate: bool = False) -> OrderSpace:
    """Orders of the passes that matter, from the default, from what was selected, and from the set of the family, each without
    what is in vain there."""
    sets = [DEFAULT, *(one for one in (FAMILY_SETS.get(start.classification.family),) if one is not None)]
    first, *others = (run_here(replace(one, approximate=approximate), graph, exact=exact).effective for one in sets)
    starts = tuple(replace(one, approximate=approximate) for one in (first, start.pipeline, *others))
    known = [step_named(name) for name in distinct_names() if name in start.relevant]
    names = tuple(step.name for step in known if (approximate or not step.asked) and not step.adds_outputs)
    return OrderSpace(graph, starts, names, ("dnnfusion", "patterns"), partial(run_here, exact=exact, blocks=blocks_of))


def _moves(rows: Iterable[Sequence[Any]]) -> dict[Move, Count]:
    """Moves and their counts, from rows of plain values."""
    return {Move(str(behind), str(name), bool(put)): Count(*map(int, counts)) for behind, name, put, *counts in rows}


def _plain(tried: PricedOrder) -> dict[str, Any]:
    """A tried order as plain JSON values."""
    return {"passes": list(tried.passes), "fusion": tried.fusion, "key": tried.key, "cost": tried.cost}


def _known(
    state: Path | None, header: Mapping[str, Any], rows: Sequence[Sequence[Any]]
) -> tuple[tuple[PricedOrder, ...], Sequence[Sequence[Any]]]:
    """What an earlier search tried and knew of moves, when it was the same search; nothing and the `rows` of moves otherwise.

    `UsageError` for a file that no search wrote.
    """
    if state is None or not state.exists():
        return (), rows
    try:
        data = json.loads(state.read_text(encoding="utf-8"))
        same = {key: data[key] for key in header} == dict(header)
        tried, moves = tried_from(data["tried"]), data["moves"]
        _moves(moves)
        return (tried, moves) if same else ((), rows)
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{state} is not the state of a search for orders; delete it or name another file") from None


def _chosen(
    default: Outcome, leaders: Sequence[Outcome], found: Searched, objective: Objective, threads: int | None, seed: int
) -> tuple[Outcome, dict[str, Any]]:
    """The default, or the best of the leaders when it really is better."""
    first = found.tried[0].cost
    record: dict[str, Any] = {
        "objective": str(objective),
        "unit": objective.unit,
        "cost_default": first,
        "cost_best": found.cost,
        "tried": len(found.tried),
        "duplicates": found.duplicates,
        "learned": len(found.learned),
        "ended": found.ended,
        "speedup": 1.0,
    }
    others = list({one.key: one for one in leaders if one.key != default.key}.values())
    timed = bool(set(objective.names) & {"latency", "throughput"})
    if not others or (not timed and leaders[0].key == default.key):
        return default, record | {"chosen": "default"}
    best = leaders[0]
    if timed:  # single prices err: all that seem good are timed in turn, and the best of them must win a duel
        usual, *after = _race([default, *others], threads, seed)
        best = others[after.index(min(after, key=lambda timing: timing.p50_ms))]
        record["raced"] = [_raced(one, time) for one, time in zip((default, *others), (usual, *after), strict=True)]
        verdict = _settled(default, best, threads, seed)
        record |= {"speedup": verdict.speedup, "at_least": verdict.at_least, "rounds": verdict.rounds}
        good = verdict.wins
    else:
        record["speedup"] = first / found.cost if found.cost else 1.0
        good = record["speedup"] > 1 / (1 - _MARGIN)
    if good and any(step_named(name).asked for name in best.effective.passes):
        record["difference"] = _difference(default, best, threads, seed)
    return (best if good else default), record | {"chosen": "searched" if good else "default"}


def _difference(default: Outcome, other: Outcome, threads: int | None, seed: int) -> float:
    """How far the answers of another outcome are from the default's on a random input (`benchmarking.accuracy.relative_error`)."""
    feeds = random_feeds(default.graph, seed)
    found, expected = (executable_of(outcome, threads=threads).run(None, feeds) for outcome in (other, default))
    return worst_error(found, expected)


def _raced(outcome: Outcome, timing: Timing) -> dict[str, Any]:
    """An order that was timed beside others, as plain JSON values."""
    return {
        "passes": list(outcome.effective.passes),
        "fusion": outcome.fusion,
        "p50_ms": timing.p50_ms,
        "p90_ms": timing.p90_ms,
        "min_ms": timing.min_ms,
    }


def _race(outcomes: Sequence[Outcome], threads: int | None, seed: int) -> Sequence[Timing]:
    """The times of each, runs taken in turn."""
    feeds = random_feeds(outcomes[0].graph, seed)
    models = [executable_of(outcome, threads=threads) for outcome in outcomes]
    return race([lambda model=model: model.run(None, feeds) for model in models], _FINAL)  # type: ignore[misc]


def _settled(default: Outcome, other: Outcome, threads: int | None, seed: int) -> DuelResult:
    """The duel of the default and another outcome; kernels are compiled once."""
    with tempfile.TemporaryDirectory(prefix="fusewise-orders-") as folder:
        first, second = (
            program_opener(program_of(outcome, threads=threads), Path(folder), threads) for outcome in (default, other)
        )
        return contest(first, second, random_feeds(default.graph, seed), "fusewise")
