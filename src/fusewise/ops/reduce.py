"""Reductions along axes, running sums, and the positions of extremes.

Axes come from an operand (newer opsets) or an attribute (older ones). A reduction over nothing gives the identity of its
kind. Narrow floats are accumulated in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fusewise.ir.deciding import known_equal
from fusewise.ir.dtypes import BOOL, FLOAT64
from fusewise.ir.size import greatest
from fusewise.ops.edges import per_operand
from fusewise.ops.expr import Expr, binary, cast, compare, const, index, reduce, select, unary
from fusewise.ops.indexing import data_axis, dims, integers, known_integers, value
from fusewise.ops.scalar import square
from fusewise.ops.spec import Call, Mapping, OpSpec, Sample

__all__ = ["REDUCE", "first_extreme", "reduced_axes", "reduction_index"]

Element = Callable[[Expr], Expr]


def reduced_axes(call: Call) -> tuple[int, ...]:
    """The axes a Reduce operator combines, ascending; empty when it is asked to do nothing."""
    rank = call.input(0).rank
    axes = integers(call, 1, "axes")
    if not axes:
        return () if call.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({axis % rank for axis in axes}))


def reduction_index(
    axes: tuple[int, ...], output: tuple[Expr, ...], shape: tuple[int, ...], keep: bool, prefix: str = "r"
) -> tuple[tuple[Expr, ...], tuple[tuple[str, int], ...]]:
    """The operand index of a reduction over `axes`, and its loop variables, named after their axis."""
    remaining = iter(output)
    position: list[Expr] = []
    for axis in range(len(shape)):
        if axis in axes:
            position.append(index(f"{prefix}{axis}"))
            if keep:
                next(remaining)
        else:
            position.append(next(remaining))
    return tuple(position), tuple((f"{prefix}{axis}", shape[axis]) for axis in axes)


def _over(
    kind: str, element: Element = lambda x: x, finish: Callable[[Expr, int], Expr] = lambda y, n: y
) -> Callable[[Call, int, tuple[Expr, ...]], Expr]:
    """A definition that combines `element(x)` by `kind`; `finish` sees the result and how many were combined."""

    def define(call: Call, output: int, at: tuple[Expr, ...]) -> Expr:
        axes = reduced_axes(call)
        shape = dims(call)
        position, loops = reduction_index(axes, at, shape, bool(call.attribute("keepdims", 1)))
        body = element(value(call, 0, *position))
        return finish(reduce(kind, loops, body), math.prod(shape[axis] for axis in axes))

    return define


def _log_sum_exp(call: Call, output: int, at: tuple[Expr, ...]) -> Expr:
    """Shifted by the maximum, so that large elements do not overflow; of integers in double precision, and cut off."""
    axes, shape, keep = reduced_axes(call), dims(call), bool(call.attribute("keepdims", 1))
    first, first_loops = reduction_index(axes, at, shape, keep, "m")
    second, second_loops = reduction_index(axes, at, shape, keep, "r")

    def element(position: tuple[Expr, ...]) -> Expr:
        x = value(call, 0, *position)
        return x if x.dtype.is_float else cast(x, FLOAT64)

    peak = reduce("max", first_loops, element(first))
    # an infinite peak would give inf - inf
    shift = select(unary("isinf", peak), 0, peak)
    return unary("log", reduce("sum", second_loops, unary("exp", element(second) - shift))) + shift


def _mean(total: Expr, count: int) -> Expr:
    if total.dtype.is_float:
        return total * math.nan if known_equal(count, 0) else total / const(count, total.dtype)
    return binary("div", total, const(greatest(count, 1), total.dtype))


def _finished(function: str) -> Callable[[Expr, int], Expr]:
    """A function of what was combined; of integers in double precision, and cut off."""

    def finish(total: Expr, count: int) -> Expr:
        if total.dtype.is_float:
            return unary(function, total)
        return cast(unary(function, cast(total, FLOAT64)), total.dtype)

    return finish


def _mapping(call: Call) -> tuple[Mapping, ...]:
    n = len(call.inputs)
    if call.has(1) and not call.is_known(1):
        return (Mapping.OPAQUE,) * n
    nothing = call.input(0).shape == call.output().shape and not reduced_axes(call)
    return ((Mapping.ONE_TO_ONE if nothing else Mapping.MANY_TO_MANY,) + (Mapping.ONE_TO_MANY,) * n)[:n]


def _axes(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _samples(low: float, *dtypes: str, empty: bool = True) -> tuple[Sample, ...]:
    def sample(dtype: str, shape: tuple[int, ...], axes: np.ndarray | None = None, **attributes: Any) -> Sample:
        return Sample((((dtype, shape),) if axes is None else ((dtype, shape), axes)), attributes, low=low, high=3)

    return (
        sample("float32", (2, 3, 4), _axes(1)),
        sample("float32", (2, 3, 4), _axes(-1, 0), keepdims=0),
        sample("float32", (2, 3)),
        sample("float32", (2, 3), _axes(), noop_with_empty_axes=1),
        *(sample(dtype, (3, 4), _axes(0), keepdims=0) for dtype in dtypes),
        *((sample("float32", (2, 0, 3), _axes(1)),) if empty else ()),
    )


def row(name: str, define: Any, cost: int, samples: tuple[Sample, ...], *flags: str) -> OpSpec:
    """A reduction that does `cost` operations on each element of its operand."""
    return OpSpec(
        name,
        mapping=_mapping,
        flops=lambda call: cost * call.input(0).size,
        define=define,
        family="reduce",
        flags=frozenset(flags),
        samples=samples,
    )


# -- running and positional -------------------------------------------------------------------------------------------------


def _running(kind: str) -> Callable[[Call, int, tuple[Expr, ...]], Expr]:
    """A reduction over the positions up to this one; others contribute the identity."""

    def define(call: Call, output: int, at: tuple[Expr, ...]) -> Expr:
        shape = dims(call)
        axis = known_integers(call, 1, "axis")[0] % len(shape)
        exclusive, reverse = int(call.attribute("exclusive", 0)), int(call.attribute("reverse", 0))
        k = index("r0")
        before = ("gt" if exclusive else "ge") if reverse else ("lt" if exclusive else "le")
        element = value(call, 0, *(k if d == axis else at[d] for d in range(len(shape))))
        neutral = const(0 if kind == "sum" else 1, element.dtype)
        return reduce(kind, (("r0", shape[axis]),), select(compare(before, k, at[axis]), element, neutral))

    return define


def first_extreme(x: Callable[[Expr], Expr], extent: int, kind: str, last: bool = False) -> Expr:
    """The position of the largest or smallest (`kind` max or min) of `x` over `extent` positions, as an int64.

    The first of equals, or the last; a NaN counts as the extreme, as in NumPy. Uses loop variables `e0` and `e1`.
    """
    peak = reduce(kind, (("e0", extent),), x(index("e0")))
    candidate = x(index("e1"))
    hit = compare("eq", candidate, peak)
    if candidate.dtype.is_float:
        hit = binary("or", hit, unary("isnan", candidate))
    missing = const(-1 if last else extent)
    return reduce("max" if last else "min", (("e1", extent),), select(hit, index("e1"), missing))


def _position(kind: str) -> Callable[[Call, int, tuple[Expr, ...]], Expr]:
    def define(call: Call, output: int, at: tuple[Expr, ...]) -> Expr:
        shape = dims(call)
        axis = data_axis(call, 0)
        keep = bool(call.attribute("keepdims", 1))
        position, _ = reduction_index((axis,), at, shape, keep)

        def element(k: Expr) -> Expr:
            return value(call, 0, *(k if d == axis else p for d, p in enumerate(position)))

        return first_extreme(element, shape[axis], kind, bool(call.attribute("select_last_index", 0)))

    return define


def _hardmax(call: Call, output: int, at: tuple[Expr, ...]) -> Expr:
    shape = dims(call)
    axis = data_axis(call, -1)

    def element(k: Expr) -> Expr:
        return value(call, 0, *(k if d == axis else p for d, p in enumerate(at)))

    chosen = compare("eq", first_extreme(element, shape[axis], "max"), at[axis])
    dtype = element(at[axis]).dtype
    return select(chosen, const(1, dtype), const(0, dtype))


def _and_or(kind: str) -> Callable[[Call, int, tuple[Expr, ...]], Expr]:
    """Maximum and minimum; on booleans these are `or` and `and`."""
    plain = _over(kind)
    logical = _over("or" if kind == "max" else "and")

    def define(call: Call, output: int, at: tuple[Expr, ...]) -> Expr:
        return (logical if call.input(0).dtype == BOOL else plain)(call, output, at)

    return define


def _position_samples() -> tuple[Sample, ...]:
    return (
        Sample((("float32", (2, 3, 4)),), {"axis": 1}),
        Sample((("int32", (3, 5)),), {"axis": -1, "keepdims": 0}),
        Sample((("int32", (3, 5)),), {"axis": -1, "select_last_index": 1}),
    )


def _running_samples() -> tuple[Sample, ...]:
    return (
        Sample((("float32", (2, 5)), np.array(1, np.int64))),
        Sample((("float32", (4, 3)), np.array(0, np.int64)), {"reverse": 1}),
        Sample((("float64", (6,)), np.array(-1, np.int32)), {"exclusive": 1}),
        Sample((("float32", (6,)), np.array(0, np.int64)), {"exclusive": 1, "reverse": 1}),
    )


def _positional(name: str, define: Any, cost: int, family: str, samples: tuple[Sample, ...]) -> OpSpec:
    return OpSpec(
        name,
        mapping=per_operand(Mapping.MANY_TO_MANY),
        flops=lambda call: cost * call.input(0).size,
        define=define,
        family=family,
        samples=samples,
    )


_INT = ("int32", "float64")

REDUCE: tuple[OpSpec, ...] = (
    row("ReduceSum", _over("sum"), 1, _samples(-3, *_INT), "linear"),
    row("ReduceMean", _over("sum", finish=_mean), 1, _samples(-3, "float64", "float16", empty=False), "linear"),
    row("ReduceProd", _over("prod"), 1, _samples(-3, *_INT)),
    row("ReduceMax", _and_or("max"), 1, _samples(-3, "int32", "uint8", "float16", "bool"), "idempotent"),
    row("ReduceMin", _and_or("min"), 1, _samples(-3, "int32", "int8", "bool"), "idempotent"),
    row("ReduceL1", _over("sum", lambda x: unary("abs", x)), 2, _samples(-3, *_INT)),
    row("ReduceL2", _over("sum", square, _finished("sqrt")), 2, _samples(-3, "float64", "float16")),
    row("ReduceSumSquare", _over("sum", square), 2, _samples(-3, "int64", "float64")),
    row("ReduceLogSum", _over("sum", finish=_finished("log")), 1, _samples(0.5, "float64")),
    row("ReduceLogSumExp", _log_sum_exp, 4, _samples(-3, "float64", "float16")),
    _positional("ArgMax", _position("max"), 1, "reduce", _position_samples()),
    _positional("ArgMin", _position("min"), 1, "reduce", _position_samples()),
    _positional(
        "Hardmax", _hardmax, 1, "hardmax", (Sample((("float32", (3, 4)),)), Sample((("float32", (3, 4)),), {"axis": 0}))
    ),
    _positional("CumSum", _running("sum"), 1, "scan", _running_samples()),
    _positional("CumProd", _running("prod"), 1, "scan", _running_samples()),
)
