"""Events: every decision leaves one. Passes never print; reports, `explain` and `verify` read the trace.

An event may be *gated*: a rewrite or a kernel choice asks `trace.allows(...)` before it acts, which hands out a serial
number and says whether numbers that high are allowed. `verify` bisects over the limit to find the step to blame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from fusewise.cards import Card, carded, counted, listed

__all__ = ["BY_NAME", "INTER_BLOCK", "INTRA_BLOCK", "SEALED", "Event", "Trace"]

INTRA_BLOCK, INTER_BLOCK = "intra-block", "inter-block"
"""Two optimisations that `Trace.disabled` may name: an index change in place of moving data, and the memory layout that the
dominant operator of a group likes."""

BY_NAME = "disabled by name"
"""The reason in the event of a decision that `Trace.disabled` refused."""

SEALED = "inside a fused block"
"""The reason in the event of a rewrite that a fused block kept out."""


@dataclass(frozen=True, slots=True)
class Event:
    """One decision.

    `kind` is one of `pass rewrite fuse kernel layout host`; `what` the pass, rule, verdict or kernel; `where` the nodes
    or values it concerns; `reason` a short phrase from the deciding table; costs are in the unit of the deciding cost,
    or None.
    """

    serial: int
    kind: str
    what: str
    where: tuple[str, ...]
    reason: str = ""
    before: float | None = None
    after: float | None = None
    applied: bool = True


def _card(trace: Trace) -> Card:
    events = trace.events
    refused = Counter(one.reason or one.what for one in events if not one.applied and one.kind != "pass")
    rows = [
        ("of", counted(Counter(one.kind for one in events))),
        ("acted", counted(Counter(one.what for one in events if one.applied), 5)),
    ]
    rows += [("not", counted(refused, 3))] if refused else []
    rows += [("disabled", listed(sorted(trace.disabled)))] if trace.disabled else []
    limit = "" if trace.limit is None else f", the first {trace.limit:,} allowed"
    return Card(f"Trace: {len(events):,} decisions, {trace.gates:,} of them gated{limit}", tuple(rows))


@dataclass
@carded(_card)
class Trace:
    """A growing list of events, passed as an argument to whoever decides.

    `limit`: gated decisions with a serial number at or above it are refused (None: all allowed). `disabled`: names of
    passes, rules and kernels that are refused, as `name` or `name@node`, kernels also as `name@title` in all groups of one title.
    `sealed`: nodes that no rewrite may touch, because a fused block holds them.
    """

    limit: int | None = None
    disabled: frozenset[str] = frozenset()
    sealed: frozenset[str] = frozenset()
    events: list[Event] = field(default_factory=list)
    gates: int = 0
    _met: set[str] = field(default_factory=set, repr=False, compare=False)

    def add(
        self,
        kind: str,
        what: str,
        where: tuple[str, ...] = (),
        reason: str = "",
        *,
        before: float | None = None,
        after: float | None = None,
        applied: bool = True,
    ) -> None:
        """Record a decision that is not gated."""
        if not applied and reason == BY_NAME:
            self._met.add(what)
        self.events.append(Event(self.gates, kind, what, where, reason, before, after, applied))

    def allows(
        self,
        kind: str,
        what: str,
        where: tuple[str, ...] = (),
        reason: str = "",
        *,
        before: float | None = None,
        after: float | None = None,
        titles: tuple[str, ...] = (),
    ) -> bool:
        """Ask leave for one decision, record it, and say whether it may go ahead. `titles` are those of the groups it is about."""
        serial = self.gates
        self.gates += 1
        blocked = self._named(what, (*where, *titles))
        inside = kind == "rewrite" and not self.sealed.isdisjoint(where)
        allowed = not blocked and not inside and (self.limit is None or serial < self.limit)
        note = reason if allowed else BY_NAME if blocked else SEALED if inside else "past the bisection limit"
        self.events.append(Event(serial, kind, what, where, note, before, after, allowed))
        return allowed

    def idle(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of the names in `disabled` that no decision so far was refused by."""
        return tuple(sorted(set(names) - self._met))

    def _named(self, what: str, places: tuple[str, ...]) -> bool:
        """Is a decision disabled by name?"""
        found = self.disabled.intersection((what, *(f"{what}@{place}" for place in places))) if self.disabled else ()
        self._met.update(found)
        return bool(found)

    @property
    def refuses(self) -> bool:
        """May a decision be refused?"""
        return self.limit is not None or bool(self.disabled or self.sealed)

    def adopt(self, trial: Trace) -> None:
        """Record the decisions of a trial that refused none as if they had been asked for here."""
        self.events.extend(replace(event, serial=event.serial + self.gates) for event in trial.events)
        self.gates += trial.gates

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)
