"""Find the decision to blame when answers differ: bisection over the serial numbers of gated decisions.

Every rewrite and every kernel choice asks the trace for leave and is numbered. A build that refuses all decisions from
some number on is a whole, runnable program, so the first bad decision is found by halving: about log2(n) builds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fusewise.trace import Event, Trace

__all__ = ["Blame", "first_bad"]


@dataclass(frozen=True, slots=True)
class Blame:
    """The verdict. `event` is None when answers are wrong even with every decision refused: the fault lies in what is
    always done. `confirmed` says that refusing this one decision alone makes the answers right."""

    event: Event | None
    builds: int
    confirmed: bool

    def __str__(self) -> str:
        if self.event is None:
            return "no single decision: answers differ even with every rewrite and kernel choice refused"
        places = ", ".join(self.event.where[:3]) or "the whole graph"
        return f"{self.event.kind} {self.event.what!r} at {places} (decision {self.event.serial})"


def first_bad(agrees: Callable[[Trace], bool]) -> Blame:
    """The first decision that makes the answers differ.

    `agrees(trace)` builds the model with this trace, which records the decisions, runs it, and says whether the answers
    are right. It must be deterministic, and false for `Trace()`.
    """
    builds = 1
    if not agrees(Trace(limit=0)):
        return Blame(None, builds, confirmed=False)
    whole = Trace()
    agrees(whole)
    builds += 1
    good, bad = 0, whole.gates
    culprit = _last_allowed(whole, bad)
    while bad - good > 1:
        middle = (good + bad) // 2
        trace = Trace(limit=middle)
        builds += 1
        if agrees(trace):
            good = middle
        else:
            bad, culprit = middle, _last_allowed(trace, middle)
    if culprit is None:
        return Blame(None, builds, confirmed=False)
    names = frozenset(f"{culprit.what}@{where}" for where in culprit.where) or frozenset((culprit.what,))
    return Blame(culprit, builds + 1, confirmed=agrees(Trace(disabled=names)))


def _last_allowed(trace: Trace, limit: int) -> Event | None:
    """The gated decision with serial number `limit - 1`: the last one a build with this limit took.

    Events that are not gated carry the number of the next decision, so the decision itself is the last to bear its own.
    """
    return next((event for event in reversed(trace.events) if event.serial == limit - 1), None)
