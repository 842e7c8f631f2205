"""One search for a layer-fusion plan as a cell of a table: everything that its result depends on in, a row of figures out."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from benchmarks.layer_fusion.printed import Column

from fusewise import api
from fusewise.accel.bits import bits_of
from fusewise.accel.explain.candidates import EdgeShare
from fusewise.accel.explain.catalogue import explainer_named
from fusewise.accel.network import Network, network_of, prepare
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.catalogue import scheme_named
from fusewise.accel.search.catalogue import search_named
from fusewise.accel.search.repair import Repair
from fusewise.accel.search.result import SearchBudget
from fusewise.accel.split.recursive import RecursiveSplitter
from fusewise.accel.split.splitter import Splitting
from fusewise.zoo.catalogue import build

__all__ = ["MB", "Cell", "budgeted", "network_named", "optimum", "problem_of", "searched"]

MB = 1000 * 1024
"""Bytes of a megabyte, as the paper counts."""


class Cell(NamedTuple):
    """A search: `explainer` finds where to split what does not fit, from a `share` of its edges, `asking` says when; `none`
    splits at random, and `singles` runs every operator of a group that does not fit alone. `edits` are those of a local search
    at a time, 0 for one or a few."""

    column: Column
    search: str
    explainer: str
    seed: int
    share: float = 0.3
    asking: str = "anew"
    edits: int = 0

    @property
    def key(self) -> str:
        """The cell as text."""
        return json.dumps(self)


def budgeted(column: Column, search: str, explainer: str, plans: Mapping[str, int]) -> Column:
    """The column with the smallest of the budgets that `plans` gives for the search, the explainer and, under `""`, for all."""
    given = [plans[name] for name in ("", f"{search}-search", explainer) if name in plans]
    return column._replace(plans=min(given, default=column.plans))


@cache
def network_named(name: str) -> Network:
    """The planner's view of a zoo model."""
    return network_of(prepare(api.load(build(name))))


def problem_of(column: Column) -> Problem:
    """The planning problem of a column."""
    return Problem(network_named(column.network), scheme_named(column.scheme), column.buffer << 10)


def searched(cell: Cell) -> dict[str, Any]:
    """The search's figures, with memories of its own, so that its time is that of a first run; explainers are loaded before.

    `moments` are (wall seconds, processor seconds, MB) whenever a better plan was found.
    """
    costs, moments = GroupCosts(problem_of(cell.column)), list[tuple[float, float, float]]()
    repair = _repair(costs, cell)
    wall, processor = time.perf_counter(), time.process_time()

    def progress(plans: int, best: float) -> None:
        if not moments or best / MB < moments[-1][2]:
            moments.append((time.perf_counter() - wall, time.process_time() - processor, best / MB))

    search = search_named(cell.search, edits=cell.edits or None)
    found = search(costs, SearchBudget(cell.column.plans), np.random.default_rng(cell.seed), repair, progress)
    return {
        "cell": cell,
        "dram_mb": found.cost / MB,
        "max_buffer_kib": max(map(costs.buffer_bytes, found.groups)) / 1024,
        "rectified": found.rectified,
        "rectified_once": found.rectified_once,
        "invalid": found.invalid,
        "candidate_share": _candidate_share(repair),
        "processor_s": time.process_time() - processor,
        "history": [(plans, cost / MB) for plans, cost in found.history],
        "moments": moments,
    }


def _repair(costs: GroupCosts, cell: Cell) -> Repair:
    if cell.explainer == "none":
        return Repair(costs, seed=cell.seed)
    if cell.explainer == "singles":
        return Repair(costs, _dissolved)
    explain = explainer_named(cell.explainer, cell.column.scheme, seed=cell.seed)
    explain(costs, [sum(1 << v for v in costs.problem.network.edges[0])])  # what is loaded late is loaded now
    return Repair(
        costs, RecursiveSplitter(costs, explain, EdgeShare(cell.share, 1), seed=cell.seed, asking=cell.asking)
    )


def _dissolved(groups: Sequence[int]) -> tuple[Splitting, ...]:
    """Every operator of a group that does not fit, alone: the least that a repair can do."""
    return tuple(Splitting(group, tuple(1 << v for v in bits_of(group)), False, False) for group in groups)


def _candidate_share(repair: Repair) -> float | None:
    """The share of the edges inside groups that their first explanations name, over all groups that did not fit."""
    named = sum(len(splitting.candidates) for splitting in repair.splittings.values())
    network = repair.costs.problem.network
    inside = sum((network.successors[v] & group).bit_count() for group in repair.splittings for v in bits_of(group))
    return named / inside if named else None


def optimum(column: Column) -> dict[str, Any]:
    """The proven optimum of a column, or a lower bound; `moments` as those of a search."""
    wall, processor, moments = time.perf_counter(), time.process_time(), list[tuple[float, float, float]]()

    def progress(plans: int, best: float) -> None:
        if not moments or best / MB < moments[-1][2]:
            moments.append((time.perf_counter() - wall, time.process_time() - processor, best / MB))

    costs = GroupCosts(problem_of(column))
    found = search_named("exact")(costs, SearchBudget(), np.random.default_rng(0), Repair(costs), progress)
    progress(0, found.cost)
    bound = found.cost if found.optimal else found.lower_bound
    return {
        "column": column,
        "optimal": found.optimal,
        "dram_mb": found.cost / MB,
        "bound_mb": None if bound is None else bound / MB,
        "processor_s": time.process_time() - processor,
        "moments": moments,
    }
