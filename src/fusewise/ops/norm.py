"""Normalisations and the Softmax family, as nested reductions.

The definitions recompute the statistics for every element: right, but slow; kernels of the named family compute them once.
Statistics of narrow floats are taken in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fusewise.ir.deciding import known_equal
from fusewise.ir.size import least
from fusewise.ops.cost import per_input
from fusewise.ops.edges import per_operand
from fusewise.ops.expr import Expr, Index, binary, compare, const, index, reduce, select, unary
from fusewise.ops.indexing import data_axis, dims, spread, value
from fusewise.ops.scalar import square
from fusewise.ops.spec import Call, Mapping, NotDefined, OpSpec, Sample

__all__ = ["NORM"]

Read = Callable[[Index], Expr]
_MANY = Mapping.MANY_TO_MANY


def _moved(at: Index, axes: tuple[int, ...], prefix: str) -> Index:
    """`at` with the axes in `axes` replaced by loop variables."""
    return tuple(index(f"{prefix}{d}") if d in axes else place for d, place in enumerate(at))


def _loops(shape: tuple[int, ...], axes: tuple[int, ...], prefix: str) -> tuple[tuple[str, int], ...]:
    return tuple((f"{prefix}{d}", shape[d]) for d in axes)


def _mean_over(read: Read, at: Index, shape: tuple[int, ...], axes: tuple[int, ...], prefix: str) -> Expr:
    total = reduce("sum", _loops(shape, axes, prefix), read(_moved(at, axes, prefix)))
    return total / const(math.prod(shape[d] for d in axes), total.dtype)


def _moments(x: Read, at: Index, shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[Expr, Expr]:
    """Mean and variance over `axes`: two passes, loop variables `m*` and `v*`."""
    mean = _mean_over(x, at, shape, axes, "m")
    return mean, _mean_over(lambda i: square(x(i) - mean), at, shape, axes, "v")


def _reader(call: Call, i: int = 0) -> Read:
    return lambda at: value(call, i, *at)


# -- Softmax ----------------------------------------------------------------------------------------------------------------


def _softmax_parts(call: Call, at: Index) -> tuple[Expr, Expr]:
    """x shifted by the largest along the axis, and the sum of exponentials of the shifted."""
    axis, shape = (data_axis(call, -1),), dims(call)
    x = _reader(call)
    peak = reduce("max", _loops(shape, axis, "m"), x(_moved(at, axis, "m")))
    total = reduce("sum", _loops(shape, axis, "s"), unary("exp", x(_moved(at, axis, "s")) - peak))
    return x(at) - peak, total


def _softmax(call: Call, output: int, at: Index) -> Expr:
    shifted, total = _softmax_parts(call, at)
    return unary("exp", shifted) / total


def _log_softmax(call: Call, output: int, at: Index) -> Expr:
    shifted, total = _softmax_parts(call, at)
    return shifted - unary("log", total)


# -- normalisation over trailing axes, channels, groups ---------------------------------------------------------------------


def _layer_norm(call: Call, output: int, at: Index) -> Expr:
    """Outputs: the normalised tensor, the mean, the inverse standard deviation."""
    shape = dims(call)
    axes = tuple(range(data_axis(call, -1), len(shape)))
    mean, variance = _moments(_reader(call), at, shape, axes)
    if output == 1:
        return mean
    inverse = 1 / unary("sqrt", variance + call.single("epsilon", 1e-5))
    if output == 2:
        return inverse
    y = (value(call, 0, *at) - mean) * inverse * value(call, 1, *spread(at, dims(call, 1), shape))
    return y + value(call, 2, *spread(at, dims(call, 2), shape)) if call.has(2) else y


def _rms_norm(call: Call, output: int, at: Index) -> Expr:
    shape = dims(call)
    axes = tuple(range(data_axis(call, -1), len(shape)))
    mean = _mean_over(lambda i: square(value(call, 0, *i)), at, shape, axes, "v")
    inverse = 1 / unary("sqrt", mean + call.single("epsilon", 1e-5))
    return value(call, 0, *at) * inverse * value(call, 1, *spread(at, dims(call, 1), shape))


def _instance_norm(call: Call, output: int, at: Index) -> Expr:
    shape = dims(call)
    mean, variance = _moments(_reader(call), at, shape, tuple(range(2, len(shape))))
    scale = value(call, 1, at[1]) / unary("sqrt", variance + call.single("epsilon", 1e-5))
    return (value(call, 0, *at) - mean) * scale + value(call, 2, at[1])


def _group_norm(call: Call, output: int, at: Index) -> Expr:
    """Channels come in groups of C / num_groups; scale and bias are per channel, or per group before opset 21."""
    shape = dims(call)
    size = shape[1] // int(call.attribute("num_groups"))
    group = at[1] // size
    inner = (shape[0], size, *shape[2:])
    axes = tuple(range(1, len(shape)))

    def read(i: Index) -> Expr:
        return value(call, 0, i[0], group * size + i[1], *i[2:])

    mean, variance = _moments(read, (at[0], at[1] % size, *at[2:]), inner, axes)
    channel = group if _is_per_group(dims(call, 1)[0], shape[1], int(call.attribute("num_groups"))) else at[1]
    y = (value(call, 0, *at) - mean) / unary("sqrt", variance + call.single("epsilon", 1e-5))
    return y * value(call, 1, channel) + value(call, 2, channel)


def _is_per_group(scales: int, channels: int, groups: int) -> bool:
    """Is there a scale for each group, and not for each channel?"""
    if isinstance(scales, int) and isinstance(channels, int):
        return scales != channels
    return known_equal(scales, groups)


def _batch_norm(call: Call, output: int, at: Index) -> Expr:
    """Inference form; scale, bias, mean and variance are per channel (axis 1)."""
    if call.attribute("training_mode", 0) or output:
        raise NotDefined("BatchNormalization in training mode")
    channel = at[1] if len(at) > 1 else const(0)
    scale = value(call, 1, channel) / unary("sqrt", value(call, 4, channel) + call.single("epsilon", 1e-5))
    return (value(call, 0, *at) - value(call, 3, channel)) * scale + value(call, 2, channel)


def _batch_norm_mapping(call: Call) -> tuple[Mapping, ...]:
    kind = _MANY if call.attribute("training_mode", 0) else Mapping.ONE_TO_ONE
    return per_operand(kind)(call)


def _lp_norm(call: Call, output: int, at: Index) -> Expr:
    axis, shape = (data_axis(call, -1),), dims(call)
    p = int(call.attribute("p", 2))
    element = value(call, 0, *_moved(at, axis, "s"))
    # ONNX's evaluator takes powers of x itself, which for p = 1 is the plain sum; the specification says the norm
    total = reduce("sum", _loops(shape, axis, "s"), square(element) if p == 2 else unary("abs", element))
    norm = unary("sqrt", total) if p == 2 else total
    return select(compare("eq", norm, 0), const(0, norm.dtype), value(call, 0, *at) / norm)


def _mean_variance(call: Call, output: int, at: Index) -> Expr:
    shape = dims(call)
    found = call.attribute("axes", (0, 2, 3))
    axes = tuple(sorted(int(axis) % len(shape) for axis in found))
    mean, variance = _moments(_reader(call), at, shape, axes)
    return (value(call, 0, *at) - mean) / (unary("sqrt", variance) + 1e-9)


def _lrn(call: Call, output: int, at: Index) -> Expr:
    """Divides by a power of the mean square over a window of channels (Krizhevsky et al., 2012)."""
    size, channels = int(call.attribute("size")), dims(call)[1]
    before, after = least((size - 1) // 2, channels), least(size // 2, channels)  # a wider window finds no more
    place = at[1] + index("s") - before
    x = value(call, 0, *at)
    inside = binary("and", compare("ge", place, 0), compare("lt", place, channels))
    neighbour = square(value(call, 0, at[0], place, *at[2:]))
    total = reduce("sum", (("s", before + 1 + after),), select(inside, neighbour, const(0, x.dtype)))
    alpha, beta, bias = call.single("alpha", 1e-4), call.single("beta", 0.75), call.single("bias", 1.0)
    return x / binary("pow", total * (alpha / size) + bias, beta)


def row(
    name: str, define: Callable[[Call, int, Index], Expr], family: str, cost: int, samples: tuple[Sample, ...]
) -> OpSpec:
    """A normalisation that does `cost` operations on each element."""
    return OpSpec(
        name,
        mapping=per_operand(_MANY),
        flops=per_input(cost),
        define=define,
        family=family,
        samples=samples,
    )


def _f32(*shape: int) -> tuple[str, tuple[int, ...]]:
    return "float32", shape


def _f16(*shape: int) -> tuple[str, tuple[int, ...]]:
    return "float16", shape


_SOFTMAX_SAMPLES = (
    Sample((_f32(2, 5),), low=-8, high=8),
    Sample((_f32(2, 3, 4),), {"axis": 1}),
    Sample((_f16(2, 6),)),
    Sample((_f32(3, 1),)),
    Sample((_f32(0, 4),)),
)

NORM: tuple[OpSpec, ...] = (
    row("Softmax", _softmax, "softmax", 5, _SOFTMAX_SAMPLES),
    row("LogSoftmax", _log_softmax, "log_softmax", 5, _SOFTMAX_SAMPLES),
    row(
        "LayerNormalization",
        _layer_norm,
        "layer_norm",
        8,
        (
            Sample((_f32(2, 3, 4), _f32(4), _f32(4))),
            Sample((_f32(2, 3, 4), _f32(3, 4)), {"axis": 1}, outputs=3),
            Sample((_f32(2, 6), _f32(6), _f32(6)), {"epsilon": 0.125}),
            Sample((_f16(2, 8), _f16(8), _f16(8))),
        ),
    ),
    row(
        "RMSNormalization",
        _rms_norm,
        "rms_norm",
        5,
        (Sample((_f32(2, 3, 4), _f32(4))), Sample((_f32(2, 3, 4), _f32(3, 4)), {"axis": -2})),
    ),
    row(
        "InstanceNormalization",
        _instance_norm,
        "instance_norm",
        8,
        (Sample((_f32(2, 3, 4, 2), _f32(3), _f32(3))), Sample((_f32(1, 2, 5), _f32(2), _f32(2)))),
    ),
    row(
        "GroupNormalization",
        _group_norm,
        "group_norm",
        8,
        (
            Sample((_f32(2, 4, 3), _f32(4), _f32(4)), {"num_groups": 2}),
            Sample((_f32(1, 6, 2, 2), _f32(6), _f32(6)), {"num_groups": 3}),
        ),
    ),
    OpSpec(
        "BatchNormalization",
        mapping=_batch_norm_mapping,
        flops=per_input(2),
        define=_batch_norm,
        family="batch_norm",
        samples=(
            Sample((_f32(2, 3, 4), _f32(3), _f32(3), _f32(3), _f32(3)), low=0.5, high=2),
            Sample((_f16(1, 2, 2, 2), _f16(2), _f16(2), _f16(2), _f16(2)), low=0.5, high=2),
            Sample((_f32(4, 3), _f32(3), _f32(3), _f32(3), _f32(3)), {"epsilon": 0.25}, low=0.5, high=2),
        ),
    ),
    row(
        "LpNormalization",
        _lp_norm,
        "lp_norm",
        3,
        (Sample((_f32(2, 5),)), Sample((_f32(3, 4),), {"p": 1, "axis": 0}, low=0)),
    ),
    row(
        "MeanVarianceNormalization",
        _mean_variance,
        "mean_variance_norm",
        7,
        (Sample((_f32(2, 3, 2, 2),)), Sample((_f32(2, 3, 4),), {"axes": (1, -1)})),
    ),
    row("LRN", _lrn, "lrn", 8, (Sample((_f32(4, 4, 2, 2),), {"size": 3, "alpha": 0.5, "beta": 0.75, "bias": 1.5}),)),
)
