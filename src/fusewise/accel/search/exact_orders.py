"""Good plans for wide networks, quickly: draw an order in which the operators can run, and cut it where it is best.

Groups that are runs of one order never wait for each other, so the best way to cut it is a shortest path along its places. Orders
follow a branch to its end before they take up another, so that what belongs together lies together.
"""

from __future__ import annotations

import math

import numpy as np

from fusewise.accel.bits import bits_of
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.scheme import bytes_for
from fusewise.accel.search.exact_path import growth_of

__all__ = ["cut_order", "drawn_order"]

_REPAIRS = 60
"""How often an order is cut anew because a run does not fit."""


def drawn_order(problem: Problem, rng: np.random.Generator) -> list[int]:
    """All operators in an order in which they can run, those that just became ready first; excluded ones as soon as they can."""
    network, excluded = problem.network, problem.excluded
    missing = [before.bit_count() for before in network.predecessors]
    ready = [v for v, number in enumerate(missing) if not number]
    rng.shuffle(ready)
    order: list[int] = []
    while ready:
        at = next((k for k, v in enumerate(ready) if excluded >> v & 1), len(ready) - 1)
        node = ready.pop(at)
        order.append(node)
        opened = []
        for reader in bits_of(network.successors[node]):
            missing[reader] -= 1
            if not missing[reader]:
                opened.append(reader)
        rng.shuffle(opened)
        ready += opened
    return order


def cut_order(costs: GroupCosts, order: list[int]) -> tuple[int, ...] | None:
    """The best plan whose groups are runs of the order, excluded operators left out; None when the scheme gives no costs along
    the way, or some runs turn out too large too often."""
    growth = growth_of(costs.problem)
    if not growth.exact_traffic:
        return None
    places = [v for v in order if costs.problem.fuseable >> v & 1]
    runs = _runs(costs, order)
    for _ in range(_REPAIRS):
        groups = _cheapest(costs, runs, len(places))
        large = [k for k, (start, group) in enumerate(groups) if group & (group - 1) and not costs.fits(group)]
        if not large:
            return tuple(group for _, group in groups)
        for k in large:
            start, group = groups[k]
            runs[start] = runs[start][: runs[start].index(group)]
    return None


def _runs(costs: GroupCosts, order: list[int]) -> list[list[int]]:
    """For each place among the fuseable operators of the order, the runs that begin there, hang together and may fit."""
    problem, growth = costs.problem, growth_of(costs.problem)
    neighbours, excluded, bits = problem.network.neighbours, problem.excluded, problem.scheme.bits
    found: list[list[int]] = []
    for at, first in enumerate(order):
        if excluded >> first & 1:
            continue
        runs: list[int] = []
        parts: list[int] = []
        pushed: list[int] = []
        for node in order[at:]:
            if excluded >> node & 1:
                break
            growth.push(node)
            pushed.append(node)
            if len(pushed) > 1 and bytes_for(growth.need, bits) >= problem.capacity:
                break
            apart = [part for part in parts if not part & neighbours[node]]
            joined = 1 << node
            for part in parts:
                if part & neighbours[node]:
                    joined |= part
            parts = [*apart, joined]
            if not apart:
                costs.dram_known.setdefault(growth.group, bytes_for(growth.traffic, bits))
                runs.append(growth.group)
        for node in reversed(pushed):
            growth.pop(node)
        found.append(runs)
    return found


def _cheapest(costs: GroupCosts, runs: list[list[int]], places: int) -> list[tuple[int, int]]:
    """The cheapest runs that together make up the whole order, each with the place where it begins."""
    best: list[tuple[float, int, int]] = [(0.0, 0, 0)] + [(math.inf, 0, 0)] * places
    for at in range(places):
        for group in runs[at]:
            end, total = at + group.bit_count(), best[at][0] + costs.cost(group)
            if total < best[end][0]:
                best[end] = total, at, group
    found, at = [], places
    while at:
        _, start, group = best[at]
        found.append((start, group))
        at = start
    return found[::-1]
