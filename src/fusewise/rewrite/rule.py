"""A rule: what is replaced by what, when, and what it does to answers. Frozen data; tables of rules are literals.

Numeric classes, of a rule on floats:

- `exact`: the same bits for every input, up to the payload of a NaN.
- `reassociating`: the same mathematics. Roundings and the sign of a zero may differ, and so may an answer whose way leads
  past the largest or smallest number of the type, before or after; but a finite answer reached within the type's range
  stays, and what was NaN for finite operands stays NaN and nothing else becomes one.
- `approximate`: anything else; never used unless asked for.

On integers, which wrap around, and on booleans a rule holds exactly or is not claimed (`on`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np

from fusewise.ir.graph import Attribute
from fusewise.records import record
from fusewise.rewrite.facts import FACTS
from fusewise.rewrite.match import Match, Only
from fusewise.rewrite.pattern import Apply, Pattern, Term, pattern_of

__all__ = [
    "FLOATS",
    "NUMBERS",
    "SIGNED",
    "Guard",
    "Rule",
    "RuleSample",
    "attributes_like",
    "numeric_class",
    "refusal",
    "rule",
]

Guard = Callable[[Match], str | None]
"""None when the rule may be applied, else why not, as a short phrase."""

FLOATS = ("float",)
SIGNED = ("float", "int")
NUMBERS = ("float", "int", "uint")


@record(frozen=True)
class RuleSample:
    """One example a rule is checked on.

    `shapes` gives the shape of each variable that is an input; `values` contents of those that are constants, None for one
    that is absent; `attributes` those of the nodes called by a `like` name.
    """

    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, np.ndarray | None] = field(default_factory=dict)
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@record(frozen=True)
class Rule:
    """One rewrite under its name.

    `law` is the property it rests on: `associative distributive commutative` or, for rules that name a known composition,
    `recognising`. `numeric` is its class on floats, `on` the kinds of element type it is claimed for. `needs` are facts
    about variables (`facts.FACTS`), `guard` what else must hold; `only` narrows the search where the rule has a chance to
    save anything. `published` says which published rule it is.
    One that `spreads` multiplies zeros with elements that had no part in an answer: where those are not finite, NaN spreads.
    Without `samples` it is checked on broadcasts of small shapes.
    """

    name: str
    before: Pattern
    after: Pattern
    law: str
    numeric: str
    on: tuple[str, ...] = FLOATS
    needs: tuple[tuple[str, str], ...] = ()
    guard: Guard | None = None
    only: Mapping[str, Only] = field(default_factory=dict)
    samples: tuple[RuleSample, ...] = ()
    published: str = ""
    spreads: bool = False

    @cached_property
    def flat(self) -> Pattern:
        """What is looked for, trees of one operator flattened."""
        return self.before.flat()

    @cached_property
    def root(self) -> str:
        """The operator of the pattern's first root."""
        return str(getattr(self.before.roots[0], "op", ""))

    @cached_property
    def beneath(self) -> frozenset[str]:
        """The operators that must make operands of the first root."""
        operands = getattr(self.flat.roots[0], "operands", ())
        return frozenset(operand.op for operand in operands if isinstance(operand, Apply))

    @cached_property
    def depth(self) -> int:
        """How many operators of the pattern stand below one another, a tree of one operator counting as one."""
        return max(map(_depth, self.flat.roots))

    @cached_property
    def is_single(self) -> bool:
        """Does it look for one node, whatever stands around it?"""
        return len(self.before.roots) == 1 and _depth(self.before.roots[0]) == 1

    def __str__(self) -> str:
        return f"{self.before}  ->  {self.after}"


def _depth(term: Term) -> int:
    return 1 + max(map(_depth, term.operands), default=0) if isinstance(term, Apply) else 0


def rule(
    name: str,
    before: Callable[..., Any],
    after: Callable[..., Any],
    law: str,
    numeric: str,
    **fields: Any,
) -> Rule:
    """A rule from two functions in graph notation, see `pattern`; both take the same variables."""
    return Rule(name, pattern_of(before), pattern_of(after), law, numeric, **fields)


def refusal(rule: Rule, match: Match) -> str | None:
    """Why `rule` may not be applied to `match`, or None."""
    kinds = [match.graph.types[root] for root in match.roots]
    kind = match.graph.tensor(match.roots[0]).dtype.kind if kinds else ""
    if kind not in rule.on:
        return f"does not hold for {kind}"
    for variable, fact in rule.needs:
        if not all(FACTS[fact](match.graph, value) for value in match.values(variable)):
            return f"{variable} is not known to be {fact}"
    return None if rule.guard is None else rule.guard(match)


def numeric_class(rule: Rule, match: Match) -> str:
    """What this application does to answers; other orders of sums and products of floats round differently."""
    if not match.graph.tensor(match.roots[0]).dtype.is_float:
        return "exact"
    if rule.numeric == "exact" and match.regrouped & {"Add", "Mul"}:
        return "reassociating"
    return rule.numeric


def attributes_like(match: Match, like: str) -> tuple[tuple[str, Attribute], ...]:
    """The attributes of the node a pattern calls `like`."""
    return match.like[like].attributes
