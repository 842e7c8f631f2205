"""Groups that did not fit, each as the tree of its splits: what every part needs of the buffer, and which edge it was cut at."""

from __future__ import annotations

from collections.abc import Mapping

from fusewise.accel.bits import bits_of
from fusewise.accel.problem import GroupCosts
from fusewise.accel.schemes.scheme import UNBOUNDED
from fusewise.accel.split.splitter import Splitting
from fusewise.accel.split.tree import SplitPart, parts_of
from fusewise.reporting.curves import bar
from fusewise.reporting.plain import Markup, paragraph, table
from fusewise.words import size_text

__all__ = ["split_tree"]

_VERDICTS = {1: "both halves fit", 2: "one half fits", 3: "neither half fits"}


def split_tree(costs: GroupCosts, splitting: Splitting, number: Mapping[int, int]) -> Markup:
    """One tree; `number` gives the plan's number of a group."""
    names = [operator.name for operator in costs.problem.network.operators]
    parts = [*parts_of(costs.problem.network, splitting)]
    most = max((need for part in parts if (need := costs.buffer_bytes(part.group)) < UNBOUNDED), default=0)
    rows = [_row(costs, part, names, number, max(most, costs.problem.capacity)) for part in parts]
    return Markup(
        paragraph(_sentence(splitting, names)) + table(("part", "", "operators", "buffer", ""), rows, words=2)
    )


def _sentence(splitting: Splitting, names: list[str]) -> str:
    start = f"{splitting.group.bit_count()} operators did not fit and became {len(splitting.parts)} groups"
    if not splitting.candidates:
        return f"{start}, split at random."
    if splitting.rectified_once:
        how = "which suffice"
    elif splitting.rectified:
        how = "which do not suffice: parts were explained anew"
    else:
        how = "which do not suffice: the rest was split at random"
    edges = ", ".join(f"{names[a]} → {names[b]}" for a, b in splitting.candidates)
    return f"{start}. The explanation blames {len(splitting.candidates)} edges, {how}: {edges}."


def _row(costs: GroupCosts, part: SplitPart, names: list[str], number: Mapping[int, int], most: int) -> list[object]:
    members, need = [*bits_of(part.group)], costs.buffer_bytes(part.group)
    first, last = names[members[0]], names[members[-1]]
    named = first if len(members) == 1 else f"{first} … {last}"
    if part.step is None:
        told = f"group {number[part.group]}" if part.group in number else "runs alone"
    else:
        edge = part.step.edge
        where = "at random" if edge is None else f"at {names[edge[0]]} → {names[edge[1]]}"
        told = f"cut {where}: {_VERDICTS[part.step.category]}"
    size = "no buffer" if need >= UNBOUNDED else size_text(need)
    drawn = bar(min(need, most), most * 1.02, limit=costs.problem.capacity, title=f"{need:,} bytes")
    return [f"{' ' * 2 * part.depth}{named}", told, len(members), drawn, size]
