"""How far the rows of one result carry those of another: what the bounds of row tiles (`exact_passes`) know before any group.

A result has a *step*, the rows of the network's inputs that one of its rows stands for: strides multiply, a map that grows
divides. Results that answer to a whole map, and what is made of nothing else (gates), have none, and go with any.

For each row of an end of a group, some tile holds what this row needs; from one such row to the next, the window on a map before
moves on by m rows at most (`moves`). So of a window of r rows on a map of H rows, some tile sees min(r, H - 2 m + 2) within the
map. For let f be the first row of the window before it is cut off at the map's edges: 0 or less for the first row of the end, and
for the last one the window reaches one of the last m rows. Take the last window with f <= 0. If f is 0, or this is the last of
all, it sees r rows, or down to the last m. Else the next one has f <= m - 1, and sees r rows, or from there to the last m.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from fusewise.accel.bits import bits_of, components, mask_of
from fusewise.accel.network import Network, Operator
from fusewise.accel.windows import AxisWindow

__all__ = ["FAR", "Steps", "answers_to_all", "moves_by", "rows_within", "steps_of"]

FAR = 1 << 30
"""Rows by which a map moves on when nothing is known."""


class Steps(NamedTuple):
    """`each` operator's step, 0 where it has none; `moves`, rows of its result by which windows move on at most (`FAR`: no
    bound). `loose`: operators with which a tile of n rows need not hold (n - 1) * ratio + 1 rows of every result before; a ratio
    is that of two steps. `even`: elsewhere it does, since all paths agree and every step is a multiple of the next finer one. With
    operators in `whole`, which answer to a map that no result outreaches, all rows pass in one tile."""

    each: tuple[int | Fraction, ...]
    moves: tuple[int, ...]
    loose: int
    even: bool
    whole: int


def steps_of(network: Network) -> Steps:
    """The steps of all results."""
    tensors = network.tensors
    each: list[int | Fraction] = []
    loose = free = 0
    agree = True
    for v, operator in enumerate(network.operators):
        sources = (tensors[read.tensor] for read in operator.reads)
        found = {each[t.producer] if t.producer >= 0 else int(t.height > 1) for t in sources} - {0}
        across, under = operator.form.rows.stride
        if answers_to_all(operator) or not found:
            free |= 1 << v
            agree &= answers_to_all(operator) or across <= under
            each.append(0)
        else:
            agree &= len(found) == 1
            step = max(found) * Fraction(across, under)
            each.append(step.numerator if step.denominator == 1 else step)
        if answers_to_all(operator) or (operator.form.rows.ranges and each[v]) or not _covers(network, operator):
            loose |= 1 << v
    for part in components(network.neighbours, free):
        agree &= len({each[r] for v in bits_of(part) for r in bits_of(network.successors[v] & ~free)}) <= 1
        if any(network.successors[v].bit_count() > 1 for v in bits_of(part)):
            loose |= mask_of(v for v in bits_of(part) if network.operators[v].form.rows.ranges)
    plain = sorted({step for v, step in enumerate(each) if step and not loose >> v & 1})
    even = agree and all(isinstance(fine, int) and coarse % fine == 0 for fine, coarse in pairwise([1, *plain]))
    outreach = [network.tensors[op.writes[0]].height * step for op, step in zip(network.operators, each, strict=True)]
    whole = 0
    for v, operator in enumerate(network.operators):
        source = network.tensors[operator.reads[0].tensor].producer if operator.reads else -1
        if agree and answers_to_all(operator) and source >= 0 and outreach[source] == max(outreach) > 0:
            whole |= 1 << v
    return Steps(tuple(each), _moves(network), loose, even, whole)


def answers_to_all(operator: Operator) -> bool:
    """Does one row of the result take the whole map?"""
    return operator.form.kind in ("global_pool", "flatten")


def _covers(network: Network, operator: Operator) -> bool:
    """Do windows begin within the map or before it, does each see its own row, and the last one one of the last rows?"""
    window, rows = operator.form.rows, network.tensors[operator.writes[0]].height
    across = window.stride[0]
    for read in operator.reads:
        height = network.tensors[read.tensor].height
        if height == 1:
            continue
        if window.ranges:
            if window.ranges[0][0] > 0:
                return False
            continue
        last = (rows - 1) * across
        if not (0 <= window.begin < window.size and height - across <= last - window.begin + window.size - 1):
            return False
        if last >= height:
            return False
    return True


def _moves(network: Network) -> tuple[int, ...]:
    """By how much the rows needed of each result move on for the next row of an end of a group: by one of its own, or as its
    readers have it."""
    moves = [1] * len(network)
    for v in reversed(range(len(network))):
        for t in network.operators[v].writes:
            for reader in bits_of(network.tensors[t].consumers):
                moves[v] = max(moves[v], moves_by(network, reader, t, moves[reader]))
    return tuple(moves)


def moves_by(network: Network, node: int, tensor: int, rows: int) -> int:
    """Rows of a tensor by which tiles move on at most when the result of an operator that reads it moves by `rows`."""
    operator, height = network.operators[node], network.tensors[tensor].height
    window = operator.form.rows
    if height == 1 or answers_to_all(operator) or operator.form.kind == "opaque":
        return 1
    if rows >= FAR or not _covers(network, operator):
        return FAR
    if not window.ranges:
        return rows * window.stride[0]
    lows, highs = zip(*window.ranges, strict=True)
    last, wide = len(lows) - 1, _widest(window)
    steps = [lows[min(y + rows, last)] - low for y, low in enumerate(lows)]
    steps += [lows[after] - lows[before] for before, after in pairwise(wide)]
    begins = max(lows[min(rows - 1, last)], lows[wide[0]]) + 1
    return int(max(*steps, begins, height - highs[max(0, last + 1 - rows)], height - highs[wide[-1]]))


def _widest(window: AxisWindow) -> list[int]:
    """The pixels of the result of a map that grows which read the most."""
    spans = [last - first for first, last in window.ranges]
    return [y for y, span in enumerate(spans) if span == max(spans)]


def rows_within(operator: Operator, rows: int, moves: int) -> int:
    """Input rows that `rows` rows of the result need, which move on by `moves`, where no window is cut off at the edges: no less
    for any of them, or of single rows one by one, for some."""
    window = operator.form.rows
    if not window.ranges:
        return (rows - 1) * window.stride[0] + window.size
    if rows == moves == 1:
        return window.size
    after, before = window.ranges[min(rows, len(window.ranges)) - 1 :], window.ranges
    return min(last[1] - first[0] for last, first in zip(after, before, strict=False)) + 1
