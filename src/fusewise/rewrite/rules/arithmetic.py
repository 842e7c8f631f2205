"""Sums, products and quotients: regrouping, factoring out, signs. DNNFusion's associative and distributive laws."""

from __future__ import annotations

from fusewise.rewrite.rule import NUMBERS, SIGNED, Rule, rule
from fusewise.rewrite.rules.guards import constant_weights, narrow, wide_divisor

__all__ = ["ARITHMETIC"]

_INTEGERS = ("int", "uint")


def _regroup(op: str, numeric: str, on: tuple[str, ...]) -> Rule:
    """Operands that are small together, or constant, are combined first."""
    published = "(A * RSum(B)) * (RSum(B) * C) -> A * Square(RSum(B)) * C" if op == "Mul" else ""
    return rule(
        f"regroup-{op.lower()}",
        lambda g, r, s, x: getattr(g, op)(r, getattr(g, op)(s, x)),
        lambda g, r, s, x: getattr(g, op)(getattr(g, op)(r, s), x),
        "associative",
        numeric,
        on=on,
        only={"r": narrow, "s": narrow},
        published=published,
    )


def _once(op: str, on: tuple[str, ...]) -> Rule:
    """An operand that is there twice counts once."""
    return rule(
        f"once-in-{op.lower()}",
        lambda g, a: getattr(g, op)(a, a),
        lambda g, a: a,
        "associative",
        "exact",
        on=on,
    )


