"""Functions of functions: roots, powers, exponentials; and the names of known compositions."""

from __future__ import annotations

from fusewise.rewrite.match import Match
from fusewise.rewrite.rule import NUMBERS, Guard, Rule, RuleSample, rule

__all__ = ["COMPOSITIONS"]

ROOTS: tuple[Rule, ...] = (
    rule(
        "root-times-itself",
        lambda g, a: g.Sqrt(a) * g.Sqrt(a),
        lambda g, a: a,
        "associative",
        "reassociating",
        needs=(("a", "nonnegative"),),
        published="(A * Sqrt(B)) * (Sqrt(B) * C) -> A * B * C",
    ),
    rule(
        "product-of-roots",
        lambda g, a, b: g.Sqrt(a) * g.Sqrt(b),
        lambda g, a, b: g.Sqrt(a * b),
        "associative",
        "approximate",  # the product leaves the range long before its root does
        needs=(("a", "nonnegative"), ("b", "nonnegative")),
    ),
    rule(
        "quotient-of-roots",
        lambda g, a, b: g.Sqrt(a) / g.Sqrt(b),
        lambda g, a, b: g.Sqrt(a / b),
        "associative",
        "approximate",
        needs=(("a", "nonnegative"), ("b", "positive")),
    ),
    rule(
        "quotient-by-own-root",
        lambda g, a: a / g.Sqrt(a),
        lambda g, a: g.Sqrt(a),
        "associative",
        "reassociating",
        needs=(("a", "positive"),),
    ),
    rule("root-of-square", lambda g, a: g.Sqrt(a * a), lambda g, a: g.Abs(a), "commutative", "reassociating"),
)

POWERS: tuple[Rule, ...] = (
    rule("power-two", lambda g, a: g.Pow(a, 2), lambda g, a: a * a, "recognising", "reassociating"),
    rule("power-half", lambda g, a: g.Pow(a, 0.5), lambda g, a: g.Sqrt(a), "recognising", "reassociating"),
    rule("power-minus-one", lambda g, a: g.Pow(a, -1), lambda g, a: g.Reciprocal(a), "recognising", "reassociating"),
    rule(
        "product-of-powers",
        lambda g, a, p, q: g.Pow(a, p) * g.Pow(a, q),
        lambda g, a, p, q: g.Pow(a, p + q),
        "associative",
        "reassociating",
        needs=(("p", "whole"), ("q", "whole")),
    ),
    rule(
        "product-with-power",
        lambda g, a, p: a * g.Pow(a, p),
        lambda g, a, p: g.Pow(a, p + 1),
        "associative",
        "reassociating",
        needs=(("p", "whole"),),
    ),
)

EXPONENTIALS: tuple[Rule, ...] = (
    rule(
        "product-of-exponentials",
        lambda g, a, b: g.Exp(a) * g.Exp(b),
        lambda g, a, b: g.Exp(a + b),
        "commutative",
        "reassociating",
    ),
    rule(
        "quotient-of-exponentials",
        lambda g, a, b: g.Exp(a) / g.Exp(b),
        lambda g, a, b: g.Exp(a - b),
        "commutative",
        "reassociating",
    ),
    rule(
        "sum-of-logarithms",
        lambda g, a, b: g.Log(a) + g.Log(b),
        lambda g, a, b: g.Log(a * b),
        "commutative",
        "approximate",  # the product leaves the range long before its logarithm does
        needs=(("a", "nonnegative"), ("b", "nonnegative")),
    ),
    rule(
        "difference-of-logarithms",
        lambda g, a, b: g.Log(a) - g.Log(b),
        lambda g, a, b: g.Log(a / b),
        "commutative",
        "approximate",
        needs=(("a", "positive"), ("b", "positive")),
    ),
    rule(
        "exponential-of-logarithm",
        lambda g, a: g.Exp(g.Log(a)),
        lambda g, a: a,
        "commutative",
        "reassociating",
        needs=(("a", "nonnegative"),),
    ),
    rule("logarithm-of-exponential", lambda g, a: g.Log(g.Exp(a)), lambda g, a: a, "commutative", "reassociating"),
    rule(
        "logistic-from-reciprocal",
        lambda g, a: g.Reciprocal(1 + g.Exp(-a)),
        lambda g, a: g.Sigmoid(a),
        "recognising",
        "reassociating",
    ),
    rule(
        "logistic-from-quotient",
        lambda g, a: 1 / (1 + g.Exp(-a)),
        lambda g, a: g.Sigmoid(a),
        "recognising",
        "reassociating",
    ),
    rule(
        "tangent-from-exponentials",
        lambda g, a: (g.Exp(a) - g.Exp(-a)) / (g.Exp(a) + g.Exp(-a)),
        lambda g, a: g.Tanh(a),
        "recognising",
        "reassociating",
    ),
    rule(
        "logarithm-of-softmax",
        lambda g, a: g.Log(g.Softmax(a, like="s")),
        lambda g, a: g.LogSoftmax(a, like="s"),
        "recognising",
        "reassociating",
        samples=(
            RuleSample({"a": (2, 10)}, {}, {"s": {"axis": 0}}),
            RuleSample({"a": (2, 3, 1)}, {}, {"s": {"axis": -1}}),
            RuleSample({"a": (3, 4)}),
        ),
    ),
    rule("cosine-of-negative", lambda g, a: g.Cos(-a), lambda g, a: g.Cos(a), "commutative", "reassociating"),
)

NEUTRAL: tuple[Rule, ...] = (
    rule(
        "positive-part-of-nonnegative",
        lambda g, a: g.Relu(a),
        lambda g, a: a,
        "recognising",
        "exact",
        needs=(("a", "nonnegative"),),
    ),
    rule(
        "magnitude-of-nonnegative",
        lambda g, a: g.Abs(a),
        lambda g, a: a,
        "recognising",
        "reassociating",
        needs=(("a", "nonnegative"),),
    ),
)


def _whole(match: Match) -> str | None:
    """Comparisons of floats are false both ways for a NaN."""
    return None if match.type("a").dtype.kind in NUMBERS[1:] else "a NaN is neither below nor not below"


def _negated(op: str, opposite: str, guard: Guard | None) -> Rule:
    return rule(
        f"not-{op.lower()}",
        lambda g, a, b: g.Not(getattr(g, op)(a, b)),
        lambda g, a, b: getattr(g, opposite)(a, b),
        "recognising",
        "exact",
        on=("bool",),
        guard=guard,
    )


COMPARISONS: tuple[Rule, ...] = (
    _negated("Less", "GreaterOrEqual", _whole),
    _negated("Greater", "LessOrEqual", _whole),
    _negated("LessOrEqual", "Greater", _whole),
    _negated("GreaterOrEqual", "Less", _whole),
    _negated("Xor", "Equal", None),
)

COMPOSITIONS: tuple[Rule, ...] = (*ROOTS, *POWERS, *EXPONENTIALS, *NEUTRAL, *COMPARISONS)
