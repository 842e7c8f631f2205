"""The linear programme of which groups make up a plan, and the choice in whole groups, both solved by HiGHS.

Rows: each operator is covered once, and at most one group has it as its first operator. Columns: groups, and for every operator
two more, by which it may be covered less or more than once for a price. The prices of these hold the dual values, which are what
column generation is after, in a box.

The solver keeps its basis while columns come and go, so that a round takes a tenth of what a fresh solve does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fusewise.accel.bits import bits_of
from fusewise.accel.problem import GroupCosts

if TYPE_CHECKING:
    from highspy import Highs

__all__ = ["Programme", "Solved"]

_TINY = 1e-6


class Solved(NamedTuple):
    """The value of the programme, its prices (operators,), and which of these the box holds."""

    value: float
    prices: np.ndarray
    held: np.ndarray


class Programme:
    """Groups (operators as bits), and elements that each moves; single operators are never forgotten."""

    def __init__(self, costs: GroupCosts, groups: Iterable[int]) -> None:
        self._problem, self._costs = costs.problem, costs
        self._rows = np.array(list(bits_of(costs.problem.fuseable)), np.int64)
        self._row = {node: k for k, node in enumerate(self._rows.tolist())}
        self.groups: list[int] = []
        self.moved: list[float] = []
        self._known: set[int] = set()
        self._solver = _solver()
        count = len(self._rows)
        _add_rows(self._solver, np.ones(count), np.ones(count))
        _add_rows(self._solver, np.full(count, -np.inf), np.ones(count))
        for sign in (1.0, -1.0):
            _add_columns(self._solver, np.zeros(count), [[k] for k in range(count)], sign)
        for group in groups:
            self.add(group)

    def moved_by(self, group: int) -> float:
        """Elements that a group moves."""
        return self._costs.dram_bytes(group) * 8 / self._problem.scheme.bits

    def add(self, group: int) -> None:
        """Add a group, unless it is known."""
        if group not in self._known:
            self._known.add(group)
            self.groups.append(group)
            self.moved.append(self.moved_by(group))

    def solved(self, prices: np.ndarray, width: np.ndarray) -> Solved | None:
        """The programme with prices (operators,) at most `width` away from these. None when the solver gives up."""
        solver, count = self._solver, len(self._rows)
        new = solver.getNumCol() - 2 * count
        members = [self._members(group) for group in self.groups[new:]]
        _add_columns(solver, np.array(self.moved[new:]), [[*rows, count + rows[0]] for rows in members])
        near, width = prices[self._rows], width[self._rows]
        solver.changeColsCost(
            2 * count, np.arange(2 * count, dtype=np.int32), np.concatenate([near + width, width - near])
        )
        if not _solves(solver):
            return None
        found, trial, held = solver.getSolution(), np.zeros_like(prices), np.zeros(len(prices), bool)
        trial[self._rows] = np.array(found.row_dual)[:count]
        held[self._rows] = (np.array(found.col_value)[: 2 * count].reshape(2, count) > _TINY).any(axis=0)
        return Solved(solver.getInfo().objective_function_value, trial, held)

    def forget(self, prices: np.ndarray, kept: int) -> None:
        """Keep about so many groups: those in use, and those that cost least beyond the prices of their operators."""
        from highspy import HighsBasisStatus

        over, first = self.over(prices), 2 * len(self._rows)
        status = self._solver.getBasis().col_status[first:]
        used = np.array([at == HighsBasisStatus.kBasic for at in status] + [True] * (len(over) - len(status)))
        keep = used | (over <= np.partition(over, kept)[kept])
        gone = np.flatnonzero(~keep)
        self._solver.deleteCols(len(gone), (first + gone).astype(np.int32))
        self.groups = [group for group, kept_one in zip(self.groups, keep, strict=True) if kept_one]
        self.moved = [moved for moved, kept_one in zip(self.moved, keep, strict=True) if kept_one]
        self._known = set(self.groups)

    def over(self, prices: np.ndarray) -> np.ndarray:
        """(groups,): what each costs beyond the prices of its operators; 0 for single ones."""
        members = [self._members(group) for group in self.groups]
        starts = np.cumsum([0, *map(len, members[:-1])])
        sums = np.add.reduceat(prices[self._rows][np.concatenate(members)], starts)
        over: np.ndarray = np.array(self.moved) - sums
        over[[len(rows) == 1 for rows in members]] = 0
        return over

    def chosen(self, which: np.ndarray, barred: list[list[int]], seconds: float) -> list[int] | None:
        """The cheapest choice of whole groups, as places among `groups`, of those that `which` allows; none that holds all groups
        of a list of `barred`. None when there is none in time."""
        from highspy import HighsVarType

        solver, places = _solver(), np.flatnonzero(which)
        solver.setOptionValue("time_limit", seconds)
        _add_rows(solver, np.ones(len(self._rows)), np.ones(len(self._rows)))
        _add_rows(solver, np.full(len(barred), -np.inf), np.array([len(these) - 1.0 for these in barred]))
        columns = [self._members(self.groups[k]) for k in places]
        number = {int(k): at for at, k in enumerate(places)}
        for k, these in enumerate(barred):
            for place in these:
                if place in number:
                    columns[number[place]].append(len(self._rows) + k)
        _add_columns(solver, np.array(self.moved)[places], columns, most=1.0)
        kinds = np.array([HighsVarType.kInteger] * len(places))
        solver.changeColsIntegrality(len(places), np.arange(len(places), dtype=np.int32), kinds)
        solver.run()
        values = np.array(solver.getSolution().col_value)
        if not solver.getSolution().value_valid or len(values) != len(places):
            return None
        return [int(k) for k in places[values > 0.5]]

    def _members(self, group: int) -> list[int]:
        return [self._row[node] for node in bits_of(group)]


def _solver() -> Highs:
    from highspy import Highs

    solver = Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    return solver


def _solves(solver: Highs) -> bool:
    from highspy import HighsModelStatus

    solver.run()
    return bool(solver.getModelStatus() == HighsModelStatus.kOptimal)


def _add_rows(solver: Highs, lower: np.ndarray, upper: np.ndarray) -> None:
    none, starts = np.zeros(0, np.int32), np.zeros(len(lower), np.int32)
    if len(lower):
        solver.addRows(len(lower), lower, upper, 0, starts, none, np.zeros(0))


def _add_columns(
    solver: Highs, costs: np.ndarray, rows: list[list[int]], value: float = 1.0, most: float = np.inf
) -> None:
    """Columns with the same value in these rows."""
    count = len(rows)
    if count:
        starts = np.cumsum([0, *map(len, rows[:-1])]).astype(np.int32)
        entries = np.concatenate([np.array(some, np.int32) for some in rows])
        lower, upper = np.zeros(count), np.full(count, most)
        solver.addCols(count, costs, lower, upper, len(entries), starts, entries, np.full(len(entries), value))
