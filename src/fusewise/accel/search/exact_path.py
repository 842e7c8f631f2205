"""The shortest path over ideals: the cheapest order in which all atoms can run in groups.

An ideal is a set of atoms closed under what they need; a group takes one ideal to a larger one. A partition has an acyclic
quotient exactly if its groups can be ordered so that every prefix is an ideal, so the shortest path from the empty set to
everything is the optimum over all plans, whatever the objective, as long as it adds up over groups.

    from ideal {a}:   a -> b -> c -> e       groups {b}, {d}, {b,c}, {d,c,b}, ... but not {b,d}: it does not hang together
                       \\-> d -----/          {c,e} cannot run before d has

Four things keep it small. Only connected groups are built: one ready atom, then one reader of the group at a time with all that
this reader still needs. A group stops growing when the lower bound of its need exceeds the buffer (`exact_lines`, `exact_passes`),
since the bound only grows. The true need is asked for only where it decides: an ideal takes its arrivals from the cheapest on,
and the first whose group fits is its parent. And where a ready atom can only run with what follows it, its group runs next:
exchanging it with groups before it, which it does not need, gives the same plan.

Where only a lower bound of a group's cost is quick to compute, the shortest way to every ideal is first found with bounds. Then
the path is looked for from the goal back, with groups priced as they come up: the bound of what lies before an ideal says which
one to go on from (A*; Hart, Nilsson and Raphael 1968). Groups that differ by their place only are bounded and priced once.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from fusewise.accel.bits import bits_of
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.schemes.scheme import UNBOUNDED, bytes_for
from fusewise.accel.search.exact_atoms import Atoms
from fusewise.accel.search.exact_lines import LineGrowth
from fusewise.accel.search.exact_passes import PassGrowth
from fusewise.accel.search.exact_tiles import TileGrowth
from fusewise.accel.search.exact_traffic import moved_once

__all__ = ["Growth", "Limit", "LimitReached", "Path", "growth_of", "shortest_path"]


class Growth(Protocol):
    """A group that grows by consumers. `need` is a lower bound, in elements, of the buffer that this group and every group
    grown from it takes; `traffic` is what it moves through DRAM, exactly or (`exact_traffic` is false) at least. `spanning`:
    `need` is also a bound for groups that have more producers. `least` is what these operators move at least however they are
    split into groups, `excess` what this group and every group grown from it moves more than once, at least."""

    exact_traffic: bool
    spanning: bool
    group: int

    @property
    def need(self) -> int: ...

    @property
    def traffic(self) -> int: ...

    @property
    def least(self) -> int: ...

    @property
    def excess(self) -> int: ...

    def push(self, node: int) -> None: ...

    def pop(self, node: int) -> None: ...


def growth_of(problem: Problem) -> Growth:
    """The growth that belongs to the problem's scheme."""
    match problem.scheme:
        case LBDF() as scheme:
            return LineGrowth(problem, scheme)
        case BRR(accounting="executed") as scheme:
            return PassGrowth(problem, scheme)
        case BRR() as scheme:
            return TileGrowth(problem, scheme)
    raise TypeError(f"the exact search knows no bound for scheme {problem.scheme.name!r}")


_PATIENCE, _FAR = 15_000, 0.05
"""Steps after which so much of a path must be behind: those that were proven in the end had a tenth behind after 5,000."""


class LimitReached(Exception):
    """The search took as many steps as it may."""


@dataclass
class Limit:
    """Counts steps; `LimitReached` after `steps` of them, or when `stop` says so (asked every 256 steps, and with `ask`).

    Or when there is no hope: `far`, the share of a path that is behind, is still next to nothing long after the path was begun
    (`since`, in steps).
    """

    steps: int | None = None
    stop: Callable[[], bool] = lambda: False
    taken: int = 0
    far: float = 1.0
    since: int = 0

    def begin(self) -> None:
        """A path begins."""
        self.far, self.since = 0.0, self.taken

    def step(self, *, ask: bool = False) -> None:
        self.taken += 1
        if self.steps is not None and self.taken > self.steps:
            raise LimitReached
        if (ask or not self.taken & 255) and (self.hopeless or self.stop()):
            raise LimitReached

    @property
    def hopeless(self) -> bool:
        """Is next to nothing behind after many steps?"""
        return self.far < _FAR and self.taken - self.since > _PATIENCE


