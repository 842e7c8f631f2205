"""A lower bound for networks too wide for a proof: how much every plan must cut, by a linear programme with rows made on demand.

Takes costs, gives elements that every plan moves at least. What is not cut moves weights once and unavoidable tensors; each
tensor t that a group does not share with all its readers moves at least cost_t more (written once, read once). With z_t = 1 for
those, the bound is the least sum of cost_t z_t over all z that do not contradict the buffer.

A group holds at most M elements, and operator v takes at least a_v of them whatever else is in the group. Call the length of a
path the sum of z_t over its edges: an operator outside the group of r is at least 1 away from it. So for every r and every set C

    sum over v in C of a_v * length(r, v)  >=  a(C) - M

(a spreading metric; Even, Naor, Rao and Schieber 1999). Written along a tree of paths from r, each row is linear in z: the factor
of a tensor is what hangs behind it. No factor need be larger than the right side, as z is 0 or 1; that makes the rows far tighter.
Shortest paths by the last z find the rows that it breaks. Every row holds for every plan, so the bound is one at any time; it is
computed from the dual values, so that it does not rest on the solver's tolerances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusewise.accel.bits import bits_of
from fusewise.accel.problem import Problem
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.search.exact_lines import LineGrowth

__all__ = ["Cuts", "cut_bound", "cuts_of"]

_ROUNDS = 120
_ROOTS = 250
_BROKEN = 1e-4
_TINY = 1e-9
_SLOW, _LITTLE = 12, 2e-3
"""Rounds at most; operators from which rows are looked for in one of them; by what part of its right side a row must be broken to
count; the length of an edge that is not cut; in how many rounds the bound must grow by what part of it to go on."""


@dataclass(frozen=True)
class Cuts:
    """What there is to cut. Operators and tensors are numbered anew: `sizes` (N,) elements that an operator takes of the `room`
    of its group, `prices` (T,) elements that a cut tensor moves, `ends` (E, 2) producer and reader, `tensor` (E,) between."""

    sizes: np.ndarray
    prices: np.ndarray
    ends: np.ndarray
    tensor: np.ndarray
    room: int


def cuts_of(problem: Problem) -> Cuts | None:
    """The tensors between fuseable operators; None for a scheme whose groups have no additive need, or when there is nothing
    to cut."""
    scheme, network, fuseable = problem.scheme, problem.network, problem.fuseable
    if not isinstance(scheme, LBDF):
        return None
    number = {v: k for k, v in enumerate(bits_of(fuseable))}
    sizes = LineGrowth(problem, scheme).apart
    prices: list[int] = []
    ends: list[tuple[int, int]] = []
    between: list[int] = []
    for tensor in network.tensors:
        readers = tensor.consumers & fuseable
        if tensor.producer not in number or not readers:
            continue
        others = tensor.consumers & ~fuseable if scheme.excluded_traffic else 0
        written = others or (tensor.is_output and scheme.network_io)
        for reader in bits_of(readers):
            ends.append((number[tensor.producer], number[reader]))
            between.append(len(prices))
        prices.append(tensor.elements * (1 if written else 2))
    if not prices:
        return None
    return Cuts(
        np.array([sizes[v] for v in number], float),
        np.array(prices, float),
        np.array(ends),
        np.array(between),
        problem.room,
    )


def cut_bound(cuts: Cuts, stop: Callable[[], bool], told: Callable[[float], None] = lambda bound: None) -> float:
    """Elements that every plan moves at least beside what it cannot avoid; `told` the best bound after each round."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, vstack

    count, best = len(cuts.prices), 0.0
    rows = csr_array((0, count))
    sides = np.zeros(0)
    lengths = np.zeros(count)
    history: list[float] = []
    turns, quiet = -(-len(cuts.sizes) // _ROOTS), 0
    for number in range(_ROUNDS):
        new, right = _broken(cuts, lengths, range(number % turns, len(cuts.sizes), turns))
        quiet = 0 if len(right) else quiet + 1
        if quiet == turns or stop():
            break
        if quiet:
            continue
        rows, sides = vstack([rows, new], format="csr"), np.concatenate([sides, right])
        found = linprog(cuts.prices, A_ub=-rows, b_ub=-sides, bounds=(0, 1), method="highs")
        if found.status != 0:
            break
        lengths, dual = np.clip(found.x, 0, 1), np.maximum(0, -found.ineqlin.marginals)
        over = rows.T @ dual - cuts.prices
        best = max(best, float(sides @ dual - np.maximum(0, over).sum()))
        told(best)
        history.append(best)
        if len(history) > _SLOW and best - history[-_SLOW] < _LITTLE * best:
            break
        used = (dual > 0) | (rows @ lengths - sides < 0.1)
        rows, sides = rows[used], sides[used]
    return best


def _broken(cuts: Cuts, lengths: np.ndarray, roots: range) -> tuple[Any, np.ndarray]:
    """Rows (R, T) and right sides (R,) = 1 that these lengths break, the worst of each root."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    nodes = len(cuts.sizes)
    weights = lengths[cuts.tensor] + _TINY
    a, b = cuts.ends.T
    edges = {(int(u), int(v)): int(t) for u, v, t in zip([*a, *b], [*b, *a], [*cuts.tensor] * 2, strict=True)}
    graph = csr_array(
        (np.concatenate([weights, weights]), (np.concatenate([a, b]), np.concatenate([b, a]))), (nodes, nodes)
    )
    away, before = dijkstra(graph, directed=True, indices=list(roots), limit=1.0, return_predecessors=True)
    data: list[float] = []
    columns: list[int] = []
    starts = [0]
    for lengths_from, path in zip(away, before, strict=True):
        near = np.flatnonzero(lengths_from < 1)
        near = near[np.argsort(lengths_from[near], kind="stable")]
        held = np.cumsum(cuts.sizes[near])
        first = int(np.searchsorted(held, cuts.room, side="right"))
        if first >= len(near):
            continue
        row = _worst(cuts, edges, lengths, near, path, held, first)
        if row is not None:
            columns += row.keys()
            data += row.values()
            starts.append(len(data))
    found = csr_array((np.array(data), np.array(columns, int), np.array(starts)), (len(starts) - 1, len(cuts.prices)))
    return found, np.ones(len(starts) - 1)


def _worst(
    cuts: Cuts,
    edges: dict[tuple[int, int], int],
    lengths: np.ndarray,
    near: np.ndarray,
    before: np.ndarray,
    held: np.ndarray,
    first: int,
) -> dict[int, float] | None:
    """The row, over its right side, that is broken most, of those for the nearest operators, from `first` to all of them."""
    worst, least = None, 1 - _BROKEN
    for end in sorted({first, (first + len(near) - 1) // 2, len(near) - 1}):
        side = float(held[end] - cuts.room)
        behind = {int(v): float(cuts.sizes[v]) for v in near[: end + 1]}
        row: dict[int, float] = {}
        for v in near[end:0:-1].tolist():
            u = int(before[v])
            behind[u] += behind[v]
            tensor = edges[u, v]
            row[tensor] = row.get(tensor, 0.0) + behind[v]
        row = {tensor: min(1.0, factor / side) for tensor, factor in row.items()}
        total = sum(factor * lengths[tensor] for tensor, factor in row.items())
        if total < least:
            worst, least = row, total
    return worst
