"""Gradients of sums, means, products and extremes along axes, of softmax, and of running sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.passes.decompositions.row import axes_of
from fusewise.passes.gradient.row import Gradient, Reverse, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["REDUCTIONS"]

Along = Callable[[Notation, TensorValue, TensorValue, TensorValue, Sequence[int]], TensorValue]
"""What the operand gets: of `g`, `d` and `y` with the axes kept, `x`, and the axes."""


def _reduction(op: str, along: Along) -> Gradient:
    """A reduction by its row: `d` and the result have their axes back, as axes of one element."""

    def rule(g: Notation, at: Reverse) -> list[TensorValue | None] | None:
        x, axes = at.operand(), axes_of(at.call)
        if axes is None:
            return None
        kept = [1 if axis in axes else size for axis, size in enumerate(x.dims)]
        y = g.reshape(at.y[0], kept) if at.y[0] is not None else x
        part = along(g, g.reshape(at.first, kept), y, x, axes) if axes else at.first
        return [g.expand(part, x.dims), *[None] * (len(at.x) - 1)]

    return row(op, rule)


def _mean(g: Notation, d: TensorValue, y: TensorValue, x: TensorValue, axes: Sequence[int]) -> TensorValue:
    count = 1
    for axis in axes:
        count *= x.dims[axis]
    return d / count


def _extreme(g: Notation, d: TensorValue, y: TensorValue, x: TensorValue, axes: Sequence[int]) -> TensorValue:
    """Elements that are the largest get an equal share."""
    share = g.cast(g.Equal(x, y), x.dtype)
    return d / g.sum(share, axes) * share


def _product(g: Notation, d: TensorValue, y: TensorValue, x: TensorValue, axes: Sequence[int]) -> TensorValue:
    """The product of the other elements: one element that is zero alone gets the others' product, and of two none gets anything."""
    zero = g.Equal(x, 0)
    others = g.Where(zero, 1, x)
    count = g.sum(g.cast(zero, x.dtype), axes)
    alone = g.And(zero, g.Equal(count, 1))
    left = g.ReduceProd(others, list(axes), keepdims=1)
    return d * g.Where(g.Equal(count, 0), y / others, g.Where(alone, left, 0))


def _log_sum_exp(g: Notation, d: TensorValue, y: TensorValue, x: TensorValue, axes: Sequence[int]) -> TensorValue:
    return d * g.Exp(x - y)


def _norm(g: Notation, d: TensorValue, y: TensorValue, x: TensorValue, axes: Sequence[int]) -> TensorValue:
    """x / y, and 0 where the norm is 0."""
    return g.Where(g.Equal(y, 0), 0, d * x / y)


def _axis(at: Reverse) -> list[int]:
    return [at.call.attribute("axis", -1) % max(at.operand().rank, 1)]


def _softmax(g: Notation, at: Reverse) -> list[TensorValue | None]:
    (y,) = at.y
    assert y is not None
    part = at.first * y
    return [part - y * g.sum(part, _axis(at))]


def _log_softmax(g: Notation, at: Reverse) -> list[TensorValue | None]:
    return [at.first - g.Exp(at.y[0]) * g.sum(at.first, _axis(at))]


def _running_sum(g: Notation, at: Reverse) -> list[TensorValue | None]:
    """Element k is in all sums behind it: the running sum from the other side."""
    other, exclusive = 1 - at.call.attribute("reverse", 0), at.call.attribute("exclusive", 0)
    return [g.CumSum(at.first, at.x[1], reverse=other, exclusive=exclusive), None]


REDUCTIONS: tuple[Gradient, ...] = (
    _reduction("ReduceSum", lambda g, d, y, x, axes: d),
    _reduction("ReduceMean", _mean),
    _reduction("ReduceMax", _extreme),
    _reduction("ReduceMin", _extreme),
    _reduction("ReduceProd", _product),
    _reduction("ReduceLogSumExp", _log_sum_exp),
    _reduction("ReduceL2", _norm),
    row("Softmax", _softmax),
    row("LogSoftmax", _log_softmax),
    row("CumSum", _running_sum),
)