@dataclass
class Path:
    """The search from the ideal `start` to the ideal `goal`, by default from nothing to everything, and what it found so far.

    `settled` holds, for each ideal whose best path is known, its cost, the ideal before it and the group (operators) between;
    where groups are priced last, it is a lower bound until they are. `least` is what any path costs at least, as far as known;
    `transitions` counts the groups tried.
    """

    atoms: Atoms
    start: int = 0
    goal: int = -1
    settled: dict[int, tuple[float, int, int]] = field(default_factory=dict)
    transitions: int = 0
    least: float = 0

    def __post_init__(self) -> None:
        self.goal &= self.atoms.everything

    def groups(self, ideal: int) -> tuple[int, ...]:
        """The groups of the best path to a settled ideal, in order."""
        found: list[int] = []
        while True:
            _, before, group = self.settled[ideal]
            if not group:
                return tuple(reversed(found))
            found.append(group)
            ideal = before

    @property
    def farthest(self) -> int:
        """The largest ideal settled so far, the cheapest of several."""
        return max(self.settled, key=lambda ideal: (ideal.bit_count(), -self.settled[ideal][0]))


def shortest_path(costs: GroupCosts, limit: Limit, path: Path, at_most: float = math.inf) -> None:
    """Fill in a path until its goal is settled: the optimum over all plans whose groups are unions of its atoms.

    No plan that costs more than `at_most` is looked for: groups that cannot be in a cheaper one, by what must be moved after them,
    are left out. That takes a path to everything, and bytes as the objective; at least one plan must cost so much.

    What was found so far stays in the path when the limit is reached (`LimitReached`) or the user interrupts. An objective
    other than bytes must not fall when a group moves more bytes. With operators in the wake of others, groups may be too large
    by the pixels of those that run last; the optimum over operators is no less than that path, and equal when all groups fit.
    """
    search = _Search(costs, limit, path, at_most)
    search.run()
    if not search.growth.exact_traffic:
        search.price()


Arrival = tuple[int, float, int]
"""How an ideal can be reached: the ideal before, the cost of the group between (at least), the group (operators)."""


