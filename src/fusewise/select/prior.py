"""What earlier searches for an order of passes learned: which pass, behind which, changed the graph, and whether that was cheaper.

Takes counts of moves, gives the promise of a move: how likely it is to change the graph and to pay. A move that was seldom tried is
judged by what its pass did elsewhere, and a pass that is new by what passes do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Count", "Move", "Prior"]

_WEIGHT = 2.0
"""How many tries the wider experience is worth beside the narrower."""


@dataclass(frozen=True, slots=True)
class Move:
    """A pass that is put into an order behind another, or taken out from behind it; nothing is before the first.

    A fusion planner is put behind the last pass.
    """

    behind: str
    name: str
    put: bool = True


@dataclass(frozen=True, slots=True)
class Count:
    """How often a move was tried and changed the graph; how often the prices before and behind it were known, and fell."""

    tried: int = 0
    changed: int = 0
    priced: int = 0
    cheaper: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.tried + other.tried,
            self.changed + other.changed,
            self.priced + other.priced,
            self.cheaper + other.cheaper,
        )


class Prior:
    """Counts of moves, and what they promise. Grows as a search goes on."""

    def __init__(self, counts: Mapping[Move, Count]) -> None:
        self._counts: defaultdict[tuple[object, ...], Count] = defaultdict(Count)
        for move, count in counts.items():
            self.add(move, count)

    def add(self, move: Move, count: Count) -> None:
        for key in _views(move):
            self._counts[key] += count

    def promise(self, move: Move) -> float:
        """How likely a move changes the graph for a lower price, 0 to 1; a quarter where nothing is known."""
        changes = pays = 0.5
        for key in _views(move):
            count = self._counts.get(key)
            if count is not None:
                changes = (count.changed + _WEIGHT * changes) / (count.tried + _WEIGHT)
                pays = (count.cheaper + _WEIGHT * pays) / (count.priced + _WEIGHT)
        return changes * pays


def _views(move: Move) -> Iterable[tuple[object, ...]]:
    """What a move is an instance of, the widest first."""
    return (move.put,), (move.put, move.name), (move.put, move.name, move.behind)
