"""Improve a plan of a network that is too wide for one shortest path: solve windows of it exactly, one after another.

A window is a run of consecutive groups of the plan. What lies before it is an ideal, and so is what lies before its end; the
shortest path between the two is the best way to plan the operators of the window. The order of the plan is drawn anew each time,
so that windows meet different neighbours; each window is solved with a limit of steps, and shrinks when it is too wide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fusewise.accel.bits import union_over
from fusewise.accel.problem import Costs
from fusewise.accel.search.exact_atoms import Atoms, atoms_of
from fusewise.accel.search.exact_path import Limit, LimitReached, Path, shortest_path
from fusewise.accel.search.local import local_search
from fusewise.accel.search.result import Budget, Result
from fusewise.accel.search.run import Progress

__all__ = ["improved"]

_SAMPLED_PLANS = 5000
_WINDOWS = 400
_STEPS = 10_000
_OPERATORS = 40
"""Plans of the local search that gives the start; windows in all; groups tried in one; operators in one at most."""


def improved(
    costs: Costs, first: Result, windows: int | None, stop: Callable[[], bool], progress: Progress | None = None
) -> Result:
    """A plan no worse than `first`: the best of it and a local search, improved in `windows` windows or until `stop`."""
    rng = np.random.default_rng(0)
    sampled = local_search(costs, Budget(_SAMPLED_PLANS), rng, progress=progress)
    best = min(first, sampled, key=lambda one: one.cost)
    if sampled.interrupted:
        return replace(best, interrupted=True)
    atoms = atoms_of(costs.problem)
    groups, cost, history, tried = list(best.groups), best.cost, list(best.history), sampled.plans_evaluated
    interrupted, most = False, float(_OPERATORS)
    try:
        for _ in range(_WINDOWS if windows is None else windows):
            if stop():
                break
            order = _drawn(costs, atoms, groups, rng)
            at, end = _window(order, rng, int(most))
            found = _solved(costs, atoms, order, at, end, stop)
            most = max(4.0, most * 0.9) if found is None else min(most * 1.05, _OPERATORS)
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
        best, groups=ordered, cost=cost, plans_evaluated=tried, history=tuple(history), interrupted=interrupted
    )


def _drawn(costs: Costs, atoms: Atoms, groups: list[int], rng: np.random.Generator) -> list[int]:
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


def _window(order: list[int], rng: np.random.Generator, most: int) -> tuple[int, int]:
    """Two places in the order, with at most so many operators between them, but at least two groups."""
    at = int(rng.integers(max(1, len(order) - 1)))
    end, size = at, 0
    while end < len(order) and (end - at < 2 or size + order[end].bit_count() <= most):
        size += order[end].bit_count()
        end += 1
    return at, end


def _solved(
    costs: Costs, atoms: Atoms, order: list[int], at: int, end: int, stop: Callable[[], bool]
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
    return list(path.groups(path.goal))