class _Search:
    def __init__(self, costs: GroupCosts, limit: Limit, path: Path, at_most: float) -> None:
        self.costs, self.atoms, self.limit, self.path, self.at_most = costs, path.atoms, limit, path, at_most
        self.barred = self.atoms.barred | ~path.goal
        self.growth = growth_of(costs.problem)
        self.prices = costs if self.growth.exact_traffic else costs.empty()
        self.bits, self.capacity = costs.problem.scheme.bits, costs.problem.capacity
        self.bounds: dict[object, int] = {}
        self.arrivals: dict[int, list[Arrival]] = {}
        self.levels: dict[int, list[int]] = {}
        self.reach: dict[int, int] = {}
        self.rests: dict[int, int] = {}

    def run(self) -> None:
        path = self.path
        start = self.closed(path.start, self.atoms.ready(path.start))
        path.settled[start] = (0, 0, 0)
        self.limit.begin()
        if start != path.goal:
            self.leave(start)
        first, last = start.bit_count(), path.goal.bit_count()
        for size in range(first, last + 1):
            self.limit.far = (size - first) / max(1, last - first)
            for ideal in self.levels.pop(size, ()):
                if self.settle(ideal) and ideal != path.goal:
                    self.leave(ideal)
        path.least = path.settled[path.goal][0]

    def settle(self, ideal: int) -> bool:
        """Find the cheapest arrival whose group fits; whether there is one. Where costs are bounds, the cheapest one."""
        settled, exact = self.path.settled, self.growth.exact_traffic
        waiting = [(settled[before][0] + cost, before, group) for before, cost, group in self.arrivals[ideal]]
        if not exact:
            settled[ideal] = min(waiting)
            return True
        del self.arrivals[ideal]
        heapq.heapify(waiting)
        while waiting:
            found = heapq.heappop(waiting)
            if self.admits(found[2]):
                settled[ideal] = found
                return True
        return False

    def price(self) -> None:
        """Find the path again by what groups cost, back from the goal: always on from the ideal through which all costs least,
        by the bound of what lies before it and the price of what follows. The first path whose groups are priced is the best."""
        settled, costs, goal = self.path.settled, self.costs, self.path.goal
        beyond: dict[int, tuple[int, int]] = {}  # the first step of the best way from an ideal to the goal
        # cost of the whole path at least, size of the ideal, the ideal, cost from it on, its first step, whether that is priced
        waiting: list[tuple[float, int, int, float, int, int, bool]] = [(0, 0, goal, 0, 0, 0, True)]
        while waiting:
            least, _, ideal, rest, group, after, priced = heapq.heappop(waiting)
            self.path.least = max(self.path.least, least)
            if ideal in beyond:
                continue
            before, _, first = settled[ideal]
            if priced:
                beyond[ideal] = group, after
                if not first:
                    break
                for source, cost, through in self.arrivals[ideal]:
                    if source not in beyond:
                        through_it = settled[source][0] + cost + rest
                        heapq.heappush(waiting, (through_it, source.bit_count(), source, rest, through, ideal, False))
            else:
                self.limit.step(ask=True)
                if costs.dram_bytes(group) < UNBOUNDED:
                    rest += costs.cost(group)
                    heapq.heappush(waiting, (before + rest, ideal.bit_count(), ideal, rest, group, after, True))
        total: float = 0
        while ideal != goal:
            group, after = beyond[ideal]
            total += costs.cost(group)
            settled[after] = total, ideal, group
            ideal = after

    def leave(self, done: int) -> None:
        """Build all groups that may come next after an ideal."""
        ready = self.atoms.ready(done) & ~self.barred
        if ready & (ready - 1):
            for root in bits_of(ready):
                if not self.reached(root) & ~done:
                    self.grow(done, root, 0)
                    return
        banned = 0
        for root in bits_of(ready):
            self.grow(done, root, banned)
            banned |= 1 << root

    def grow(self, done: int, root: int, banned: int) -> None:
        """Build all groups of the atom `root` and others not banned, each once: take in the first reader with all it still
        needs and go on, then ban it and go on."""
        atoms, push, pop = self.atoms, self.push, self.pop
        after, ancestors, barred = atoms.after, atoms.ancestors, self.barred
        spare = self.at_most
        if spare < math.inf:
            spare -= self.path.settled[done][0] + self.rest(done)
        if not push(1 << root, single=True):
            return
        group = 1 << root
        self.arrive(done, group, after[root])
        # one frame for each atom taken in: the group, its readers, what is banned, what was added last
        frames = [[group, after[root], banned, group]]
        while frames:
            frame = frames[-1]
            group, readers, banned, added = frame
            readers &= ~banned & ~barred
            if not readers:
                frames.pop()
                pop(added)
                continue
            low = readers & -readers
            reader = low.bit_length() - 1
            frame[2] = banned | low
            more = (ancestors[reader] | low) & ~done & ~group
            if more & (banned | barred) or not push(more):
                continue
            if spare < math.inf and bytes_for(self.growth.excess, self.bits) > spare:
                pop(more)
                continue
            group |= more
            beyond = frame[1]
            for v in bits_of(more):
                beyond |= after[v]
            beyond &= ~group
            self.arrive(done, group, beyond)
            frames.append([group, beyond, banned, more])

    def push(self, added: int, *, single: bool = False) -> bool:
        """Add atoms to the group, or nothing when the lower bound of its need is then too large."""
        growth, taken = self.growth, 0
        for atom in bits_of(added):
            for node in bits_of(self.atoms.members[atom]):
                growth.push(node)
                taken |= 1 << node
            if not single and bytes_for(growth.need, self.bits) >= self.capacity:
                atoms = self.atoms.numbers(growth.group)
                if bytes_for(growth.need - self.atoms.wake(atoms), self.bits) >= self.capacity:
                    _take_away(growth, taken)
                    return False
        return True

    def admits(self, group: int) -> bool:
        """Does the group fit, but for what runs in the wake of its last atoms?"""
        if self.costs.fits(group):
            return True
        spare = self.atoms.wake(self.atoms.numbers(group))
        return spare > 0 and self.costs.buffer_bytes(group) - bytes_for(spare, self.bits) < self.capacity

    def pop(self, added: int) -> None:
        _take_away(self.growth, self.atoms.operators(added))

    def arrive(self, done: int, group: int, beyond: int) -> None:
        """Note that the group leads from one ideal to another, at which cost."""
        self.limit.step()
        self.path.transitions += 1
        growth, prices = self.growth, self.prices
        operators, target = growth.group, done | group
        if beyond & self.barred:
            target = self.closed(target, beyond)
        spare = self.at_most
        if spare < math.inf:
            spare -= self.path.settled[done][0] + self.rest(target)
            if bytes_for(growth.least, self.bits) > spare:
                return
        if growth.exact_traffic:
            prices.dram_known.setdefault(operators, bytes_for(growth.traffic, self.bits))
        elif operators not in prices.dram_known:
            like = self.costs.problem.likeness(operators)
            if like not in self.bounds:
                several = group & (group - 1)
                least = bytes_for(growth.traffic, self.bits) if several else self.costs.dram_bytes(operators)
                self.bounds[like] = least
            prices.dram_known[operators] = self.bounds[like]
        cost = prices.cost(operators)
        if cost > spare:
            return
        arrivals = self.arrivals.get(target)
        if arrivals is None:
            arrivals = self.arrivals[target] = []
            self.levels.setdefault(target.bit_count(), []).append(target)
        arrivals.append((done, cost, operators))

    def rest(self, done: int) -> int:
        """Bytes that all plans move after an ideal at least: everything left as one group."""
        known = self.rests.get(done)
        if known is None:
            left = self.atoms.operators(self.atoms.everything & ~done & ~self.barred)
            known = self.rests[done] = moved_once(self.costs.problem, left)
        return known

    def closed(self, done: int, pending: int) -> int:
        """Excluded operators run as soon as they can."""
        return self.atoms.closed(done, pending & self.path.goal) & self.path.goal

    def reached(self, root: int) -> int:
        """All that the readers of groups which start with this atom may need besides what follows it. When all that has run,
        whatever group the atom is in consists of what follows it and can run next."""
        known = self.reach.get(root)
        if known is not None:
            return known
        atoms, with_root = self.atoms, 1 << root
        below = atoms.descendants[root]
        inside, needed = with_root, atoms.ancestors[root]
        for v in bits_of(below & ~self.barred):
            between = (atoms.ancestors[v] & below) | with_root | 1 << v
            if between & ~inside & ~(1 << v):
                continue
            if not self.growth.spanning or self.push(between):
                if self.growth.spanning:
                    self.pop(between)
                inside |= 1 << v
                needed |= atoms.ancestors[v]
        known = self.reach[root] = needed & ~below & ~with_root
        return known


def _take_away(growth: Growth, operators: int) -> None:
    """Pop operators in the reverse of the order in which `push` added them."""
    while operators:
        node = operators.bit_length() - 1
        growth.pop(node)
        operators ^= 1 << node
