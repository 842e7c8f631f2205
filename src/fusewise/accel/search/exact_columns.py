"""The cheapest plan of a wide network, and a bound near it, by column generation.

A plan is a choice of groups such that every operator is in one of them. The linear programme of that choice over the groups known
so far gives each operator a price: what covering it costs now. A group that moves less than its operators' prices makes the
programme cheaper, and joins (Gilmore and Gomory 1961, Barnhart et al. 1998). Such groups are found among all there are
(`exact_pricing`), so when there are none, no plan is cheaper than the programme. In the end the choice is made in whole groups, as
an integer programme.

The programme's prices leap about, and it takes many groups to hold them. So it only looks for prices in a box around those with
the best bound so far, which grows where the bound follows and shrinks where it does not (Marsten, Hogan and Blankenship 1975).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fusewise.accel.bits import bits_of
from fusewise.accel.problem import GroupCosts
from fusewise.accel.search.exact_layers import layered, layers_of
from fusewise.accel.search.exact_pricing import PricedGroups, Pricing
from fusewise.accel.search.exact_programme import Programme

__all__ = ["Composed", "composed"]

_STATES = 6_000_000
"""States of the layers at most."""

_ROUNDS, _EACH = 400, 6
_MOST, _KEPT = 12_000, 6_000
"""Rounds; groups of one root that join in one; groups kept when there are more than so many."""

_LABELS, _FEW = 100_000, 100
_SHARE, _SHARE_MOST = 0.8, 0.9
"""Labels, and groups that they lead to, above which groups are looked for more vaguely; how vaguely at first, and at most
(`Pricing.priced`)."""

_FOLLOWS, _GROWS, _SHRINKS, _SHRINKS_VAGUE, _DECAY = 0.3, 2.0, 0.75, 0.9, 0.8
"""By what share of its promise the bound must grow for the box to grow; by how much it grows, and shrinks, less so when groups were
looked for vaguely; how fast it narrows again around prices that it held."""

_CLOSE = 1e-6
"""The share of the bound by which the programme may lie above it in the end."""

_TURNS, _NEAR, _EACH_NEAR = 5, 2e-3, 60
"""How often the choice is made, at most; the share of the bound by which groups may cost more than their prices in the first one,
and those that are looked for after it; groups of one root that join then."""


_LAST_SECONDS = 3.0
"""For the choice when the user interrupted."""


@dataclass(frozen=True)
class Composed:
    """A plan, if one was found; elements that every plan moves at least, as far as known; whether the user interrupted."""

    groups: tuple[int, ...] | None
    bound: int
    interrupted: bool


def composed(
    costs: GroupCosts,
    plans: Sequence[Sequence[int]],
    stop: Callable[[], bool],
    seconds: Callable[[], float],
    told: Callable[[], None] = lambda: None,
) -> Composed:
    """The plan that moves least, whatever the objective, of the groups of `plans` and those that column generation adds until
    `stop`; the choice among them may take so many `seconds`. No plan for schemes and networks without layers (`exact_layers`), or
    when none is found in time; `ImportError` without HiGHS. `told` is called in every round."""
    if not plans or not layered(costs.problem):
        return Composed(None, 0, False)
    programme = Programme(costs, (*costs.problem.singletons(), *(group for plan in plans for group in plan)))
    layers = layers_of(costs.problem, _STATES, stop)
    if layers is None:
        return Composed(None, 0, False)
    best = min(plans, key=costs.total)
    pricing = Pricing(layers, costs.problem.room, _first_shadow(costs, best))
    search, interrupted = _Search(programme, pricing, _shares(costs, programme, best)), False
    try:
        search.run(stop, told)
    except KeyboardInterrupt:
        interrupted = True
    if search.bound <= 0:  # too early: what prices say of groups is worth nothing yet
        return Composed(None, 0, interrupted)
    bound, turns = math.ceil(search.bound - 1e-3), 1 if interrupted else _TURNS
    try:
        most = sum(map(programme.moved_by, best))
        left = min(seconds(), _LAST_SECONDS) if interrupted else seconds()
        return Composed(_chosen(costs, programme, search, most, left, turns), bound, interrupted)
    except KeyboardInterrupt:
        return Composed(None, bound, True)


def _first_shadow(costs: GroupCosts, plan: Sequence[int]) -> float:
    """What a plan moves for each element of room that its groups have."""
    return sum(map(costs.dram_bytes, plan)) / (len(plan) * costs.problem.capacity)


def _shares(costs: GroupCosts, programme: Programme, plan: Sequence[int]) -> np.ndarray:
    """(operators,): what each group of a plan moves, in equal parts for its operators."""
    prices = np.zeros(len(costs.problem.network))
    for group in plan:
        members = list(bits_of(group))
        prices[members] += programme.moved_by(group) / len(members)
    return prices


@dataclass
class _Search:
    """Looks for prices (operators,) with the greatest bound, and adds to the programme what pays on the way."""

    programme: Programme
    pricing: Pricing
    prices: np.ndarray
    bound: float = -math.inf

    def run(self, stop: Callable[[], bool], told: Callable[[], None]) -> None:
        """Until no group pays, the bound is near the programme, or `stop`."""
        programme, trial, value, share = self.programme, self.prices, math.inf, _SHARE
        width, wider = float(np.abs(self.prices).mean()), np.ones(len(self.prices))
        for _ in range(_ROUNDS):
            if stop():
                break
            told()
            priced = self.pricing.priced(trial, _EACH, share)
            for saving in priced.savings:
                programme.add(saving.group)
            gained, promised = priced.bound - self.bound, value - self.bound
            if gained > _FOLLOWS * promised:
                width *= _GROWS
            elif gained < 0:
                width *= _SHRINKS_VAGUE if share else _SHRINKS
            if gained > 0:
                self.bound, self.prices = priced.bound, trial
            share = _next_share(share, priced, gained < 0)
            if len(programme.groups) > _MOST:
                programme.forget(self.prices, _KEPT)
            solved = programme.solved(self.prices, width * wider)
            if solved is None:
                break
            value, trial, held = solved
            wider = np.where(held, 2 * wider, np.maximum(1, _DECAY * wider))
            if not held.any() and value - self.bound < _CLOSE * value:
                break


def _next_share(share: float, priced: PricedGroups, failed: bool) -> float:
    """How vaguely to look for groups next: more so while labels are many and lead to many groups."""
    if priced.labels > _LABELS and len(priced.savings) > _FEW:
        return min(_SHARE_MOST, share + 0.1)
    return max(0.0, round(share - (0.2 if failed else 0.1), 3))


def _chosen(
    costs: GroupCosts, programme: Programme, search: _Search, most: float, seconds: float, turns: int
) -> tuple[int, ...] | None:
    """The cheapest plan of the programme's groups: first of those near their prices, then, with more of these, of all that a better
    plan than that may have. `most`: elements that the best plan so far moves."""
    begin, barred, found, slack = time.perf_counter(), list[list[int]](), None, _NEAR * search.bound
    for turn in range(turns):
        which = programme.over(search.prices) <= slack + 1
        left = seconds - (time.perf_counter() - begin)
        taken = programme.chosen(which, barred, max(0.1, left / 2))
        groups = None if taken is None else costs.problem.ordered(programme.groups[k] for k in taken)
        if taken is not None and groups is None:  # groups that wait for each other: not all of them again
            barred.append([k for k in taken if programme.groups[k] & (programme.groups[k] - 1)])
            continue
        moved = math.inf if groups is None else sum(map(programme.moved_by, groups))
        if moved < most:
            found, most = groups, moved
        if most < search.bound + 1 or (turn and groups is not None) or turn + 1 == turns:
            break
        slack = most - search.bound
        for near in search.pricing.near(search.prices, min(slack, _NEAR * search.bound), _EACH_NEAR):
            programme.add(near.group)
    return found
