"""The plans of a problem as searches see them: random ones, small edits, crossings, and how any grouping becomes one.

A grouping is a list of disjoint, connected groups (operators as bits) that cover the fuseable operators. It becomes a plan when its
groups can be put in an order (`GroupingSpace.ordered`) and each fits the buffer (`accel.search.repair`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from fusewise.accel.bits import bits_of, components, mask_of, union_over
from fusewise.accel.problem import Problem

__all__ = ["Grouping", "GroupingSpace"]

Grouping = Sequence[int]


class GroupingSpace:
    """Groupings of one problem. It remembers what each group reads, so that ordering the hundredth child of a plan is cheap."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._needs: dict[int, int] = {}
        self._pieces: dict[int, tuple[int, ...]] = {}
        self._near, self._far = _readers(problem)

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The edges between fuseable operators, ascending: the places where a grouping may be cut."""
        fuseable = self.problem.fuseable
        return tuple((u, v) for u, v in self.problem.network.edges if fuseable >> u & 1 and fuseable >> v & 1)

    def ordered(self, groups: Grouping) -> tuple[int, ...]:
        """The groups so that each reads only from those before it and from excluded operators.

        Where groups wait for each other in a circle, the one with the first operator that waits is split: what can run now
        becomes a group, the rest waits on. A grouping without circles keeps its groups.
        """
        needs, pieces = self._needs, self._pieces
        waiting: list[int] = []
        for group in groups:
            if group in needs:
                waiting.append(group)
            else:
                waiting += pieces.get(group) or self._runnable(group)
        waiting.sort()
        order: list[int] = []
        done = 0
        while waiting:
            later = []
            for part in waiting:
                if needs[part] & ~done:
                    later.append(part)
                else:
                    done |= part
                    order.append(part)
            if len(later) == len(waiting):
                stuck = min(later, key=lambda part: part & -part)
                later.remove(stuck)
                now, rest = self._divided(stuck, done)
                order += now
                done |= sum(now)
                later = sorted([*later, *(piece for part in rest for piece in self._runnable(part))])
            waiting = later
        return tuple(order)

    def _runnable(self, group: int) -> tuple[int, ...]:
        """The group, or where paths leave it and come back, the parts it must run in; notes what they need to have run
        before."""
        network, waiting, parts = self.problem.network, [group], []
        while waiting:
            part = waiting.pop()
            after = union_over(network.descendants, part) & ~part
            if after & union_over(network.ancestors, part):
                now, rest = self._divided(part, ~(part | after))
                waiting += [*now, *rest]
            else:
                self._needs[part] = union_over(self._near, part) & ~part | union_over(self._far, part)
                parts.append(part)
        found = self._pieces[group] = tuple(parts)
        return found

    def _divided(self, group: int, done: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What of a group can run when `done` has run, and what must wait; the connected parts of either."""
        near, far, now = self._near, self._far, 0
        for node in bits_of(group):
            if not (near[node] & ~(done | now) or far[node] & ~done):
                now |= 1 << node
        neighbours = self.problem.network.neighbours
        return components(neighbours, now), components(neighbours, group & ~now)

    def random(self, rng: np.random.Generator) -> list[int]:
        """Cut the topological order at each place with a probability that is itself drawn from 0.05 .. 0.6."""
        cut = (rng.random(len(self.problem.network)) < rng.uniform(0.05, 0.6)).tolist()
        fuseable, neighbours = self.problem.fuseable, self.problem.network.neighbours
        groups: list[int] = []
        open_groups: list[int] = []
        for node, around in enumerate(neighbours):
            if cut[node]:
                groups += open_groups
                open_groups = []
            if fuseable >> node & 1:
                joined, apart = 1 << node, []
                for group in open_groups:
                    if group & around:
                        joined |= group
                    else:
                        apart.append(group)
                open_groups = [*apart, joined]
        return groups + open_groups

    def edited(self, groups: Grouping, rng: np.random.Generator) -> list[int]:
        """One random edit: split a group, or take the two groups of a random cut edge and merge them, divide their operators
        between them anew, or move one end of the edge over. Splits are made at a place of the topological order."""
        kind = rng.random()
        cut = None if kind < _SPLIT else self._cut_edge(groups, rng)
        if cut is None:
            whole = groups[int(rng.integers(len(groups)))]
            return [*(group for group in groups if group != whole), *self._halves(whole, rng)]
        u, v, a, b = cut
        rest = [group for group in groups if group not in (a, b)]
        if kind < _MERGE:
            return [*rest, a | b]
        if kind < _DIVIDE:
            return [*rest, *self._halves(a | b, rng)]
        node = 1 << (u, v)[rng.integers(2)]
        left, right = (a & ~node, b | node) if a & node else (a | node, b & ~node)
        neighbours = self.problem.network.neighbours
        return [*rest, *components(neighbours, left), *components(neighbours, right)]

    def keys(self, groups: Grouping) -> np.ndarray:
        """A grouping as a bool per edge: is it cut? (E,)"""
        owner = self._owners(groups)
        return np.array([owner[u] != owner[v] for u, v in self.edges], dtype=bool)

    def grouping(self, cut: np.ndarray) -> list[int]:
        """The groups that hang together by the edges that are not cut, (E,) bool."""
        leader = list(range(len(self.problem.network)))

        def first(node: int) -> int:
            while leader[node] != node:
                leader[node] = node = leader[leader[node]]
            return node

        for (u, v), apart in zip(self.edges, cut.tolist(), strict=True):
            if not apart:
                a, b = first(u), first(v)
                leader[max(a, b)] = min(a, b)
        found: dict[int, int] = {}
        for node in bits_of(self.problem.fuseable):
            leads = first(node)
            found[leads] = found.get(leads, 0) | 1 << node
        return list(found.values())

    def _owners(self, groups: Iterable[int]) -> dict[int, int]:
        return {v: k for k, group in enumerate(groups) for v in bits_of(group)}

    def _cut_edge(self, groups: Grouping, rng: np.random.Generator) -> tuple[int, int, int, int] | None:
        """A random edge between two groups, and the two; None when there seems to be none."""
        edges = self.edges
        if not edges:
            return None
        for at in rng.integers(len(edges), size=32).tolist():
            u, v = edges[at]
            ends = 1 << u | 1 << v
            for group in groups:
                inside = group & ends
                if inside == ends:
                    break
                if inside:
                    other = next(g for g in groups if g & ends and g is not group)
                    return (u, v, group, other) if inside == 1 << u else (u, v, other, group)
        return None

    def _halves(self, group: int, rng: np.random.Generator) -> tuple[int, ...]:
        """The group cut at a random place of its topological order; an operator alone stays."""
        members = list(bits_of(group))
        if len(members) < 2:
            return (group,)
        before = mask_of(members[: rng.integers(1, len(members))])
        neighbours = self.problem.network.neighbours
        return (*components(neighbours, before), *components(neighbours, group ^ before))


_SPLIT, _MERGE, _DIVIDE = 0.1, 0.3, 0.8
"""Where the kinds of edits end among 0 .. 1; what is left moves one operator."""


def _readers(problem: Problem) -> tuple[list[int], list[int]]:
    """Per operator, the fuseable ones it reads, and those it reads only through excluded operators, as bits.

    The latter must have run before its group starts, even those of its own group: then the group cannot run at all.
    """
    near: list[int] = []
    far: list[int] = []
    fuseable = problem.fuseable
    for before in problem.network.predecessors:
        near.append(before & fuseable)
        barred = before & ~fuseable
        far.append(union_over(near, barred) | union_over(far, barred))
    return near, far
