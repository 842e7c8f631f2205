"""All sets of hubs that a group may span, and how much a group with one of them saves at given prices of operators.

A set of hubs that hangs together, with all that lies between, is found once: it grows from its first hub by one hub after another,
each taken or ruled out for good. Sets whose need is too large are left away with all that contain them. What pieces of chains at
its border add is separate for each chain, but for tensors that several read: those are looked at in `Pricing.best`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fusewise.accel.bits import bits_of, mask_of, union_over
from fusewise.accel.search.exact_parts import Piece, Skeleton

__all__ = ["Column", "HubSets", "Pricing", "hub_sets"]

_BLOCK = 10_000
_SHADOWS = (0.0, 0.15, 0.4, 0.8, 1.2, 1.6, 2.4, 4.0)
"""Sets whose table is made at a time; prices of room in the buffer, as elements moved for each element of room, at which sets are
looked through."""


@dataclass(frozen=True)
class HubSets:
    """`sets` (atoms: hubs and all between them), what each needs and moves without any piece (elements), and its first hub."""

    skeleton: Skeleton
    sets: tuple[int, ...]
    needs: np.ndarray
    moved: np.ndarray
    roots: np.ndarray

    @cached_property
    def has(self) -> np.ndarray:
        """(sets, hubs): is the hub in the set?"""
        number = {hub: k for k, hub in enumerate(self.skeleton.hubs)}
        mask = mask_of(number)
        found = np.zeros((len(self.sets), len(number)), bool)
        for row, atoms in enumerate(self.sets):
            found[row, [number[a] for a in bits_of(atoms & mask)]] = True
        return found


def hub_sets(skeleton: Skeleton, most: int, stop: Callable[[], bool]) -> HubSets:
    """The sets of hubs, at most so many from each first hub."""
    found: list[tuple[int, int, int, int]] = []
    atoms, near, room, hubs = skeleton.atoms, skeleton.near, skeleton.problem.room, mask_of(skeleton.hubs)
    ruled = 0
    for root in skeleton.hubs:
        need, moved = skeleton.of(1 << root)
        found.append((1 << root, min(need, room), moved, root))
        # of each set: its atoms, hubs next to it, all before and all behind, hubs ruled out, need and moves
        waiting = [(1 << root, near[root], atoms.ancestors[root], atoms.descendants[root], ruled, need, moved)]
        number = 1
        while waiting:
            group, beside, before, behind, out, need, moved = waiting.pop()
            for hub in bits_of(beside & ~group & ~out):
                earlier, later = before | atoms.ancestors[hub], behind | atoms.descendants[hub]
                larger = group | 1 << hub | earlier & later
                if not larger & (out | atoms.barred):
                    more, moves = skeleton.more(group, larger ^ group)
                    if need + more <= room:
                        found.append((larger, need + more, moved + moves, root))
                        wider = beside | union_over(near, larger & ~group & hubs)
                        waiting.append((larger, wider, earlier, later, out, need + more, moved + moves))
                        number += 1
                out |= 1 << hub
            if number >= most or stop():
                break
        ruled |= 1 << root
    sets, needs, moves_of, roots = zip(*found, strict=True)
    return HubSets(skeleton, sets, np.array(needs), np.array(moves_of, float), np.array(roots))


class Column(NamedTuple):
    """A group as atoms, elements that it needs (at least) and moves, and its moves less the prices of its atoms."""

    atoms: int
    need: int
    moved: float
    reduced: float


class _Partial(NamedTuple):
    need: int
    reduced: float
    moved: float
    atoms: int


_NONE = _Partial(0, 0.0, 0.0, 0)


class Pricing:
    """Groups that move less than the sum of their atoms' prices."""

    def __init__(self, sets: HubSets) -> None:
        from scipy.sparse import csr_array, vstack

        skeleton = self._skeleton = sets.skeleton
        self._sets = sets
        number = {hub: k for k, hub in enumerate(skeleton.hubs)}
        has, chains = sets.has, skeleton.chains
        firsts, lasts = ([number[h] for h in ends] for ends in zip(*((c.first, c.last) for c in chains), strict=True))
        blocks = []
        for at in range(0, len(has), _BLOCK):
            some = has[at : at + _BLOCK]
            first, last = some[:, firsts], some[:, lasts]
            blocks.append(csr_array(np.hstack([some, first & last, first & ~last, last & ~first]).astype(np.float32)))
        self._table: Any = vstack(blocks, format="csr")
        self._chains_at: defaultdict[int, list[int]] = defaultdict(list)
        self._chains_to: defaultdict[int, list[int]] = defaultdict(list)
        self._outside: dict[int, tuple[int, bool]] = {}
        self._spared = np.zeros(len(sets.sets))
        for k, chain in enumerate(chains):
            self._chains_at[chain.first].append(k)
            self._chains_to[chain.last].append(k)
            self._outside.setdefault(chain.first, skeleton.outside(chain))
        for hub, (others, beyond) in self._outside.items():
            if not beyond:
                inside = has[:, number[hub]] & has[:, [number[a] for a in bits_of(others)]].all(axis=1)
                self._spared[inside] += self._elements(self._chains_at[hub][0])
        self._hubs = np.array(skeleton.hubs)

    def _elements(self, chain: int) -> int:
        return self._skeleton.problem.network.tensors[self._skeleton.chains[chain].tensor].elements

    def least(self, prices: np.ndarray) -> np.ndarray:
        """(sets,): a lower bound of the moves less prices of the groups with each set of hubs."""
        sets = self._sets
        behind, before = self.pieces(prices)
        found = np.full(len(sets.sets), -np.inf)
        inner = self._inner(prices)
        for shadow in _SHADOWS:
            ends = [
                np.array([min([0.0, *(r + shadow * p.need for p, r in side)]) for side in sides])
                for sides in (behind, before)
            ]
            vector = np.concatenate([inner, *ends])
            found = np.maximum(found, self._table @ vector - shadow * (self._skeleton.problem.room - sets.needs))
        result: np.ndarray = found + sets.moved - self._spared
        return result

    def _inner(self, prices: np.ndarray) -> np.ndarray:
        """What hubs, and chains between them, cost less by their prices."""
        chains = self._skeleton.chains
        return -np.concatenate([prices[self._hubs], [prices[list(chain.links)].sum() for chain in chains]])

    def bare(self, prices: np.ndarray) -> np.ndarray:
        """(sets,): the moves less prices of the sets without any piece."""
        inner = self._inner(prices)
        found: np.ndarray = self._sets.moved + self._table @ np.concatenate(
            [inner, np.zeros(2 * len(self._skeleton.chains))]
        )
        return found

    def pieces(self, prices: np.ndarray) -> tuple[list[list[tuple[Piece, float]]], list[list[tuple[Piece, float]]]]:
        """The pieces of all chains, behind their first and before their last hub, with what each moves less its prices."""
        chains = self._skeleton.chains
        return (
            [_priced(chain.behind_first, chain.links, prices) for chain in chains],
            [_priced(chain.before_last, chain.links[::-1], prices) for chain in chains],
        )

    def best(
        self,
        row: int,
        bare: float,
        priced: tuple[list[list[tuple[Piece, float]]], list[list[tuple[Piece, float]]]],
        room: int,
    ) -> Column | None:
        """The group with this set of hubs that saves most within so much room; `bare` and `priced` are what the methods say."""
        group = self._sets.sets[row]
        front = [_Partial(int(self._sets.needs[row]), bare, float(self._sets.moved[row]), group)]
        for hub in bits_of(group & self._hub_mask):
            at = [k for k in self._chains_at[hub] if not group >> self._skeleton.chains[k].last & 1]
            if at:
                front = self._behind(front, hub, [priced[0][k] for k in at], group, room)
        for hub, at in self._before_by_hub(group).items():
            front = self._before(front, hub, [priced[1][k] for k in at], group, room)
        return Column(front[-1].atoms, front[-1].need, front[-1].moved, front[-1].reduced) if front else None

    def _before_by_hub(self, group: int) -> dict[int, list[int]]:
        """The chains that may have pieces before a set, by the hub from which they come."""
        found = dict[int, list[int]]()
        for hub in bits_of(group & self._hub_mask):
            for k in self._chains_to[hub]:
                if not group >> (first := self._skeleton.chains[k].first) & 1:
                    found.setdefault(first, []).append(k)
        return found

    @cached_property
    def _hub_mask(self) -> int:
        return mask_of(self._skeleton.hubs)

    def _behind(
        self, front: list[_Partial], hub: int, sides: list[list[tuple[Piece, float]]], group: int, room: int
    ) -> list[_Partial]:
        """Pieces of the chains from a hub of the group. When all its readers are in the group, what it gives is not written."""
        others, beyond = self._outside[hub]
        spared = 0 if beyond or others & ~group else self._elements(self._chains_at[hub][0])
        found = front
        for side in sides:
            found = _joined(found, [_NONE, *(_partial(p, r) for p, r in side if r < 0)], room)
        if not spared:
            return found
        every = [one._replace(reduced=one.reduced - spared, moved=one.moved - spared) for one in front]
        for side in sides:
            every = _joined(every, [_partial(p, r) for p, r in side], room)
        return _joined(found + every, [_NONE], room)

    def _before(
        self, front: list[_Partial], hub: int, sides: list[list[tuple[Piece, float]]], group: int, room: int
    ) -> list[_Partial]:
        """Pieces of the chains from a hub outside to the group. Whole ones read what it gives, once for all of them."""
        read = bool(self._outside[hub][0] & group)
        found = front
        for side in sides:
            found = _joined(found, [_NONE, *(_partial(p, r) for p, r in side if r < 0 and (read or not p.whole))], room)
        if read or not any(p.whole and r < 0 for side in sides for p, r in side):
            return found
        given = self._elements(self._chains_at[hub][0])
        every = [one._replace(reduced=one.reduced + given, moved=one.moved + given) for one in front]
        for side in sides:
            every = _joined(every, [_NONE, *(_partial(p, r) for p, r in side if r < 0)], room)
        return _joined(found + every, [_NONE], room)


def _priced(pieces: tuple[Piece, ...], links: tuple[int, ...], prices: np.ndarray) -> list[tuple[Piece, float]]:
    sums = np.cumsum(prices[list(links)])
    return [(piece, piece.moved - float(sums[k])) for k, piece in enumerate(pieces)]


def _partial(piece: Piece, reduced: float) -> _Partial:
    return _Partial(piece.need, reduced, piece.moved, piece.atoms)


def _joined(front: list[_Partial], choices: list[_Partial], room: int) -> list[_Partial]:
    """One of each: those that fit and save more than all that need no more; the last one saves most."""
    found = [
        (a.need + b.need, a.reduced + b.reduced, a.moved + b.moved, a.atoms | b.atoms)
        for a in front
        for b in choices
        if a.need + b.need <= room
    ]
    found.sort()
    kept: list[_Partial] = []
    for one in found:
        if not kept or one[1] < kept[-1].reduced - 1e-9:
            kept.append(_Partial(*one))
    return kept
