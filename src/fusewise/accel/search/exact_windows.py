"""Improve a plan of a network that is too wide for one shortest path: solve windows of it exactly, one after another.

A window is a run of consecutive groups of the plan. What lies before it is an ideal, and so is what lies before its end; the
shortest path between the two is the best way to plan the operators of the window. The order of the plan is drawn anew each time,
so that windows meet different neighbours; each window is solved with a limit of steps, and shrinks when it is too wide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fusewise.accel.bits import union_over
from fusewise.accel.problem import GroupCosts
from fusewise.accel.search.exact_atoms import Atoms, atoms_of, wake_of
from fusewise.accel.search.exact_path import Limit, LimitReached, Path, shortest_path
from fusewise.accel.search.result import Result
from fusewise.accel.search.run import Progress

__all__ = ["improved"]

_WINDOWS = 600
_STEPS = 10_000
_ATOMS = 40
"""Windows in all; groups tried in one; atoms in one at most."""


def improved(
    costs: GroupCosts, first: Result, windows: int | None, stop: Callable[[], bool], progress: Progress | None = None
) -> Result:
    """A plan no worse than `first`: improved in `windows` windows or until `stop`."""
    rng = np.random.default_rng(0)
    groups, wake = _aligned(costs, first.groups)
    atoms = atoms_of(costs.problem, wake)
    cost, history, tried = costs.total(groups), list(first.history), first.plans_evaluated
    interrupted, most = False, float(_ATOMS)
    try:
        for _ in range(_WINDOWS if windows is None else windows):
            if stop():
                break
            order = _drawn(costs, atoms, groups, rng)
            at, end = _window(atoms, order, rng, int(most))
            found = _solved(costs, atoms, order, at, end, stop)
            most = max(4.0, most * 0.9) if found is None else min(most * 1.05, _ATOMS)
            tried += 1
            if found is not None:
                groups = order[:at] + found + order[end:]
                total = costs.total(groups)
                if total < cost:
                    cost = total
                    history.append((tried, cost))
            if progress is not None:
                progress(tried, cost)
    except KeyboardInterrupt:
        interrupted = True
    ordered = costs.problem.ordered(groups)
    assert ordered is not None
    return replace(
        first, groups=ordered, cost=cost, plans_evaluated=tried, history=tuple(history), interrupted=interrupted
    )


def _aligned(costs: GroupCosts, groups: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    """The groups with operators moved to the one in whose wake they run, where they fit there; and those that now are there."""
    problem = costs.problem
    wake, found = wake_of(costs) if costs.in_bytes else {}, set(groups)
    for v, before in sorted(wake.items()):
        behind = next(group for group in found if group >> v & 1)
        ahead = next(group for group in found if group >> before & 1)
        if behind != ahead and costs.fits(ahead | 1 << v):
            rest = behind & ~(1 << v)
            found -= {behind, ahead}
            found |= {ahead | 1 << v, rest} if rest else {ahead | 1 << v}
    together = {v: before for v, before in wake.items() if any(g >> v & 1 and g >> before & 1 for g in found)}
    ordered = problem.ordered(found)
    assert ordered is not None
    return list(ordered), together


def _drawn(costs: GroupCosts, atoms: Atoms, groups: list[int], rng: np.random.Generator) -> list[int]:
    """The groups in some order in which they can run, drawn so that neighbours in the network stay close."""
    network, excluded = costs.problem.network, costs.problem.excluded
    waiting = {group: union_over(network.predecessors, group) & ~group for group in groups}
    order: list[int] = []
    done, last = _through(atoms, 0), 0
    while waiting:
        able = [group for group, needs in waiting.items() if not needs & ~done]
        follows = [group for group in able if waiting[group] & last] or able
        group = follows[int(rng.integers(len(follows)))]
        del waiting[group]
        order.append(group)
        last = group
        done = _through(atoms, done | group) if excluded else done | group
    return order


def _through(atoms: Atoms, done: int) -> int:
    """`done` and the excluded operators that can run after it; operators and atoms are numbered alike here only by chance, so
    both are translated."""
    inside = atoms.numbers(done)
    return atoms.operators(atoms.closed(inside, atoms.ready(inside)))


def _window(atoms: Atoms, order: list[int], rng: np.random.Generator, most: int) -> tuple[int, int]:
    """Two places in the order, with at most so many atoms between them, but at least two groups."""
    sizes = [atoms.numbers(group).bit_count() for group in order]
    at = int(rng.integers(max(1, len(order) - 1)))
    end, size = at, 0
    while end < len(order) and (end - at < 2 or size + sizes[end] <= most):
        size += sizes[end]
        end += 1
    return at, end


def _solved(
    costs: GroupCosts, atoms: Atoms, order: list[int], at: int, end: int, stop: Callable[[], bool]
) -> list[int] | None:
    """The best groups for the window; None when it is too wide."""
    before = after = 0
    for group in order[:at]:
        before |= group
    for group in order[at:end]:
        after |= group
    start = _through(atoms, before)
    goal = _through(atoms, start | after)
    path = Path(atoms, atoms.numbers(start), atoms.numbers(goal))
    try:
        shortest_path(costs, Limit(_STEPS, stop), path)
    except LimitReached:
        return None
    found = list(path.groups(path.goal))
    return found if all(map(costs.fits, found)) else None
