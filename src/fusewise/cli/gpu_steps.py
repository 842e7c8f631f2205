"""The steps of a program for a GPU as a table, and what they amount to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fusewise.words import KIB, size_text, unit_for

__all__ = ["show_gpu"]


def show_gpu(found: Mapping[str, Any]) -> None:
    """What `inspect --device` found."""
    from fusewise.cli.show import facts

    device, totals = found["device"], found["totals"]
    _steps(found["steps"], f"{found['model']} for {device['architecture']} ({device['product']}), {found['precision']}")
    host = [node for row in found["steps"] for node in row.get("host", ())]
    limits = ", ".join(f"{count} by {limit}" for limit, count in totals["limits"].items())
    facts(
        [
            ("launches", f"{totals['launches']} of {totals['kernels']} kernels, in {_graphs(totals)}"),
            ("edges", f"{totals['edges']} between steps"),
            ("host steps", str(totals["host_steps"])),
            *(("  on the host", f"{node['op']} {node['node']}: {node['reason']}") for node in host),
            (
                "memory",
                f"{size_text(totals['arena_bytes'])} of results, {size_text(totals['constant_bytes'])} of weights",
            ),
            *([("spilling", f"{totals['spilling']} launches use a thread's stack")] if totals["spilling"] else []),
            *([("limited", limits)] if limits else []),
            ("estimate", _estimate(totals, device)),
            *_refusals(found["steps"]),
        ]
    )


def _refusals(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Why families did not accept steps, those of one reason together."""
    steps: dict[str, list[str]] = {}
    for row in rows:
        for reason in row.get("refused", ()):
            steps.setdefault(reason, []).append(str(row["step"]))
    return [
        (f"not by {reason.partition(': ')[0]}", f"{reason.partition(': ')[2]}: {', '.join(them)}")
        for reason, them in steps.items()
    ]


def _graphs(totals: Mapping[str, Any]) -> str:
    return "1 graph" if totals["graphs"] == 1 else f"{totals['graphs']} graphs"


def _estimate(totals: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    """The roofline's time, and what it is made of."""
    left_out = "; host steps and copies are not in it" if totals["host_steps"] else "; copies are not in it"
    spent = totals["launches"] * device["launch_us"]
    return (
        f"{totals['estimate_us'] / 1e3:.3f} ms one launch after the other, of which launches {spent / 1e3:.3f}"
        f"{left_out}; not measured"
    )


_Column = tuple[str, int, Callable[[Mapping[str, Any]], str]]
"""Heading, rank (the highest go first where there is no room) and text of a launch."""

_BEFORE: tuple[_Column, ...] = (
    ("step", 0, lambda row: str(row["step"])),
    ("operators", 1, lambda row: row["label"]),
    ("family", 4, lambda row: row["family"]),
    ("way", 15, lambda row: row["way"]),
    ("grid", 9, lambda row: " x ".join(map(str, row["grid"]))),
    ("warps", 10, lambda row: str(row["warps"])),
    ("stages", 18, lambda row: str(row["stages"])),
    ("regs", 5, lambda row: str(row["registers"])),
    ("shared\nKiB", 6, lambda row: f"{row['shared_bytes'] / KIB:.1f}"),
    ("stack\nB", 14, lambda row: str(row["stack_bytes"] or "")),
    ("tensor\ninstr.", 11, lambda row: str(row["tensor_instructions"])),
    ("blocks\nper SM", 16, lambda row: str(row["blocks_per_sm"])),
    ("occup.", 7, lambda row: f"{row['occupancy']:.0%}"),
    ("by", 17, lambda row: row["occupancy_limit"]),
    ("waves", 8, lambda row: f"{row['waves']:.2f}"),
)
_BEHIND: tuple[_Column, ...] = (
    ("est.\nus", 2, lambda row: f"{row['estimate_us']:.1f}"),
    ("limit", 3, lambda row: row["limit"]),
)
_TEXTS = (1, 2, 3, 4, 13, 18)


def _columns(rows: Sequence[Mapping[str, Any]]) -> tuple[_Column, ...]:
    """All columns; bytes and operations are in units that fit the largest."""
    unit, factor = unit_for(max((row.get("bytes", 0) for row in rows), default=0))
    some = max((row.get("operations", 0) for row in rows), default=0)
    scaled, many = ("kFLOP", 1e3) if some < 1e6 else ("MFLOP", 1e6)
    return (
        *_BEFORE,
        (unit, 12, lambda row: f"{row['bytes'] / factor:.2f}"),
        (scaled, 13, lambda row: f"{row['operations'] / many:.1f}"),
        *_BEHIND,
    )


def _steps(rows: Sequence[Mapping[str, Any]], title: str) -> None:
    from fusewise.cli.show import table

    columns = _columns(rows)
    cells = [
        _host_cells(row, len(columns)) if "host" in row else tuple(text(row) for _, _, text in columns) for row in rows
    ]
    headings, ranks, _ = zip(*columns, strict=True)
    table(headings, cells, title, words=_TEXTS, ranks=ranks)


def _host_cells(row: Mapping[str, Any], columns: int) -> tuple[str, ...]:
    operators = " + ".join(node["op"] for node in row["host"])
    return (str(row["step"]), operators, "host", *[""] * (columns - 3))
