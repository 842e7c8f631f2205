"""Figure 5: traffic of the best plan after so many plans, or seconds, with the exact search on the latter; mean over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.layer_fusion.cells import Cell, budgeted
from benchmarks.layer_fusion.printed import PANELS
from benchmarks.layer_fusion.text import grouped, markdown

__all__ = ["by_plans", "by_seconds", "curves_table", "panel_cells"]

Curve = list[tuple[float, float]]


def panel_cells(panel: str, explainers: Sequence[str], seeds: int, plans: Mapping[str, int]) -> list[Cell]:
    """What a panel needs; `plans` as in `tables.table_cells`."""
    column = PANELS[panel].column
    return [
        Cell(budgeted(column, search, explainer, plans), search, explainer, seed)
        for search in PANELS[panel].searches
        for explainer in explainers
        for seed in range(seeds)
    ]


def by_plans(rows: Sequence[dict[str, Any]]) -> dict[str, Curve]:
    """MB over plans evaluated, from where every seed has a plan and a hundredth of the budget is spent, to its end."""
    return _curves(rows, "history", lambda point: (point[0], point[1]), lambda row: row["cell"].column.plans, 0.01)


def by_seconds(rows: Sequence[dict[str, Any]], optimum: Mapping[str, Any]) -> dict[str, Curve]:
    """MB over seconds of one core, which on an idle machine is wall time; a search that ended keeps what it found."""
    found = _curves(rows, "moments", lambda point: (point[1], point[2]), lambda row: row["processor_s"], 0.0)
    exact = [(second, cost) for _, second, cost in optimum["moments"]]
    curves = {**found, "exact search": exact}
    last = max(curve[-1][0] for curve in curves.values())
    return {name: [*curve, (last, curve[-1][1])] for name, curve in curves.items()}


def _curves(
    rows: Sequence[dict[str, Any]],
    field: str,
    point: Callable[[Sequence[float]], tuple[float, float]],
    end: Callable[[dict[str, Any]], float],
    least: float,
) -> dict[str, Curve]:
    """The mean over seeds, where each has a plan and so much of what it had to spend is spent, until the last has spent all."""
    found = {}
    for (search, explainer), runs in grouped(rows, lambda row: (row["cell"].search, row["cell"].explainer)):
        lines = [[point(entry) for entry in run[field]] for run in runs]
        last = max(map(end, runs))
        start = max(*(line[0][0] for line in lines), least * last)
        steps = sorted({start, last, *(at for line in lines for at, _ in line if start < at < last)})
        found[f"{search}, {explainer}"] = [(at, statistics.mean(_after(line, at) for line in lines)) for at in steps]
    return found


def _after(line: Curve, at: float) -> float:
    return min(cost for when, cost in line if when <= at)


def curves_table(curves: Mapping[str, Curve], places: Sequence[float], unit: str) -> str:
    """A line for each curve: MB at these places; empty where there is no plan yet, or nothing was left to spend."""
    lines = [
        [name, *(f"{_after(curve, at):.2f}" if curve[0][0] <= at <= curve[-1][0] else "" for at in places)]
        for name, curve in curves.items()
    ]
    return markdown((f"MB after {unit}", *(f"{place:g}" for place in places)), lines)
