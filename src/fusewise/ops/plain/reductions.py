"""Over axes: sums, means, norms, softmax, running sums, normalisations. Floats of 16 bits are computed in 32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fusewise.ir.graph import Node
from fusewise.ops.plain.row import Other, Plain, PlainFunction, axes_of

__all__ = ["REDUCTIONS"]


_OF_BOOLEANS = ("ReduceMax", "ReduceMin")


def _wide(data: Any) -> Any:
    return data.astype(np.float32) if data.dtype == np.float16 else data


def _reduction(op: str, since: int, function: PlainFunction, *, floats: bool = False) -> Plain:
    """`function(data, axis=, keepdims=)`, of `floats` alone or of all numbers."""

    def make(node: Node) -> PlainFunction:
        kept, stays = bool(node.attribute("keepdims", 1)), bool(node.attribute("noop_with_empty_axes", 0))

        def run(data: Any, axes: Any = None) -> Any:
            wanted = axes_of(node, axes)
            if (
                (not wanted and stays)
                or (floats and data.dtype.kind != "f")
                or (data.dtype.kind == "b" and op not in _OF_BOOLEANS)
            ):
                raise Other
            found = function(_wide(data), axis=wanted or None, keepdims=kept)
            return np.asarray(found).astype(data.dtype, copy=False)

        return run

    return Plain(op, since, make)


def _sum(data: Any, **over: Any) -> Any:
    return np.sum(data, dtype=data.dtype, **over)


def _log_sum_exp(data: Any, **over: Any) -> Any:
    over_kept = {**over, "keepdims": True}
    most = np.max(data, **over_kept)
    base = np.where(np.isfinite(most), most, 0)
    found = np.log(np.sum(np.exp(data - base), **over_kept)) + base
    return found if over["keepdims"] else np.squeeze(found, over["axis"])


def _softmax(node: Node) -> PlainFunction:
    axis = node.attribute("axis", -1)

    def run(data: Any) -> Any:
        wide = _wide(data)
        powers = np.exp(wide - np.max(wide, axis=axis, keepdims=True))
        return (powers / np.sum(powers, axis=axis, keepdims=True)).astype(data.dtype, copy=False)

    return run


def _log_softmax(node: Node) -> PlainFunction:
    axis = node.attribute("axis", -1)

    def run(data: Any) -> Any:
        wide = _wide(data)
        lower = wide - np.max(wide, axis=axis, keepdims=True)
        return (lower - np.log(np.sum(np.exp(lower), axis=axis, keepdims=True))).astype(data.dtype, copy=False)

    return run


def _running(function: Any) -> Callable[[Node], PlainFunction]:
    """Running sums or products; `exclusive` ones begin with what changes nothing, and `reverse` ones at the end."""

    def make(node: Node) -> PlainFunction:
        alone, back = bool(node.attribute("exclusive", 0)), bool(node.attribute("reverse", 0))

        def run(data: Any, axis: Any) -> Any:
            at = int(axis.reshape(-1)[0])
            if data.dtype == np.float16 or not data.ndim:
                raise Other
            lines = np.flip(data, at) if back else data
            found = function.accumulate(lines, axis=at, dtype=data.dtype)
            if alone:
                found = np.roll(found, 1, at)
                found[(slice(None),) * (at % data.ndim) + (slice(0, 1),)] = function.identity
            return np.ascontiguousarray(np.flip(found, at)) if back else found

        return run

    return make


def _layer_norm(node: Node) -> PlainFunction:
    epsilon, axis = node.attribute("epsilon", 1e-5), node.attribute("axis", -1)

    def run(data: Any, scale: Any, bias: Any = None) -> Any:
        if data.dtype != np.float32:
            raise Other
        over = tuple(range(axis % data.ndim, data.ndim))
        mean = np.mean(data, axis=over, keepdims=True)
        apart = data - mean
        factor = np.float32(1) / np.sqrt(np.mean(apart * apart, axis=over, keepdims=True) + np.float32(epsilon))
        found = apart * factor * scale
        found = found if bias is None else found + bias
        return (found, mean, factor)[: len(node.outputs)] if len(node.outputs) > 1 else found

    return run


def _instance_norm(node: Node) -> PlainFunction:
    epsilon = node.attribute("epsilon", 1e-5)

    def run(data: Any, scale: Any, bias: Any) -> Any:
        if data.dtype != np.float32:
            raise Other
        over, shape = tuple(range(2, data.ndim)), (-1,) + (1,) * (data.ndim - 2)
        apart = data - np.mean(data, axis=over, keepdims=True)
        deviation = np.sqrt(np.mean(apart * apart, axis=over, keepdims=True) + np.float32(epsilon))
        return apart / deviation * scale.reshape(shape) + bias.reshape(shape)

    return run


def _batch_norm(node: Node) -> PlainFunction:
    epsilon = node.attribute("epsilon", 1e-5)

    def run(data: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
        if node.attribute("training_mode", 0) or len(node.writes) > 1 or data.dtype != np.float32:
            raise Other
        factor = scale / np.sqrt(variance + np.float32(epsilon))
        shape = (-1,) + (1,) * (data.ndim - 2)
        return data * factor.reshape(shape) + (bias - mean * factor).reshape(shape)

    return run


REDUCTIONS: tuple[Plain, ...] = (
    _reduction("ReduceSum", 1, _sum),
    _reduction("ReduceMean", 1, np.mean, floats=True),
    _reduction("ReduceMax", 11, np.max),
    _reduction("ReduceMin", 11, np.min),
    _reduction("ReduceProd", 1, lambda data, **over: np.prod(data, dtype=data.dtype, **over)),
    _reduction("ReduceL1", 1, lambda data, **over: _sum(np.abs(data), **over), floats=True),
    _reduction("ReduceL2", 1, lambda data, **over: np.sqrt(_sum(data * data, **over)), floats=True),
    _reduction("ReduceSumSquare", 1, lambda data, **over: _sum(data * data, **over)),
    _reduction("ReduceLogSum", 1, lambda data, **over: np.log(_sum(data, **over)), floats=True),
    _reduction("ReduceLogSumExp", 1, _log_sum_exp, floats=True),
    Plain("Softmax", 13, _softmax),
    Plain("LogSoftmax", 13, _log_softmax),
    Plain("CumSum", 11, _running(np.add)),
    Plain("CumProd", 26, _running(np.multiply)),
    Plain("LayerNormalization", 17, _layer_norm),
    Plain("InstanceNormalization", 6, _instance_norm),
    Plain("BatchNormalization", 14, _batch_norm),
)
