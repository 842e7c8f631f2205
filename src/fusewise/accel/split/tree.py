"""The splits of a group as the tree they form, flattened: each part with its depth, a split part before its halves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fusewise.accel.bits import components
from fusewise.accel.network import Network
from fusewise.accel.split.splitter import SplitStep, Splitting

__all__ = ["SplitPart", "kept", "parts_of"]


class SplitPart(NamedTuple):
    """`group` at `depth` below the group that did not fit; `step` is its own split, None for a part that stays whole."""

    depth: int
    group: int
    step: SplitStep | None


def parts_of(network: Network, splitting: Splitting) -> Iterator[SplitPart]:
    """The tree from its root, halves in the order they run."""
    steps = {step.group: step for step in splitting.steps}
    waiting = [(0, splitting.group)]
    while waiting:
        depth, group = waiting.pop()
        step = steps.get(group)
        yield SplitPart(depth, group, step)
        if step is not None:
            halves = (half for side in (step.before, step.after) for half in components(network.neighbours, side))
            waiting += [(depth + 1, half) for half in reversed([*halves])]


def kept(splittings: Iterable[Splitting], groups: Sequence[int]) -> tuple[Splitting, ...]:
    """The splittings whose parts all stand in a plan of these groups, in the plan's order; not those inside another."""
    plan = set(groups)
    whole = [splitting for splitting in splittings if plan.issuperset(splitting.parts)]
    outer = [one for one in whole if not any(one.group != other.group == one.group | other.group for other in whole)]
    return tuple(sorted(outer, key=lambda one: min(map(groups.index, one.parts))))
