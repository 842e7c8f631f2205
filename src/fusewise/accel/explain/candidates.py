"""From scores to candidate edges: how many of the edges of an explanation a split may use.

The published method gives no threshold. At a share of 1 the explanation is irrelevant; what an explanation is worth shows only at
a smaller share, beside as many random edges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fusewise.accel.explain.explainer import Edge, Explanation, edges_inside
from fusewise.accel.network import Network

__all__ = ["DEFAULT_SHARE", "EdgeShare", "candidates"]


@dataclass(frozen=True, slots=True)
class EdgeShare:
    """Take `part` of the edges inside a group, but at least `least`."""

    part: float = 0.3
    least: int = 3


DEFAULT_SHARE = EdgeShare()
"""Three edges of ten."""


def candidates(network: Network, explanation: Explanation, share: EdgeShare) -> tuple[Edge, ...]:
    """The edges to try, the most to blame first: the best by score, then all others inside the explanation's node set."""
    inside = edges_inside(network, explanation.group)
    wanted = max(share.least, math.ceil(share.part * len(inside)))
    chosen = explanation.ranked()[:wanted]
    blamed = edges_inside(network, explanation.nodes & explanation.group)
    return tuple(dict.fromkeys([*chosen, *blamed]))
