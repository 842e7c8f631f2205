"""The report's part about a search for substitutions: its path, what each step did to the graph, what it came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from fusewise.ir.graph import Graph, Node
from fusewise.optimizing import Optimization
from fusewise.rewrite.rules.table import rule_named
from fusewise.rewrite.search.change import GraphChange

__all__ = ["operator_counts", "search_part"]

_ANSWERS: Mapping[str, str] = {
    "exact": "answers stay the same to the last bit",
    "reassociating": "answers may differ by roundings",
    "approximate": "answers change",
}


def search_part(
    found: Optimization,
    loaded: Graph,
    *,
    alpha: float | None = None,
    budget: int | None = None,
    answers: str | None = None,
) -> dict[str, Any]:
    """What a search did: `points` has the cost of the first graph and of each behind it, in `unit`, with the rule that led there,
    its place, the nodes that went and came and those beside them.

    `loaded` is the model as it was read, `answers` a sentence about the comparison of answers. `best` is the number of the cheapest
    point. `ceiling` of a point is the cost up to which graphs were followed from there, None where there is no such bound.
    """
    costs = [found.cost_before, *(step.cost_after for step in found.steps)]
    points = [
        {
            "step": number,
            "cost": cost,
            "ceiling": _ceiling(found.search, costs, number, alpha),
            **_applied(found, number),
        }
        for number, cost in enumerate(costs)
    ]
    return {
        "search": found.search,
        "cost": found.cost,
        "unit": found.unit,
        "alpha": alpha if found.search in ("relaxed", "backtracking") else None,
        "budget": budget if found.search != "none" else None,
        "cost_before": found.cost_before,
        "cost_after": found.cost_after,
        "best": min(range(len(costs)), key=lambda k: (costs[k], -k)),
        "explored": found.explored,
        "duplicates": found.duplicates,
        "seconds": found.seconds,
        "ended": found.ended,
        "points": points,
        "operators": {"before": operator_counts(loaded.nodes), "after": operator_counts(found.graph.nodes)},
        "timed": None if found.timed is None else asdict(found.timed),
        "answers": answers,
        "notes": list(found.notes),
        "refused": [{"rule": name, "reason": reason} for name, reason in found.refused],
    }


def operator_counts(nodes: Iterable[Node]) -> dict[str, int]:
    """How often each operator stands there, the most frequent first."""
    return dict(Counter(f"{node.domain}.{node.op}" if node.domain else node.op for node in nodes).most_common())


def _ceiling(search: str, costs: list[float], number: int, alpha: float | None) -> float | None:
    if search == "relaxed" and alpha is not None:
        return alpha * min(costs[: number + 1])
    if search == "backtracking" and alpha is not None:
        return alpha * costs[number]
    return None


def _applied(found: Optimization, number: int) -> dict[str, Any]:
    """The substitution that led to a point; nothing of one for the first."""
    if number == 0:
        return {"rule": None, "reason": "the graph the search began with", "where": [], "change": None}
    step = found.steps[number - 1]
    return {
        "rule": step.rule,
        "reason": _reason(step.rule),
        "where": list(step.where),
        "change": None if step.change is None else _change(step.change),
    }


def _reason(name: str) -> str:
    rule = rule_named(name)
    if rule is None:
        return "a rule from a file"
    law = "a known composition" if rule.law == "recognising" else f"the {rule.law} law"
    published = f"; published as {rule.published}" if rule.published else ""
    return f"{law}; {_ANSWERS.get(rule.numeric, rule.numeric)}{published}"


def _change(change: GraphChange) -> dict[str, Any]:
    return {
        "removed": [_node(node) for node in change.removed],
        "added": [_node(node) for node in change.added],
        "before": [_node(node) for node in change.before],
        "after": [_node(node) for node in change.after],
        "types": dict(change.types),
        "constants": dict(change.constants),
    }


def _node(node: Node) -> dict[str, Any]:
    return {
        "name": node.label,
        "op": node.op,
        "domain": node.domain,
        "inputs": list(node.reads),
        "outputs": list(node.writes),
        "attributes": {name: str(value) for name, value in node.attributes},
    }
