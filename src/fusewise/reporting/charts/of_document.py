"""All charts of a document: which parts are drawn, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fusewise.errors import UsageError
from fusewise.reporting.charts.compiling import compile_stages
from fusewise.reporting.charts.entry import Chart, altair
from fusewise.reporting.charts.memory import arena, arena_map, at_the_peak
from fusewise.reporting.charts.of_verbs import bench_charts, comparison_charts, pass_charts, plan_charts, search_charts
from fusewise.reporting.charts.running import (
    DEVICE_ROOF,
    ESTIMATED_ROOF,
    MACHINE_ROOF,
    roofline,
    slowest_groups,
    timeline,
)

__all__ = ["charts_of", "missing_charts", "with_charts"]

_PARTS: Mapping[str, Callable[[Mapping[str, Any]], list[Chart]]] = MappingProxyType(
    {
        "search": search_charts,
        "passes": pass_charts,
        "plan": plan_charts,
        "bench": bench_charts,
        "comparison": comparison_charts,
    }
)


def charts_of(document: Mapping[str, Any]) -> list[Chart]:
    """What there is to draw of a document, in the order of the page. Equal documents give equal charts.

    Raises `UsageError` where Altair is not installed and there is something to draw.
    """
    times, memory, compiling, estimates = (document.get(part) for part in ("times", "memory", "compile", "estimates"))
    found: list[Chart | None] = []
    if times:
        roof = DEVICE_ROOF if document.get("device") else MACHINE_ROOF
        found += [slowest_groups(times), roofline(times, roof), timeline(times, document.get("steps") or ())]
    elif estimates:
        found += [slowest_groups(estimates, estimated=True), roofline(estimates, ESTIMATED_ROOF)]
    if memory:
        found += [arena(memory), at_the_peak(memory), arena_map(memory)]
    if compiling:
        found.append(compile_stages(compiling))
    for name, draw in _PARTS.items():
        part = document.get(name)
        found += draw(part) if part else []
    return [chart for chart in found if chart is not None]


def with_charts(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """A document that has its charts: as it is where it has some, or where Altair is not installed."""
    if "charts" in document or missing_charts(document):
        return document
    return {**document, "charts": charts_of(document)}


def missing_charts(document: Mapping[str, Any]) -> str:
    """Why a document has no charts, and gets none; empty where it has some, or may have."""
    if "charts" in document:
        return ""
    try:
        altair()
    except UsageError as error:
        return str(error)
    return ""
