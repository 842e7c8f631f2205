"""What a classifier is trained by: the negative logarithm of the probability it gave to the right class."""

from __future__ import annotations

import math

import numpy as np

from fusewise.ir.dtypes import INT64
from fusewise.ops.edges import every
from fusewise.ops.expr import Expr, Index, bounded, cast, compare, const, index, reduce, select
from fusewise.ops.indexing import compute_type, dims, value
from fusewise.ops.spec import Call, Mapping, OpSpec, Sample

__all__ = ["LOSSES"]


def _terms(call: Call, at: Index) -> tuple[Expr, Expr]:
    """The loss of the target at (n, d..), and its weight: of a target that is ignored both are zero."""
    wide = compute_type(call.input(0).dtype)
    target, ignored = cast(call.at(1, *at), INT64), call.attribute("ignore_index")
    kept = None if ignored is None else compare("ne", target, int(ignored))
    place = bounded(target if kept is None else select(kept, target, 0), 0, dims(call)[1] - 1, 1)
    weight = value(call, 2, place) if call.has(2) else const(1, wide)
    loss = -value(call, 0, at[0], place, *at[1:])
    loss = loss * weight if call.has(2) else loss
    if kept is None:
        return loss, weight
    return select(kept, loss, const(0, wide)), select(kept, weight, const(0, wide))


def _negative_log_likelihood(call: Call, output: int, at: Index) -> Expr:
    """-weight[t] * scores[n, t, d..] for the target t of each (n, d..), as it is, summed, or divided by the sum of weights."""
    reduction, dtype = call.attribute("reduction", "mean"), call.output().dtype
    if reduction == "none":
        return cast(_terms(call, at)[0], dtype)
    shape = dims(call, 1)

    def total(which: int) -> Expr:
        names = tuple(f"{'lw'[which]}{d}" for d in range(len(shape)))
        return reduce("sum", tuple(zip(names, shape, strict=True)), _terms(call, tuple(map(index, names)))[which])

    if reduction == "sum":
        return cast(total(0), dtype)
    alike = not call.has(2) and call.attribute("ignore_index") is None
    loss = total(0)
    return cast(loss / (const(math.prod(shape), loss.dtype) if alike else total(1)), dtype)


def _classes(*targets: int) -> np.ndarray:
    return np.array(targets, np.int64)


LOSSES: tuple[OpSpec, ...] = (
    OpSpec(
        "NegativeLogLikelihoodLoss",
        mapping=every(Mapping.MANY_TO_MANY),
        flops=lambda call: 3 * call.input(1).size,
        define=_negative_log_likelihood,
        samples=(
            Sample((("float32", (3, 5)), _classes(4, 0, 2))),
            Sample((("float32", (3, 5)), _classes(4, 0, 2), ("float32", (5,))), {"reduction": "sum"}),
            Sample(
                (("float32", (2, 4, 3)), _classes(3, 0, 1, 1, 2, -7).reshape(2, 3), ("float32", (4,))),
                {"reduction": "none", "ignore_index": -7},
            ),
            Sample((("float64", (2, 4, 2)), _classes(3, 0, 9, 1).reshape(2, 2)), {"ignore_index": 9}),
        ),
    ),
)
