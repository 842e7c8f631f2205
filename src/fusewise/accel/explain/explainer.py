"""What an explanation is: which edges inside a group are to blame that it does not fit; and what an explainer is.

Graph neural networks and plain rules of thumb give the same thing, so the splitting
of groups (`accel.split`) and the figures need not know which it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network
from fusewise.accel.problem import GroupCosts

__all__ = ["Edge", "Explainer", "Explanation", "edges_inside", "one_by_one"]

Edge = tuple[int, int]
"""Producer and consumer, as operators of the network."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A score for edges inside a group: the higher, the more the edge is to blame. Edges that are left out are never blamed.

    `nodes` are operators, as bits, that the explainer blames as a whole: every edge between two of them is a candidate,
    whatever its score (RG-Explainer grows such a set; 0 for others).
    """

    group: int
    scores: tuple[tuple[Edge, float], ...]
    nodes: int = 0

    def ranked(self) -> tuple[Edge, ...]:
        """The edges, the most to blame first; equal scores in topological order."""
        return tuple(edge for edge, _ in sorted(self.scores, key=lambda entry: (-entry[1], entry[0])))


Explainer = Callable[[GroupCosts, Sequence[int]], Sequence[Explanation]]
"""Explains many groups at once, in order: `costs` knows network, scheme, buffer and what groups need; groups are operators as bits.

An explanation depends on its own group only, never on the batch it came in, so that results do not depend on how a search
gathers its groups. A single group is a batch of one.
"""


def edges_inside(network: Network, group: int) -> tuple[Edge, ...]:
    """The edges whose two ends are in the group, ascending."""
    return tuple((u, v) for u in bits_of(group) for v in bits_of(network.successors[u] & group))


def one_by_one(explain: Callable[[GroupCosts, int], Explanation]) -> Explainer:
    """An explainer from a function of one group."""

    def explain_all(costs: GroupCosts, groups: Sequence[int]) -> tuple[Explanation, ...]:
        return tuple(explain(costs, group) for group in groups)

    return explain_all
