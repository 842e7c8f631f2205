"""Decisions as a part of the document, in the order in which they were made."""

from __future__ import annotations

from typing import Any

from fusewise.trace import Event, Trace

__all__ = ["decision_parts"]


def decision_parts(trace: Trace) -> list[dict[str, Any]]:
    """Every decision: what was decided where, why, and by which costs, if any."""
    return [_decision(event) for event in trace]


def _decision(event: Event) -> dict[str, Any]:
    return {
        "serial": event.serial,
        "kind": event.kind,
        "what": event.what,
        "where": list(event.where),
        "reason": event.reason,
        "before": event.before,
        "after": event.after,
        "unit": None if event.before is None else "nodes" if event.kind == "pass" else None,
        "applied": event.applied,
        "option": None,
    }
