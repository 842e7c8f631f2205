"""Compose a plan of a wide network from groups found by column generation.

A plan is a choice of groups such that every operator is in one of them. The linear programme of that choice over the groups known
so far gives each operator a price: what covering it costs now. A group that moves less than its operators' prices makes the
programme cheaper, and joins (column generation; Gilmore and Gomory 1961, Barnhart et al. 1998). Such groups are looked for among
all sets of hubs (`exact_hubs`), at prices that lag behind the programme's, which leap about (Wentges 1997). In the end the choice
is made in whole groups, as an integer programme.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fusewise.accel.bits import bits_of
from fusewise.accel.problem import Costs
from fusewise.accel.search.exact_hubs import Column, HubSets, Pricing, hub_sets
from fusewise.accel.search.exact_parts import Skeleton, skeleton_of

__all__ = ["composed"]

_SETS = 4000
_EACH = 8
_LAG = 0.6
_ROUNDS, _QUIET = 50, 15
_FORGET = 0.8
_FEW = 40
_KEPT, _MOST = 2500, 4000
_FEWER = 4
_CHOICE_SECONDS, _LAST_SECONDS = 15.0, 3.0
"""Sets of hubs from one first hub at most; groups from one first hub that may join in a round, four times as many where fewer than
`_FEW` join; the share of the last prices in the next; rounds in all, and without gain, after which it ends; what remains in a
round of how much a set promised too much; groups kept when there are more than so many; how often a group that does not fit is
made smaller; seconds for the integer programme, and when the user interrupts."""


def composed(
    costs: Costs, plans: Sequence[Iterable[int]], stop: Callable[[], bool], told: Callable[[], None] = lambda: None
) -> tuple[tuple[int, ...] | None, bool]:
    """The plan that moves least, whatever the objective, of the groups of `plans` and those that column generation adds until
    `stop`; and whether the user interrupted. No plan where groups do not add up as it takes (`exact_parts`), without SciPy, or when
    none is found in time. `told` is called in every round."""
    skeleton = skeleton_of(costs.problem)
    if skeleton is None or not plans:
        return None, False
    pool, interrupted = _Pool(costs, skeleton), False
    if not pool.start(plans):
        return None, False
    try:
        pricing = Pricing(sets := hub_sets(skeleton, _SETS, stop))
        pool.short = np.zeros(len(sets.sets))
        _fill(pool, pricing, sets, pool.shares(min(plans, key=costs.total)), stop, told)
    except ImportError:
        return None, False
    except KeyboardInterrupt:
        interrupted = True
    try:
        return pool.chosen(_LAST_SECONDS if interrupted else _CHOICE_SECONDS), interrupted
    except KeyboardInterrupt:
        return None, True


def _fill(
    pool: _Pool,
    pricing: Pricing,
    sets: HubSets,
    prices: np.ndarray,
    stop: Callable[[], bool],
    told: Callable[[], None],
) -> None:
    """Add groups until none pays, the programme has not gained for long, or `stop`; from these prices on."""
    best, quiet = math.inf, 0
    for _ in range(_ROUNDS):
        if stop() or quiet == _QUIET:
            break
        told()
        found = pool.solved()
        if found is None:
            break
        cost, values = found
        quiet = 0 if cost < best * (1 - 1e-4) else quiet + 1
        best = min(best, cost)
        prices = _LAG * prices + (1 - _LAG) * values
        if _grown(pool, pricing, sets, prices, _EACH) < _FEW:
            prices = values
            if not _grown(pool, pricing, sets, values, 4 * _EACH):
                pool.forget()
                if not _grown(pool, pricing, sets, values, 4 * _EACH):
                    break
        pool.trim(values)


def _grown(pool: _Pool, pricing: Pricing, sets: HubSets, prices: np.ndarray, each: int) -> int:
    """Add groups that save at these prices; how many there were."""
    least, bare, pieces = pricing.least(prices), pricing.bare(prices), pricing.pieces(prices)
    tried: Counter[int] = Counter()
    pool.short *= _FORGET
    hoped = least + pool.short
    rows = np.flatnonzero(hoped < -1)
    added = 0
    for row in rows[np.argsort(hoped[rows], kind="stable")].tolist():
        root = int(sets.roots[row])
        if tried[root] < each:
            tried[root] += 1
            within = partial(pricing.best, row, float(bare[row]), pieces)
            column = pool.fitting(row, within)
            pool.short[row] = (column.reduced if column else 0.0) - least[row]
            added += column is not None and pool.add(column.atoms, column.moved)
    return added


@dataclass
class _Pool:
    """The groups known: their atoms, and the elements that each moves. Per set of hubs, `short` is by how much the bound of what it
    saves promised too much, `rooms` the room in which groups with it fit."""

    costs: Costs
    skeleton: Skeleton
    groups: list[int] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    known: set[int] = field(default_factory=set)
    rooms: dict[int, int] = field(default_factory=dict)
    short: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def add(self, atoms: int, moved: float) -> bool:
        """Add a group; is it new?"""
        if atoms in self.known:
            return False
        self.known.add(atoms)
        self.groups.append(atoms)
        self.moved.append(moved)
        return True

    def start(self, plans: Sequence[Iterable[int]]) -> bool:
        """Every atom alone, the runs of links of every chain, and the groups of some plans. False when an atom does not fit with
        what runs in its wake."""
        skeleton = self.skeleton
        for atom in bits_of(skeleton.atoms.everything & ~skeleton.atoms.barred):
            if not self.fits(1 << atom):
                return False
            self.add(1 << atom, skeleton.of(1 << atom)[1])
        for chain in skeleton.chains:
            for at in range(len(chain.links)):
                run = 0
                for link in chain.links[at:]:
                    run |= 1 << link
                    if run & (run - 1) and self.fits(run):
                        self.add(run, skeleton.of(run)[1])
        for plan in plans:
            for group in plan:
                atoms = skeleton.atoms.numbers(group)
                if skeleton.atoms.operators(atoms) == group:
                    self.add(atoms, skeleton.of(atoms)[1])
        return True

    def fits(self, atoms: int) -> bool:
        return self.costs.fits(self.skeleton.atoms.operators(atoms))

    def fitting(self, row: int, within: Callable[[int], Column | None]) -> Column | None:
        """A group that saves something and fits: while it does not, the best one for less room. The next time that comes first,
        a little more given back."""
        problem, most = self.costs.problem, self.costs.problem.room
        room, large, found = self.rooms.get(row, most), most + 1, None
        for _ in range(_FEWER):
            column = within(room)
            if column is None or column.reduced >= -1:
                if large > most:
                    break
                room = (room + large) // 2
                continue
            need = self.costs.buffer_bytes(self.skeleton.atoms.operators(column.atoms)) * 8 // problem.scheme.bits
            if need <= most:
                found = column
                break
            large = column.need
            room = min(large - 1, room - (need - most))
        self.rooms[row] = min(most, room + (most - room) // 8)
        return found

    def forget(self) -> None:
        """Look at all sets of hubs anew."""
        self.short[:] = 0
        self.rooms.clear()

    def shares(self, plan: Iterable[int]) -> np.ndarray:
        """(atoms,): what each group of a plan moves, in equal parts for its atoms."""
        prices, skeleton = np.zeros(len(self.skeleton.atoms)), self.skeleton
        for group in plan:
            atoms = list(bits_of(skeleton.atoms.numbers(group)))
            prices[atoms] += skeleton.parts.of(group)[1] / len(atoms)
        return prices

    def solved(self) -> tuple[float, np.ndarray] | None:
        """The cost of the linear programme, and (atoms,) its prices; None when the solver gives up."""
        from scipy.optimize import linprog

        rows = list(bits_of(self.skeleton.atoms.everything & ~self.skeleton.atoms.barred))
        covers, ones = self._covers(rows), np.ones(len(rows))
        found = linprog(self.moved, A_eq=covers, b_eq=ones, bounds=(0, None), method="highs-ds")
        if found.status != 0:
            return None
        prices = np.zeros(len(self.skeleton.atoms))
        prices[rows] = found.eqlin.marginals
        return float(found.fun), prices

    def trim(self, prices: np.ndarray) -> None:
        """Forget the groups that cost most beyond the prices of their atoms."""
        if len(self.groups) <= _MOST:
            return
        everything = list(range(len(prices)))
        over = np.array(self.moved) - self._covers(everything).T @ prices
        limit = np.sort(over)[_KEPT]
        keep = [k for k, group in enumerate(self.groups) if over[k] <= limit or not group & (group - 1)]
        self.groups, self.moved = [self.groups[k] for k in keep], [self.moved[k] for k in keep]
        self.known = set(self.groups)

    def chosen(self, seconds: float) -> tuple[int, ...] | None:
        """The cheapest choice of whole groups, in an order in which they can run; None when there is none in time, or no order."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        rows = list(bits_of(self.skeleton.atoms.everything & ~self.skeleton.atoms.barred))
        found = milp(
            self.moved,
            constraints=LinearConstraint(self._covers(rows), 1, 1),
            integrality=np.ones(len(self.groups)),
            bounds=Bounds(0, 1),
            options={"time_limit": seconds},
        )
        if found.x is None:
            return None
        atoms = self.skeleton.atoms
        return self.costs.problem.ordered(atoms.operators(self.groups[k]) for k in np.flatnonzero(found.x > 0.5))

    def _covers(self, rows: list[int]) -> Any:
        """(atoms, groups): which atoms each group covers."""
        from scipy.sparse import csc_array

        number = {atom: k for k, atom in enumerate(rows)}
        members = [[number[a] for a in bits_of(group)] for group in self.groups]
        starts = np.cumsum([0, *map(len, members)])
        entries = np.array([row for column in members for row in column])
        return csc_array((np.ones(len(entries)), entries, starts), (len(rows), len(members)))
