"""Optimising a graph for any runtime as a user asks for it: passes, then a search among substitutions; a graph and a record out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict

from fusewise.benchmarking.kernel_times import KernelTime, in_fusewise, in_onnxruntime
from fusewise.benchmarking.ranking import RUNTIMES, DuelResult, difference, fastest_first, settled
from fusewise.codegen.legalize import passes_for
from fusewise.errors import UnsupportedModel, UsageError
from fusewise.ir.graph import Graph
from fusewise.passes.pipeline import PORTABLE, Pass
from fusewise.passes.pipeline import run as run_passes
from fusewise.rewrite.cost import Cost, CostMetric, Machine, PricedNode, analytic_metrics, machine_named, parsed_cost
from fusewise.rewrite.rule import Rule
from fusewise.rewrite.rules.table import SUBSTITUTIONS, rule_named
from fusewise.rewrite.saturate.search import SaturationLimits, saturate
from fusewise.rewrite.search.backtracking import backtrack
from fusewise.rewrite.search.found import Found, SearchLimits, SubstitutionStep
from fusewise.rewrite.search.relaxed import search
from fusewise.rewrite.search.split import Division, Each, SearchTask, search_in_pieces
from fusewise.rewrite.taso.rules import imported_rules
from fusewise.runtime.cache import KernelCache
from fusewise.runtime.host import worker_count
from fusewise.runtime.measure import machine_name
from fusewise.runtime.profile import ProfileDatabase
from fusewise.trace import Trace
from fusewise.words import no_such

__all__ = ["SEARCHES", "Optimization", "SearchDict", "SearchOptions", "optimize_graph", "optimized"]

SEARCHES = ("none", "greedy", "relaxed", "backtracking", "saturate")
MEASURED = {"measured": "fusewise", "onnxruntime": "onnxruntime"}
"""Metrics that are times taken on this machine, and the runtimes they are taken in."""

_TOLERANCE = 1e-4
_RANKED = 4  # graphs that are timed as a whole, besides the input
_LARGE, _MEDIUM, _PIECE = 1000, 60, 40  # nodes
_NODES_A_GRAPH = 5

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class SearchOptions:
    """How to look for a better graph.

    `search`: `none` (passes only), `greedy` (each substitution must gain) or `relaxed`, which follows graphs that cost less
    than `alpha` times the best so far, `backtracking`, which takes each improvement at once and follows what costs less than
    `alpha` times the graph before, or `saturate` (egglog), which applies all rules at once and picks from what is equal.
    It ends after `budget` graphs or `seconds` (None: no limit). `cost` is a weighted sum
    such as `time + 0.1*memory` of `time` (analytic, on `machine`), `flops`, `memory`, `kernels`, `measured` (times in this
    program, here) and `onnxruntime`. Where `faster_in` is a runtime (`fusewise`, `onnxruntime`, `openvino`), the best graphs are
    timed there as a whole, and the model as it was loaded is kept unless one is faster beyond doubt (`benchmarking.ranking`);
    `auto` is the runtime of a measured cost, and for times estimated for a `cpu` ONNX Runtime where it is installed, else this
    program; `none` trusts the cost. Graphs of more than 60 nodes (1,000 without SciPy) are cut where fewest substitutions are
    and searched in pieces, and up to 1,000 then as a whole (backtracking: only as a whole); `pieces` cuts any graph into pieces
    of at most so many nodes and leaves it at that, 0 cuts none; `workers` processes search pieces side by side, with the same
    result as one. `rules` are files of further substitutions in TASO's format, each verified before it is used. `folder` keeps
    measurements; None keeps none. `check` compares the answers before anything is given out.
    """

    search: str = "none"
    alpha: float = 1.05
    budget: int = 300
    seconds: float | None = None
    cost: str = "time"
    machine: str = "cpu"
    faster_in: str = "auto"
    threads: int | None = None
    pieces: int | None = None
    workers: int = 1
    exact: bool = False
    rules: tuple[Path, ...] = ()
    folder: Path | None = None
    check: bool = True

    def __post_init__(self) -> None:
        if self.search not in SEARCHES:
            raise no_such("search", self.search, SEARCHES)
        if not self.alpha >= 1:
            raise UsageError(f"alpha is {self.alpha:g}; it must be at least 1 (1 follows improvements only)")
        if self.budget < 1:
            raise UsageError(f"the budget is {self.budget} graphs; it must be at least 1")
        if self.pieces is not None and self.pieces < 0:
            raise UsageError(f"pieces of {self.pieces} nodes make no sense; give at least 1, or 0 not to cut")
        if self.workers < 1:
            raise UsageError(f"{self.workers} workers make no sense; give at least 1")
        if self.workers > 1 and any(name in self.cost for name in MEASURED):
            raise UsageError("with a measured cost there is one worker: others would disturb the times it takes")
        if self.faster_in not in ("auto", "none", *RUNTIMES):
            raise no_such("runtime", self.faster_in, ("auto", "none", *RUNTIMES))
        parsed_cost(self.cost, {name: CostMetric(name, "", lambda kernel: 0.0) for name in _names()})
        machine_named(self.machine)


class SearchDict(TypedDict, total=False):
    """`SearchOptions`, given one by one as keywords; `progress` is told how far the search is."""

    search: str
    alpha: float
    budget: int
    seconds: float | None
    cost: str
    machine: str
    faster_in: str
    threads: int | None
    pieces: int | None
    workers: int
    exact: bool
    rules: tuple[Path, ...]
    folder: Path | None
    check: bool
    progress: Progress | None


def _names() -> tuple[str, ...]:
    return (*(metric.name for metric in analytic_metrics(machine_named("cpu"))), *MEASURED)


@dataclass(frozen=True)
class Optimization:
    """The graph, and what came of the search: costs in `unit`, steps in their order, those that made it worse included.

    `refused` names rules of files that are not used, and why.

    `cost_before` is that of the graph the search began with, after the passes; without a search that of the model as loaded.
    `timed` is how the graph did against the model as loaded, run as a whole; None when neither was run.
    """

    graph: Graph
    search: str
    cost: str
    unit: str
    cost_before: float
    cost_after: float
    steps: tuple[SubstitutionStep, ...] = ()
    explored: int = 0
    duplicates: int = 0
    seconds: float = 0.0
    ended: str = ""
    notes: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    timed: DuelResult | None = None

    @property
    def summary(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return {
            "search": self.search,
            "cost": self.cost,
            "unit": self.unit,
            "cost_before": self.cost_before,
            "cost_after": self.cost_after,
            "speedup": self.cost_before / self.cost_after if self.cost_after else 1.0,
            "nodes": len(self.graph.nodes),
            "graphs_explored": self.explored,
            "duplicates": self.duplicates,
            "seconds": self.seconds,
            "ended": self.ended,
            "substitutions": [_step_told(step) for step in self.steps],
            "timed": None if self.timed is None else asdict(self.timed),
            "notes": list(self.notes),
            "rules_refused": [{"rule": name, "reason": reason} for name, reason in self.refused],
        }


def _step_told(step: SubstitutionStep) -> dict[str, Any]:
    return {
        "serial": step.serial,
        "rule": step.rule,
        "where": list(step.where),
        "cost_before": step.cost_before,
        "cost_after": step.cost_after,
    }


def optimized(
    graph: Graph,
    *,
    passes: bool | Sequence[Pass] = True,
    trace: Trace | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Optimization:
    """A better graph and the record of the search for it. `settings` are fields of `SearchOptions`.

    `passes`: False for none, True for `PORTABLE`, or those to run. Raises `UsageError` for a search, cost, alpha or
    budget that makes no sense.
    """
    try:
        chosen = SearchOptions(**settings)
    except TypeError as error:
        known = ", ".join(SearchOptions.__dataclass_fields__)
        raise UsageError(f"{str(error).split('.__init__() ')[-1]}; the options of a search are {known}") from None
    steps = passes_for(None, PORTABLE if passes is True else passes)
    return optimize_graph(graph, steps, chosen, Trace() if trace is None else trace, progress)


def optimize_graph(
    graph: Graph,
    passes: Sequence[Pass],
    chosen: SearchOptions,
    trace: Trace,
    progress: Progress | None = None,
    *,
    rules: Sequence[Rule] = SUBSTITUTIONS,
) -> Optimization:
    """The graph after `passes` and the search. Every substitution on the way leaves an event.

    Raises `UsageError` for a runtime that is not installed.
    """
    clean = run_passes(graph, passes, trace, exact=chosen.exact)
    imported = [imported_rules(path) for path in chosen.rules]
    rules = (*rules, *(rule for found in imported for rule in found.rules))
    refused = tuple(entry for found in imported for entry in found.refused)
    for name, reason in refused:
        trace.add("rule", name, reason=reason, applied=False)
    machine = machine_named(chosen.machine)
    threads = worker_count(chosen.threads)
    with tempfile.TemporaryDirectory(prefix="fusewise-profile-") as temporary:
        database = ProfileDatabase(chosen.folder or Path(temporary), machine_name())
        try:
            cost = _cost(chosen, machine, clean, database, threads, trace)
            if chosen.search == "none":
                before, after = cost(graph), cost(clean)
                return Optimization(
                    clean, "none", str(cost), cost.unit, before, after, ended="not searched", refused=refused
                )
            runtime = _runtime(chosen, cost)
            allowed = [rule for rule in rules if _allowed(rule, chosen, trace)]
            keep = 1 if runtime is None else _RANKED
            found = _tidied(_searched(clean, allowed, cost, chosen, keep, progress), passes, chosen, cost)
        finally:
            database.close()
    if progress is not None:
        progress("timing as a whole", 0.0)
    candidates = found if runtime is None else _beside(found, graph, cost)
    return replace(_chosen(candidates, chosen, cost, runtime, threads, trace), refused=refused)


def _runtime(chosen: SearchOptions, cost: Cost) -> str | None:
    """Where the graph must be faster as a whole; None where the cost is trusted."""
    if chosen.faster_in != "auto":
        return None if chosen.faster_in == "none" else chosen.faster_in
    names = [metric.name for _, metric in cost.terms]
    runtimes = [MEASURED[name] for name in names if name in MEASURED]
    if runtimes:
        return runtimes[0]
    if "time" not in names or chosen.machine != "cpu":
        return None
    return "onnxruntime" if find_spec("onnxruntime") is not None else "fusewise"


def _searched(
    graph: Graph, rules: Sequence[Rule], cost: Cost, chosen: SearchOptions, keep: int, progress: Progress | None
) -> Found:
    alpha = 1.0 if chosen.search == "greedy" else chosen.alpha
    limits = SearchLimits(chosen.budget, chosen.seconds)
    told = None if progress is None else lambda share: progress("searching", share)
    if chosen.search == "saturate":
        return saturate(graph, rules, cost, bounds=_bounds(chosen), progress=told)
    largest = _largest_piece(graph, chosen)
    if largest:
        whole = chosen.pieces is None and len(graph.nodes) <= _LARGE
        with _workers(rules, cost, chosen) as each:
            task, division = SearchTask(graph, alpha, limits), Division(largest, whole, each)
            return search_in_pieces(task, rules, cost, division, keep=keep, progress=told)
    return _engine(chosen)(graph, rules, cost, alpha=alpha, limits=limits, keep=keep, progress=told)


def _engine(chosen: SearchOptions) -> Callable[..., Found]:
    return backtrack if chosen.search == "backtracking" else search


def _largest_piece(graph: Graph, chosen: SearchOptions) -> int:
    """The size of pieces; 0 to search the graph as one. Medium graphs are cut where SciPy is there to do so."""
    if chosen.pieces is not None:
        return chosen.pieces
    if chosen.search == "backtracking" and chosen.workers == 1:
        return 0
    least = _MEDIUM if find_spec("scipy") is not None else _LARGE
    return _PIECE if len(graph.nodes) > least or chosen.workers > 1 else 0


def _bounds(chosen: SearchOptions) -> SaturationLimits:
    """A graph of a search is about five nodes of classes."""
    usual = SaturationLimits()
    seconds = usual.seconds if chosen.seconds is None else chosen.seconds
    return replace(usual, nodes=_NODES_A_GRAPH * chosen.budget, seconds=seconds)


@contextmanager
def _workers(rules: Sequence[Rule], cost: Cost, chosen: SearchOptions) -> Iterator[Each]:
    """What searches pieces on as many processes as asked for."""
    if chosen.workers == 1:
        engine = _engine(chosen)
        yield lambda tasks: (engine(each.graph, rules, cost, alpha=each.alpha, limits=each.limits) for each in tasks)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    names = tuple(rule.name for rule in rules)
    with ProcessPoolExecutor(chosen.workers, mp_context=get_context("spawn")) as executor:
        try:
            yield lambda tasks: executor.map(partial(_piece_searched, names, chosen), tasks)
        finally:
            executor.shutdown(cancel_futures=True)


def _piece_searched(names: Sequence[str], chosen: SearchOptions, task: SearchTask) -> Found:
    """One piece, in a process that knows nothing: rules and cost by name. The piece as it was is not sent back."""
    imported = {rule.name: rule for path in chosen.rules for rule in imported_rules(path, verify=False).rules}
    rules = [rule for name in names if (rule := rule_named(name) or imported.get(name)) is not None]
    cost = parsed_cost(chosen.cost, {metric.name: metric for metric in analytic_metrics(machine_named(chosen.machine))})
    found = _engine(chosen)(task.graph, rules, cost, alpha=task.alpha, limits=task.limits)
    return replace(found, best=found.best[:1] if found.steps else ((Graph((), (), (), {}, {}), found.cost, ()),))


def _allowed(rule: Rule, chosen: SearchOptions, trace: Trace) -> bool:
    return rule.name not in trace.disabled and (not chosen.exact or rule.numeric == "exact")


def _cost(
    chosen: SearchOptions, machine: Machine, graph: Graph, database: ProfileDatabase, threads: int, trace: Trace
) -> Cost:
    """The cost by name; what is not asked for is not opened."""
    metrics = {metric.name: metric for metric in analytic_metrics(machine)}
    times: dict[str, Callable[[], KernelTime]] = {
        "measured": lambda: in_fusewise(database, threads, KernelCache(chosen.folder) if chosen.folder else None),
        "onnxruntime": lambda: in_onnxruntime(database, threads),
    }
    for name, opened in times.items():
        metrics[name] = CostMetric(name, "ms", lambda kernel: 0.0)
        if any(metric.name == name for _, metric in parsed_cost(chosen.cost, {**metrics, **_unopened(times)}).terms):
            metrics[name] = CostMetric(name, "ms", _timed(opened(), graph, machine, trace))
    return parsed_cost(chosen.cost, metrics)


def _unopened(names: Mapping[str, object]) -> dict[str, CostMetric]:
    return {name: CostMetric(name, "ms", lambda kernel: 0.0) for name in names}


def _timed(time_ms: KernelTime, graph: Graph, machine: Machine, trace: Trace) -> Callable[[PricedNode], float]:
    """The measured time of a kernel; the analytic one for what another kernel takes in, and where measuring fails."""

    def price(kernel: PricedNode) -> float:
        estimate = machine.time_ms(kernel)
        if not kernel.is_alone or not estimate:
            return estimate
        found = time_ms(kernel, graph)
        if found is None:
            trace.add("measure", kernel.node.op, reason="cannot be measured, priced analytically", applied=False)
            return estimate
        return found

    return price


def _tidied(found: Found, passes: Sequence[Pass], chosen: SearchOptions, cost: Cost) -> Found:
    """Run the passes once more: substitutions leave copies behind, and uncover work."""
    best = []
    for graph, price, steps in found.best:
        clean = run_passes(graph, passes, exact=chosen.exact) if steps else graph
        after = price if clean is graph else cost(clean)
        best.append((clean, after, steps) if after <= price else (graph, price, steps))
    return replace(found, best=tuple(best))


def _beside(found: Found, graph: Graph, cost: Cost) -> Found:
    """With the graph as it was loaded: what the passes make of it may suit a runtime less."""
    if graph is found.best[-1][0]:
        return found
    return replace(found, best=(*found.best, (graph, cost(graph), ())))


def _chosen(
    found: Found, chosen: SearchOptions, cost: Cost, runtime: str | None, threads: int, trace: Trace
) -> Optimization:
    """The best graph whose answers agree and which, where there is a runtime, is faster there than the one loaded."""
    notes: list[str] = []
    *candidates, start = found.best
    if runtime is not None and len(candidates) > 1:
        runtime, order = _ranked([graph for graph, _, _ in candidates], runtime, chosen, threads, notes)
        candidates = [candidates[k] for k in order]
    best, verdict = start, None
    for candidate in candidates:
        error = difference(start[0], candidate[0]) if chosen.check else 0.0
        if error > _TOLERANCE:
            notes.append(f"a graph was given up: its answers differ by {error:.1e}")
            continue
        if runtime is not None:
            verdict = _settled(start[0], candidate[0], runtime, chosen, threads, notes)
        best = candidate if verdict is None or verdict.wins else start
        break
    if verdict is not None and not verdict.wins:
        notes.append(f"the model as it was loaded is kept: no graph is faster in {verdict.runtime} beyond doubt")
    graph, after, steps = best
    for step in steps:
        trace.add("rewrite", step.rule, step.where, "substitution", before=step.cost_before, after=step.cost_after)
    return Optimization(
        graph,
        chosen.search,
        str(cost),
        cost.unit,
        after if graph is start[0] else found.cost_before,
        after,
        steps,
        found.explored,
        found.duplicates,
        found.seconds,
        found.ended,
        tuple(notes),
        timed=verdict,
    )


def _ranked(
    graphs: Sequence[Graph], runtime: str, chosen: SearchOptions, threads: int, notes: list[str]
) -> tuple[str, list[int]]:
    """The numbers of the graphs, the fastest first, and where: in this program if a runtime nobody asked for refuses one."""
    try:
        return runtime, fastest_first(graphs, runtime, threads)
    except UnsupportedModel as error:
        return _instead(runtime, chosen, error, notes), fastest_first(graphs, "fusewise", threads)


def _settled(
    start: Graph, graph: Graph, runtime: str, chosen: SearchOptions, threads: int, notes: list[str]
) -> DuelResult:
    try:
        return settled(start, graph, runtime, threads)
    except UnsupportedModel as error:
        return settled(start, graph, _instead(runtime, chosen, error, notes), threads)


def _instead(runtime: str, chosen: SearchOptions, error: UnsupportedModel, notes: list[str]) -> str:
    """This program, which runs everything, in the place of a runtime that nobody asked for; else the error stands."""
    if chosen.faster_in != "auto" or runtime == "fusewise":
        raise error
    notes.append(f"{error}; timed in fusewise instead")
    return "fusewise"
