"""How searches went: among graphs by substitutions, and among plans for an accelerator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fusewise.reporting.charts.entry import Chart, altair, entry, figure, inline, worded

__all__ = ["plan_costs", "search_path"]

_MOST_POINTS = 500


def search_path(
    costs: Sequence[float],
    names: Sequence[str],
    *,
    title: str,
    unit: str,
    ceilings: Sequence[float | None] = (),
) -> Chart:
    """The cost of the graph after each substitution. `costs` begins with the input's; `names[k]` led to `costs[k + 1]`.

    Points where the cost rose are told apart from others, and the best is marked. `ceilings`, one for each cost, are drawn, too:
    graphs that cost more were not followed from there. A point stands for its step, as `search:NUMBER`.
    """
    alt = altair()
    best = min(range(len(costs)), key=lambda k: costs[k])
    rows = list(_graphs_on_the_way(costs, names, ceilings))
    x = alt.X("step:Q", title="substitution", axis=alt.Axis(format=",d", tickMinStep=1, tickCount=10, grid=False))
    y = alt.Y("cost:Q", title=f"cost, {unit}", scale=alt.Scale(zero=False, padding=22), axis=alt.Axis(tickCount=6))
    data = inline(rows)
    line = alt.Chart(data).mark_line(strokeWidth=1.5, opacity=0.7).encode(x=x, y=y)
    points = (
        alt.Chart(data)
        .mark_circle(size=55, opacity=1, cursor="pointer")
        .encode(
            x=x,
            y=y,
            color=alt.Color("change:N", title="cost", scale=alt.Scale(domain=["input", "higher", "lower or equal"])),
            tooltip=[
                alt.Tooltip("step:Q", title="substitution"),
                alt.Tooltip("rule:N"),
                alt.Tooltip("cost:Q", title=f"cost, {unit}", format=",.6~g"),
            ],
        )
    )
    mark = alt.Chart(inline([{"step": best, "cost": figure(costs[best], 6), "text": "best"}])).encode(x=x, y=y)
    ring = mark.mark_point(style="spread", size=160, filled=False)
    told = mark.mark_text(style="value-text", baseline="top", dy=10).encode(text="text:N")
    layers = [line, points, ring, told]
    limits = [row for row in rows if "ceiling" in row]
    if limits:
        bound = alt.Chart(inline(limits)).encode(x=x, y=alt.Y("ceiling:Q"))
        layers.insert(0, bound.mark_line(style="limit", interpolate="step-after"))
    drawn = alt.layer(*layers).properties(width="container", height=300)
    limit = " Dashed: what costs more was not followed." if limits else ""
    return entry(
        "search-path",
        title,
        "search",
        f"{len(costs) - 1:,} substitutions take the cost from {worded(costs[0])} to {worded(costs[-1])} {unit}; the best is"
        f" {worded(costs[best])}, at {best:,}.{limit}",
        drawn,
        [("", "substitution", f"cost, {unit}"), *((row["step"], row["rule"], row["cost"]) for row in rows)],
    )


def _graphs_on_the_way(
    costs: Sequence[float], names: Sequence[str], ceilings: Sequence[float | None]
) -> Iterator[dict[str, Any]]:
    """The input and the graph after each substitution, as points."""
    for k, cost in enumerate(costs):
        change = "input" if not k else "higher" if cost > costs[k - 1] else "lower or equal"
        row = {"step": k, "cost": figure(cost, 6), "rule": names[k - 1] if k else "input", "change": change}
        ceiling = ceilings[k] if k < len(ceilings) else None
        bound = {} if ceiling is None else {"ceiling": figure(ceiling, 6)}
        yield {**row, **bound, "select": f"search:{k}"}


def plan_costs(
    points: Sequence[tuple[float, float]],
    *,
    across: str,
    up: str = "DRAM traffic, MiB",
    levels: Sequence[tuple[str, float]] = (),
    end: float | None = None,
) -> Chart:
    """A falling staircase of the best plan's cost: at each of the `points` (x ascending) a new best, until `end`.

    `across` names what x counts, such as plans or seconds; `levels` are lines with a name, such as a bound or the optimum.
    """
    alt = altair()
    last = max(points[-1][0], end or 0.0)
    kept = _thinned(points)
    rows = [{"x": figure(x, 6), "cost": figure(cost, 6)} for x, cost in kept]
    ends = [*rows, {"x": figure(last, 6), "cost": rows[-1]["cost"]}] if last > points[-1][0] else rows
    whole = {"tickMinStep": 1} if all(float(point).is_integer() for point, _ in points) else {}
    x = alt.X("x:Q", title=across, axis=alt.Axis(tickCount=8, grid=False, **whole), scale=alt.Scale(nice=False))
    y = alt.Y("cost:Q", title=up, scale=alt.Scale(zero=False, padding=22), axis=alt.Axis(tickCount=6))
    line = alt.Chart(inline(ends)).mark_line(interpolate="step-after").encode(x=x, y=y)
    dots = (
        alt.Chart(inline(rows))
        .mark_circle(size=35, opacity=1)
        .encode(
            x=x,
            y=y,
            tooltip=[alt.Tooltip("x:Q", title=across), alt.Tooltip("cost:Q", title=up, format=",.6~g")],
        )
    )
    named = alt.Chart(inline([{"cost": figure(cost, 6), "name": name} for name, cost in levels]))
    rule = named.mark_rule(style="limit").encode(y=y)
    text = named.mark_text(style="limit-text", align="right", baseline="bottom", dy=-3).encode(
        x=alt.value("width"), y=y, text="name:N"
    )
    drawn = alt.layer(*([rule, text] if levels else []), line, dots).properties(width="container", height=260)
    limits = "".join(f" {name}: {worded(cost, 6)}." for name, cost in levels)
    return entry(
        f"plan-{'seconds' if 'second' in across else 'plans'}",
        f"{up.partition(',')[0]} of the best plan, by {across}",
        "plan",
        f"{up} goes from {worded(points[0][1], 6)} to {worded(points[-1][1], 6)} in {worded(last)} {across}.{limits}",
        drawn,
        [(across, up), *((row["x"], row["cost"]) for row in rows)],
    )


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most so many points, the first and the last among them."""
    each = -(-len(points) // _MOST_POINTS)
    kept = [*points[::each]]
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]
