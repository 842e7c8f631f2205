"""Splitting by explanation: Algorithm 1 of Mills et al., "Applying Graph Explanation to Operator Fusion".

The edges that an explanation blames are turned into legal splits (`accel.split.cut`), and one or all of these are followed until
everything fits (`accel.split.branches`). Every part that does not fit is explained `anew`, as published. As an option a group is
explained `once`, and its edges must do for all levels.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewise.accel.explain.candidates import DEFAULT_SHARE, EdgeShare, candidates
from fusewise.accel.explain.explainer import Edge, Explainer
from fusewise.accel.problem import GroupCosts
from fusewise.accel.split.bounds import GroupBounds
from fusewise.accel.split.branches import Branches, Cuts
from fusewise.accel.split.splitter import Splitting
from fusewise.errors import UsageError
from fusewise.words import nearest

__all__ = ["ASKING", "RecursiveSplitter", "require_asking"]

ASKING = ("anew", "once")
"""When the explainer is asked: about every part that does not fit, or about the whole group alone."""


def require_asking(asking: str) -> None:
    """`UsageError`, with the nearest word, for another than those in `ASKING`."""
    if asking not in ASKING:
        raise UsageError(f"an explainer is asked anew or once, not {asking!r}; {nearest(asking, ASKING)}")


class RecursiveSplitter:
    """A `Splitter` with its memory: groups, once split, are not split again.

    `explain` and `share` give the candidate edges, `asking` says when. A part without any is split at random (`seed`), and the
    group does not count as rectified. `UsageError` for an `asking` that is not in `ASKING`.
    """

    __slots__ = ("_anew", "asking", "costs", "explain", "share")

    def __init__(
        self,
        costs: GroupCosts,
        explain: Explainer,
        share: EdgeShare = DEFAULT_SHARE,
        *,
        seed: int = 0,
        asking: str = "anew",
    ) -> None:
        require_asking(asking)
        self.costs, self.explain, self.share, self.asking = costs, explain, share, asking
        self._anew = Branches(Cuts(costs), GroupBounds(costs), seed)

    def __call__(self, groups: Sequence[int]) -> tuple[Splitting, ...]:
        """Split groups that do not fit, connected and convex; what is explained at the same time is explained in one batch."""
        if self.asking == "anew":
            self._grow_anew(groups)
        else:
            self._ask(groups)
        return tuple(map(self._splitting, groups))

    def _splitting(self, group: int) -> Splitting:
        edges = self._anew.edges.get(group, ())  # a group that fits was not explained
        once = self._grown_once(group, edges)
        tree = self._anew if self.asking == "anew" else once
        parts, steps = tree.told(group)
        return Splitting(group, parts, tree.rectified(group), once.rectified(group), edges, steps)

    def _grow_anew(self, groups: Sequence[int]) -> None:
        """Every group by its own tree, all of them in step."""
        growing = [self._anew.grown(group) for group in groups]
        while wanted := dict.fromkeys(part for one in growing if (part := next(one, None)) is not None):
            self._ask(list(wanted))

    def _ask(self, groups: Sequence[int]) -> None:
        """Have groups explained."""
        for explanation in self.explain(self.costs, groups) if groups else ():
            found = candidates(self.costs.problem.network, explanation, self.share)
            self._anew.edges[explanation.group] = found

    def _grown_once(self, group: int, edges: Sequence[Edge]) -> Branches:
        """The tree of a group from these edges alone: a part is given those of them that it holds."""
        anew = self._anew
        found = Branches(anew.cuts, anew.bounds, anew.seed)
        for part in found.grown(group):
            found.edges[part] = tuple(edge for edge in edges if part >> edge[0] & 1 and part >> edge[1] & 1)
        return found
