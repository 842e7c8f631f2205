"""The tree of splits below groups that do not fit, grown from the edges that each part is given: the recursion of Algorithm 1.

A part is split once, wherever it turns up. Of its splits the best category counts. Of the first category the cheapest is taken,
of the second the one with the most operators in the half that fits; of the third every one is followed, the one with the least
bound (`accel.split.bounds`) first, and those whose bound is no less than the best result not at all, which changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fusewise.accel.explain.explainer import Edge
from fusewise.accel.problem import GroupCosts
from fusewise.accel.split.bounds import GroupBounds
from fusewise.accel.split.cut import Cutter, GroupSplit
from fusewise.accel.split.random import split_at_random
from fusewise.accel.split.splitter import SplitStep

__all__ = ["Branches", "Cuts"]


class Cuts:
    """The splits that edges of a group give, each computed once."""

    __slots__ = ("_known", "costs")

    def __init__(self, costs: GroupCosts) -> None:
        self.costs = costs
        self._known: dict[tuple[int, Edge], GroupSplit] = {}

    def steps(self, group: int, edges: tuple[Edge, ...]) -> list[SplitStep]:
        """The different splits, with their categories."""
        fits, known = self.costs.fits, self._known
        cutter: Cutter | None = None
        found: dict[GroupSplit, SplitStep] = {}
        for edge in edges:
            split = known.get((group, edge))
            if split is None:
                cutter = cutter or Cutter(self.costs.problem.network, group)
                split = known[group, edge] = cutter.cut(edge)
            if split not in found:
                found[split] = SplitStep(group, *split, edge, 3 - fits(split.before) - fits(split.after))
        return list(found.values())


class _Result(NamedTuple):
    """What became of a part: what its parts cost together, whether edges sufficed, and the split that was followed; without one,
    the parts themselves, and the cuts at random that led to them."""

    cost: float
    rectified: bool
    step: SplitStep | None = None
    parts: tuple[int, ...] = ()
    cuts: tuple[SplitStep, ...] = ()


class Branches:
    """`edges` are those of each part, to be filled in when `grown` asks for them."""

    __slots__ = ("_results", "_steps", "bounds", "costs", "cuts", "edges", "seed")

    def __init__(self, cuts: Cuts, bounds: GroupBounds, seed: int) -> None:
        self.costs, self.cuts, self.bounds, self.seed = cuts.costs, cuts, bounds, seed
        self.edges: dict[int, tuple[Edge, ...]] = {}
        self._results: dict[int, _Result] = {}
        self._steps: dict[int, list[SplitStep]] = {}

    def grown(self, root: int) -> Iterator[int]:
        """Grow the tree below a group; gives the parts whose edges it must be told before it goes on.

        A stack, because the tree may be as deep as the group is large.
        """
        waiting = [root]
        while waiting:
            part = waiting[-1]
            if part not in self._results and self.costs.fits(part):
                self._results[part] = _Result(self.costs.cost(part), True, parts=(part,))
            if part not in self._results:
                if part not in self.edges:
                    yield part
                below = self._open(part)
                if below is not None:
                    waiting.append(below)
                    continue
            waiting.pop()

    def rectified(self, group: int) -> bool:
        """Did edges alone turn a group whose tree is grown into groups that fit?"""
        return self._results[group].rectified

    def told(self, group: int) -> tuple[tuple[int, ...], tuple[SplitStep, ...]]:
        """The parts of a group whose tree is grown, each reading only from those before it, and the splits from the root."""
        parts: list[int] = []
        steps: list[SplitStep] = []
        waiting = [group]
        while waiting:
            result = self._results[waiting.pop()]
            if result.step is None:
                parts += result.parts
                steps += result.cuts
            else:
                steps.append(result.step)
                waiting += [result.step.after, result.step.before]
        return tuple(parts), tuple(steps)

    def _open(self, part: int) -> int | None:
        """The half that must be known before the part can be decided; None once it is."""
        results, best = self._results, None
        for step in self._followed(part):
            if best is not None and best.rectified and self._least(step.before) + self._least(step.after) >= best.cost:
                continue
            before, after = results.get(step.before), results.get(step.after)
            if before is None:
                return step.before
            if after is None:
                return step.after
            one = _Result(before.cost + after.cost, before.rectified and after.rectified, step)
            if best is None or (not one.rectified, one.cost) < (not best.rectified, best.cost):
                best = one
        if best is None:
            pieces, cuts = split_at_random(self.costs, part, self.seed)
            best = _Result(self.costs.total(pieces), False, None, pieces, cuts)
        results[part] = best
        return None

    def _followed(self, part: int) -> list[SplitStep]:
        """The splits that Algorithm 1 follows: the best of the first two categories, or all of the third."""
        known = self._steps.get(part)
        if known is None:
            known = self.cuts.steps(part, self.edges[part])
            if any(step.category < 3 for step in known):
                known = [min(known, key=self._rank)]
            else:
                known.sort(key=lambda step: (self.bounds(step.before) + self.bounds(step.after), step.before))
            self._steps[part] = known
        return known

    def _rank(self, step: SplitStep) -> tuple[int, float, int]:
        """Least is best: by category, then by what the category looks at, then by the first half, so that ties are settled."""
        if step.category == 2:
            held = step.before if self.costs.fits(step.before) else step.after
            return 2, -held.bit_count(), step.before
        return step.category, self.costs.cost(step.before) + self.costs.cost(step.after), step.before

    def _least(self, half: int) -> float:
        """What a half costs, or where that is not known yet, its bound."""
        result = self._results.get(half)
        return self.bounds(half) if result is None else result.cost