REGROUPING: tuple[Rule, ...] = (
    *(_regroup(op, "reassociating", NUMBERS) for op in ("Add", "Mul")),
    *(_regroup(op, "exact", NUMBERS) for op in ("Max", "Min")),
    *(_regroup(op, "exact", ("bool",)) for op in ("And", "Or", "Xor")),
    *(_regroup(op, "exact", _INTEGERS) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    *(_once(op, NUMBERS) for op in ("Max", "Min")),
    *(_once(op, ("bool",)) for op in ("And", "Or")),
    *(_once(op, _INTEGERS) for op in ("BitwiseAnd", "BitwiseOr")),
)

_NARROW = {"a": narrow, "b": narrow}

DIFFERENCES: tuple[Rule, ...] = (
    rule(
        "gather-difference-then-sum",
        lambda g, x, a, b: (x - a) + b,
        lambda g, x, a, b: x + (b - a),
        "associative",
        "reassociating",
        on=NUMBERS,
        only=_NARROW,
    ),
    rule(
        "gather-sum-then-difference",
        lambda g, x, a, b: (x + a) - b,
        lambda g, x, a, b: x + (a - b),
        "associative",
        "reassociating",
        on=NUMBERS,
        only=_NARROW,
    ),
    rule(
        "gather-differences",
        lambda g, x, a, b: (x - a) - b,
        lambda g, x, a, b: x - (a + b),
        "associative",
        "reassociating",
        on=NUMBERS,
        only=_NARROW,
    ),
    rule(
        "gather-difference-from",
        lambda g, x, a, b: (a - x) + b,
        lambda g, x, a, b: (a + b) - x,
        "associative",
        "reassociating",
        on=NUMBERS,
        only=_NARROW,
    ),
    rule(
        "gather-difference-from-then-difference",
        lambda g, x, a, b: (a - x) - b,
        lambda g, x, a, b: (a - b) - x,
        "associative",
        "reassociating",
        on=NUMBERS,
        only=_NARROW,
    ),
    rule(
        "gather-difference-from-difference",
        lambda g, x, a, b: a - (b - x),
        lambda g, x, a, b: x + (a - b),
        "associative",
        "reassociating",
        on=NUMBERS,
        only=_NARROW,
    ),
    rule(
        "gather-difference-of-difference",
        lambda g, x, a, b: a - (x - b),
        lambda g, x, a, b: (a + b) - x,
        "associative",
        "reassociating",
        on=NUMBERS,
        only=_NARROW,
    ),
    rule(
        "gather-difference-of-sum",
        lambda g, x, a, b: a - (x + b),
        lambda g, x, a, b: (a - b) - x,
        "associative",
        "reassociating",
        on=NUMBERS,
        only=_NARROW,
    ),
)

QUOTIENTS: tuple[Rule, ...] = (
    rule(
        "gather-quotient-then-product",
        lambda g, x, a, b: (x / a) * b,
        lambda g, x, a, b: x * (b / a),
        "associative",
        "reassociating",
        only=_NARROW,
    ),
    rule(
        "gather-product-then-quotient",
        lambda g, x, a, b: (x * a) / b,
        lambda g, x, a, b: x * (a / b),
        "associative",
        "reassociating",
        only=_NARROW,
    ),
    rule(
        "gather-quotients",
        lambda g, x, a, b: (x / a) / b,
        lambda g, x, a, b: x / (a * b),
        "associative",
        "reassociating",
        only=_NARROW,
    ),
    rule(
        "product-of-reciprocals",
        lambda g, a, b: g.Reciprocal(a) * g.Reciprocal(b),
        lambda g, a, b: g.Reciprocal(a * b),
        "associative",
        "reassociating",
        published="Recip(A) * Recip(A * B) -> Square(Recip(A)) * Recip(B)",  # and an operation less than that
    ),
    rule(
        "product-with-reciprocal",
        lambda g, a, b: a * g.Reciprocal(b),
        lambda g, a, b: a / b,
        "associative",
        "reassociating",
        guard=wide_divisor,
    ),
    rule(
        "quotient-by-reciprocal",
        lambda g, a, b: a / g.Reciprocal(b),
        lambda g, a, b: a * b,
        "associative",
        "reassociating",
    ),
    rule(
        "reciprocal-of-quotient",
        lambda g, a, b: g.Reciprocal(a / b),
        lambda g, a, b: b / a,
        "associative",
        "reassociating",
    ),
    rule(
        "quotient-of-one",
        lambda g, a: 1 / a,
        lambda g, a: g.Reciprocal(a),
        "recognising",
        "exact",
    ),
    rule(
        "reciprocal-twice",
        lambda g, a: g.Reciprocal(g.Reciprocal(a)),
        lambda g, a: a,
        "associative",
        "reassociating",
    ),
    rule(
        "reciprocal-of-constant-factor",
        lambda g, a, c: g.Reciprocal(a * c),
        lambda g, a, c: g.Reciprocal(c) / a,
        "associative",
        "reassociating",
        needs=(("c", "nonzero"),),
        guard=constant_weights("c"),
    ),
    rule(
        "reciprocal-of-shared-factor",
        lambda g, a, b: g.Reciprocal(a) * g.Reciprocal(a * b),
        lambda g, a, b: (g.Reciprocal(a) * g.Reciprocal(a)) * g.Reciprocal(b),
        "associative",
        "approximate",  # the square leaves the range long before the product does
        published="Recip(A) * Recip(A * B) -> Square(Recip(A)) * Recip(B)",
    ),
)

FACTORING: tuple[Rule, ...] = (
    rule(
        "factor-out-of-sum",
        lambda g, a, b, c: a * b + a * c,
        lambda g, a, b, c: a * (b + c),
        "distributive",
        "reassociating",
        on=NUMBERS,
        published="A * C + A * B -> (A + B) * C, a misprint for A * (B + C)",
    ),
    rule(
        "factor-out-of-sum-with-itself",
        lambda g, a, b: a + a * b,
        lambda g, a, b: a * (b + 1),
        "distributive",
        "reassociating",
        on=NUMBERS,
        published="A + A * B -> A * (B + 1)",
    ),
    rule(
        "factor-out-of-difference",
        lambda g, a, b, c: a * b - a * c,
        lambda g, a, b, c: a * (b - c),
        "distributive",
        "reassociating",
        on=NUMBERS,
        published="Square(A + B) - (A + B) * C -> (A + B) * (A + B - C)",
    ),
    rule(
        "factor-out-of-difference-from-itself",
        lambda g, a, b: a - a * b,
        lambda g, a, b: a * (1 - b),
        "distributive",
        "reassociating",
        on=NUMBERS,
    ),
    rule(
        "factor-out-of-difference-with-itself",
        lambda g, a, b: a * b - a,
        lambda g, a, b: a * (b - 1),
        "distributive",
        "reassociating",
        on=NUMBERS,
    ),
    rule(
        "divisor-out-of-sum",
        lambda g, a, b, c: a / c + b / c,
        lambda g, a, b, c: (a + b) / c,
        "distributive",
        "reassociating",
        needs=(("c", "nonzero"),),
    ),
    rule(
        "divisor-out-of-difference",
        lambda g, a, b, c: a / c - b / c,
        lambda g, a, b, c: (a - b) / c,
        "distributive",
        "reassociating",
        needs=(("c", "nonzero"),),
    ),
    rule(
        "square-of-sum-minus-product",
        lambda g, s, c: g.Pow(s, 2) - s * c,
        lambda g, s, c: s * (s - c),
        "distributive",
        "reassociating",
        published="Square(A + B) - (A + B) * C -> (A + B) * (A + B - C)",
    ),
)

SIGNS: tuple[Rule, ...] = (
    rule("sum-with-negative", lambda g, a, b: a + -b, lambda g, a, b: a - b, "distributive", "exact", on=SIGNED),
    rule("difference-with-negative", lambda g, a, b: a - -b, lambda g, a, b: a + b, "distributive", "exact", on=SIGNED),
    rule(
        "sum-of-negatives",
        lambda g, a, b: -a + -b,
        lambda g, a, b: -(a + b),
        "distributive",
        "reassociating",
        on=SIGNED,
    ),
    rule(
        "difference-from-zero",
        lambda g, a: 0 - a,
        lambda g, a: -a,
        "distributive",
        "reassociating",
        on=SIGNED,
    ),
    rule(
        "negative-of-difference",
        lambda g, a, b: -(a - b),
        lambda g, a, b: b - a,
        "distributive",
        "reassociating",
        on=SIGNED,
    ),
    rule("product-of-negatives", lambda g, a, b: -a * -b, lambda g, a, b: a * b, "associative", "exact", on=SIGNED),
    rule("quotient-of-negatives", lambda g, a, b: -a / -b, lambda g, a, b: a / b, "associative", "exact"),
    rule(
        "product-of-magnitudes",
        lambda g, a, b: g.Abs(a) * g.Abs(b),
        lambda g, a, b: g.Abs(a * b),
        "associative",
        "exact",
        published="Abs(A) * B * Abs(C) -> Abs(A * C) * B",
    ),
    rule(
        "quotient-of-magnitudes",
        lambda g, a, b: g.Abs(a) / g.Abs(b),
        lambda g, a, b: g.Abs(a / b),
        "associative",
        "exact",
    ),
    rule(
        "square-of-magnitude",
        lambda g, a: g.Abs(a) * g.Abs(a),
        lambda g, a: a * a,
        "associative",
        "exact",
        on=SIGNED,
    ),
    rule("magnitude-of-square", lambda g, a: g.Abs(a * a), lambda g, a: a * a, "commutative", "exact"),
    rule("magnitude-of-negative", lambda g, a: g.Abs(-a), lambda g, a: g.Abs(a), "commutative", "exact", on=SIGNED),
)

CHOICES: tuple[Rule, ...] = (
    rule(
        "factor-out-of-choice",
        lambda g, p, a, b, c: g.Where(p, a * b, a * c),
        lambda g, p, a, b, c: a * g.Where(p, b, c),
        "distributive",
        "exact",
        on=NUMBERS,
    ),
    rule(
        "term-out-of-choice",
        lambda g, p, a, b, c: g.Where(p, a + b, a + c),
        lambda g, p, a, b, c: a + g.Where(p, b, c),
        "distributive",
        "exact",
        on=NUMBERS,
    ),
    rule(
        "minuend-out-of-choice",
        lambda g, p, a, b, c: g.Where(p, a - b, a - c),
        lambda g, p, a, b, c: a - g.Where(p, b, c),
        "distributive",
        "exact",
        on=NUMBERS,
    ),
    rule(
        "subtrahend-out-of-choice",
        lambda g, p, a, b, c: g.Where(p, b - a, c - a),
        lambda g, p, a, b, c: g.Where(p, b, c) - a,
        "distributive",
        "exact",
        on=NUMBERS,
    ),
    rule(
        "divisor-out-of-choice",
        lambda g, p, a, b, c: g.Where(p, b / a, c / a),
        lambda g, p, a, b, c: g.Where(p, b, c) / a,
        "distributive",
        "exact",
    ),
)

ARITHMETIC: tuple[Rule, ...] = (*REGROUPING, *DIFFERENCES, *QUOTIENTS, *FACTORING, *SIGNS, *CHOICES)
