"""Decisions as a part of the document, in the order in which they were made."""

from __future__ import annotations

from typing import Any

from fusewise.reporting.document.taking_back import DecisionOptions, gated
from fusewise.trace import Event, Trace

__all__ = ["decision_parts"]


def decision_parts(trace: Trace) -> list[dict[str, Any]]:
    """Every decision: what was decided where, why, and by which costs, if any."""
    options = DecisionOptions.here()
    return [_decision(event, options.of(event, is_gate)) for event, is_gate in zip(trace, gated(trace), strict=True)]


_UNITS = {"pass": "nodes", "rewrite": "operations"}
"""Of costs before and after, by the kind of a decision."""


def _decision(event: Event, option: str | None) -> dict[str, Any]:
    return {
        "serial": event.serial,
        "kind": event.kind,
        "what": event.what,
        "where": list(event.where),
        "reason": event.reason,
        "before": event.before,
        "after": event.after,
        "unit": None if event.before is None else _UNITS.get(event.kind),
        "applied": event.applied,
        "option": option,
    }
