"""One chart as plain data, and what all charts share: Altair, figures that are short, text that any file can hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fusewise.errors import UsageError
from fusewise.reporting.page.overview import visible

__all__ = ["MOST_ROWS", "Chart", "Row", "altair", "entry", "figure", "inline", "short", "worded"]

Chart = dict[str, Any]
"""`id title section about spec rows`."""

Row = Mapping[str, Any]

MOST_ROWS = 200
"""Rows of a chart's table; what is more is counted in the last one."""


def altair() -> Any:
    """The package. `UsageError` where it is not installed."""
    try:
        import altair as alt
    except ImportError:
        raise UsageError('charts are drawn by Altair, which is not installed: pip install "fusewise[report]"') from None
    return alt


def entry(identity: str, title: str, section: str, about: str, drawn: Any, rows: Sequence[Sequence[Any]]) -> Chart:
    """The chart that Altair has `drawn`. `rows` begins with the headings; texts may be of any kind."""
    spec = _shared(drawn.to_dict(validate=False))
    spec.pop("config", None)  # how it looks is up to whoever shows it
    if spec.get("width") == "container":
        spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    kept = [list(row) for row in rows[: MOST_ROWS + 1]]
    left = len(rows) - len(kept)
    if left > 0:
        kept.append([f"and {left:,} more", *[""] * (len(rows[0]) - 1)])
    return {
        "id": identity,
        "title": title,
        "section": section,
        "about": about,
        "spec": spec,
        "rows": kept,
    }


def _shared(spec: dict[str, Any]) -> dict[str, Any]:
    """A specification whose layers read equal data from one place, and with what cannot be seen in its texts made visible."""
    kept: list[list[Any]] = []

    def named(part: Any) -> Any:
        if isinstance(part, list):
            return [named(each) for each in part]
        if not isinstance(part, dict):
            return visible(part) if isinstance(part, str) else part
        found = {key: value if key == "data" else named(value) for key, value in part.items()}
        rows = found.get("data", {}).get("values") if isinstance(found.get("data"), dict) else None
        if rows is not None:
            if rows not in kept:
                kept.append(rows)
            found["data"] = {"name": f"rows-{kept.index(rows)}"}
        return found

    found = named(spec)
    return {**found, "datasets": {f"rows-{k}": named(rows) for k, rows in enumerate(kept)}}


def inline(rows: Iterable[Row]) -> Any:
    """Data inside the chart; rows with a number that is none are left out."""
    kept = [row for row in rows if all(math.isfinite(value) for value in row.values() if isinstance(value, float))]
    return altair().Data(values=kept)


def figure(value: float, digits: int = 4) -> float:
    """A number to so many digits that count."""
    return float(f"{value:.{digits}g}")


def worded(value: float, digits: int = 4) -> str:
    """A number in a sentence, to so many digits that count, never as a power."""
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def short(text: str, most: int = 40) -> str:
    """A text, or its ends."""
    return text if len(text) <= most else f"{text[: most // 2 - 1]}…{text[-(most // 2) :]}"
