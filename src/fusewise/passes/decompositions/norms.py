"""Normalisations written with elementary operators. What is narrower than float32 is computed in float32, as ONNX's text has it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fusewise.ir.dtypes import FLOAT32, DType
from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["NORMS"]


def _mean(g: Notation, x: TensorValue, axes: Sequence[int]) -> TensorValue:
    return g.ReduceMean(x, list(axes), keepdims=1)


def _wide(dtype: DType) -> DType:
    return FLOAT32 if dtype.bits < 32 else dtype


def _over_root(g: Notation, x: TensorValue, axes: Sequence[int], epsilon: float) -> tuple[TensorValue, TensorValue]:
    """x / sqrt(mean(x * x) + epsilon), and the root."""
    root = g.Sqrt(_mean(g, x * x, axes) + epsilon)
    return x / root, root


def _per_channel(g: Notation, value: TensorValue, rank: int) -> TensorValue:
    """A vector along axis 1 of a tensor of `rank` axes."""
    return g.reshape(value, [value.dims[0], *[1] * (rank - 2)])


def _layer(
    g: Notation, call: Call, x: TensorValue, scale: TensorValue, bias: TensorValue | None = None
) -> tuple[TensorValue, ...]:
    wide, axes = _wide(x.dtype), range(call.attribute("axis", -1) % x.rank, x.rank)
    mean = _mean(g, first := g.cast(x, wide), axes)
    y, root = _over_root(g, first - mean, axes, call.attribute("epsilon", 1e-5))
    y = g.cast(y, x.dtype) * scale
    y = y if bias is None else y + bias
    if len(call.node.outputs) == 1:
        return (y,)
    return (y, *(g.cast(found, _dtype_of(call, k)) for k, found in enumerate((mean, 1 / root), 1)))


def _dtype_of(call: Call, output: int) -> DType:
    """The type of an output, float32 for one that nobody asks for."""
    asked = output < len(call.outputs) and call.outputs[output] is not None
    return call.output(output).dtype if asked else FLOAT32


def _root_mean_square(g: Notation, call: Call, x: TensorValue, scale: TensorValue) -> TensorValue:
    axes = range(call.attribute("axis", -1) % x.rank, x.rank)
    y, _ = _over_root(g, g.cast(x, _wide(x.dtype)), axes, call.attribute("epsilon", 1e-5))
    return g.cast(y, x.dtype) * scale


def _instance(g: Notation, call: Call, x: TensorValue, scale: TensorValue, bias: TensorValue) -> TensorValue | None:
    axes = range(2, x.rank)
    if not axes:
        return None
    y, _ = _over_root(g, x - _mean(g, x, axes), axes, call.attribute("epsilon", 1e-5))
    return y * _per_channel(g, scale, x.rank) + _per_channel(g, bias, x.rank)


def _group(g: Notation, call: Call, x: TensorValue, scale: TensorValue, bias: TensorValue) -> TensorValue | None:
    """Since opset 21 there is a scale and a bias for each channel."""
    groups, channels = call.attribute("num_groups"), x.dims[1]
    if scale.dims != (channels,):
        return None
    parts = g.cast(g.reshape(x, [x.dims[0], groups, math.prod(x.dims[1:]) // groups]), _wide(x.dtype))
    y, _ = _over_root(g, parts - _mean(g, parts, [2]), [2], call.attribute("epsilon", 1e-5))
    y = g.reshape(g.cast(y, x.dtype), x.dims)
    return y * _per_channel(g, scale, x.rank) + _per_channel(g, bias, x.rank)


def _batch(
    g: Notation, call: Call, x: TensorValue, scale: TensorValue, bias: TensorValue, mean: TensorValue, var: TensorValue
) -> TensorValue | None:
    if call.attribute("training_mode", 0) or x.rank < 2:
        return None
    centre = _per_channel(g, mean, x.rank)
    factor = g.cast(scale, var.dtype) / g.Sqrt(var + call.attribute("epsilon", 1e-5))
    y = (x - g.cast(centre, x.dtype)) * g.cast(_per_channel(g, factor, x.rank), x.dtype)
    return y + g.cast(_per_channel(g, bias, x.rank), x.dtype)


def _mean_variance(g: Notation, call: Call, x: TensorValue) -> TensorValue:
    axes = [axis % x.rank for axis in call.attribute("axes", (0, 2, 3))]
    centred = x - _mean(g, x, axes)
    return centred / (g.Sqrt(_mean(g, centred * centred, axes)) + 1e-9)


def _unit(g: Notation, call: Call, x: TensorValue) -> TensorValue | None:
    """Divided by its norm, and 0 where that is 0."""
    axes, p = [call.attribute("axis", -1) % x.rank], call.attribute("p", 2)
    if p not in (1, 2):
        return None
    size = g.sum(g.Abs(x), axes) if p == 1 else g.Sqrt(g.sum(x * x, axes))
    return x / g.Where(g.Equal(size, 0), 1, size)


def _local_response(g: Notation, call: Call, x: TensorValue) -> TensorValue:
    """Divided by a power of the squares of neighbouring channels."""
    size, channels = call.attribute("size"), x.dims[1]
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    padded = g.pad(x * x, 1, before, after)
    parts = [g.slice(padded, 1, k, k + channels) for k in range(size)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    scaled = call.attribute("bias", 1.0) + call.attribute("alpha", 1e-4) / size * total
    return x / g.Pow(scaled, call.attribute("beta", 0.75))


NORMS: tuple[Decomposition, ...] = (
    row("LayerNormalization", _layer),
    row("RMSNormalization", _root_mean_square),
    row("InstanceNormalization", _instance),
    row("GroupNormalization", _group),
    row("BatchNormalization", _batch),
    row("MeanVarianceNormalization", _mean_variance),
    row("LpNormalization", _unit),
    row("LRN", _local_response),
)
