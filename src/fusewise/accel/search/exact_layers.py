"""All groups of a problem as paths through layers: one layer for each operator, in topological order.

A state of a layer is what must be remembered of a group of which the operators so far are known (`exact_memory`), and which of
its parts hang together. Each operator is left out or taken in, and either leads to a state of the next layer. Paths from where the
first operator is taken in to where nothing is left to remember are the groups: connected and convex, each once, with what they
need and move as sums along the path.

    operator          5                 6                     7
    state  x --left out--> y --taken in--> z --left out--> finished

Most of a state is not about the operator at hand. So steps are asked for once for each thing that may be known of the tensors
around it, and carried out for all states at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fusewise.accel.problem import Problem
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.search.exact_memory import Known, MemoryStep, MemorySteps

__all__ = ["Layer", "Root", "layered", "layers_of"]

_WIDEST = 60
"""Tensors that are remembered at a time, at most: parts of a group are bits of a machine word."""


class Root(NamedTuple):
    """Where an operator that is the first of a group leads: the state of the next layer, elements needed and moved."""

    to: int
    need: int
    moved: int


@dataclass(frozen=True)
class Layer:
    """The steps of one operator. For each state, (2, states): the state of the next layer when the operator is left out, and when
    it is taken in; and elements that are needed and moved more by that. State 0 is a finished group. What is impossible leads to
    state `following`, the number of states of the next layer. `root` is None for an operator that no group may have."""

    to: np.ndarray
    need: np.ndarray
    moved: np.ndarray
    following: int
    root: Root | None


def layered(problem: Problem) -> bool:
    """Are the groups of a problem known by steps?"""
    return isinstance(problem.scheme, LBDF)


def layers_of(problem: Problem, most: int, stop: Callable[[], bool] = lambda: False) -> tuple[Layer, ...] | None:
    """A layer for each operator of a `layered` problem; None when they have more than so many states, or when `stop` says so."""
    assert isinstance(problem.scheme, LBDF)
    builder, found, total = _Builder(MemorySteps(problem, problem.scheme)), list[Layer](), 0
    for node in range(len(problem.network)):
        layer = builder.layer(node)
        if layer is None or (total := total + layer.following) > most or stop():
            return None
        found.append(layer)
    return tuple(found)


class _States(NamedTuple):
    """States as rows; the last one stands for no group yet. Of each tensor remembered, (states, tensors): what is known of it as a
    number, 0 for nothing, and which part of the group made it, -1 for none; and the least need with which a group comes here."""

    tensors: list[int]
    known: np.ndarray
    part: np.ndarray
    need: np.ndarray


class _Steps(NamedTuple):
    """What an operator does, for each kind of state: numbers (kinds, tensors around it), and (kinds,) elements needed and moved
    more, whether it reads from the group, and whether it may be done."""

    known: np.ndarray
    need: np.ndarray
    moved: np.ndarray
    inside: np.ndarray
    possible: np.ndarray


class _Side(NamedTuple):
    """All states after an operator is left out, or taken in; which of them go on, and which are finished groups."""

    known: np.ndarray
    part: np.ndarray
    need: np.ndarray
    moved: np.ndarray
    going: np.ndarray
    finished: np.ndarray


class _Builder:
    """Keeps the states of the last layer, and a number for everything that may be known of a tensor."""

    def __init__(self, memory: MemorySteps) -> None:
        self._memory, self._problem = memory, memory.problem
        self._number: dict[Known | None, int] = {None: 0}
        self._meaning: list[Known | None] = [None]
        nothing = np.zeros((1, 0), np.int64)
        self._states = _States([], nothing, nothing, np.zeros(1, np.int64))

    def layer(self, node: int) -> Layer | None:
        """The layer of the next operator; None when too many tensors are remembered at a time."""
        around = self._memory.around[node]
        states = _widened(self._states, around)
        columns = [states.tensors.index(t) for t in around]
        reads = [states.tensors.index(read.tensor) for read in self._problem.network.operators[node].reads]
        kinds, kind = _distinct(states.known[:, columns])
        steps = self._steps(node, around, kinds, self._memory.left_out)
        sides = [self._side(states, columns, steps, kind, None)]
        sides[0].going[-1] = sides[0].finished[-1] = False
        if not self._problem.excluded >> node & 1:
            steps = self._steps(node, around, kinds, self._memory.taken_in)
            sides.append(self._side(states, columns, steps, kind, reads))
        self._states, numbers = self._joined(node, states, sides)
        if len(self._states.tensors) > _WIDEST:
            return None
        following, count = len(self._states.need), len(states.need)
        to, need, moved = (np.zeros((2, count), np.int64) for _ in range(3))
        to[:] = following
        to[0, 0] = 0
        for k, (side, targets) in enumerate(zip(sides, numbers, strict=True)):
            to[k, 1:], need[k, 1:], moved[k, 1:] = targets[:-1], side.need[:-1], side.moved[:-1]
        root = None
        if len(sides) == 2:
            root = Root(int(numbers[1][-1]), int(sides[1].need[-1]), int(sides[1].moved[-1]))
        return Layer(to, need, moved, following, root)

    def _steps(
        self,
        node: int,
        around: tuple[int, ...],
        kinds: np.ndarray,
        step: Callable[[int, dict[int, Known]], MemoryStep | None],
    ) -> _Steps:
        """The steps of an operator for all kinds of states."""
        number, meaning = self._number, self._meaning
        rows = np.zeros(kinds.shape, np.int64)
        need, moved = np.zeros(len(kinds), np.int64), np.zeros(len(kinds), np.int64)
        inside, possible = np.zeros(len(kinds), bool), np.ones(len(kinds), bool)
        for k, kind in enumerate(kinds.tolist()):
            found = step(node, {t: at for t, n in zip(around, kind, strict=True) if (at := meaning[n]) is not None})
            if found is None:
                possible[k] = False
                continue
            for at in found.known:
                if at not in number:
                    number[at] = len(meaning)
                    meaning.append(at)
            rows[k] = [number[at] for at in found.known]
            need[k], moved[k], inside[k] = found.need, found.moved, found.inside
        return _Steps(rows, need, moved, inside, possible)

    def _side(
        self, states: _States, columns: list[int], steps: _Steps, kind: np.ndarray, reads: list[int] | None
    ) -> _Side:
        """What a step makes of all states. `reads`: the columns that the operator reads if it is taken in."""
        known, part = states.known.copy(), states.part
        known[:, columns] = steps.known[kind]
        parts = _bits(part)
        made = np.array([at is not None and at.made for at in self._meaning])
        if reads is not None:
            own = _bit_count(parts)  # a part of its own
            part = part.copy()
            inside = steps.inside[kind]
            if reads:
                own = np.where(inside, np.where(part[:, reads] < 0, 99, part[:, reads]).min(axis=1), own)
            for column in reads:
                joins = part[:, column]
                part = np.where((part == joins[:, None]) & (joins >= 0)[:, None], own[:, None], part)
            for column in set(columns) - set(reads):
                part[:, column] = np.where(part[:, column] < 0, own, part[:, column])
            parts = _bits(part) | (1 << own)
        part = np.where(made[known], part, -1)
        left = _bits(part)
        whole = (parts & ~left == 0) & (left != 0)
        finished = (left == 0) & (_bit_count(parts) == 1)
        able = steps.possible[kind] & (states.need + steps.need[kind] <= self._problem.room)
        return _Side(known, part, steps.need[kind], steps.moved[kind], whole & able, finished & able)

    def _joined(self, node: int, states: _States, sides: Sequence[_Side]) -> tuple[_States, list[np.ndarray]]:
        """The states of the next layer, and the number there of every state of each side."""
        known = np.concatenate([side.known[side.going] for side in sides])
        part = np.concatenate([side.part[side.going] for side in sides])
        need = np.concatenate([(states.need + side.need)[side.going] for side in sides])
        lasting = [k for k, t in enumerate(states.tensors) if self._memory.last[t] > node or (known[:, k] != 0).any()]
        known, part = known[:, lasting], _renumbered(part[:, lasting])
        rows, number = _distinct(known * (_WIDEST + 2) + part + 1)
        least = np.full(len(rows) + 1, np.iinfo(np.int64).max)
        np.minimum.at(least, number, need)
        least[-1] = 0
        nothing = np.zeros((1, len(lasting)), np.int64)
        states = _States(
            [states.tensors[k] for k in lasting],
            np.concatenate([rows // (_WIDEST + 2), nothing]),
            np.concatenate([rows % (_WIDEST + 2) - 1, nothing - 1]),
            least,
        )
        numbers, at = [], 0
        for side in sides:
            targets = np.full(len(side.going), len(rows) + 1)
            count = int(side.going.sum())
            targets[side.going], at = number[at : at + count] + 1, at + count
            targets[side.finished] = 0
            numbers.append(targets)
        return states, numbers


def _widened(states: _States, tensors: Sequence[int]) -> _States:
    """With a column for each of the tensors."""
    new = [t for t in tensors if t not in states.tensors]
    blank = np.zeros((len(states.need), len(new)), np.int64)
    return _States(
        [*states.tensors, *new], np.hstack([states.known, blank]), np.hstack([states.part, blank - 1]), states.need
    )


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows, and which of them each row is. By a hash of each row; when two distinct ones agree in that, by another."""
    random = np.random.default_rng(len(rows))
    while True:
        factors = random.integers(1, 1 << 62, rows.shape[1]) * 2 + 1
        _, first, number = np.unique(rows @ factors, return_index=True, return_inverse=True)
        if np.array_equal(rows[first][number], rows):
            return rows[first], number


def _renumbered(part: np.ndarray) -> np.ndarray:
    """The parts of each row numbered in the order in which they first stand there."""
    rows, width = np.arange(len(part)), part.shape[1]
    number, count = np.full((len(part), _WIDEST + 2), -1), np.zeros(len(part), np.int64)
    found = np.full_like(part, -1)
    for column in range(width):
        here = part[:, column]
        new = (here >= 0) & (number[rows, here] < 0)
        number[rows[new], here[new]] = count[new]
        count[new] += 1
        found[:, column] = np.where(here >= 0, number[rows, here], -1)
    return found


def _bits(part: np.ndarray) -> np.ndarray:
    """(states,): the parts of each row as bits."""
    found: np.ndarray = np.bitwise_or.reduce(np.where(part >= 0, 1 << np.maximum(part, 0), 0), axis=1)
    return found


def _bit_count(bits: np.ndarray) -> np.ndarray:
    """How many bits are set, as signed integers."""
    found: np.ndarray = np.bitwise_count(bits).astype(np.int64)
    return found
