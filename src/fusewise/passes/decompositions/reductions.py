"""Norms and logarithms of sums, averages over whole maps and operators of many operands, as sums, maxima and pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, axes_of, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["REDUCTIONS"]


def _summed(
    before: Callable[[Notation, TensorValue], TensorValue], after: Callable[[Notation, TensorValue], TensorValue]
) -> Callable[..., Any]:
    """A function of a sum of functions, along the operator's axes."""

    def write(g: Notation, call: Call, x: TensorValue, axes: TensorValue | None = None) -> TensorValue | None:
        found = axes_of(call)
        if not found or not x.dtype.is_float:
            return None
        return after(g, g.sum(before(g, x), found, bool(call.attribute("keepdims", 1))))

    return write


def _log_sum_exp(g: Notation, call: Call, x: TensorValue, axes: TensorValue | None = None) -> TensorValue | None:
    """The largest element is taken out of the sum, unless it is infinite."""
    found = axes_of(call)
    if not found or not x.dtype.is_float:
        return None
    top = g.ReduceMax(x, list(found), keepdims=1)
    top = g.Where(g.IsInf(top), 0, top)
    total = top + g.Log(g.sum(g.Exp(x - top), found))
    if call.attribute("keepdims", 1):
        return total
    return g.reshape(total, [size for axis, size in enumerate(x.dims) if axis not in found])


def _chain(op: str) -> Callable[..., Any]:
    """Operands two by two."""

    def write(g: Notation, call: Call, *operands: TensorValue) -> TensorValue | None:
        return reduce(lambda a, b: g.several(op, 1, a, b)[0], operands) if len(operands) != 2 or op == "Add" else None

    return write


def _mean(g: Notation, call: Call, *operands: TensorValue) -> TensorValue:
    return reduce(lambda a, b: a + b, operands) / len(operands)


def _over_map(op: str) -> Callable[..., Any]:
    """A reduction over all axes behind the channels."""

    def write(g: Notation, call: Call, x: TensorValue) -> TensorValue:
        return g.several(op, 1, x, list(range(2, x.rank)), keepdims=1)[0]

    return write


def _same(g: Notation, x: TensorValue) -> TensorValue:
    return x


REDUCTIONS: tuple[Decomposition, ...] = (
    row("ReduceL1", _summed(lambda g, x: g.Abs(x), _same)),
    row("ReduceL2", _summed(lambda g, x: x * x, lambda g, total: g.Sqrt(total))),
    row("ReduceSumSquare", _summed(lambda g, x: x * x, _same)),
    row("ReduceLogSum", _summed(_same, lambda g, total: g.Log(total))),
    row("ReduceLogSumExp", _log_sum_exp),
    row("Sum", _chain("Add")),
    row("Max", _chain("Max")),
    row("Min", _chain("Min")),
    row("Mean", _mean),
    row("GlobalAveragePool", _over_map("ReduceMean")),
    row("GlobalMaxPool", _over_map("ReduceMax")),
)
