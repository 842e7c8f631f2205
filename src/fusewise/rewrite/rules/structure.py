"""Concatenation and splitting: cancelled, or moved past operators that work on every element alone. For the search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fusewise.rewrite.match import Match
from fusewise.rewrite.pattern import Computed, operators
from fusewise.rewrite.rule import NUMBERS, Rule, RuleSample, rule
from fusewise.rewrite.rules.guards import same_shape
from fusewise.rewrite.rules.order import RISING

__all__ = ["STRUCTURE", "of_parts"]


def of_parts(count: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a pattern's variables a, b and so on, two to four, from one of any number of them."""

    def two(g: Any, a: Any, b: Any) -> Any:
        return function(g, a, b)

    def three(g: Any, a: Any, b: Any, c: Any) -> Any:
        return function(g, a, b, c)

    def four(g: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        return function(g, a, b, c, d)

    return (two, three, four)[count - 2]


_ELEMENTWISE = tuple(dict.fromkeys([*(name for name, _, _ in RISING), "Neg", "Abs", "Reciprocal"]))
_COMMON = ("Relu", "Exp", "Sigmoid", "Tanh")
"""Those that stand on three or four parts as well."""

_ROWS = RuleSample({"a": (2, 3), "b": (2, 1)}, {}, {"k": {"axis": 1}})
_COLUMNS = RuleSample({"a": (1, 3), "b": (2, 3)}, {}, {"k": {"axis": 0}})


def _axis(match: Match, like: str, rank: int, default: int) -> int:
    return int(match.like[like].attribute("axis", default)) % rank


def _undoes(match: Match) -> str | None:
    """Split and Concat are along one axis."""
    rank = match.type("x").rank
    same = _axis(match, "s", rank, 0) == _axis(match, "k", rank, 0)
    return None if same else "the axes differ"


def _undone(match: Match) -> str | None:
    """The Split cuts where the Concat joined."""
    first, second = match.type("a"), match.type("b")
    axis = _axis(match, "k", first.rank, 0)
    if _axis(match, "s", first.rank, 0) != axis:
        return "the axes differ"
    sizes = match.array("sizes")
    joined = [first.dims[axis], second.dims[axis]]
    whole = sum(joined)
    found = [-(-whole // 2), whole - -(-whole // 2)] if sizes is None else [int(x) for x in sizes]
    return None if found == joined else "it cuts elsewhere"


def _axis_before(match: Match) -> int:
    """Where the axis that is joined stood before the transposition."""
    rank = match.type("a").rank
    order = match.like["t"].attribute("perm", tuple(range(rank))[::-1])
    return int(order[_axis(match, "k", rank, 0)])


def _sunk(op: str, count: int = 2) -> Rule:
    """An elementwise operator once after joining, instead of on every part."""
    samples = (
        (_ROWS, _COLUMNS)
        if count == 2
        else (RuleSample(dict.fromkeys("abcd"[:count], (2, 1)), {}, {"k": {"axis": 1}}),)
    )
    return rule(
        f"{op.lower()}-after-concat" + ("" if count == 2 else f"-of-{count}"),
        of_parts(count, lambda g, *parts: g.Concat(*(getattr(g, op)(part) for part in parts), like="k")),
        of_parts(count, lambda g, *parts: getattr(g, op)(g.Concat(*parts, like="k"))),
        "commutative",
        "exact",
        samples=samples,
    )


def _joined(op: str) -> Rule:
    """Two operators on parts of one shape as one on the parts joined."""
    return rule(
        f"{op.lower()}-of-concats",
        lambda g, a, b, c, d: g.Concat(getattr(g, op)(a, b), getattr(g, op)(c, d), like="k"),
        lambda g, a, b, c, d: getattr(g, op)(g.Concat(a, c, like="k"), g.Concat(b, d, like="k")),
        "commutative",
        "exact",
        guard=lambda m: None if _paired(m) else "the operands differ in shape",
        samples=(RuleSample({"a": (2, 3), "b": (2, 3), "c": (2, 1), "d": (2, 1)}, {}, {"k": {"axis": 1}}),),
    )


def _each(parts: tuple[Any, ...], op: str) -> tuple[Any, ...]:
    return tuple(getattr(operators, op)(part) for part in parts)


def _raised(op: str, count: int = 2) -> Rule:
    """An elementwise operator once before splitting, instead of on every part."""
    sizes = np.array([3, *(1,) * (count - 1)])[::-1].copy()
    return rule(
        f"{op.lower()}-before-split" + ("" if count == 2 else f"-in-{count}"),
        lambda g, x, sizes=None: _each(g.Split(x, sizes, like="s", outputs=count), op),
        lambda g, x, sizes=None: g.Split(getattr(g, op)(x), sizes, like="s", outputs=count),
        "commutative",
        "exact",
        samples=(RuleSample({"x": (2, int(sizes.sum()))}, {"sizes": sizes}, {"s": {"axis": 1}}),),
    )


def _transposed(op: str) -> Rule:
    """Moved once after the operator, instead of once for each operand."""
    return rule(
        f"transpose-out-of-{op.lower()}",
        lambda g, a, b: getattr(g, op)(g.Transpose(a, like="t"), g.Transpose(b, like="t")),
        lambda g, a, b: g.Transpose(getattr(g, op)(a, b), like="t"),
        "commutative",
        "exact",
        on=NUMBERS,
        guard=same_shape("a", "b"),
        samples=(RuleSample({"a": (2, 1, 3), "b": (2, 1, 3)}, {}, {"t": {"perm": (2, 0, 1)}}),),
    )


def _before_transposition(match: Match) -> np.ndarray:
    """The constant as it lines up with the image before it is transposed."""
    array, rank = match.array("c"), match.type("a").rank
    assert array is not None
    order = match.like["t"].attribute("perm", tuple(range(rank))[::-1])
    return np.transpose(array.reshape((1,) * (rank - array.ndim) + array.shape), np.argsort(order))


def _past_constant(op: str) -> Rule:
    """A transposition further down, past an operand that is known."""
    return rule(
        f"transpose-after-constant-{op.lower()}",
        lambda g, a, c: getattr(g, op)(g.Transpose(a, like="t"), c),
        lambda g, a, c: g.Transpose(
            getattr(g, op)(a, Computed("c before the transposition", _before_transposition)), like="t"
        ),
        "commutative",
        "exact",
        needs=(("c", "constant"),),
        guard=lambda m: None if m.type("c").rank <= m.type("a").rank else "the constant has more axes",
        samples=(
            RuleSample({"a": (2, 1, 3), "c": (2,)}, {}, {"t": {"perm": (2, 1, 0)}}),
            RuleSample({"a": (2, 1, 3), "c": (3, 1, 1)}, {}, {"t": {"perm": (2, 0, 1)}}),
            RuleSample({"a": (2, 3), "c": ()}, {}, {"t": {"perm": (1, 0)}}),
        ),
    )


def _lowered(op: str) -> Rule:
    """A transposition further down, where it may meet another."""
    return rule(
        f"transpose-after-{op.lower()}",
        lambda g, a: getattr(g, op)(g.Transpose(a, like="t")),
        lambda g, a: g.Transpose(getattr(g, op)(a), like="t"),
        "commutative",
        "exact",
        samples=(RuleSample({"a": (2, 3)}, {}, {"t": {"perm": (1, 0)}}),),
    )


def _one_a_column(match: Match) -> str | None:
    """x is split along its last axis, and b and c are one number for each element of their part of it."""
    rank = match.type("x").rank
    widths = [match.graph.tensor(root).dims[-1] for root in match.roots]
    vectors = [match.type(name).dims for name in "bc"]
    fits = _axis(match, "s", rank, 0) == rank - 1 and vectors == [(width,) for width in widths]
    return None if fits else "the terms are not one number a column"


def _biased(split: tuple[Any, Any], b: Any, c: Any) -> tuple[Any, Any]:
    return split[0] + b, split[1] + c


def _paired(match: Match) -> bool:
    return match.type("a").dims == match.type("b").dims and match.type("c").dims == match.type("d").dims


STRUCTURE: tuple[Rule, ...] = (
    rule(
        "concat-of-split",
        lambda g, x, sizes=None: g.Concat(*g.Split(x, sizes, like="s", outputs=2), like="k"),
        lambda g, x, sizes=None: x,
        "recognising",
        "exact",
        guard=_undoes,
        samples=(RuleSample({"x": (2, 4)}, {"sizes": np.array([1, 3])}, {"s": {"axis": 1}, "k": {"axis": -1}}),),
    ),
    rule(
        "concat-of-split-in-three",
        lambda g, x, sizes=None: g.Concat(*g.Split(x, sizes, like="s", outputs=3), like="k"),
        lambda g, x, sizes=None: x,
        "recognising",
        "exact",
        guard=_undoes,
        samples=(RuleSample({"x": (2, 4)}, {"sizes": np.array([1, 2, 1])}, {"s": {"axis": 1}, "k": {"axis": 1}}),),
    ),
    rule(
        "split-of-concat",
        lambda g, a, b, sizes=None: g.Split(g.Concat(a, b, like="k"), sizes, like="s", outputs=2),
        lambda g, a, b, sizes=None: (a, b),
        "recognising",
        "exact",
        guard=_undone,
        samples=(
            RuleSample({"a": (2, 1), "b": (2, 3)}, {"sizes": np.array([1, 3])}, {"s": {"axis": 1}, "k": {"axis": 1}}),
            RuleSample(
                {"a": (2, 2), "b": (2, 2)}, {"sizes": None}, {"s": {"axis": 1, "num_outputs": 2}, "k": {"axis": 1}}
            ),
        ),
    ),
    *(_sunk(op) for op in _ELEMENTWISE),
    *(_sunk(op, count) for op in _COMMON for count in (3, 4)),
    *(_joined(op) for op in ("Add", "Sub", "Mul")),
    *(_raised(op) for op in _ELEMENTWISE),
    *(_raised(op, count) for op in _COMMON for count in (3, 4)),
    rule(
        "terms-before-split",
        lambda g, x, b, c, sizes=None: _biased(g.Split(x, sizes, like="s", outputs=2), b, c),
        lambda g, x, b, c, sizes=None: g.Split(x + g.Concat(b, c, axis=0), sizes, like="s", outputs=2),
        "commutative",
        "exact",
        needs=(("b", "constant"), ("c", "constant")),
        guard=_one_a_column,
        samples=(
            RuleSample({"x": (2, 4), "b": (1,), "c": (3,)}, {"sizes": np.array([1, 3])}, {"s": {"axis": -1}}),
            RuleSample({"x": (1, 2, 4), "b": (2,), "c": (2,)}, {"sizes": None}, {"s": {"axis": 2, "num_outputs": 2}}),
        ),
    ),
    *(_transposed(op) for op in ("Add", "Sub", "Mul", "Max", "Min")),
    *(_lowered(op) for op in _ELEMENTWISE),
    *(_past_constant(op) for op in ("Add", "Mul")),
    rule(
        "concat-of-transposed",
        lambda g, a, b: g.Concat(g.Transpose(a, like="t"), g.Transpose(b, like="t"), like="k"),
        lambda g, a, b: g.Transpose(g.Concat(a, b, axis=Computed("axis", _axis_before)), like="t"),
        "commutative",
        "exact",
        on=NUMBERS,
        samples=(RuleSample({"a": (2, 1, 3), "b": (2, 2, 3)}, {}, {"t": {"perm": (2, 0, 1)}, "k": {"axis": 2}}),),
    ),
)
