"""Why a plan's groups end where they do: what would happen if two neighbours were one.

Takes the costs of a problem and the groups of a plan; gives a reason for every pair of neighbours, from a closed list, with the
figures that make it true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.scheme import UNBOUNDED, bytes_for

__all__ = ["REASONS", "Boundary", "boundaries", "sentence"]

REASONS = ("excluded", "too large", "refused", "cycle", "no gain", "search")
"""`excluded`: an operator that fits no buffer stands there. `too large`: together they do not fit. `refused`: the scheme cannot
run them together at any size. `cycle`: a third group would have to run between them. `no gain`: together they would cost as much
or more. `search`: they would fit and cost less, but the search did not come by."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """Two neighbours of which one reads the other's results, each a group's number or, for an excluded operator, None.

    `producer` and `consumer` are operators on either side; `crossing_bytes` is the size of the tensors between them, each once;
    `over_bytes` by how much the union misses the capacity when it is too large, `saved_bytes` what it would save otherwise.
    """

    before: int | None
    after: int | None
    producer: int
    consumer: int
    reason: str
    detail: str
    crossing_bytes: int
    over_bytes: int = 0
    saved_bytes: int = 0


def boundaries(costs: GroupCosts, groups: Sequence[int]) -> tuple[Boundary, ...]:
    """Every pair of neighbours in the order of their first edge; `groups` are bits, in the order they run."""
    problem = costs.problem
    network = problem.network
    owner = {v: k for k, group in enumerate(groups) for v in bits_of(group)}
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for producer, consumer in network.edges:
        ends = owner.get(producer, -1 - producer), owner.get(consumer, -1 - consumer)
        if ends[0] != ends[1]:
            found.setdefault(ends, (producer, consumer))
    masks = dict(enumerate(groups)) | {-1 - v: 1 << v for v in bits_of(problem.excluded)}
    return tuple(
        _boundary(costs, groups, ends, edge, masks[ends[0]], masks[ends[1]])
        for ends, edge in sorted(found.items(), key=lambda item: item[1])
    )


def _boundary(
    costs: GroupCosts, groups: Sequence[int], ends: tuple[int, int], edge: tuple[int, int], before: int, after: int
) -> Boundary:
    problem = costs.problem
    reason, detail, over, saved = _judged(costs, groups, ends, before, after)
    return Boundary(
        None if ends[0] < 0 else ends[0],
        None if ends[1] < 0 else ends[1],
        *edge,
        reason,
        detail,
        _crossing(problem, before, after),
        over,
        saved,
    )


def _judged(
    costs: GroupCosts, groups: Sequence[int], ends: tuple[int, int], before: int, after: int
) -> tuple[str, str, int, int]:
    """Reason, detail, bytes over the capacity, bytes saved."""
    problem = costs.problem
    network = problem.network
    for end, mask in zip(ends, (before, after), strict=True):
        if end < 0:
            node = mask.bit_length() - 1
            return "excluded", f"{network.operators[node].name}: {problem.exclusion(node)}", 0, 0
    union = before | after
    refusal = problem.scheme.refusal(network, union)
    if refusal is not None:
        return "refused", refusal, 0, 0
    need = costs.buffer_bytes(union)
    if need >= UNBOUNDED or not costs.fits(union):
        return "too large", f"together they need {need:,} of {problem.capacity:,} bytes", need - problem.capacity + 1, 0
    merged = [group for k, group in enumerate(groups) if k not in ends]
    if not network.is_convex(union) or problem.ordered([*merged, union]) is None:
        return "cycle", "a group outside needs results of one and gives to the other", 0, 0
    saved = costs.dram_bytes(before) + costs.dram_bytes(after) - costs.dram_bytes(union)
    if costs.cost(before) + costs.cost(after) <= costs.cost(union):
        return "no gain", "together they would cost as much", 0, saved
    return "search", "together they would cost less; the search did not find it", 0, saved


def _crossing(problem: Problem, before: int, after: int) -> int:
    """Bytes of the tensors that `before` writes and `after` reads."""
    tensors = problem.network.tensors
    elements = sum(
        tensors[t].elements
        for v in bits_of(before)
        for t in problem.network.operators[v].writes
        if tensors[t].consumers & after
    )
    return bytes_for(elements, problem.scheme.bits)


def sentence(network: Network, boundary: Boundary) -> str:
    """A boundary in words."""
    producer, consumer = network.operators[boundary.producer].name, network.operators[boundary.consumer].name
    over = f" ({boundary.over_bytes:,} too many)" if boundary.over_bytes else ""
    return f"{producer} -> {consumer}: {boundary.reason}, {boundary.detail}{over}"
