"""A chart as a file of its own: SVG by vl-convert, light, without a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusewise.errors import UsageError
from fusewise.reporting.charts.entry import altair
from fusewise.reporting.page.overview import visible

__all__ = ["CATEGORIES", "STYLES", "drawer", "svg"]

CATEGORIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6a00", "#56b4e9", "#6b7280", "#8c564b")
"""Colours that stay apart for people who are colour-blind, after Okabe and Ito; darker where they were too pale on white."""

_INK, _SOFT, _LINE, _WIDTH = "#1c2430", "#5b6472", "#d9dee7", 720

STYLES: Mapping[str, Mapping[str, Any]] = {
    "barrier": {"color": _SOFT, "strokeWidth": 0.6, "opacity": 0.5},
    "box": {"fillOpacity": 0.45, "stroke": "white", "strokeWidth": 0.8},
    "limit": {"color": _SOFT, "strokeWidth": 1.5, "strokeDash": [5, 4]},
    "limit-text": {"color": _SOFT, "fontSize": 11},
    "spread": {"color": _INK, "strokeWidth": 1.5},
    "value-text": {"color": _INK, "fontSize": 11},
    "wait": {"color": _LINE},
}
"""How marks look that mean the same in every chart, by the name of their style."""


def svg(chart: Mapping[str, Any]) -> str:
    """The SVG text of a chart (an entry of `charts`). Raises what `drawer` raises."""
    spec = {
        **chart["spec"],
        "title": visible(chart["title"]),
        "description": visible(chart["about"]),
        "background": "white",
    }
    if spec.get("width") == "container":
        spec["width"] = _WIDTH
    text: str = drawer().vegalite_to_svg(spec, vl_version="6.4", config=_config(), allowed_base_urls=[])
    return text if text.endswith("\n") else f"{text}\n"


def drawer() -> Any:
    """What draws a file. `UsageError` where that, or what makes charts, is not installed: ask before there is anything to draw."""
    altair()
    try:
        import vl_convert
    except ImportError:
        raise UsageError(
            'SVG files are drawn by vl-convert, which is not installed: pip install "fusewise[report]"'
        ) from None
    return vl_convert


def _config() -> dict[str, Any]:
    axis = {"labelColor": _SOFT, "titleColor": _INK, "gridColor": _LINE, "domainColor": _SOFT, "tickColor": _SOFT}
    return {
        "font": "sans-serif",
        "view": {"stroke": None},
        "axis": {**axis, "labelLimit": 280, "titleFontWeight": "normal"},
        "legend": {
            "orient": "top",
            "titleOrient": "left",
            "labelColor": _INK,
            "titleColor": _INK,
            "titleFontWeight": "normal",
            "labelLimit": 280,
        },
        "title": {"color": _INK, "anchor": "start", "fontSize": 13, "offset": 12},
        "header": {"labelColor": _INK, "titleColor": _INK},
        "mark": {"color": CATEGORIES[0]},
        "range": {"category": list(CATEGORIES)},
        "style": {name: dict(look) for name, look in STYLES.items()},
    }
