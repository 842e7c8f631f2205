"""Substitutions chosen by a search that goes up to come down (Z. Jia et al., Optimizing DNN Computation with Relaxed Graph
Substitutions, SysML 2019).

Graphs wait in a queue ordered by cost. The cheapest is expanded: every substitution anywhere in it gives another graph, which
waits too if it costs less than `alpha` times the best so far; with alpha = 1 only improvements are followed. Of graphs that
cost the same the newest goes first, so that steps which only pay together are taken one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.ir.graph import Graph
from fusewise.rewrite.cost import Cost
from fusewise.rewrite.rule import Rule
from fusewise.rewrite.search.found import Found, SearchLimits, SearchState
from fusewise.rewrite.search.frontier import Frontier, explored, started, unless_below_one
from fusewise.rewrite.search.key import names_key

__all__ = ["search"]


def search(
    graph: Graph,
    rules: Sequence[Rule],
    cost: Cost,
    *,
    alpha: float = 1.05,
    limits: SearchLimits | None = None,
    keep: int = 1,
    progress: Callable[[float], None] | None = None,
) -> Found:
    """The cheapest graph that `rules` lead to, others on the way there, `keep` in all, and the input; the same for the same
    cost table.

    Whoever interrupts it (Ctrl-C) gets the best so far. `UsageError` when alpha is below 1.
    """

    unless_below_one(alpha)

    def expand(run: Frontier, state: SearchState) -> None:
        run.ceiling = alpha * run.best.cost
        if run.ended:
            return
        key = names_key(state.graph)
        for option in state.options:
            if state.cost + option.change < run.ceiling:
                run.let_wait(state, option, key)
        run.shorten()

    return explored(started(graph, rules, cost, limits, progress), expand, keep)
