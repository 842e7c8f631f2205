"""The report's part about runtimes beside one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["bench_part"]


def bench_part(found: Mapping[str, Any]) -> dict[str, Any]:
    """What `bench` found as `sizes`, a row for each tuple of sizes (one without symbols where none are free), each with its
    `runtimes` as a list, the fastest first and those that cannot run the model last."""
    rows = found.get("sizes", [found])
    return {
        "threads": found["threads"],
        "precision": found["precision"],
        "sizes": [
            {
                "symbols": dict(row.get("symbols", {})),
                "best_peer": row["best_peer"],
                "ratio": row["ratio"],
                "max_rel_error": row["max_rel_error"],
                "runtimes": sorted(
                    ({"runtime": name, **each} for name, each in row["runtimes"].items()),
                    key=lambda one: one.get("p50_ms", float("inf")),
                ),
            }
            for row in rows
        ],
        "memory": found.get("memory"),
    }
