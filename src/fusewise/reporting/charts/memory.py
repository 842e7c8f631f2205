"""Where intermediate results lie: what is in use step by step, and by what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusewise.reporting.charts.entry import Chart, Row, altair, entry, figure, inline, short
from fusewise.words import size_text, unit_for

__all__ = ["arena", "arena_map", "at_the_peak"]

_MOST_STEPS, _MOST_BARS, _MOST_BOXES = 400, 15, 400

_STEPS = {"format": ",d", "tickMinStep": 1, "tickCount": 8, "grid": False}
_FEW = {"tickCount": 6}
_EXACT = {"nice": False}
"""Axes and scales as Vega-Lite has them."""


def arena(memory: Mapping[str, Any]) -> Chart | None:
    """Bytes in use at each step; of a long program the most of some steps at a time. None without steps."""
    steps = memory.get("steps")
    if not steps:
        return None
    alt = altair()
    peak = _peak(memory)
    unit, factor = unit_for(max(memory["arena_bytes"], peak["live_bytes"]))
    rows = [{"step": row["step"], "size": figure(row["live_bytes"] / factor, 5)} for row in _thinned(steps)]
    ends = [*rows, {"step": rows[-1]["step"] + 1, "size": rows[-1]["size"]}]
    area = (
        alt.Chart(inline(ends))
        .mark_area(interpolate="step-after", line=True, fillOpacity=0.25)
        .encode(
            x=alt.X("step:Q", title="step", axis=_STEPS, scale=_EXACT),
            y=alt.Y("size:Q", title=f"in use, {unit}", axis=_FEW),
            tooltip=[alt.Tooltip("step:Q"), alt.Tooltip("size:Q", title=unit, format=",.4~g")],
        )
    )
    limits = [{"size": figure(memory["arena_bytes"] / factor, 5), "what": f"arena, {size_text(memory['arena_bytes'])}"}]
    line = alt.Chart(inline(limits)).mark_rule(style="limit").encode(y="size:Q")
    name = line.mark_text(style="limit-text", align="left", baseline="bottom", dx=4, dy=-2).encode(
        x=alt.value(0), text="what:N"
    )
    drawn = alt.layer(area, line, name).properties(width="container", height=220)
    merged = (
        "" if len(rows) == len(steps) else f" Drawn is the most of {-(-len(steps) // _MOST_STEPS)} steps at a time."
    )
    return entry(
        "memory-arena",
        "Intermediate results in use",
        "memory",
        f"At most {size_text(peak['live_bytes'])} are in use, at step {peak['step']:,} of {len(steps):,}, in an arena of"
        f" {size_text(memory['arena_bytes'])}.{merged}",
        drawn,
        [("step", f"{unit} in use"), *((row["step"], row["size"]) for row in rows)],
    )


def at_the_peak(memory: Mapping[str, Any]) -> Chart | None:
    """The largest buffers that are alive where most is in use. None where there are none."""
    if not memory.get("steps"):
        return None
    peak = _peak(memory)["step"]
    alive = [one for one in _in_arena(memory) if one["first"] <= peak <= one["last"]]
    alive.sort(key=lambda one: (-one["bytes"], one["value"]))
    if not alive:
        return None
    alt = altair()
    whole = sum(one["bytes"] for one in alive)
    unit, factor = unit_for(alive[0]["bytes"])
    rows: list[dict[str, Any]] = [
        {**_box(one), "label": f"{k + 1}  {short(one['value'])}", "size": figure(one["bytes"] / factor)}
        for k, one in enumerate(alive)
    ]
    base = alt.Chart(inline(rows[:_MOST_BARS])).encode(
        y=alt.Y("label:N", sort=None, title=None),
        x=alt.X("size:Q", title=f"size, {unit}", axis=_FEW),
        tooltip=[
            alt.Tooltip("value:N"),
            alt.Tooltip("size:Q", title=unit, format=",.4~g"),
            alt.Tooltip("first:Q", title="from step"),
            alt.Tooltip("last:Q", title="to step"),
        ],
    )
    label = base.mark_text(style="value-text", align="left", dx=4).encode(text=alt.Text("size:Q", format=",.3~r"))
    drawn = alt.layer(base.mark_bar(cursor="pointer"), label).properties(
        width="container", height=20 * len(rows[:_MOST_BARS])
    )
    more = f", the largest {_MOST_BARS} drawn" if len(rows) > _MOST_BARS else ""
    return entry(
        "memory-peak",
        f"Buffers at the peak (step {peak:,})",
        "memory",
        f"{len(rows):,} buffers of {size_text(whole)} together are alive at step {peak:,}{more}.",
        drawn,
        [
            ("value", unit, "from step", "to step"),
            *((row["value"], row["size"], row["first"], row["last"]) for row in rows),
        ],
    )


def arena_map(memory: Mapping[str, Any]) -> Chart | None:
    """Every buffer as a box: when it is alive, and where it lies; of many the largest. None without any that has a place."""
    placed = [one for one in _in_arena(memory) if one.get("offset") is not None and one["bytes"]]
    if not placed:
        return None
    alt = altair()
    placed.sort(key=lambda one: (-one["bytes"] * (one["last"] - one["first"] + 1), one["offset"], one["value"]))
    unit, factor = unit_for(memory["arena_bytes"])
    rows = [
        {
            **_box(one),
            "end": one["last"] + 1,
            "low": figure(one["offset"] / factor, 6),
            "high": figure((one["offset"] + one["bytes"]) / factor, 6),
            "size": size_text(one["bytes"]),
        }
        for one in placed[:_MOST_BOXES]
    ]
    drawn = (
        alt.Chart(inline(rows))
        .mark_rect(style="box", cursor="pointer")
        .encode(
            x=alt.X("first:Q", title="step", axis=_STEPS, scale=_EXACT),
            x2="end:Q",
            y=alt.Y("low:Q", title=f"place in the arena, {unit}", axis=_FEW),
            y2="high:Q",
            tooltip=[
                alt.Tooltip("value:N"),
                alt.Tooltip("size:N"),
                alt.Tooltip("first:Q", title="from step"),
                alt.Tooltip("last:Q", title="to step"),
            ],
        )
        .properties(width="container", height=300)
    )
    more = f"; the {_MOST_BOXES} that hold most are drawn" if len(placed) > _MOST_BOXES else ""
    return entry(
        "memory-map",
        "Where intermediate results lie",
        "memory",
        f"{len(placed):,} buffers share {size_text(memory['arena_bytes'])}: each is a box from its first step to its last{more}.",
        drawn,
        [
            ("value", "size", f"offset, {unit}", "from step", "to step"),
            *((row["value"], row["size"], row["low"], row["first"], row["last"]) for row in rows),
        ],
    )


def _in_arena(memory: Mapping[str, Any]) -> list[Row]:
    return [one for one in memory.get("buffers") or () if one["kind"] == "arena" and one.get("first") is not None]


def _box(one: Row) -> dict[str, Any]:
    value = one["value"] or "working memory"
    link = {"select": f"value:{one['value']}"} if one["value"] else {}
    return {"value": value, "first": one["first"], "last": one["last"], **link}


def _peak(memory: Mapping[str, Any]) -> Row:
    found: Row = max(memory["steps"], key=lambda row: row["live_bytes"])
    return found


def _thinned(steps: Sequence[Row]) -> list[Row]:
    """The step in which most is in use of so many at a time that few enough are left."""
    each = -(-len(steps) // _MOST_STEPS)
    return [max(steps[k : k + each], key=lambda row: row["live_bytes"]) for k in range(0, len(steps), each)]
