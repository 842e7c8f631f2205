"""A value beside itself, and elements that absorb: what is then known without computing it.

Only where no NaN can arise: `x - x` is not zero, nor is `x * 0`, for an infinite or undefined x. Whole numbers and booleans are
always finite, floats where their maker says so (`facts`).
"""

from __future__ import annotations

import numpy as np

from fusewise.rewrite.match import Match
from fusewise.rewrite.pattern import Computed
from fusewise.rewrite.rule import NUMBERS, Rule, rule
from fusewise.rewrite.rules.guards import all_of, is_finite
from fusewise.rewrite.substitute import LARGEST_FOLDED

__all__ = ["ITSELF"]

_INTEGERS = ("int", "uint")
_FINITE = (("a", "finite"),)


def _everywhere(value: int) -> Computed:
    """A constant of the result's type with one value."""

    def filled(match: Match) -> np.ndarray:
        kind = match.graph.tensor(match.roots[0])
        return np.full(kind.dims, value, kind.dtype.numpy)

    return Computed(str(value), filled)


def _storable(match: Match) -> str | None:
    """The result is small enough to be stored."""
    return None if match.graph.tensor(match.roots[0]).size <= LARGEST_FOLDED else "the constant would be large"


def _known(op: str, name: str, value: int, on: tuple[str, ...], absorbing: float | None = None) -> Rule:
    """The operator of a value and itself, or of a value and an element that absorbs every other, is known."""
    return rule(
        name,
        lambda g, a: getattr(g, op)(a, a if absorbing is None else absorbing),
        lambda g, a: _everywhere(value),
        "associative",
        "reassociating" if "float" in on else "exact",
        on=on,
        needs=() if on == _INTEGERS else _FINITE,
        guard=_storable,
    )


ITSELF: tuple[Rule, ...] = (
    _known("Sub", "difference-with-itself", 0, NUMBERS),
    _known("Mul", "product-with-zero", 0, NUMBERS, 0),
    _known("Xor", "exclusive-with-itself", 0, ("bool",)),
    _known("BitwiseXor", "bitwise-exclusive-with-itself", 0, _INTEGERS),
    _known("And", "and-with-false", 0, ("bool",), 0),
    _known("Or", "or-with-true", 1, ("bool",), 1),
    _known("BitwiseAnd", "bitwiseand-with-zero", 0, _INTEGERS, 0),
    *(_known(op, f"{op.lower()}-to-itself", 1, ("bool",)) for op in ("Equal", "LessOrEqual", "GreaterOrEqual")),
    *(_known(op, f"{op.lower()}-than-itself", 0, ("bool",)) for op in ("Less", "Greater")),
    rule(
        "power-zero",
        lambda g, a: g.Pow(a, 0),
        lambda g, a: _everywhere(1),
        "recognising",
        "exact",  # of a NaN too
        guard=_storable,
    ),
    rule(
        "quotient-by-itself",
        lambda g, a: a / a,
        lambda g, a: _everywhere(1),
        "associative",
        "exact",
        on=NUMBERS,
        needs=(("a", "nonzero"),),
        guard=all_of(is_finite("a"), _storable),
    ),
    rule(
        "three-times-itself",
        lambda g, a: a + a + a,
        lambda g, a: a * 3,
        "distributive",
        "exact",  # a + a is exact, so that one rounding is left in either
        on=NUMBERS,
    ),
    rule("three-times-itself-in-sum", lambda g, a: g.Sum(a, a, a), lambda g, a: a * 3, "distributive", "exact"),
    rule(
        "choice-of-one",
        lambda g, p, a: g.Where(p, a, a),
        lambda g, p, a: a,
        "distributive",
        "exact",
        on=(*NUMBERS, "bool"),
    ),
)
