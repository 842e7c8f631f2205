"""Splitting by explanation: the recursive, greedy algorithm of Mills et al., "Applying Graph Explanation to Operator Fusion".

The edges that an explanation blames are turned into legal splits (`accel.split.cut`), and these fall into three categories: both
halves fit, one does, or none. Of the first the cheapest is taken at once; of the second the one with the most operators in the
half that fits, and the other half is split on; if there are only those of the third, every one is followed and the cheapest
result kept. To follow every one at every level would take exponential time, so below the root only the cheapest split is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fusewise.accel.explain.candidates import DEFAULT_SHARE, Share, candidates
from fusewise.accel.explain.explainer import Edge, Explainer
from fusewise.accel.problem import Costs
from fusewise.accel.split.cut import Cutter, Split
from fusewise.accel.split.random import split_at_random
from fusewise.accel.split.splitter import Splitting, Step

__all__ = ["RecursiveSplitter"]


class _Tree(NamedTuple):
    """What became of a group: parts that fit, whether explanations sufficed, the splits."""

    parts: tuple[int, ...]
    rectified: bool
    steps: tuple[Step, ...]


_Edges = Callable[[int], tuple[Edge, ...]]


class RecursiveSplitter:
    """A `Splitter` with its memory: groups, once split, are not split again.

    `explain` and `share` give the candidate edges. With `again` every part that still does not fit is explained anew, and
    then any explanation at all succeeds; without it the first explanation must do for all levels, which is what makes the
    rectify rate a measure. Where no candidate edge is left in a part, it is split at random (`seed`) and the group does not
    count as rectified.
    """

    __slots__ = ("_known", "_splits", "again", "costs", "explain", "seed", "share")

    def __init__(
        self, costs: Costs, explain: Explainer, share: Share = DEFAULT_SHARE, *, seed: int = 0, again: bool = False
    ) -> None:
        self.costs, self.explain, self.share, self.seed, self.again = costs, explain, share, seed, again
        self._splits: dict[tuple[int, Edge], Split] = {}
        self._known: dict[int, _Tree] = {}

    def __call__(self, groups: Sequence[int]) -> tuple[Splitting, ...]:
        """Split groups that do not fit, connected and convex; all are explained in one batch."""
        network = self.costs.problem.network
        found = []
        for explanation in self.explain(self.costs, groups) if groups else ():
            edges = candidates(network, explanation, self.share)
            tree = self._from_root(explanation.group, edges)
            found.append(Splitting(explanation.group, tree.parts, tree.rectified, edges, tree.steps))
        return tuple(found)

    def _from_root(self, group: int, edges: tuple[Edge, ...]) -> _Tree:
        """The whole algorithm for one group: at its root every split of the third category is followed."""

        def remaining(part: int) -> tuple[Edge, ...]:
            return tuple(edge for edge in edges if part >> edge[0] & 1 and part >> edge[1] & 1)

        def anew(part: int) -> tuple[Edge, ...]:
            (explanation,) = self.explain(self.costs, (part,))
            return candidates(self.costs.problem.network, explanation, self.share)

        edges_of, known = (anew, self._known) if self.again else (remaining, {})
        steps = self._steps(group, edges)
        if not steps or min(step.category for step in steps) < 3:
            return self._down(group, steps, edges_of, known)
        trees = []
        for step in steps:
            halves = [self._solved(half, edges_of, known) for half in (step.before, step.after)]
            parts = tuple(part for half in halves for part in half.parts)
            done = tuple(below for half in halves for below in half.steps)
            trees.append(_Tree(parts, all(half.rectified for half in halves), (step, *done)))
        return min(trees, key=lambda tree: (not tree.rectified, self.costs.total(tree.parts), tree.parts))

    def _solved(self, group: int, edges_of: _Edges, known: dict[int, _Tree]) -> _Tree:
        """What becomes of a group below the root."""
        if self.costs.fits(group):
            return _Tree((group,), True, ())
        tree = known.get(group)
        if tree is None:
            tree = known[group] = self._down(group, self._steps(group, edges_of(group)), edges_of, known)
        return tree

    def _down(self, group: int, steps: list[Step], edges_of: _Edges, known: dict[int, _Tree]) -> _Tree:
        """Follow one split a level, the best one. A loop, because the tree may be as deep as the group is large."""
        parts: list[int] = []
        done: list[Step] = []
        rectified = True
        waiting: list[tuple[int, list[Step] | None]] = [(group, steps)]
        while waiting:
            part, options = waiting.pop()
            if options is None:
                if self.costs.fits(part):
                    parts.append(part)
                    continue
                if (tree := known.get(part)) is not None:
                    parts += tree.parts
                    done += tree.steps
                    rectified &= tree.rectified
                    continue
                options = self._steps(part, edges_of(part))
            if options:
                best = min(options, key=self._rank)
                done.append(best)
                waiting += [(best.after, None), (best.before, None)]
            else:
                pieces, cuts = split_at_random(self.costs, part, self.seed)
                parts += pieces
                done += cuts
                rectified = False
        return _Tree(tuple(parts), rectified, tuple(done))

    def _steps(self, group: int, edges: Sequence[Edge]) -> list[Step]:
        """The different splits that the edges give, with their categories. What an edge gives is computed once."""
        fits, splits = self.costs.fits, self._splits
        cutter: Cutter | None = None
        found: dict[Split, Step] = {}
        for edge in edges:
            split = splits.get((group, edge))
            if split is None:
                cutter = cutter or Cutter(self.costs.problem.network, group)
                split = splits[group, edge] = cutter.cut(edge)
            if split not in found:
                found[split] = Step(group, *split, edge, 3 - fits(split.before) - fits(split.after))
        return list(found.values())

    def _rank(self, step: Step) -> tuple[int, float, int]:
        """Least is best: by category, then by what the category looks at, then by the first half, so that ties are settled."""
        if step.category == 2:
            held = step.before if self.costs.fits(step.before) else step.after
            return 2, -held.bit_count(), step.before
        return step.category, self.costs.cost(step.before) + self.costs.cost(step.after), step.before
