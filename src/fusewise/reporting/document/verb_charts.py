"""The charts of single verbs: the way of a search, orders of passes, the course of a plan, runtimes, two reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusewise.reporting.charts.comparing import medians, side_by_side
from fusewise.reporting.charts.entry import Chart
from fusewise.reporting.charts.searching import plan_costs, search_path

__all__ = ["verb_charts"]

_MOST = 20
"""Bars of a chart."""


def verb_charts(document: Mapping[str, Any]) -> list[Chart]:
    """What there is to draw of `search`, `passes`, `plan`, `bench` and `comparison`. Raises what `charts_of` raises."""
    drawn = (("search", _search), ("passes", _passes), ("plan", _plan), ("bench", _bench), ("comparison", _comparison))
    return [chart for part, charts in drawn if document.get(part) for chart in charts(document[part])]


def _search(part: Mapping[str, Any]) -> list[Chart]:
    points = part["points"]
    if len(points) < 2:
        return []
    costs, names = [point["cost"] for point in points], [point["rule"] for point in points[1:]]
    alpha = part["alpha"] if part["search"] == "relaxed" else None
    title = "Cost of the graph after each substitution"
    return [search_path(costs, names, title=title, unit=part["unit"], alpha=alpha)]


def _passes(part: Mapping[str, Any]) -> list[Chart]:
    if part["experiment"]:
        rows = [
            _bar(row["pipeline"], row["latency"]["latency_p50_ms"], None, row["latency"]["latency_p90_ms"])
            for row in part["experiment"]["rows"]
            if row["latency"]
        ]
        title = f"Latency of the lists of {part['experiment']['name']}"
        return _bars(
            rows, "pass-lists", "passes", title, "A bar is the median of runs; a line ends where 90 % of them lie."
        )
    raced = (part["search"] or {}).get("raced") or ()
    rows = [_bar(_order(k, row), row["p50_ms"], row["min_ms"], row["p90_ms"]) for k, row in enumerate(raced)]
    about = "A bar is the median of runs taken in turn; a line goes from the least to where 90 % of them lie."
    found = _bars(rows, "pass-orders", "passes", "Orders of passes, timed in turn", about)
    tried = sorted((row["cost"], k) for k, row in enumerate(part["orders"]) if row["cost"] is not None)
    unit = (part["search"] or {}).get("unit", "")
    bars = [_bar(f"order {k + 1}{' (default)' if k == 0 else ''}", cost) for cost, k in tried[:_MOST]]
    about = f"What the {len(bars)} cheapest of {len(tried)} different graphs cost, by one price each."
    return found + _bars(bars, "pass-costs", "passes", "Orders that were tried", about, unit)


def _order(number: int, row: Mapping[str, Any]) -> str:
    name = "default" if number == 0 else f"order {number}"
    return f"{name}: {len(row['passes'])} passes, {row['fusion']}"


def _bar(name: str, value: float, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    low = value if low is None and high is not None else low
    return {"name": name, "value": value, **({} if high is None else {"low": low, "high": high})}


def _bars(
    rows: list[dict[str, Any]], identity: str, section: str, title: str, about: str, unit: str = "ms"
) -> list[Chart]:
    """A chart of bars, where there is something to compare."""
    if len(rows) < 2:
        return []
    return [medians(rows, identity=identity, section=section, title=title, about=about, unit=unit)]


_OBJECTIVES: Mapping[str, tuple[str, float]] = {
    "dram": ("DRAM traffic, MB", 1e-6),
    "latency": ("latency, ms", 1.0),
    "energy": ("energy, mJ", 1.0),
}


def _plan(part: Mapping[str, Any]) -> list[Chart]:
    course = part["course"]
    if len({cost for _, _, cost in course}) < 2:
        return []
    up, scale = _OBJECTIVES[part["objective"]]
    levels = []
    if part["bound"] is not None:
        name = "optimum" if part["summary"]["optimal"] else "lower bound"
        levels = [(name, part["bound"] * scale)]
    found = []
    for across, column in (("plans evaluated", 1), ("seconds", 0)):
        points = [(float(row[column]), row[2] * scale) for row in course]
        found.append(plan_costs(points, across=across, up=up, levels=levels, end=points[-1][0]))
    return found


def _bench(part: Mapping[str, Any]) -> list[Chart]:
    found = []
    for k, size in enumerate(part["sizes"]):
        rows = [
            _bar(row["runtime"], row["p50_ms"], row["min_ms"], row["p90_ms"])
            for row in size["runtimes"]
            if "error" not in row
        ]
        at = ", ".join(f"{name}={value}" for name, value in size["symbols"].items())
        title = f"Time of a run{f' at {at}' if at else ''}"
        about = "A bar is the median of runs taken in turn; a line goes from the least to where 90 % of them lie."
        found += _bars(rows, f"runtimes-{k}", "bench", title, about)
    return found


def _comparison(part: Mapping[str, Any]) -> list[Chart]:
    names = tuple(f"{side['title']}, {side['at'] or side['fusewise'] or ''}" for side in part["sides"])
    pair = (names[0], names[1])
    rows = [
        {"name": row["title"], "before": row["first"], "after": row["second"]}
        for row in part["groups"]
        if row["first"] is not None or row["second"] is not None
    ]
    stages = [{"name": row["name"], "before": row["first"], "after": row["second"]} for row in part["stages"]]
    told = (
        (rows, "compared-groups", "Groups whose time changed most", "Times of the groups that cover the same nodes."),
        (stages, "compared-stages", "Compile time by stage", "Times of the stages of both compilations."),
    )
    return [
        side_by_side(some, pair, identity=name, title=title, about=about) for some, name, title, about in told if some
    ]
