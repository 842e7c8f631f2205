"""Maxima and minima: lattice laws, and functions that keep or turn the order, so that they need to be taken only once."""

from __future__ import annotations

from fusewise.rewrite.rule import NUMBERS, Rule, rule
from fusewise.rewrite.rules.guards import all_of, reduces, same_shape, uniform
from fusewise.rewrite.rules.samples import REDUCTIONS, REDUCTIONS_BESIDE, REDUCTIONS_PAIR

__all__ = ["ORDER", "RISING"]

_PAIRS = (("Max", "Min"), ("Min", "Max"))

RISING: tuple[tuple[str, str, str], ...] = (
    ("Relu", "exact", ""),
    ("Floor", "exact", ""),
    ("Ceil", "exact", ""),
    ("Round", "exact", ""),
    ("Sign", "exact", ""),
    ("Exp", "reassociating", ""),
    ("Sigmoid", "reassociating", ""),
    ("Tanh", "reassociating", ""),
    ("Erf", "reassociating", ""),
    ("Softplus", "reassociating", ""),
    ("Atan", "reassociating", ""),
    ("Sqrt", "reassociating", "nonnegative"),
    ("Log", "reassociating", "nonnegative"),
)
"""Functions that never fall: name, class (one that is computed may dip by a last bit), and what their operands must be."""


def _needs(fact: str, *variables: str) -> tuple[tuple[str, str], ...]:
    return tuple((variable, fact) for variable in variables) if fact else ()


def _of_two(op: str, function: str, numeric: str, fact: str) -> Rule:
    return rule(
        f"{function.lower()}-out-of-{op.lower()}",
        lambda g, a, b: getattr(g, op)(getattr(g, function)(a), getattr(g, function)(b)),
        lambda g, a, b: getattr(g, function)(getattr(g, op)(a, b)),
        "commutative",
        numeric,
        needs=_needs(fact, "a", "b"),
    )


def _of_row(op: str, function: str, numeric: str, fact: str) -> Rule:
    reduce = f"Reduce{op}"
    return rule(
        f"{function.lower()}-out-of-{reduce.lower()}",
        lambda g, x, axes=None: getattr(g, reduce)(getattr(g, function)(x), axes, like="r"),
        lambda g, x, axes=None: getattr(g, function)(getattr(g, reduce)(x, axes, like="r")),
        "commutative",
        numeric,
        needs=_needs(fact, "x"),
        guard=reduces,
        samples=REDUCTIONS,
    )


def _lattice(op: str, dual: str) -> tuple[Rule, ...]:
    """Maximum and minimum over each other; `dual` is the other one of the two."""
    name = op.lower()
    return (
        rule(
            f"{dual.lower()}-out-of-{name}",
            lambda g, a, b, c: getattr(g, op)(getattr(g, dual)(a, b), getattr(g, dual)(a, c)),
            lambda g, a, b, c: getattr(g, dual)(a, getattr(g, op)(b, c)),
            "distributive",
            "exact",
            on=NUMBERS,
        ),
        rule(
            f"{dual.lower()}-absorbed-by-{name}",
            lambda g, a, b: getattr(g, op)(a, getattr(g, dual)(a, b)),
            lambda g, a, b: a,
            "distributive",
            "exact",
            on=("int", "uint"),  # among floats a NaN would be lost
        ),
    )


def _translated(op: str, dual: str) -> tuple[Rule, ...]:
    """What is added to, or taken from, both operands is so to the result."""
    name = op.lower()
    return (
        rule(
            f"term-out-of-{name}",
            lambda g, a, b, c: getattr(g, op)(a + c, b + c),
            lambda g, a, b, c: getattr(g, op)(a, b) + c,
            "distributive",
            "reassociating",
        ),
        rule(
            f"subtrahend-out-of-{name}",
            lambda g, a, b, c: getattr(g, op)(a - c, b - c),
            lambda g, a, b, c: getattr(g, op)(a, b) - c,
            "distributive",
            "reassociating",
        ),
        rule(
            f"minuend-out-of-{name}",
            lambda g, a, b, c: getattr(g, op)(c - a, c - b),
            lambda g, a, b, c: c - getattr(g, dual)(a, b),
            "distributive",
            "reassociating",
        ),
    )


