"""Operators without data: constants, ranges, shapes, windows. Each element is a function of its index."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fusewise.ir.dtypes import FLOAT64
from fusewise.ir.graph import Constant
from fusewise.ops.cost import free, per_output
from fusewise.ops.edges import every
from fusewise.ops.expr import Expr, Index, cast, compare, const, select, unary
from fusewise.ops.indexing import compute_type, dims, output_dims, value
from fusewise.ops.spec import Call, Mapping, NotDefined, OpSpec, Sample

__all__ = ["GENERATE"]


def _constant_of_shape(call: Call, output: int, at: Index) -> Expr:
    found = call.attribute("value")
    dtype = call.output().dtype
    return const(found.array.reshape(-1)[0].item() if isinstance(found, Constant) else 0, dtype)


def _eye(call: Call, output: int, at: Index) -> Expr:
    dtype = call.output().dtype
    return select(compare("eq", at[1] - at[0], int(call.attribute("k", 0))), const(1, dtype), const(0, dtype))


def _range(call: Call, output: int, at: Index) -> Expr:
    """start + i * delta, in float32 for narrow floats."""
    dtype = compute_type(call.output().dtype)
    start, delta = (value(call, i, *(0,) * call.input(i).rank) for i in (0, 2))
    return start + cast(at[0], dtype) * delta


def _shape(call: Call, output: int, at: Index) -> Expr:
    shape = dims(call)
    start, end, _ = slice(call.attribute("start", 0), call.attribute("end"), 1).indices(len(shape))
    found: Expr = const(0)
    for n, size in reversed(list(enumerate(shape[start:end]))):
        last = n == len(shape[start:end]) - 1
        found = const(size) if last else select(compare("eq", at[0], n), const(size), found)
    return found


def _size(call: Call, output: int, at: Index) -> Expr:
    return const(call.input(0).size)


def _cosine_window(*terms: float) -> Callable[[Call, int, Index], Expr]:
    """A sum of cosines with the given coefficients, alternating in sign."""

    def define(call: Call, output: int, at: Index) -> Expr:
        dtype = call.output().dtype
        if not dtype.is_float:
            raise NotDefined(f"a window of {dtype.name}")
        n = output_dims(call)[0]
        period = n if call.attribute("periodic", 1) else n - 1
        phase = (
            cast(at[0], FLOAT64) * (2 * math.pi) / const(period, FLOAT64)
        )  # NaN for a symmetric window of one element
        total: Expr = const(terms[0], FLOAT64)
        for k, term in enumerate(terms[1:], start=1):
            total = total + unary("cos", phase * k) * (term if k % 2 == 0 else -term)
        return cast(total, dtype)

    return define


def row(
    name: str,
    define: Callable[[Call, int, Index], Expr],
    samples: tuple[Sample, ...],
    cost: int = 0,
    shaped_by: tuple[int, ...] = (),
) -> OpSpec:
    return OpSpec(
        name,
        mapping=every(Mapping.ONE_TO_MANY),
        flops=per_output(cost) if cost else free,
        define=define,
        flags=frozenset({"generator"}),
        samples=samples,
        shaped_by=shaped_by,
    )


def _i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _number(x: float, dtype: type = np.float32) -> np.ndarray:
    return np.array(x, dtype)


_WINDOWS = (Sample((np.array(9, np.int64),)), Sample((np.array(8, np.int64),), {"periodic": 0}))

GENERATE: tuple[OpSpec, ...] = (
    row(
        "ConstantOfShape",
        _constant_of_shape,
        (
            Sample((_i64(2, 3),)),
            Sample((_i64(2, 0),)),
            Sample((_i64(4),), {"value": Constant(np.array([7], np.int32))}),
        ),
        shaped_by=(0,),
    ),
    row("EyeLike", _eye, (Sample((("float32", (3, 4)),), {"k": 1}), Sample((("int32", (3, 3)),), {"dtype": 1}))),
    row(
        "Range",
        _range,
        (
            Sample((_number(1, np.int64), _number(11, np.int64), _number(3, np.int64))),
            Sample((_number(1.5), _number(-1), _number(-0.5))),
        ),
        2,
        (0, 1, 2),
    ),
    row(
        "Shape", _shape, (Sample((("float32", (2, 3, 4)),)), Sample((("float32", (2, 3, 4)),), {"start": -2, "end": 2}))
    ),
    row("Size", _size, (Sample((("float32", (2, 3, 4)),)),)),
    row("HannWindow", _cosine_window(0.5, 0.5), _WINDOWS, 3, (0,)),
    row("HammingWindow", _cosine_window(25 / 46, 21 / 46), _WINDOWS, 3, (0,)),
    row("BlackmanWindow", _cosine_window(0.42, 0.5, 0.08), _WINDOWS, 6, (0,)),
)
