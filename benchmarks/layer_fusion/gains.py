"""What an explainer gains over the best control, with a confidence interval.

Controls know nothing of the classifier: splits at random, random edges, the edges with the smallest tensors. The best of them, by
its mean over seeds, is the one to beat, which favours the controls a little. Differences are taken seed by seed, after as many
plans as the explainer had; intervals are Student's, 95 per cent, over seeds in a column and over columns together.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.layer_fusion.printed import NAMES
from benchmarks.layer_fusion.text import grouped, markdown

__all__ = ["CONTROLS", "Gain", "gain", "gains_table", "interval"]

CONTROLS = ("none", "random", "smallest")


class Gain(NamedTuple):
    """Less traffic, as a share of the control's; `half` is half the width of the interval, None of a single value."""

    mean: float
    half: float | None

    @property
    def verdict(self) -> str:
        """`better` or `worse` where the interval says so."""
        if self.half is None or abs(self.mean) <= self.half:
            return "level"
        return "better" if self.mean > 0 else "worse"

    def __str__(self) -> str:
        if self.half is None:
            return f"{100 * self.mean:+.1f} %"
        if self.half == 0 == self.mean:
            return "0"
        bold = "**" if self.verdict != "level" else ""
        return f"{bold}{100 * self.mean:+.1f} ± {100 * self.half:.1f} %{bold}"


def interval(values: Sequence[float]) -> Gain:
    """Mean and half the width of its 95 per cent interval."""
    from scipy.stats import t

    if len(values) < 2:
        return Gain(values[0], None)
    error = statistics.stdev(values) / len(values) ** 0.5
    return Gain(statistics.mean(values), float(t.ppf(0.975, len(values) - 1)) * error)


def after(row: dict[str, Any], plans: int) -> float:
    """MB of the best plan of the first so many; a search goes the same way whatever its budget."""
    return min(cost for at, cost in row["history"] if at <= plans)


def gain(runs: Sequence[dict[str, Any]], controls: Sequence[Sequence[dict[str, Any]]]) -> Gain:
    """Of the runs of an explainer over those of the best control with the same seeds, after as many plans."""
    plans = min(run["cell"].column.plans for run in runs)
    known = [{run["cell"].seed: after(run, plans) for run in control} for control in controls]
    best = min(known, key=lambda by_seed: statistics.mean(by_seed.values()))
    least = statistics.mean(best.values())
    pairs = [(best[run["cell"].seed], after(run, plans)) for run in runs if run["cell"].seed in best]
    return interval([(control - own) / least for control, own in pairs])


def gains_table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each column and search, and one for each search over all its columns."""
    explainers = list(dict.fromkeys(row["cell"].explainer for row in rows if row["cell"].explainer not in CONTROLS))
    lines: list[list[object]] = []
    together: dict[tuple[str, str], list[float]] = {}
    for (column, search), block in grouped(rows, lambda row: (row["cell"].column[:3], row["cell"].search)):
        by = dict(grouped(block, lambda row: row["cell"].explainer))
        controls = {name: by[name] for name in CONTROLS if name in by}
        if not controls:
            continue
        best = min(controls, key=lambda name: statistics.mean(run["dram_mb"] for run in controls[name]))
        found = {name: gain(by[name], list(controls.values())) for name in explainers if name in by}
        for name, one in found.items():
            together.setdefault((search, name), []).append(one.mean)
        cells = [found.get(name, "") for name in explainers]
        lines.append([NAMES[column[0]], *column[1:], search, best, *cells])
    for (search,), names in grouped(together, lambda key: (key[0],)):
        pooled = {name: interval(together[search, name]) for _, name in names}
        lines.append(["all columns", "", "", search, "", *(pooled.get(name, "") for name in explainers)])
    return markdown(("network", "scheme", "KiB", "search", "best control", *explainers), lines)
