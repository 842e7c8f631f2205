"""Which passes have anything to do on a graph, found by asking them and not by hand.

Every rewrite asks the trace for leave. A pass that is refused every time leaves the graph alone and its questions say how often it
would have matched: that is its matcher. A pass is relevant when it has a match, or when one that has a match makes it have one.
Which passes can do that for which is data, derived by running (`select.enabling`), so only those are tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fusewise.ir.graph import Graph
from fusewise.passes.catalogue import Pass
from fusewise.passes.published import PUBLISHED, step_named, step_names
from fusewise.select.pipeline import FAMILY_SETS
from fusewise.select.sequence import AS_NAMED
from fusewise.trace import Trace

__all__ = ["Agreement", "Relevance", "agreement", "candidates", "distinct_names", "matched", "matches", "relevance"]


_Told = TypeVar("_Told", int, str)


@dataclass(frozen=True)
class Relevance:
    """`matched`: passes and their numbers of matches on the graph as it is. `enabled`: passes and who gave them their first."""

    matched: Mapping[str, int]
    enabled: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        """Every relevant pass, in the order of the tables."""
        return tuple(name for name in step_names() if name in self.matched or name in self.enabled)


def matches(step: Pass, graph: Graph) -> int:
    """How many rewrites a pass would ask for first; rewrites that those make possible do not count."""
    trace = Trace(limit=0)
    step(graph, trace)
    return sum(event.kind == "rewrite" for event in trace)


def distinct_names() -> tuple[str, ...]:
    """One name for each function that has work to do: the published one where there are two."""
    named: dict[Pass, str] = {}
    for name in reversed(step_names()):  # the published ones come last in the tables
        step = step_named(name)
        if not step.idle:
            named.setdefault(step.function, name)
    return tuple(reversed(list(named.values())))


def matched(graph: Graph, instead: Mapping[Pass, Pass] = AS_NAMED) -> dict[str, int]:
    """How many matches each pass has on the graph as it is, by the distinct names; those that have none are left out.

    `instead` has functions that take the place of passes' own.
    """
    own = {name: step_named(name).function for name in distinct_names()}
    functions = {name: instead.get(function, function) for name, function in own.items()}
    return {name: found for name, function in functions.items() if (found := matches(function, graph))}


def relevance(graph: Graph, enables: Mapping[str, Sequence[str]], counts: Mapping[str, int] | None = None) -> Relevance:
    """The passes that have anything to do on `graph`, or will have once others have run.

    `enables` says, for a pass, which others may have matches only behind it. Each pass is run at most once, and one that must
    be asked for not at all. `counts` is what `matched` gives, where it is known.
    """
    functions = {name: step_named(name).function for name in distinct_names()}
    now = matched(graph) if counts is None else counts
    enabled: dict[str, str] = {}
    waiting = [(name, graph) for name in now if not step_named(name).asked]
    while waiting:
        name, before = waiting.pop(0)
        hopes = [other for other in enables.get(name, ()) if other not in now and other not in enabled]
        if not hopes:
            continue
        after = functions[name](before, Trace())
        for other in hopes:
            if matches(functions[other], after):
                enabled[other] = name
                waiting.append((other, after))
    return Relevance(_with_twins(now, functions), _with_twins(enabled, functions))


def candidates(
    graph: Graph,
    enables: Mapping[str, Sequence[str]],
    names: Sequence[str],
    counts: Mapping[str, int] | None = None,
    instead: Mapping[Pass, Pass] = AS_NAMED,
) -> tuple[str, ...]:
    """Those of `names` that have a match, or might have one behind others: the table is believed, and nothing is run.

    `counts` is what `matched` gives, where it is known; `instead` as there.
    """
    wanted = {step_named(name).function: name for name in names}
    known = {name: function for name in distinct_names() if (function := step_named(name).function) in wanted}
    if counts is None:
        found = [name for name, function in known.items() if matches(instead.get(function, function), graph)]
    else:
        found = [name for name in known if name in counts]
    for name in found:  # grows as it is read
        found.extend(other for other in enables.get(name, ()) if other in known and other not in found)
    return tuple(name for name in names if any(known[other] is step_named(name).function for other in found))


def _with_twins(found: Mapping[str, _Told], functions: Mapping[str, Pass]) -> dict[str, _Told]:
    """The same for every other name of the same functions."""
    by_function = {functions[name]: value for name, value in found.items()}
    names = (name for name in step_names() if not step_named(name).idle)
    return {name: by_function[f] for name in names if (f := step_named(name).function) in by_function}


@dataclass(frozen=True)
class Agreement:
    """The published table for a family beside what was found: in both, found only, and listed only.

    `idle` of those listed only have nothing to do on any graph here.
    """

    family: str
    both: tuple[str, ...]
    found_only: tuple[str, ...]
    listed_only: tuple[str, ...]
    idle: tuple[str, ...]

    @property
    def recall(self) -> float:
        """The share of the listed passes with any work to do that was found."""
        asked = len(self.both) + len(self.listed_only) - len(self.idle)
        return len(self.both) / asked if asked else 1.0

    @property
    def precision(self) -> float:
        """The share of the found passes that is listed."""
        found = len(self.both) + len(self.found_only)
        return len(self.both) / found if found else 1.0


def agreement(family: str, relevant: Iterable[str]) -> Agreement | None:
    """How the relevant passes agree with the table made by hand; None for families that it does not have."""
    listed = FAMILY_SETS.get(family)
    if listed is None:
        return None
    known = [row.name for row in PUBLISHED]
    found = set(relevant).intersection(known)
    missed = tuple(name for name in known if name in listed.passes and name not in found)
    return Agreement(
        family,
        tuple(name for name in known if name in found and name in listed.passes),
        tuple(name for name in known if name in found and name not in listed.passes),
        missed,
        tuple(name for name in missed if step_named(name).idle),
    )
