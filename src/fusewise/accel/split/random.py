"""Splitting at random: the baseline that the published method starts from.

A group that does not fit is cut at a random place of its topological order, and again, until all parts fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusewise.accel.bits import bits_of, components, mask_of
from fusewise.accel.problem import GroupCosts
from fusewise.accel.split.splitter import SplitStep, Splitter, Splitting

__all__ = ["random_splitter", "split_at_random"]


def random_splitter(costs: GroupCosts, seed: int) -> Splitter:
    """Splits at places that depend on the seed and the group alone."""

    def split(groups: Sequence[int]) -> tuple[Splitting, ...]:
        found = []
        for group in groups:
            parts, steps = split_at_random(costs, group, seed)
            found.append(Splitting(group, parts, False, False, (), steps))
        return tuple(found)

    return split


def split_at_random(costs: GroupCosts, group: int, seed: int) -> tuple[tuple[int, ...], tuple[SplitStep, ...]]:
    """Parts that fit, each reading only from those before it, and the cuts made. Operators alone are taken to fit."""
    rng = np.random.default_rng([seed, group])
    neighbours = costs.problem.network.neighbours
    parts: list[int] = []
    steps: list[SplitStep] = []
    waiting = [group]
    while waiting:
        part = waiting.pop()
        if not part & (part - 1) or costs.fits(part):
            parts.append(part)
            continue
        members = list(bits_of(part))
        before = mask_of(members[: rng.integers(1, len(members))])
        after = part ^ before
        halves = [components(neighbours, before), components(neighbours, after)]
        steps.append(SplitStep(part, before, after, None, 3 - sum(all(map(costs.fits, half)) for half in halves)))
        waiting += [*reversed(halves[1]), *reversed(halves[0])]
    return tuple(parts), tuple(steps)
