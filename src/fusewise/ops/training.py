"""One step of an optimiser: new values of tensors from their gradients and what is remembered of earlier ones.

Operands are the learning rate R, the count T of earlier steps, and then, for n tensors, n values, n gradients and n of each thing
remembered; outputs are as many new values, and what is remembered next. Factors of T are computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fusewise.ir.dtypes import FLOAT64
from fusewise.ops.expr import Expr, Index, binary, cast, compare, const, select, unary
from fusewise.ops.indexing import compute_type, value
from fusewise.ops.spec import Call, Mapping, NotDefined, OpSpec, Sample

__all__ = ["TRAINING"]

Step = Callable[[Call, Expr, tuple[Expr, ...]], tuple[Expr, ...]]
"""A step's new value, and what is remembered, from (T, in float64) and (R, value, gradient, remembered...)."""


def _defined(step: Step, kept: int) -> Callable[[Call, int, Index], Expr]:
    """The element of an output of a step that remembers `kept` tensors for each value."""

    def define(call: Call, output: int, at: Index) -> Expr:
        count = (len(call.inputs) - 2) // (2 + kept)
        which, tensor = divmod(output, count)
        wide = compute_type(call.output(output).dtype)
        places = [2 + k * count + tensor for k in range(2 + kept)]
        single = all(call.input(k).size == 1 for k in range(2))
        if not single or any(call.input(place).dims != call.output(output).dims for place in places):
            raise NotDefined(f"{call.node.op} with operands that do not fit each other")
        parts = tuple(value(call, place, *at) for place in places)
        rate, steps = (value(call, k, *(0,) * call.input(k).rank) for k in range(2))
        found = step(call, cast(steps, FLOAT64), (cast(rate, wide), *parts))
        return cast(found[which], call.output(output).dtype)

    return define


def _number(call: Call, name: str, default: float = 0.0) -> float:
    return float(call.attribute(name, default))


def _adagrad(call: Call, steps: Expr, given: tuple[Expr, ...]) -> tuple[Expr, ...]:
    rate, x, gradient, squares = given
    regular = x * _number(call, "norm_coefficient") + gradient
    squares = squares + regular * regular
    factor = cast(rate, FLOAT64) / (steps * _number(call, "decay_factor") + 1.0)
    return x - cast(factor, x.dtype) * regular / (unary("sqrt", squares) + _number(call, "epsilon", 1e-6)), squares


def _adam(call: Call, steps: Expr, given: tuple[Expr, ...]) -> tuple[Expr, ...]:
    rate, x, gradient, mean, squares = given
    alpha, beta = _number(call, "alpha", 0.9), _number(call, "beta", 0.999)
    regular = x * _number(call, "norm_coefficient") + gradient
    mean = mean * alpha + regular * (1 - alpha)
    squares = squares * beta + regular * regular * (1 - beta)

    def left(number: float) -> Expr:
        return const(1.0, FLOAT64) - binary("pow", const(number, FLOAT64), steps)

    wide = cast(rate, FLOAT64)
    factor = select(compare("gt", steps, 0.0), wide * unary("sqrt", left(beta)) / left(alpha), wide)
    y = x - cast(factor, x.dtype) * mean / (unary("sqrt", squares) + _number(call, "epsilon", 1e-6))
    return y * (1 - _number(call, "norm_coefficient_post")), mean, squares


def _momentum(call: Call, steps: Expr, given: tuple[Expr, ...]) -> tuple[Expr, ...]:
    rate, x, gradient, kept = given
    alpha = _number(call, "alpha")
    regular = x * _number(call, "norm_coefficient") + gradient
    share = select(compare("gt", steps, 0.0), const(_number(call, "beta"), x.dtype), const(1.0, x.dtype))
    kept = kept * alpha + regular * share
    return x - rate * (regular + kept * alpha if call.attribute("mode") == "nesterov" else kept), kept


def _mapping(kept: int) -> Callable[[Call], tuple[Mapping, ...]]:
    """Element by element where there is one tensor; several need not be of one shape."""

    def rule(call: Call) -> tuple[Mapping, ...]:
        parts = len(call.inputs) - 2
        along = Mapping.ONE_TO_ONE if parts == 2 + kept else Mapping.MANY_TO_MANY
        return (*(Mapping.ONE_TO_MANY,) * 2, *(along,) * parts)

    return rule


def _row(name: str, step: Step, kept: int, flops: int, *attributes: dict[str, Any]) -> OpSpec:
    tensors = (("float32", (2, 3)),) * (2 + kept)
    samples = tuple(
        Sample((np.array(0.1, np.float32), np.array(k, np.int64), *tensors), settings, 1 + kept, low=0.1)
        for k, settings in enumerate(attributes)
    )
    return OpSpec(
        name,
        mapping=_mapping(kept),
        flops=lambda call: flops * sum(call.input(2 + k).size for k in range((len(call.inputs) - 2) // (2 + kept))),
        domain="ai.onnx.preview.training",
        define=_defined(step, kept),
        samples=samples,
    )


_SHRINKING = {"norm_coefficient": 0.01}

TRAINING: tuple[OpSpec, ...] = (
    _row("Adagrad", _adagrad, 1, 8, {}, _SHRINKING | {"decay_factor": 0.1, "epsilon": 1e-3}),
    _row("Adam", _adam, 2, 14, {}, _SHRINKING | {"norm_coefficient_post": 0.02, "alpha": 0.8, "beta": 0.9}),
    _row(
        "Momentum",
        _momentum,
        1,
        8,
        _SHRINKING | {"alpha": 0.9, "beta": 0.1, "mode": "standard"},
        _SHRINKING | {"alpha": 0.9, "beta": 0.1, "mode": "nesterov"},
    ),
)
