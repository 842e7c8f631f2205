"""Charts of tables that compare many things at a time: bars in groups, a panel below the other; several staircases in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusewise.reporting.charts.entry import Chart, altair, entry, figure, inline

__all__ = ["Panel", "grouped_bars", "staircases"]

Panel = Mapping[str, Mapping[str, float]]
"""Groups by name (its lines stand below each other), and in each a height for every kind of bar that it has."""

_LINES = r"split(datum.label, '\\n')"
"""A name in lines, whose ends `visible` has written out."""

_NAME = 120
"""Pixels that the name of a group has room in."""

_COLOURS, _DASHES = 8, ([1, 0], [7, 4], [2, 3])


def grouped_bars(panels: Mapping[str, Panel], *, title: str, up: str, mark: float | None = None) -> Chart:
    """Every panel has a scale of its own; `mark` is a line across each."""
    alt = altair()
    kinds = [*dict.fromkeys(kind for panel in panels.values() for bars in panel.values() for kind in bars)]
    drawn, rows = [], []
    for name, panel in panels.items():
        data = [
            {"panel": name, "group": group, "kind": kind, "height": figure(height)}
            for group, bars in panel.items()
            for kind, height in bars.items()
        ]
        rows += data
        bars = (
            alt.Chart(inline(data))
            .mark_bar()
            .encode(
                x=alt.X(
                    "group:N",
                    sort=None,
                    title=None,
                    axis=alt.Axis(labelAngle=0, labelExpr=_LINES, domain=False, ticks=False),
                ),
                xOffset=alt.XOffset("kind:N", sort=kinds),
                y=alt.Y("height:Q", title=up, axis=alt.Axis(tickCount=4)),
                color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=kinds)),
                tooltip=["panel:N", "group:N", "kind:N", alt.Tooltip("height:Q", title=up, format=",.3~g")],
            )
        )
        line = alt.Chart(inline([{"height": mark or 0.0}])).mark_rule(style="limit").encode(y="height:Q")
        layers = alt.layer(bars, *([] if mark is None else [line]))
        drawn.append(
            layers.properties(title=name, width={"step": max(18, _NAME // len(kinds)), "for": "offset"}, height=150)
        )
    about = f"{up} of {', '.join(kinds)} in {len(panels)} panels."
    table = [("panel", "group", "kind", up), *((r["panel"], r["group"], r["kind"], r["height"]) for r in rows)]
    return entry("grouped-bars", title, "bench", about, alt.vconcat(*drawn), table)


def staircases(
    curves: Mapping[str, Sequence[tuple[float, float]]], *, title: str, across: str, up: str, height: int = 380
) -> Chart:
    """A curve is a list of points (x, y), x ascending; y holds until the next x, and at last until the largest of all curves."""
    alt = altair()
    last, names = max(x for points in curves.values() for x, _ in points), [*curves]
    rows = [
        {"name": name, "x": figure(x, 6), "y": figure(y, 6)}
        for name, points in curves.items()
        for x, y in [*points, *([(last, points[-1][1])] if points[-1][0] < last else [])]
    ]
    dashes = [_DASHES[k // _COLOURS % len(_DASHES)] for k in range(len(names))]
    drawn = (
        alt.Chart(inline(rows))
        .mark_line(interpolate="step-after", strokeWidth=1.8)
        .encode(
            x=alt.X("x:Q", title=across, axis=alt.Axis(tickCount=6, grid=False), scale=alt.Scale(nice=False)),
            y=alt.Y("y:Q", title=up, axis=alt.Axis(tickCount=6), scale=alt.Scale(zero=False)),
            color=alt.Color("name:N", title=None, scale=alt.Scale(domain=names), legend=alt.Legend(columns=6)),
            strokeDash=alt.StrokeDash("name:N", title=None, scale=alt.Scale(domain=names, range=dashes)),
            tooltip=["name:N", alt.Tooltip("x:Q", title=across), alt.Tooltip("y:Q", title=up, format=",.5~g")],
        )
        .properties(width="container", height=height)
    )
    about = f"{up} by {across}, a curve for each of {', '.join(names)}."
    return entry(
        "staircases", title, "plan", about, drawn, [("curve", across, up), *((r["name"], r["x"], r["y"]) for r in rows)]
    )