def _scaled(op: str, dual: str) -> tuple[Rule, ...]:
    """What both operands are multiplied or divided by; turning the sign or the fraction turns the order."""
    name = op.lower()
    return (
        rule(
            f"factor-out-of-{name}",
            lambda g, a, b, c: getattr(g, op)(a * c, b * c),
            lambda g, a, b, c: getattr(g, op)(a, b) * c,
            "distributive",
            "reassociating",
            needs=(("c", "nonnegative"),),
        ),
        rule(
            f"divisor-out-of-{name}",
            lambda g, a, b, c: getattr(g, op)(a / c, b / c),
            lambda g, a, b, c: getattr(g, op)(a, b) / c,
            "distributive",
            "reassociating",
            needs=(("c", "positive"),),
        ),
        rule(
            f"negative-out-of-{name}",
            lambda g, a, b: getattr(g, op)(-a, -b),
            lambda g, a, b: -getattr(g, dual)(a, b),
            "commutative",
            "exact",
        ),
        rule(
            f"reciprocal-out-of-{name}",
            lambda g, a, b: getattr(g, op)(g.Reciprocal(a), g.Reciprocal(b)),
            lambda g, a, b: g.Reciprocal(getattr(g, dual)(a, b)),
            "commutative",
            "exact",
            needs=(("a", "positive"), ("b", "positive")),
        ),
    )


def _along_axes(op: str, dual: str) -> tuple[Rule, ...]:
    """The same along axes."""
    reduce, dual_reduce, name = f"Reduce{op}", f"Reduce{dual}", f"reduce{op.lower()}"
    return (
        rule(
            f"negative-out-of-{name}",
            lambda g, x, axes=None: getattr(g, reduce)(-x, axes, like="r"),
            lambda g, x, axes=None: -getattr(g, dual_reduce)(x, axes, like="r"),
            "commutative",
            "exact",
            guard=reduces,
            samples=REDUCTIONS,
        ),
        rule(
            f"term-out-of-{name}",
            lambda g, x, c, axes=None: getattr(g, reduce)(x + c, axes, like="r"),
            lambda g, x, c, axes=None: getattr(g, reduce)(x, axes, like="r") + c,
            "distributive",
            "reassociating",
            guard=all_of(reduces, uniform("c")),
            samples=REDUCTIONS_BESIDE,
        ),
        rule(
            f"factor-out-of-{name}",
            lambda g, x, c, axes=None: getattr(g, reduce)(x * c, axes, like="r"),
            lambda g, x, c, axes=None: getattr(g, reduce)(x, axes, like="r") * c,
            "distributive",
            "reassociating",
            needs=(("c", "nonnegative"),),
            guard=all_of(reduces, uniform("c")),
            samples=REDUCTIONS_BESIDE,
        ),
        rule(
            f"{name}-of-{op.lower()}",
            lambda g, a, b, axes=None: getattr(g, op)(
                getattr(g, reduce)(a, axes, like="r"), getattr(g, reduce)(b, axes, like="r")
            ),
            lambda g, a, b, axes=None: getattr(g, reduce)(getattr(g, op)(a, b), axes, like="r"),
            "commutative",
            "exact",
            on=NUMBERS,
            guard=all_of(reduces, same_shape("a", "b")),
            samples=REDUCTIONS_PAIR,
        ),
    )


_LAWS = (_lattice, _translated, _scaled, _along_axes)

ORDER: tuple[Rule, ...] = (
    *(row for pair in _PAIRS for laws in _LAWS for row in laws(*pair)),
    *(_of_two(op, *row) for op, _ in _PAIRS for row in RISING),
    *(_of_row(op, *row) for op, _ in _PAIRS for row in RISING),
)
