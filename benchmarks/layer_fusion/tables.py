"""Tables II to V: DRAM traffic and the largest buffer of every search with every way to split what does not fit, rectify rates and
times; what is printed stands in brackets."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.layer_fusion.cells import Cell, budgeted
from benchmarks.layer_fusion.gains import CONTROLS, gains_table
from benchmarks.layer_fusion.printed import NAMES, RATES, TABLES
from benchmarks.layer_fusion.text import grouped, markdown

__all__ = ["shown", "table_cells"]

LABELS = {"local": "Local search", "nsga2": "NSGA-II", "random": "Random search"}


def table_cells(
    table: str, explainers: Sequence[str], seeds: int, plans: Mapping[str, int], **options: Any
) -> list[Cell]:
    """What a table needs. `plans` are budgets other than the published ones (`budgeted`); `options` are fields of `Cell`, of which
    `edits` is for local search."""
    edits = options.pop("edits", 0)
    return [
        Cell(
            budgeted(column, search, explainer, plans),
            search,
            explainer,
            seed,
            edits=edits if search == "local" else 0,
            **options,
        )
        for column in TABLES[table].columns
        for search in TABLES[table].searches
        for explainer in explainers
        for seed in range(seeds)
    ]


def shown(table: str, rows: Sequence[dict[str, Any]], optima: Mapping[tuple[str, str, int], dict[str, Any]]) -> str:
    """A table as printed, and beside it how far from the proven optimum each search ends and what explainers gain."""
    if table == "V":
        return _rates_table(rows)
    printed = TABLES[table]
    parts = [_side_by_side("MB", table, rows, lambda runs: _spread([run["dram_mb"] for run in runs]), printed.traffic)]
    if printed.buffers:
        parts.append(_side_by_side("largest buffer, KiB", table, rows, _largest, printed.buffers))
    parts.append(f"Above the proven optimum\n\n{_gaps_table(rows, optima)}")
    if any(row["cell"].explainer not in CONTROLS for row in rows):
        parts.append(f"Gain over the best control, with 95 % intervals\n\n{gains_table(rows)}")
    return "\n\n".join(parts)


def _side_by_side(
    unit: str,
    table: str,
    rows: Sequence[dict[str, Any]],
    value: Callable[[Sequence[dict[str, Any]]], str],
    printed: Mapping[tuple[str, str], Sequence[float]],
) -> str:
    """A line for each search and explainer as the paper has it: ours in each column, and in brackets what is printed."""
    published = TABLES[table].columns
    present = {row["cell"].column[:3] for row in rows}
    columns = [place for place, column in enumerate(published) if column[:3] in present]
    lines = []
    for way, block in grouped(rows, lambda row: (row["cell"].search, row["cell"].explainer)):
        found = dict(grouped(block, lambda row: row["cell"].column[:3]))
        budgets = {run["cell"].column.plans for run in block}
        other = budgets != {column.plans for column in published}
        line = [_way(*way) + (f", {' or '.join(map(str, sorted(budgets)))} plans" if other else "")]
        for place in columns:
            runs = found.get(published[place][:3])
            beside = f" ({printed[way][place]:.3f})" if way in printed else ""
            line.append("" if runs is None else f"{value(runs)}{beside}")
        lines.append(line)
    heads = [f"{NAMES[published[place].network]}, {published[place].scheme.upper()}" for place in columns]
    return markdown((f"{unit} (printed)", *heads), lines)


def _way(search: str, explainer: str) -> str:
    return LABELS[search] if explainer == "none" else f"{LABELS[search]} + {explainer}"


def _largest(runs: Sequence[dict[str, Any]]) -> str:
    return f"{statistics.mean(run['max_buffer_kib'] for run in runs):.3f}"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.3f} ± {statistics.pstdev(values):.3f}"


def _gaps_table(rows: Sequence[dict[str, Any]], optima: Mapping[tuple[str, str, int], dict[str, Any]]) -> str:
    """How far above the optimum each search ends, by the way it splits groups; mean and spread over seeds. A star is on those
    that had fewer plans than their neighbours."""
    explainers = list(dict.fromkeys(row["cell"].explainer for row in rows))
    lines = []
    for (key, search), block in grouped(rows, lambda row: (row["cell"].column[:3], row["cell"].search)):
        best = optima[key]
        least = best["bound_mb"] or best["dram_mb"]
        by = dict(grouped(block, lambda row: row["cell"].explainer))
        most = max(run["cell"].column.plans for run in block)
        gaps = [_gap(by[name], least, most) if name in by else "" for name in explainers]
        optimum = f"{best['dram_mb']:.3f}" if best["optimal"] else f"{best['dram_mb']:.3f}, at least {least:.3f}"
        lines.append([NAMES[key[0]], *key[1:], optimum, search, *gaps])
    return markdown(("network", "scheme", "KiB", "optimum MB", "search", *explainers), lines)


def _gap(runs: Sequence[dict[str, Any]], least: float, most: int) -> str:
    gaps = [run["dram_mb"] / least - 1 for run in runs]
    mean, spread = statistics.mean(gaps), statistics.pstdev(gaps)
    star = "*" if runs[0]["cell"].column.plans < most else ""
    return ("0" if mean < 5e-5 else f"{100 * mean:.1f} ± {100 * spread:.1f} %") + star


def _rates_table(rows: Sequence[dict[str, Any]]) -> str:
    """Table V: groups rectified, by explanations asked for anew at every level and by the first alone, over all seeds."""
    lines = []
    for (search, explainer), runs in grouped(rows, lambda row: (row["cell"].search, row["cell"].explainer)):
        met = sum(run["invalid"] for run in runs)
        anew, once = (sum(run[name] for run in runs) / met for name in ("rectified", "rectified_once"))
        share, printed = runs[0]["candidate_share"], RATES.get((search, explainer))
        lines.append(
            [
                _way(search, explainer),
                met,
                *(("", "") if explainer == "none" else (f"{anew:.1%}", f"{once:.1%}")),
                "" if printed is None else f"{printed[0]} %",
                "" if share is None else f"{share:.0%}",
                f"{statistics.mean(run['processor_s'] for run in runs):.2f}",
                "" if printed is None else printed[1],
            ]
        )
    heads = ("search", "groups that did not fit", "rectified, anew", "by the first explanation", "printed")
    return markdown((*heads, "edges named", "s", "printed s"), lines)
