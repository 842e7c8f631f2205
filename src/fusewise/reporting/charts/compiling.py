"""What compiling takes, by stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusewise.reporting.charts.entry import Chart, altair, entry, figure, inline

__all__ = ["compile_stages"]


def compile_stages(compiling: Mapping[str, Any]) -> Chart | None:
    """A bar for each of the `stages`, in their order; None without any."""
    stages = compiling.get("stages")
    if not stages:
        return None
    alt, whole = altair(), compiling.get("ms") or sum(stage["ms"] for stage in stages)
    rows = [
        {"stage": stage["name"], "ms": figure(stage["ms"]), "share": figure(stage["ms"] / whole) if whole else 0.0}
        for stage in stages
    ]
    base = alt.Chart(inline(rows)).encode(
        y=alt.Y("stage:N", sort=None, title=None),
        x=alt.X("ms:Q", title="time, ms", axis=alt.Axis(format=",d", tickCount=6)),
        tooltip=[
            alt.Tooltip("stage:N", title="stage"),
            alt.Tooltip("ms:Q", title="ms", format=",.4~g"),
            alt.Tooltip("share:Q", title="share", format=".1%"),
        ],
    )
    label = base.mark_text(style="value-text", align="left", dx=4).encode(text=alt.Text("ms:Q", format=",.3~r"))
    drawn = alt.layer(base.mark_bar(), label).properties(width="container", height=22 * len(rows))
    longest = max(rows, key=lambda row: row["ms"])
    return entry(
        "compile-stages",
        "Compile time by stage",
        "compile",
        f"Compiling took {whole:,.0f} ms, most of it {longest['stage']} ({longest['ms']:,.0f} ms, {longest['share']:.0%}).",
        drawn,
        [("stage", "ms", "share"), *((row["stage"], row["ms"], row["share"]) for row in rows)],
    )
