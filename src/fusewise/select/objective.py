"""What an order of passes is chosen by: one figure, or a weighted sum of several. Less is better.

`throughput` counts as the milliseconds that one item takes, so that it can be added to the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fusewise.errors import UsageError
from fusewise.words import no_such

__all__ = ["OBJECTIVES", "Objective", "objective_named"]

OBJECTIVES: Mapping[str, str] = MappingProxyType(
    {
        "latency": "ms",
        "throughput": "ms per item",
        "memory": "MB",
        "compile-time": "ms",
        "energy": "mJ",
        "estimate": "ms",
    }
)
"""Figures and their units. `estimate` is the analytic time of the graph, which takes no measuring."""

_TERM = re.compile(r"(?:(\d+(?:\.\d*)?|\.\d+)\s*\*\s*)?([a-z-]+)")


@dataclass(frozen=True)
class Objective:
    """Weights of figures."""

    terms: tuple[tuple[float, str], ...]

    def __str__(self) -> str:
        return " + ".join(name if weight == 1 else f"{weight:g}*{name}" for weight, name in self.terms)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for _, name in self.terms)

    @property
    def unit(self) -> str:
        return OBJECTIVES[self.names[0]] if len(self.terms) == 1 else ""

    def cost(self, figures: Mapping[str, float]) -> float:
        """The weighted sum; infinite when a figure is not known."""
        return sum((weight * figures.get(name, math.inf) for weight, name in self.terms), 0.0)


def objective_named(text: str) -> Objective:
    """`latency`, or a sum such as `latency + 0.1*memory`. `UsageError` for anything else, with the nearest name."""
    terms = []
    for part in text.split("+"):
        match = _TERM.fullmatch(part.strip())
        if match is None:
            raise UsageError(f"the objective {text!r} is not a sum such as 'latency + 0.1*memory'")
        weight, name = match[1], match[2]
        if name not in OBJECTIVES:
            raise no_such("objective", name, OBJECTIVES)
        terms.append((float(weight) if weight else 1.0, name))
    return Objective(tuple(terms))
