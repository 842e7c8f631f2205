"""`fusewise plan --sweep`: many plans into one file of JSON lines, and a table of what came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import typer

from fusewise.errors import NoFeasiblePlan, UsageError
from fusewise.words import MIB

__all__ = ["run_file"]


def run_file(file: Path, model: str | None, outputs: Sequence[Path], workers: int, executor: str, json: bool) -> None:
    """Run a sweep file; its results are appended to the one output, and nothing already there is done again.

    Where no task has a plan the program ends with the status that all failed with, or, where they differ, that of no plan.
    """
    from fusewise.cli.show import print_json, progress
    from fusewise.sweep import executors_named, run_sweep, tasks_from

    if model is not None:
        raise UsageError(f"the sweep file says which models to plan; leave out {model}")
    if len(outputs) != 1 or outputs[0].suffix != ".jsonl":
        raise UsageError("a sweep needs one output: -o results.jsonl")
    executors = executors_named(executor, workers)
    tasks = tasks_from(file)
    with progress() as report:
        rows = run_sweep(tasks, outputs[0], executors, progress=report)
    if json:
        print_json(rows)
    else:
        _show(rows)
    if not any("summary" in row for row in rows):
        statuses = {row["status"] for row in rows}
        raise typer.Exit(statuses.pop() if len(statuses) == 1 else NoFeasiblePlan.exit_status)


def _show(rows: Sequence[Mapping[str, Any]]) -> None:
    """One line for all seeds of a setting."""
    from fusewise.cli.show import sentence, table

    grouped: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        task = row["task"]
        names = (
            task["model"],
            task["scheme"],
            task["buffer"] or task["hardware"],
            task["search"],
            task["explainer"] or "-",
            _options(task),
        )
        grouped.setdefault(names, []).append(row)
    lines = []
    for setting, found in grouped.items():
        figures = [row["summary"] for row in found if "summary" in row]
        traffic = [one["dram_bytes"] / MIB for one in figures]
        spread = f" +- {stdev(traffic):.3f}" if len(traffic) > 1 else ""
        rates = [one["rectify_rate"] for one in figures if one["rectify_rate"] is not None]
        firsts = [one["rectify_rate_once"] for one in figures if one["rectify_rate_once"] is not None]
        lines.append(
            (
                *setting,
                f"{mean(traffic):.3f}{spread}" if traffic else "none",
                f"{mean(rates):.1%}" if rates else "",
                f"{mean(firsts):.1%}" if firsts else "",
                f"{mean(one['search_s'] for one in figures):.2f}" if figures else "",
            )
        )
    headings = (
        "model",
        "scheme",
        "buffer",
        "search",
        "explainer",
        "options",
        "DRAM, MiB",
        "rectified",
        "at once",
        "search, s",
    )
    table(headings, lines, words=range(6), ranks=(0, 5, 1, 3, 6, 9, 2, 4, 7, 8))
    failed = Counter((row["task"]["model"], row["error"]) for row in rows if "error" in row)
    for (model, error), number in failed.items():
        sentence(f"no plan of {model}, {number} time{'' if number == 1 else 's'}: {error}")


def _options(task: Mapping[str, Any]) -> str:
    """What else tells two settings apart: when the explainer is asked, and the edits of a local search."""
    asked = [f"asked {task['asking']}"] if task["explainer"] else []
    edits = [f"edits: {task['edits']}"] if task["edits"] else []
    return ", ".join([*asked, *edits]) or "-"
