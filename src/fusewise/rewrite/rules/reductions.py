"""Sums, means and products along axes: what can be done once on the result is not done on every element."""

from __future__ import annotations

from fusewise.rewrite.rule import NUMBERS, SIGNED, Rule, rule
from fusewise.rewrite.rules.guards import all_of, reduces, same_shape, uniform
from fusewise.rewrite.rules.samples import REDUCTIONS, REDUCTIONS_BESIDE, REDUCTIONS_PAIR

__all__ = ["REDUCTION"]

_BESIDE = {"guard": all_of(reduces, uniform("c")), "samples": REDUCTIONS_BESIDE}
_PAIR = {"guard": all_of(reduces, same_shape("a", "b")), "samples": REDUCTIONS_PAIR}
_SINGLE = {"guard": reduces, "samples": REDUCTIONS}


def _linear(op: str, on: tuple[str, ...], signed: tuple[str, ...]) -> tuple[Rule, ...]:
    """What ReduceSum and ReduceMean have in common."""
    name = op.lower()
    return (
        rule(
            f"factor-out-of-{name}",
            lambda g, x, c, axes=None: getattr(g, op)(x * c, axes, like="r"),
            lambda g, x, c, axes=None: getattr(g, op)(x, axes, like="r") * c,
            "distributive",
            "reassociating",
            on=on,
            **_BESIDE,
        ),
        rule(
            f"divisor-out-of-{name}",
            lambda g, x, c, axes=None: getattr(g, op)(x / c, axes, like="r"),
            lambda g, x, c, axes=None: getattr(g, op)(x, axes, like="r") / c,
            "distributive",
            "reassociating",
            needs=(("c", "nonzero"),),
            **_BESIDE,
        ),
        rule(
            f"negative-out-of-{name}",
            lambda g, x, axes=None: getattr(g, op)(-x, axes, like="r"),
            lambda g, x, axes=None: -getattr(g, op)(x, axes, like="r"),
            "distributive",
            "reassociating",
            on=signed,
            **_SINGLE,
        ),
        rule(
            f"{name}-of-sum",
            lambda g, a, b, axes=None: getattr(g, op)(a, axes, like="r") + getattr(g, op)(b, axes, like="r"),
            lambda g, a, b, axes=None: getattr(g, op)(a + b, axes, like="r"),
            "distributive",
            "reassociating",
            on=on,
            **_PAIR,
        ),
        rule(
            f"{name}-of-difference",
            lambda g, a, b, axes=None: getattr(g, op)(a, axes, like="r") - getattr(g, op)(b, axes, like="r"),
            lambda g, a, b, axes=None: getattr(g, op)(a - b, axes, like="r"),
            "distributive",
            "reassociating",
            on=on,
            **_PAIR,
        ),
    )


def _sign_blind(op: str, inner: str) -> Rule:
    """Norms do not see signs."""
    return rule(
        f"{inner.lower()}-in-{op.lower()}",
        lambda g, x, axes=None: getattr(g, op)(getattr(g, inner)(x), axes, like="r"),
        lambda g, x, axes=None: getattr(g, op)(x, axes, like="r"),
        "commutative",
        "exact",
        **_SINGLE,
    )


def _product_of(function: str, numeric: str, fact: str) -> Rule:
    """Functions that the product may trade places with."""
    return rule(
        f"{function.lower()}-out-of-reduceprod",
        lambda g, x, axes=None: g.ReduceProd(getattr(g, function)(x), axes, like="r"),
        lambda g, x, axes=None: getattr(g, function)(g.ReduceProd(x, axes, like="r")),
        "commutative",
        numeric,
        needs=(("x", fact),) if fact else (),
        **_SINGLE,
    )


