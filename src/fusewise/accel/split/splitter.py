"""What it means to split a group that does not fit: the parts, and how it came to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fusewise.accel.explain.explainer import Edge

__all__ = ["SplitStep", "Splitter", "Splitting"]


@dataclass(frozen=True, slots=True)
class SplitStep:
    """One split on the way: a group into two halves, of which `category` 1, 2 or 3 says that both, one or none fit.

    `edge` gave the split; it is None where the group was split at random.
    """

    group: int
    before: int
    after: int
    edge: Edge | None
    category: int


@dataclass(frozen=True, slots=True)
class Splitting:
    """Groups that fit and together make up `group`, each reading only from those before it.

    `rectified`: the edges of explanations sufficed, without chance; `rectified_once`: those of the first explanation, that of
    the whole group, would do alone. `candidates` are the latter; `steps` the tree of splits, from the root.
    """

    group: int
    parts: tuple[int, ...]
    rectified: bool
    rectified_once: bool
    candidates: tuple[Edge, ...] = ()
    steps: tuple[SplitStep, ...] = ()


Splitter = Callable[[Sequence[int]], Sequence[Splitting]]
"""Splits many groups that do not fit at once, in order; each connected and convex. The result for a group depends on it alone."""
