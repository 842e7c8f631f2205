"""What every search takes as its limit and gives back: the best plan found, how good it is known to be, what it took."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Result", "SearchBudget"]


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """When to stop: after so many evaluated plans, or seconds; None is no limit."""

    plans: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The best plan of a search.

    `groups` are sets of operators as bits, each reading only from those before it; `cost` is the sum of the objective over
    them. `lower_bound` is a cost below which no plan can be, None when the search knows none; `optimal` says that `cost` is
    proven least. `history` holds (plans evaluated, best cost so far), an entry per improvement. `invalid` counts the distinct
    groups met that did not fit, `rectified` those of them that the repair turned into fitting groups by the edges of
    explanations alone, `rectified_once` those that the first explanation of each suffices for. `interrupted`: stopped by the user
    before its time. `notes` are sentences for the reader.
    """

    groups: tuple[int, ...]
    cost: float
    lower_bound: float | None
    optimal: bool
    plans_evaluated: int
    history: tuple[tuple[int, float], ...]
    rectified: int
    rectified_once: int
    invalid: int
    seconds: float
    interrupted: bool
    notes: tuple[str, ...] = ()

    @property
    def gap(self) -> float | None:
        """By how much the cost may exceed the least possible one, relative to the bound; None when no bound is known."""
        if self.optimal:
            return 0.0
        if self.lower_bound is None or self.lower_bound <= 0:
            return None
        return max(0.0, self.cost / self.lower_bound - 1)

    @property
    def rectify_rate(self) -> float | None:
        """The share of groups that did not fit which the edges of explanations repaired; None when all fitted."""
        return self.rectified / self.invalid if self.invalid else None

    @property
    def rectify_rate_once(self) -> float | None:
        """The share for which the edges of the first explanation suffice; None when all fitted."""
        return self.rectified_once / self.invalid if self.invalid else None
