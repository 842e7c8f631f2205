"""Things beside each other: runtimes, orders of passes, two reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusewise.reporting.charts.entry import Chart, altair, entry, figure, inline, short

__all__ = ["medians", "side_by_side"]

_MOST_BARS = 20


def medians(
    rows: Sequence[Mapping[str, Any]],
    *,
    identity: str,
    section: str,
    title: str,
    about: str,
    unit: str = "ms",
) -> Chart:
    """A bar for each of the `rows`: its `name`, the median (`value`), and a line from `low` to `high` where it has these.

    For runtimes, orders of passes, and whatever else was timed; the order is that of the rows, of which the first twenty are drawn.
    """
    alt = altair()
    found = []
    for k, row in enumerate(rows):
        ends = {key: figure(row[key]) for key in ("low", "high") if row.get(key) is not None}
        label = f"{k + 1}  {short(row['name'], 48)}" if len(rows) > _FEW else short(row["name"], 48)
        found.append({"label": label, "name": row["name"], "value": figure(row["value"]), **ends})
    data = inline(found[:_MOST_BARS])
    y = alt.Y("label:N", sort=None, title=None)
    told = [
        alt.Tooltip("name:N"),
        alt.Tooltip("value:Q", title=f"median, {unit}", format=",.4~g"),
        alt.Tooltip("low:Q", title=f"low, {unit}", format=",.4~g"),
        alt.Tooltip("high:Q", title=f"high, {unit}", format=",.4~g"),
    ]
    spread = any("low" in row and "high" in row for row in found)
    across = alt.X("value:Q", title=f"median{' and spread' if spread else ''}, {unit}", axis=alt.Axis(tickCount=6))
    bars = alt.Chart(data).mark_bar(height={"band": 0.55}).encode(y=y, x=across, tooltip=told if spread else told[:2])
    ranges = alt.Chart(data).transform_filter("isValid(datum.low) && isValid(datum.high)").encode(y=y)
    line = ranges.mark_rule(style="spread").encode(x="low:Q", x2="high:Q")
    caps = [ranges.mark_tick(style="spread", size=9, thickness=1.5).encode(x=f"{end}:Q") for end in ("low", "high")]
    text = (
        alt.Chart(data)
        .transform_calculate(end="isValid(datum.high) ? max(datum.high, datum.value) : datum.value")
        .mark_text(style="value-text", align="left", dx=6)
        .encode(y=y, x="end:Q", text=alt.Text("value:Q", format=",.4~g"))
    )
    layers = [bars, *([line, *caps] if spread else []), text]
    drawn = alt.layer(*layers).properties(width="container", height=30 * len(found[:_MOST_BARS]))
    shown = ("low", "high") if spread else ()
    cells = [(row["name"], *(row.get(key, "") for key in ("value", *shown))) for row in found]
    headings = ("", f"median, {unit}", *(f"{end}, {unit}" for end in shown))
    return entry(identity, title, section, about, drawn, [headings, *cells])


_FEW = 8
"""Rows whose names are taken to differ."""


def side_by_side(
    rows: Sequence[Mapping[str, Any]],
    names: tuple[str, str],
    *,
    identity: str,
    title: str,
    about: str,
    unit: str = "ms",
) -> Chart:
    """Two bars for each of the `rows`: its `name`, and the values `before` and `after`, None where there is none, called as `names`
    say. A row may `select` something, such as `group:3`. The first twenty are drawn."""
    alt = altair()
    first, second = (f"1  {names[0]}", f"2  {names[1]}") if names[0] == names[1] else names
    found = []
    for k, row in enumerate(rows[:_MOST_BARS]):
        label, link = f"{k + 1}  {short(row['name'], 44)}", {"select": row["select"]} if row.get("select") else {}
        for side, key in ((first, "before"), (second, "after")):
            if row.get(key) is not None:
                found.append({"label": label, "name": row["name"], "of": side, "value": figure(row[key]), **link})
    drawn = (
        alt.Chart(inline(found))
        .mark_bar(cursor="pointer")
        .encode(
            y=alt.Y("label:N", sort=None, title=None),
            yOffset=alt.YOffset("of:N", sort=[first, second]),
            x=alt.X("value:Q", title=unit, axis=alt.Axis(tickCount=6)),
            color=alt.Color("of:N", title=None, sort=[first, second], legend=alt.Legend(labelLimit=400)),
            tooltip=[
                alt.Tooltip("name:N"),
                alt.Tooltip("of:N", title="report"),
                alt.Tooltip("value:Q", title=unit, format=",.4~g"),
            ],
        )
        .properties(width="container", height=26 * len(rows[:_MOST_BARS]))
    )
    cells = [
        (row["name"], *("" if row.get(k) is None else figure(row[k]) for k in ("before", "after"))) for row in rows
    ]
    headings = ("", *(f"{name}, {unit}" for name in (first, second)))
    return entry(identity, title, "comparison", about, drawn, [headings, *cells])
