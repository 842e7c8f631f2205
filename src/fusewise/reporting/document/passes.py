"""The report's part about passes: family, what each did, and what their orders are worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fusewise.benchmarking.power import NOT_HERE
from fusewise.ir.graph import Graph
from fusewise.measuring import METRICS
from fusewise.passes.published import step_named
from fusewise.passes.runner import PassRun
from fusewise.selecting import Selection

__all__ = ["experiment_part", "passes_part", "runs_of"]


def passes_part(found: Selection, graph: Graph) -> dict[str, Any]:
    """What was found about `graph`: the figures of `Selection.summary`, each run with what it did, the orders that were tried.

    `orders` are different graphs in the order in which they were priced, the default's first, costs in `search.unit`.
    """
    summary = found.summary
    return {
        **{
            key: summary[key] for key in ("family", "confidence", "nearest", "relevant", "order", "fusion", "unchanged")
        },
        "nodes": {"before": len(graph.nodes), "after": len(found.outcome.graph.nodes)},
        "runs": runs_of(found.outcome.runs),
        "total_ms": found.outcome.total_ms,
        "finding_ms": found.finding_ms,
        "metrics": _metrics(summary["metrics"]),
        "agreement": summary["agreement"],
        "search": summary["search"] or None,
        "orders": [
            {"passes": list(one.passes), "fusion": one.fusion, "cost": one.cost if one.cost < float("inf") else None}
            for one in found.orders
        ],
        "batches": [
            {"batch": int(batch), "throughput_per_s": value}
            for batch, value in summary["metrics"].get("throughput_by_batch", {}).items()
        ],
        "experiment": None,
    }


def experiment_part(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Lists of passes beside one another (`selecting.experiment`)."""
    return {
        "experiment": {
            "name": name,
            "rows": [{**row, "metrics": _metrics(row["metrics"]), "latency": _spread(row["metrics"])} for row in rows],
        }
    }


def runs_of(runs: Iterable[PassRun]) -> list[dict[str, Any]]:
    """Each run of a pass: its time, the nodes before and after, what it did by name, and why it did nothing."""
    return [
        {
            "pass": run.name,
            "what": step_named(run.name).summary,
            "ms": run.ms,
            "changed": run.changed,
            "nodes_before": run.nodes[0],
            "nodes_after": run.nodes[1],
            "did": dict(run.did),
            "why": run.why,
            "held": run.held,
        }
        for run in runs
    ]


def _spread(plain: Mapping[str, Any]) -> dict[str, float] | None:
    names = ("latency_p50_ms", "latency_p90_ms", "latency_p99_ms")
    return {name: plain[name] for name in names} if all(name in plain for name in names) else None


def _metrics(plain: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The six published metrics in their order; `value` is None where the machine tells nothing."""
    if "throughput_per_s" not in plain:
        return []
    found = []
    for metric in METRICS:
        value = plain[metric.keys[0]]
        text = metric.cell(plain)
        told = None if text == NOT_HERE or isinstance(value, str) else value
        found.append({"name": metric.name, "unit": metric.unit, "value": told, "text": text})
    return found
