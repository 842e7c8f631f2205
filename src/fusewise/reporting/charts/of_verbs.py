"""Charts of what single verbs put into a document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusewise.reporting.charts.comparing import medians, side_by_side
from fusewise.reporting.charts.entry import Chart
from fusewise.reporting.charts.searching import plan_costs, search_path
from fusewise.words import MIB

__all__ = ["bench_charts", "comparison_charts", "pass_charts", "plan_charts", "search_charts"]

Part = Mapping[str, Any]


def search_charts(part: Part) -> list[Chart]:
    """The cost along the path of a search."""
    points = part["points"]
    if not points:
        return []
    names, ceilings = [point["rule"] or "" for point in points[1:]], [point.get("ceiling") for point in points]
    costs = [point["cost"] for point in points]
    title = f"Cost ({part['cost']}) after each substitution"
    return [search_path(costs, names, title=title, unit=part["unit"], ceilings=ceilings)]


def pass_charts(part: Part) -> list[Chart]:
    """Orders of passes by their cost, and lists of an experiment by their latency."""
    found = []
    orders = [one for one in part.get("orders") or () if one["cost"] is not None]
    if len(orders) > 1:
        ranked = sorted(orders, key=lambda one: one["cost"])
        rows = [{"name": _order(one), "value": one["cost"]} for one in ranked]
        about = f"{len(orders):,} orders that lead to different graphs, the best first; the clean-up is {_order(orders[0])}."
        unit = str((part.get("search") or {}).get("unit") or "cost")
        found.append(
            medians(rows, identity="passes-orders", section="passes", title="Orders of passes", about=about, unit=unit)
        )
    raced = (part.get("search") or {}).get("raced") or ()
    if len(raced) > 1:
        rows = [
            {
                "name": f"{_order(one)} ({one['fusion']})",
                "value": one["p50_ms"],
                "low": one["min_ms"],
                "high": one["p90_ms"],
            }
            for one in raced
        ]
        about = f"Median latency of {len(raced)} orders, runs taken in turn, the default's first; a line goes from the shortest run"
        title = "Orders of passes, timed in turn"
        about = f"{about} to the slowest tenth."
        found.append(medians(rows, identity="passes-raced", section="passes", title=title, about=about))
    experiment = part.get("experiment") or {}
    timed = [row for row in experiment.get("rows") or () if row.get("latency")]
    if timed:
        rows = [_spread(row["pipeline"], row["latency"]) for row in timed]
        about = f"Median latency of {len(rows)} lists of passes; a line goes on to the slowest tenth."
        found.append(
            medians(
                rows, identity="passes-experiment", section="passes", title="Lists of passes by latency", about=about
            )
        )
    return found


def plan_charts(part: Part) -> list[Chart]:
    """The best plan's cost by plans and by seconds, where it fell at all."""
    course = part.get("course") or []
    if len({point[2] for point in course}) < 2:
        return []
    scale, up = (
        (1 / MIB, "DRAM traffic, MiB") if part["unit"] == "bytes" else (1.0, f"{part['objective']}, {part['unit']}")
    )
    bound = part.get("bound")
    optimal = (part.get("summary") or {}).get("optimal")
    levels = [] if bound is None else [("optimum" if optimal else "lower bound", bound * scale)]
    found = []
    for across, k in (("plans evaluated", 1), ("seconds", 0)):
        points = _falling([(float(point[k]), point[2] * scale) for point in course])
        if len(points) > 1:
            found.append(plan_costs(points, across=across, up=up, levels=levels, end=float(course[-1][k])))
    return found


def bench_charts(part: Part) -> list[Chart]:
    """Medians of all runtimes, at all sizes."""
    rows = []
    for one in part["sizes"]:
        sizes = ", ".join(f"{name}={size}" for name, size in one["symbols"].items())
        for row in one["runtimes"]:
            if row.get("p50_ms") is not None:
                name = f"{row['runtime']} ({sizes})" if sizes else row["runtime"]
                rows.append({"name": name, "value": row["p50_ms"], "low": row.get("min_ms"), "high": row.get("p90_ms")})
    if not rows:
        return []
    about = f"Median times on {part['threads']} threads; a line goes from the shortest run to the slowest tenth."
    return [medians(rows, identity="bench-runtimes", section="bench", title="Runtimes by time", about=about)]


def comparison_charts(part: Part) -> list[Chart]:
    """Groups whose time differs most, and stages of compiling, of two reports."""
    names = tuple(
        f"{side['title']}, {side.get('at') or side.get('fusewise') or k + 1}" for k, side in enumerate(part["sides"])
    )
    found = []
    for key, title, identity in (
        ("groups", "Groups whose time differs most", "comparison-groups"),
        ("stages", "Compile time by stage", "comparison-stages"),
    ):
        rows = [
            {"name": row.get("title") or row.get("name") or "", "before": row["first"], "after": row["second"]}
            for row in part.get(key) or ()
            if row["first"] is not None or row["second"] is not None
        ]
        if rows:
            about = f"{title}, in milliseconds, of both reports: {' and '.join(names)}."
            found.append(side_by_side(rows, (names[0], names[1]), identity=identity, title=title, about=about))
    return found


def _order(one: Part) -> str:
    return ", ".join(one["passes"]) or "no passes"


def _spread(name: str, latency: Part) -> dict[str, Any]:
    return {
        "name": name,
        "value": latency["latency_p50_ms"],
        "low": latency["latency_p50_ms"],
        "high": latency["latency_p90_ms"],
    }


def _falling(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points where the cost is lower than before, of those at one place the last."""
    found: list[tuple[float, float]] = []
    for x, cost in points:
        if found and cost >= found[-1][1]:
            continue
        if found and found[-1][0] == x:
            found.pop()
        found.append((x, cost))
    return found
