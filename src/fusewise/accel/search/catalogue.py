"""The searches by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from fusewise.accel.problem import GroupCosts
from fusewise.accel.search.repair import Repair
from fusewise.accel.search.result import Result, SearchBudget
from fusewise.accel.search.run import Progress
from fusewise.errors import UsageError
from fusewise.words import nearest

__all__ = ["SEARCHES", "Search", "search_named"]

Search = Callable[[GroupCosts, SearchBudget, np.random.Generator, Repair, Progress | None], Result]

SEARCHES: dict[str, tuple[str, str]] = {
    "exact": ("fusewise.accel.search.exact", "exact_search"),
    "random": ("fusewise.accel.search.random_search", "random_search"),
    "local": ("fusewise.accel.search.local", "local_search"),
    "nsga2": ("fusewise.accel.search.nsga2", "nsga2_search"),
}
"""Module and function of each, imported when asked for."""


def search_named(name: str, *, edits: int | None = None) -> Search:
    """The search called `name`; `UsageError` with the nearest name when there is none.

    The exact search draws nothing and repairs nothing, so it leaves the generator and the repair alone. `edits` are those that
    local search makes at a time; `UsageError` when another search is to make them, or there are none.
    """
    if name not in SEARCHES:
        raise UsageError(f"there is no search called {name!r}; {nearest(name, SEARCHES)}")
    if edits is not None and name != "local":
        raise UsageError(f"the {name} search takes no edits; only the local one does")
    if edits is not None and edits < 1:
        raise UsageError(f"local search changes a plan by 1 edit or more at a time, not by {edits}")
    module, function = SEARCHES[name]
    made: Any = getattr(import_module(module), function)
    if name == "exact":
        return lambda costs, budget, rng, repair, progress: made(costs, budget, progress)
    if edits is not None:
        from fusewise.accel.search.local import LocalMoves

        made = partial(made, moves=LocalMoves(edits=edits))
    search: Search = made
    return search
