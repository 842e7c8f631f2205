"""A gradient rule: what each operand of an operator gets of what its results got, one row each.

What arrives at a result is `d`: the slope of one number, the sum of an output, by that result. A row says the slope by the
operands, in the shape of the result where they were broadcast: the sweep adds up (`reverse`), and nobody else does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.ops.spec import Call
from fusewise.passes.notation import Notation, TensorValue
from fusewise.records import record

__all__ = ["Gradient", "Pull", "Reverse", "pulled", "row"]


@record(frozen=True)
class Reverse:
    """One application, seen from its results.

    `x` and `y` are operands and results, None for absent ones; `d` what arrived at each result, None for nothing. `wanted` says for
    which operands an answer is of use.
    """

    call: Call
    x: tuple[TensorValue | None, ...]
    y: tuple[TensorValue | None, ...]
    d: tuple[TensorValue | None, ...]
    wanted: tuple[bool, ...]

    def operand(self, i: int = 0) -> TensorValue:
        """Operand `i`, which is there."""
        found = self.x[i]
        assert found is not None
        return found

    @property
    def first(self) -> TensorValue:
        """What arrived at the only result that has a slope."""
        assert self.d[0] is not None
        return self.d[0]


Rule = Callable[[Notation, Reverse], Sequence[TensorValue | None] | None]
"""For each operand what it gets, None for nothing; None for a form of the operator that has no rule."""

Pull = Callable[..., TensorValue]
"""What one operand gets: a function of `g`, `d`, the operands and the result."""


@record(frozen=True)
class Gradient:
    """The rule for one operator."""

    op: str
    rule: Rule


def row(op: str, rule: Rule) -> Gradient:
    """A row from a function of an application seen from its results."""
    return Gradient(op, rule)


def pulled(op: str, *pulls: Pull) -> Gradient:
    """A row from one function in graph notation for each operand: `lambda g, d, a, b, y: d * b`."""

    def rule(g: Notation, at: Reverse) -> list[TensorValue | None]:
        (y,) = at.y
        return [pull(g, at.first, *at.x, y) if want else None for pull, want in zip(pulls, at.wanted, strict=True)]

    return Gradient(op, rule)
