"""From any grouping to a plan: groups that wait for each other are parted, and groups that do not fit are split.

Keeps what it learned: a group is tested once and split once. How many groups did not fit, and how many of those an explanation
rectified, is counted over distinct groups.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewise.accel.problem import GroupCosts
from fusewise.accel.search.space import Grouping, GroupingSpace
from fusewise.accel.split.random import random_splitter
from fusewise.accel.split.splitter import Splitter, Splitting

__all__ = ["Repair"]


class Repair:
    """`splitter` splits what does not fit (`accel.split`); by default at random, by `seed`.

    `splittings` holds what it did, by group: the memory for splits beside those for buffer need and cost in `costs`.
    """

    __slots__ = ("_fitting", "costs", "space", "splitter", "splittings")

    def __init__(self, costs: GroupCosts, splitter: Splitter | None = None, *, seed: int = 0) -> None:
        self.costs = costs
        self.space = GroupingSpace(costs.problem)
        self.splitter = splitter or random_splitter(costs, seed)
        self.splittings: dict[int, Splitting] = {}
        self._fitting: set[int] = set()

    @property
    def invalid(self) -> int:
        """Distinct groups met that did not fit."""
        return len(self.splittings)

    @property
    def rectified(self) -> int:
        """Those of them that the edges of explanations turned into groups that fit, without chance."""
        return sum(splitting.rectified for splitting in self.splittings.values())

    @property
    def rectified_once(self) -> int:
        """Those that the edges of their first explanation would have turned into groups that fit."""
        return sum(splitting.rectified_once for splitting in self.splittings.values())

    def __call__(self, groupings: Sequence[Grouping]) -> list[tuple[int, ...]]:
        """Plans: groups in an order in which they can run, all of which fit. Groups met for the first time that do not fit
        are handed to the splitter in one batch."""
        plans = [self.space.ordered(groups) for groups in groupings]
        fitting, known, new = self._fitting, self.splittings, []
        for plan in plans:
            for group in plan:
                if group in fitting or group in known:
                    continue
                if not group & (group - 1) or self.costs.fits(group):
                    fitting.add(group)
                else:
                    new.append(group)
        new = list(dict.fromkeys(new))
        for splitting in self.splitter(new) if new else ():
            known[splitting.group] = splitting
            fitting.update(splitting.parts)
        return [
            plan if fitting.issuperset(plan) else tuple(part for group in plan for part in self._parts(group))
            for plan in plans
        ]

    def _parts(self, group: int) -> tuple[int, ...]:
        return (group,) if group in self._fitting else self.splittings[group].parts
