"""Substitutions chosen by backtracking, as Bhowmick, Thakur and Hirani write it down (Optimizing Computational Graphs Using
Relaxed Graph Substitutions, 2024, section 3.2).

Graphs wait in a queue ordered by cost. Of the one whose turn it is every transformation in turn makes another graph: one that
costs less takes its place at once, one that costs less than `alpha` times as much waits. So there is no way back from an
improvement within one turn, and `alpha` is by how much each single step may go up, however dear the graph has become by then;
the search of `relaxed` lets all of them wait, and measures every graph by the best so far.

What is not written down: a transformation is a rule at one place; rules come in the order of their table, and the places of one
as the graph has them when its turn comes; a graph that was met before does not wait again, without which nothing would end; and
the cheapest graph met is the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from fusewise.ir.graph import Graph
from fusewise.rewrite.cost import Cost
from fusewise.rewrite.rule import Rule
from fusewise.rewrite.search.found import Found, SearchLimits, SearchState
from fusewise.rewrite.search.frontier import Frontier, explored, started, unless_below_one
from fusewise.rewrite.search.key import names_key
from fusewise.rewrite.search.options import Option

__all__ = ["backtrack"]


def backtrack(
    graph: Graph,
    rules: Sequence[Rule],
    cost: Cost,
    *,
    alpha: float = 1.05,
    limits: SearchLimits | None = None,
    keep: int = 1,
    progress: Callable[[float], None] | None = None,
) -> Found:
    """What `relaxed.search` gives, found by backtracking. Graphs that take another's place count in the budget, too."""

    unless_below_one(alpha)

    def expand(run: Frontier, state: SearchState) -> None:
        tried: set[object] = set()
        for rule in rules:
            state = _transformed(run, state, rule, alpha, tried)
            if run.ended:
                return
        run.shorten()

    return explored(started(graph, rules, cost, limits, progress), expand, keep)


def _transformed(run: Frontier, state: SearchState, rule: Rule, alpha: float, tried: set[object]) -> SearchState:
    """Try a rule at each of its places; the graph that there is then."""
    key = names_key(state.graph)
    places = _places(state, rule, tried)
    while places and not run.ended:
        option = places.pop()
        tried.add(option.key)
        price = state.cost + option.change
        if run.rounded(price) < run.rounded(state.cost):
            better = run.built(state, option, again=True)
            if better is not None:
                run.enter(better)
                state, key = better, names_key(better.graph)
                places = _places(state, rule, tried)
        elif price < alpha * state.cost:
            run.let_wait(state, option, key)
    return state


def _places(state: SearchState, rule: Rule, tried: Collection[object]) -> list[Option]:
    """Where the rule fits and was not tried yet, in the order of the graph, the first place last."""
    found = [each for each in state.options if each.draft.rule is rule and each.key not in tried]
    return sorted(found, key=lambda each: -state.graph.producer[each.draft.match.roots[0]])
