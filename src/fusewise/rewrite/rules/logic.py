"""Booleans and bits: factoring out, negation, shifts. All exact."""

from __future__ import annotations

from fusewise.rewrite.rule import Rule, rule

__all__ = ["LOGIC"]

_BOOL = ("bool",)
_BITS = ("int", "uint")
_DISTRIBUTES = (
    ("And", "Or", _BOOL),
    ("Or", "And", _BOOL),
    ("And", "Xor", _BOOL),
    ("BitwiseAnd", "BitwiseOr", _BITS),
    ("BitwiseOr", "BitwiseAnd", _BITS),
    ("BitwiseAnd", "BitwiseXor", _BITS),
)
"""Inner operator, outer operator, kinds of element type."""

_NEGATES = (
    ("Not", "And", "Or", _BOOL),
    ("Not", "Or", "And", _BOOL),
    ("BitwiseNot", "BitwiseAnd", "BitwiseOr", _BITS),
    ("BitwiseNot", "BitwiseOr", "BitwiseAnd", _BITS),
)
"""Negation, an operator on negated operands, the operator to negate instead (De Morgan)."""


def _factored(inner: str, outer: str, on: tuple[str, ...]) -> Rule:
    return rule(
        f"{inner.lower()}-out-of-{outer.lower()}",
        lambda g, a, b, c: getattr(g, outer)(getattr(g, inner)(a, b), getattr(g, inner)(a, c)),
        lambda g, a, b, c: getattr(g, inner)(a, getattr(g, outer)(b, c)),
        "distributive",
        "exact",
        on=on,
    )


def _absorbed(inner: str, outer: str, on: tuple[str, ...]) -> Rule:
    return rule(
        f"{inner.lower()}-absorbed-by-{outer.lower()}",
        lambda g, a, b: getattr(g, outer)(a, getattr(g, inner)(a, b)),
        lambda g, a, b: a,
        "distributive",
        "exact",
        on=on,
    )


def _negated(negation: str, op: str, dual: str, on: tuple[str, ...]) -> Rule:
    return rule(
        f"{negation.lower()}-out-of-{op.lower()}",
        lambda g, a, b: getattr(g, op)(getattr(g, negation)(a), getattr(g, negation)(b)),
        lambda g, a, b: getattr(g, negation)(getattr(g, dual)(a, b)),
        "commutative",
        "exact",
        on=on,
    )


def _unnegated(negation: str, op: str, on: tuple[str, ...]) -> Rule:
    return rule(
        f"{negation.lower()}-twice-in-{op.lower()}",
        lambda g, a, b: getattr(g, op)(getattr(g, negation)(a), getattr(g, negation)(b)),
        lambda g, a, b: getattr(g, op)(a, b),
        "commutative",
        "exact",
        on=on,
    )


def _shifted(op: str) -> Rule:
    return rule(
        f"shift-out-of-{op.lower()}",
        lambda g, a, b, s: getattr(g, op)(g.BitShift(a, s, like="d"), g.BitShift(b, s, like="d")),
        lambda g, a, b, s: g.BitShift(getattr(g, op)(a, b), s, like="d"),
        "distributive",
        "exact",
        on=("uint",),
    )


LOGIC: tuple[Rule, ...] = (
    *(_factored(*row) for row in _DISTRIBUTES),
    *(_absorbed(inner, outer, on) for inner, outer, on in _DISTRIBUTES if "Xor" not in outer),
    *(_negated(*row) for row in _NEGATES),
    _unnegated("Not", "Xor", _BOOL),
    _unnegated("BitwiseNot", "BitwiseXor", _BITS),
    *(_shifted(op) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    rule(
        "shift-out-of-sum",
        lambda g, a, b, s: g.BitShift(a, s, direction="LEFT") + g.BitShift(b, s, direction="LEFT"),
        lambda g, a, b, s: g.BitShift(a + b, s, direction="LEFT"),
        "distributive",
        "exact",
        on=("uint",),
    ),
)
