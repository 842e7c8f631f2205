"""Table I and figure 3: the groups that random search meets on each network, and the share of them that fits each buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from benchmarks.layer_fusion.cells import problem_of
from benchmarks.layer_fusion.printed import BRR_WITHOUT, NAMES, SAMPLES, VALIDITY, Column
from benchmarks.layer_fusion.text import markdown

from fusewise.accel.problem import GroupCosts
from fusewise.accel.search.space import GroupingSpace

__all__ = ["BUFFERS", "Sampling", "sampled", "samples_table", "samplings", "validity_table"]

BUFFERS = (128, 256, 512, 1024, 2048)
"""KiB."""


class Sampling(NamedTuple):
    """So many random plans of a network under a scheme."""

    network: str
    scheme: str
    plans: int
    seed: int


def samplings(schemes: Sequence[str], plans: int) -> list[Sampling]:
    """The networks of table I under each scheme, without those that figure 3 leaves out."""
    return [
        Sampling(name, scheme, plans, 0)
        for scheme in schemes
        for name in NAMES
        if scheme == "lbdf" or name not in BRR_WITHOUT
    ]


def sampled(sampling: Sampling) -> dict[str, Any]:
    """Distinct groups of several operators in random plans, and the share that fits each buffer."""
    problem = problem_of(Column(sampling.network, sampling.scheme, BUFFERS[-1], sampling.plans))
    space, costs, rng = GroupingSpace(problem), GroupCosts(problem), np.random.default_rng(sampling.seed)
    plans = (space.ordered(space.random(rng)) for _ in range(sampling.plans))
    groups = {group for plan in plans for group in plan if group & (group - 1)}
    needs = [costs.buffer_bytes(group) for group in groups]
    fitting = {str(kib): sum(need < kib << 10 for need in needs) / len(needs) for kib in BUFFERS}
    return {"operators": len(problem.network), "groups": len(groups), "fitting": fitting}


def samples_table(rows: Sequence[tuple[Sampling, dict[str, Any]]]) -> str:
    """Table I."""
    lines: list[tuple[object, ...]] = [
        (NAMES[one.network], row["operators"], row["groups"], SAMPLES.get(one.network, "-")) for one, row in rows
    ]
    total = sum(row["groups"] for _, row in rows)
    lines.append(("together", "", total, sum(SAMPLES.values())))
    text = f"With {len(BUFFERS)} buffers {total * len(BUFFERS)} samples; printed: over 54 thousand, of 10.8 thousand groups."
    return f"{markdown(('network', 'operators', 'groups', 'printed'), lines)}\n\n{text}"


def validity_table(rows: Sequence[tuple[Sampling, dict[str, Any]]]) -> str:
    """Figure 3: per cent of the groups that fit."""
    lines = [
        (one.scheme, NAMES[one.network], *(f"{row['fitting'][str(kib)]:.0%}" for kib in BUFFERS)) for one, row in rows
    ]
    parts = [markdown(("scheme", "network", *(f"{kib} KiB" for kib in BUFFERS)), lines)]
    for scheme, (low, high) in VALIDITY.items():
        shares = [100 * share for one, row in rows if one.scheme == scheme for share in row["fitting"].values()]
        if shares:
            parts.append(f"{scheme}: {min(shares):.0f} to {max(shares):.0f} %; printed: {low} to {high} %.")
    return "\n\n".join(parts)
