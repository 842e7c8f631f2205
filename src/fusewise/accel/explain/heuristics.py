"""Explainers without a neural network: the controls that a learned explanation must beat before it can take credit.

Each is a rule of thumb about which edge of a group to cut. `random` and `spread` know nothing about the group at all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fusewise.accel.explain.explainer import Edge, Explainer, Explanation, edges_inside, one_by_one
from fusewise.accel.network import Network
from fusewise.accel.problem import GroupCosts
from fusewise.accel.schemes.lbdf import LBDF

__all__ = [
    "CONTROLS",
    "all_edges",
    "largest_live",
    "random_edges",
    "smallest_tensor",
    "spread_edges",
    "spread_order",
]


def random_edges(seed: int) -> Explainer:
    """Edges in random order: the lower bound. The order depends on the seed and the group alone."""

    def explain(costs: GroupCosts, group: int) -> Explanation:
        edges = edges_inside(costs.problem.network, group)
        scores = np.random.default_rng([seed, group]).random(len(edges))
        return Explanation(group, tuple(zip(edges, map(float, scores), strict=True)))

    return one_by_one(explain)


def spread_edges(seed: int = 0) -> Explainer:
    """Edges evenly spread along the topological order, however many are taken: first the middle, then the quarters, ..."""

    def explain(costs: GroupCosts, group: int) -> Explanation:
        edges = edges_inside(costs.problem.network, group)
        order = spread_order(len(edges))
        return Explanation(group, tuple((edges[at], -float(rank)) for rank, at in enumerate(order)))

    return one_by_one(explain)


def all_edges(seed: int = 0) -> Explainer:
    """Every edge, whatever share is asked for: the upper bound, where the explanation is irrelevant."""

    def explain(costs: GroupCosts, group: int) -> Explanation:
        return Explanation(
            group, tuple((edge, 0.0) for edge in edges_inside(costs.problem.network, group)), nodes=group
        )

    return one_by_one(explain)


def smallest_tensor(seed: int = 0) -> Explainer:
    """The edge that carries the fewest elements first: the cheapest to cut."""

    def explain(costs: GroupCosts, group: int) -> Explanation:
        network = costs.problem.network
        edges = edges_inside(network, group)
        return Explanation(group, tuple((edge, -float(_carried(network, edge))) for edge in edges))

    return one_by_one(explain)


def largest_live(seed: int = 0) -> Explainer:
    """The edge whose tensor takes the most buffer first.

    Under a scheme without line buffers, whole rows stand in for the pixels that a line buffer holds.
    """

    def explain(costs: GroupCosts, group: int) -> Explanation:
        problem = costs.problem
        network, scheme = problem.network, problem.scheme
        lines = scheme if isinstance(scheme, LBDF) else LBDF("row", scheme.bits)
        held = {line.tensor: line.live * network.tensors[line.tensor].channels for line in lines.lines(network, group)}
        return Explanation(
            group,
            tuple(
                (edge, float(sum(held.get(tensor, 0) for tensor in _tensors(network, edge))))
                for edge in edges_inside(network, group)
            ),
        )

    return one_by_one(explain)


CONTROLS: dict[str, Callable[[int], Explainer]] = {
    "random": random_edges,
    "spread": spread_edges,
    "smallest": smallest_tensor,
    "largest-live": largest_live,
    "all": all_edges,
}
"""Every control by name, made from a seed, which only `random` uses."""


def _tensors(network: Network, edge: Edge) -> list[int]:
    """The tensors that an edge carries."""
    producer, consumer = edge
    return [t for t in network.operators[producer].writes if network.tensors[t].consumers >> consumer & 1]


def _carried(network: Network, edge: Edge) -> int:
    return sum(network.tensors[t].elements for t in _tensors(network, edge))


def spread_order(size: int) -> list[int]:
    """0 .. size-1 in an order whose every beginning is evenly spread (van der Corput's sequence to base 2)."""
    digits = max(1, (size - 1).bit_length())
    places = [int(f"{k:0{digits}b}"[::-1], 2) for k in range(1, 1 << digits)]
    return list(dict.fromkeys(place * size >> digits for place in [*places, 0])) if size else []
