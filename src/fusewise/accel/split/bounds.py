"""What the parts of a group cost together at least, however it is split: by this, splits that cannot win are left out.

A group that does not fit becomes several parts. Together they move what the group as one would, everything once, and one tensor
inside it more, since the group hangs together: the cheapest, written and read again. Whether an objective keeps to that is what
the exact search asks of it, too: it does not fall when a group moves more bytes, and is not larger for two groups as one that
moves as much as both.
"""

from __future__ import annotations

from fusewise.accel.bits import bits_of
from fusewise.accel.problem import GroupCosts
from fusewise.accel.search.exact_traffic import moved_once
from fusewise.accel.split.cut import crossing_price

__all__ = ["GroupBounds"]


class GroupBounds:
    """The bounds of groups, each computed once."""

    __slots__ = ("_floor", "_known", "costs")

    def __init__(self, costs: GroupCosts) -> None:
        self.costs = costs
        self._floor = costs.empty()
        self._known: dict[int, float] = {}

    def __call__(self, group: int) -> float:
        """No more than the parts of a connected group cost; what it costs itself where it fits."""
        found = self._known.get(group)
        if found is None:
            found = self._known[group] = self.costs.cost(group) if self.costs.fits(group) else self._parted(group)
        return found

    def _parted(self, group: int) -> float:
        """The objective of one group that moves as much as the parts must."""
        problem = self.costs.problem
        network = problem.network
        inside = (
            number
            for node in bits_of(group)
            for number in network.operators[node].writes
            if network.tensors[number].consumers & group
        )
        least = min((crossing_price(network, group, number) for number in inside), default=0)
        # rounded down: a part's bytes are rounded up once, not apart for what crosses
        self._floor.dram_known[group] = moved_once(problem, group) + least * problem.scheme.bits // 8
        return self._floor.cost(group)