_MEANS: tuple[Rule, ...] = (
    rule(
        "term-out-of-reducemean",
        lambda g, x, c, axes=None: g.ReduceMean(x + c, axes, like="r"),
        lambda g, x, c, axes=None: g.ReduceMean(x, axes, like="r") + c,
        "distributive",
        "reassociating",
        **_BESIDE,
    ),
    rule(
        "subtrahend-out-of-reducemean",
        lambda g, x, c, axes=None: g.ReduceMean(x - c, axes, like="r"),
        lambda g, x, c, axes=None: g.ReduceMean(x, axes, like="r") - c,
        "distributive",
        "reassociating",
        **_BESIDE,
    ),
    rule(
        "minuend-out-of-reducemean",
        lambda g, x, c, axes=None: g.ReduceMean(c - x, axes, like="r"),
        lambda g, x, c, axes=None: c - g.ReduceMean(x, axes, like="r"),
        "distributive",
        "reassociating",
        **_BESIDE,
    ),
)

_PRODUCTS: tuple[Rule, ...] = (
    rule(
        "exponential-out-of-reduceprod",
        lambda g, x, axes=None: g.ReduceProd(g.Exp(x), axes, like="r"),
        lambda g, x, axes=None: g.Exp(g.ReduceSum(x, axes, like="r")),
        "commutative",
        "reassociating",
        published="RProd(Exp(A)) -> Exp(RSum(A))",
        **_SINGLE,
    ),
    rule(
        "logarithm-out-of-reducesum",
        lambda g, x, axes=None: g.ReduceSum(g.Log(x), axes, like="r"),
        lambda g, x, axes=None: g.Log(g.ReduceProd(x, axes, like="r")),
        "commutative",
        "approximate",  # a long product leaves the range
        needs=(("x", "positive"),),
        **_SINGLE,
    ),
    _product_of("Abs", "reassociating", ""),
    _product_of("Reciprocal", "reassociating", ""),
    _product_of("Sqrt", "approximate", "nonnegative"),
    rule(
        "reduceprod-of-product",
        lambda g, a, b, axes=None: g.ReduceProd(a, axes, like="r") * g.ReduceProd(b, axes, like="r"),
        lambda g, a, b, axes=None: g.ReduceProd(a * b, axes, like="r"),
        "associative",
        "reassociating",
        on=NUMBERS,
        **_PAIR,
    ),
)

_NAMED: tuple[Rule, ...] = (
    rule(
        "sum-of-magnitudes",
        lambda g, x, axes=None: g.ReduceSum(g.Abs(x), axes, like="r"),
        lambda g, x, axes=None: g.ReduceL1(x, axes, like="r"),
        "recognising",
        "reassociating",
        **_SINGLE,
    ),
    rule(
        "sum-of-squares",
        lambda g, x, axes=None: g.ReduceSum(x * x, axes, like="r"),
        lambda g, x, axes=None: g.ReduceSumSquare(x, axes, like="r"),
        "recognising",
        "reassociating",
        **_SINGLE,
    ),
    rule(
        "root-of-sum-of-squares",
        lambda g, x, axes=None: g.Sqrt(g.ReduceSumSquare(x, axes, like="r")),
        lambda g, x, axes=None: g.ReduceL2(x, axes, like="r"),
        "recognising",
        "reassociating",
        **_SINGLE,
    ),
    rule(
        "logarithm-of-sum",
        lambda g, x, axes=None: g.Log(g.ReduceSum(x, axes, like="r")),
        lambda g, x, axes=None: g.ReduceLogSum(x, axes, like="r"),
        "recognising",
        "reassociating",
        **_SINGLE,
    ),
)

REDUCTION: tuple[Rule, ...] = (
    rule(
        "shift-out-of-reducesum",
        lambda g, x, c, axes=None: g.ReduceSum(g.BitShift(x, c, direction="LEFT"), axes, like="r"),
        lambda g, x, c, axes=None: g.BitShift(g.ReduceSum(x, axes, like="r"), c, direction="LEFT"),
        "commutative",
        "exact",
        on=("uint",),
        published="RSum(BitShift(A)) -> BitShift(RSum(A))",
        **_BESIDE,
    ),
    *_linear("ReduceSum", NUMBERS, SIGNED),
    *_linear("ReduceMean", ("float",), ("float",)),
    *_MEANS,
    *_PRODUCTS,
    *(_sign_blind(op, inner) for op in ("ReduceL1", "ReduceL2", "ReduceSumSquare") for inner in ("Abs", "Neg")),
    *_NAMED,
)
