"""Concatenation and splitting: cancelled, or moved past operators that work on every element alone. For the search."""

from __future__ import annotations

from typing import Any

import numpy as np

from fusewise.rewrite.match import Match
from fusewise.rewrite.pattern import Computed, operators
from fusewise.rewrite.rule import NUMBERS, Rule, Sample, rule
from fusewise.rewrite.rules.guards import same_shape
from fusewise.rewrite.rules.order import RISING

__all__ = ["STRUCTURE"]

_ELEMENTWISE = tuple(dict.fromkeys([*(name for name, _, _ in RISING), "Neg", "Abs", "Reciprocal"]))
_ROWS = Sample({"a": (2, 3), "b": (2, 1)}, {}, {"k": {"axis": 1}})
_COLUMNS = Sample({"a": (1, 3), "b": (2, 3)}, {}, {"k": {"axis": 0}})


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


def _sunk(op: str) -> Rule:
    """An elementwise operator once after joining, instead of on every part."""
    return rule(
        f"{op.lower()}-after-concat",
        lambda g, a, b: g.Concat(getattr(g, op)(a), getattr(g, op)(b), like="k"),
        lambda g, a, b: getattr(g, op)(g.Concat(a, b, like="k")),
        "commutative",
        "exact",
        samples=(_ROWS, _COLUMNS),
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
        samples=(Sample({"a": (2, 3), "b": (2, 3), "c": (2, 1), "d": (2, 1)}, {}, {"k": {"axis": 1}}),),
    )


def _halves(split: tuple[Any, Any], op: str) -> tuple[Any, Any]:
    return getattr(operators, op)(split[0]), getattr(operators, op)(split[1])


def _raised(op: str) -> Rule:
    """An elementwise operator once before splitting, instead of on every part."""
    return rule(
        f"{op.lower()}-before-split",
        lambda g, x, sizes=None: _halves(g.Split(x, sizes, like="s", outputs=2), op),
        lambda g, x, sizes=None: g.Split(getattr(g, op)(x), sizes, like="s", outputs=2),
        "commutative",
        "exact",
        samples=(Sample({"x": (2, 4)}, {"sizes": np.array([1, 3])}, {"s": {"axis": 1}}),),
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
        samples=(Sample({"a": (2, 1, 3), "b": (2, 1, 3)}, {}, {"t": {"perm": (2, 0, 1)}}),),
    )


def _lowered(op: str) -> Rule:
    """A transposition further down, where it may meet another."""
    return rule(
        f"transpose-after-{op.lower()}",
        lambda g, a: getattr(g, op)(g.Transpose(a, like="t")),
        lambda g, a: g.Transpose(getattr(g, op)(a), like="t"),
        "commutative",
        "exact",
        samples=(Sample({"a": (2, 3)}, {}, {"t": {"perm": (1, 0)}}),),
    )


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
        samples=(Sample({"x": (2, 4)}, {"sizes": np.array([1, 3])}, {"s": {"axis": 1}, "k": {"axis": -1}}),),
    ),
    rule(
        "concat-of-split-in-three",
        lambda g, x, sizes=None: g.Concat(*g.Split(x, sizes, like="s", outputs=3), like="k"),
        lambda g, x, sizes=None: x,
        "recognising",
        "exact",
        guard=_undoes,
        samples=(Sample({"x": (2, 4)}, {"sizes": np.array([1, 2, 1])}, {"s": {"axis": 1}, "k": {"axis": 1}}),),
    ),
    rule(
        "split-of-concat",
        lambda g, a, b, sizes=None: g.Split(g.Concat(a, b, like="k"), sizes, like="s", outputs=2),
        lambda g, a, b, sizes=None: (a, b),
        "recognising",
        "exact",
        guard=_undone,
        samples=(
            Sample({"a": (2, 1), "b": (2, 3)}, {"sizes": np.array([1, 3])}, {"s": {"axis": 1}, "k": {"axis": 1}}),
            Sample({"a": (2, 2), "b": (2, 2)}, {"sizes": None}, {"s": {"axis": 1, "num_outputs": 2}, "k": {"axis": 1}}),
        ),
    ),
    *(_sunk(op) for op in _ELEMENTWISE),
    *(_joined(op) for op in ("Add", "Sub", "Mul")),
    *(_raised(op) for op in _ELEMENTWISE),
    *(_transposed(op) for op in ("Add", "Sub", "Mul", "Max", "Min")),
    *(_lowered(op) for op in _ELEMENTWISE),
    rule(
        "concat-of-transposed",
        lambda g, a, b: g.Concat(g.Transpose(a, like="t"), g.Transpose(b, like="t"), like="k"),
        lambda g, a, b: g.Transpose(g.Concat(a, b, axis=Computed("axis", _axis_before)), like="t"),
        "commutative",
        "exact",
        on=NUMBERS,
        samples=(Sample({"a": (2, 1, 3), "b": (2, 2, 3)}, {}, {"t": {"perm": (2, 0, 1)}, "k": {"axis": 2}}),),
    ),
)
