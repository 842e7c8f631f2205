"""The layers convolutional and attention networks share, written node by node as an exporter writes them.

Each takes the network, a value and, where it has weights, the name its weights get; each returns the value it made.
"Same" padding (the default) means half the kernel on both sides, so stride 1 keeps the size.
"""

from __future__ import annotations

import math

import numpy as np

from fusewise.zoo.net import Net, Spread, gaussian, normal, weight

__all__ = [
    "Size",
    "add",
    "average_pool",
    "batch_norm",
    "concat",
    "conv",
    "conv_transpose",
    "flatten",
    "gemm",
    "global_average",
    "layer_norm",
    "linear",
    "max_pool",
    "mul",
    "reshape",
    "transpose",
]

Size = int | tuple[int, ...]
"""A kernel, stride or padding: one figure for every spatial axis, or one for each."""


def _each(size: Size, rank: int) -> tuple[int, ...]:
    return (size,) * rank if isinstance(size, int) else size


def conv(
    net: Net,
    x: str,
    name: str,
    channels: int,
    kernel: Size = 1,
    *,
    stride: Size = 1,
    padding: Size | None = None,
    dilation: Size = 1,
    groups: int = 1,
    bias: bool = True,
) -> str:
    """Convolution of `x` [batch, in, spatial...] in one, two or three dimensions, with He-initialised weights.

    K. He et al., "Delving Deep into Rectifiers", ICCV 2015.
    """
    in_channels, rank = net.shape(x)[1], len(net.shape(x)) - 2
    kernels, dilations = _each(kernel, rank), _each(dilation, rank)
    same = tuple((k - 1) * d // 2 for k, d in zip(kernels, dilations, strict=True))
    pads = same if padding is None else _each(padding, rank)
    fan_in = in_channels // groups * math.prod(kernels)
    filters = weight(net, f"{name}.weight", (channels, in_channels // groups, *kernels), math.sqrt(2 / fan_in))
    y: str = net.builder.op(
        "Conv",
        x,
        filters,
        weight(net, f"{name}.bias", (channels,), 0.05) if bias else None,
        name=name,
        kernel_shape=kernels,
        strides=_each(stride, rank),
        pads=pads + pads,
        dilations=dilations,
        group=groups,
    )
    mean, variance = net.spread(x).pooled
    flat = net.builder.constants[filters].array.reshape(channels, fan_in)
    return net.record(y, Spread(mean * flat.sum(1), variance * np.einsum("ij,ij->i", flat, flat)))


def conv_transpose(net: Net, x: str, name: str, channels: int, kernel: int, *, stride: int) -> str:
    """Transposed convolution without overlap (`kernel == stride`), as U-Net upsamples with."""
    in_channels = net.shape(x)[1]
    y: str = net.builder.op(
        "ConvTranspose",
        x,
        weight(net, f"{name}.weight", (in_channels, channels, kernel, kernel), math.sqrt(1 / in_channels)),
        weight(net, f"{name}.bias", (channels,), 0.05),
        name=name,
        kernel_shape=(kernel, kernel),
        strides=(stride, stride),
        pads=(0, 0, 0, 0),
        dilations=(1, 1),
        group=1,
    )
    mean, variance = net.spread(x).pooled
    return net.record(y, gaussian(0.0, variance + mean * mean))


def batch_norm(net: Net, x: str, name: str, *, epsilon: float = 1e-5, scale: float = 1.0) -> str:
    """Inference-time batch normalisation; its running statistics are those expected of `x`, give or take a tenth.

    `scale` is the mean of gamma: less than 1 at the end of a residual branch keeps deep sums from growing.
    """
    channels = net.shape(x)[1]
    gamma = normal(net, (channels,), 0.1 * scale, scale)
    beta = normal(net, (channels,), 0.1)
    spread = net.spread(x)
    deviation = np.sqrt(spread.variance)
    mean = (spread.mean + 0.1 * deviation * normal(net, (channels,), 1.0)).astype(np.float32)
    variance = (spread.variance * net.rng.uniform(0.9, 1.1, channels)).astype(np.float32)
    constants = {"weight": gamma, "bias": beta, "running_mean": mean, "running_var": variance}
    operands = [net.builder.constant(array, f"{name}.{key}") for key, array in constants.items()]
    y: str = net.builder.op("BatchNormalization", x, *operands, name=name, epsilon=epsilon, momentum=0.9)
    return net.record(y, Spread(beta, gamma * gamma))


def layer_norm(net: Net, x: str, name: str, *, epsilon: float = 1e-5) -> str:
    """Layer normalisation over the last axis: one operator, or the nine older exporters wrote."""
    b = net.builder
    width = net.shape(x)[-1]
    gamma = weight(net, f"{name}.weight", (width,), 0.05, 1.0)
    beta = weight(net, f"{name}.bias", (width,), 0.05)
    if not net.decomposed:
        y: str = b.op("LayerNormalization", x, gamma, beta, name=name, axis=-1, epsilon=epsilon)
        return net.record(y, gaussian(0.0, 1.0))
    axes = b.constant([-1], f"{name}.axes")
    centred = b.op("Sub", x, b.op("ReduceMean", x, axes, keepdims=1))
    squared = b.op("Pow", centred, b.constant(2.0, f"{name}.exponent"))
    variance = b.op("ReduceMean", squared, axes, keepdims=1)
    deviation = b.op("Sqrt", b.op("Add", variance, b.constant(epsilon, f"{name}.epsilon")))
    y = b.op("Add", b.op("Mul", b.op("Div", centred, deviation), gamma), beta, name=name)
    return net.record(y, gaussian(0.0, 1.0))


def gemm(net: Net, x: str, name: str, width: int, *, gain: float = 1.0) -> str:
    """A fully connected layer on `x` [batch, in], weights stored [out, in]; `gain` 2 suits a ReLU behind it."""
    fan_in = net.shape(x)[1]
    matrix = weight(net, f"{name}.weight", (width, fan_in), math.sqrt(gain / fan_in))
    y: str = net.builder.op("Gemm", x, matrix, weight(net, f"{name}.bias", (width,), 0.05), name=name, transB=1)
    mean, variance = net.spread(x).pooled
    return net.record(y, gaussian(0.0, gain * (variance + mean * mean)))


def linear(net: Net, x: str, name: str, width: int, *, deviation: float | None = None) -> str:
    """A fully connected layer on the last axis of `x` [..., in]: MatMul and Add, weights stored [in, out].

    `deviation` is that of the weights, `sqrt(1 / in)` when None.
    """
    fan_in = net.shape(x)[-1]
    sigma = math.sqrt(1 / fan_in) if deviation is None else deviation
    product = net.builder.op("MatMul", x, weight(net, f"{name}.weight", (fan_in, width), sigma), name=name)
    y: str = net.builder.op("Add", product, weight(net, f"{name}.bias", (width,), 0.05), name=f"{name}.add")
    mean, variance = net.spread(x).pooled
    return net.record(y, gaussian(0.0, sigma * sigma * fan_in * (variance + mean * mean)))


def add(net: Net, x: str, y: str) -> str:
    """Elementwise sum, as at the end of a residual block."""
    total: str = net.builder.op("Add", x, y)
    a, b = net.spread(x), net.spread(y)
    return net.record(total, Spread(a.mean + b.mean, a.variance + b.variance))


def mul(net: Net, x: str, y: str) -> str:
    """Elementwise product of two values, taken as independent."""
    product: str = net.builder.op("Mul", x, y)
    (mean_x, var_x), (mean_y, var_y) = net.spread(x).pooled, net.spread(y).pooled
    mean = mean_x * mean_y
    return net.record(product, gaussian(mean, (var_x + mean_x**2) * (var_y + mean_y**2) - mean**2))


def concat(net: Net, *values: str, axis: int = 1) -> str:
    """Concatenation; channel statistics are laid side by side when the axis is the channel's."""
    joined: str = net.builder.op("Concat", *values, axis=axis)
    spreads = [net.spread(value) for value in values]
    widths = [net.shape(value)[axis] for value in values]
    means = [
        np.broadcast_to(s.mean, width) if s.mean.ndim == 0 else s.mean for s, width in zip(spreads, widths, strict=True)
    ]
    variances = [
        np.broadcast_to(s.variance, width) if s.variance.ndim == 0 else s.variance
        for s, width in zip(spreads, widths, strict=True)
    ]
    return net.record(joined, Spread(np.concatenate(means), np.concatenate(variances)))


def max_pool(
    net: Net, x: str, kernel: Size, *, stride: Size | None = None, padding: Size = 0, ceil: bool = False
) -> str:
    """Maximum over windows; `stride` is the kernel's size when None."""
    rank = len(net.shape(x)) - 2
    pads = _each(padding, rank)
    y: str = net.builder.op(
        "MaxPool",
        x,
        kernel_shape=_each(kernel, rank),
        strides=_each(kernel if stride is None else stride, rank),
        pads=pads + pads,
        dilations=(1,) * rank,
        ceil_mode=int(ceil),
    )
    # Neighbours are alike, so the largest of a window is taken to be that of four independent draws.
    mean, variance = net.spread(x).pooled
    return net.record(y, gaussian(mean + 1.03 * math.sqrt(variance), 0.49 * variance))


def average_pool(net: Net, x: str, kernel: Size, *, stride: Size = 1, padding: Size = 0) -> str:
    """Mean over windows, padding counted, as PyTorch does."""
    rank = len(net.shape(x)) - 2
    pads = _each(padding, rank)
    y: str = net.builder.op(
        "AveragePool",
        x,
        kernel_shape=_each(kernel, rank),
        strides=_each(stride, rank),
        pads=pads + pads,
        count_include_pad=1,
        ceil_mode=0,
    )
    mean, variance = net.spread(x).pooled
    return net.record(y, gaussian(mean, 0.5 * variance))


def global_average(net: Net, x: str) -> str:
    """Mean over all spatial axes, which stay as ones."""
    y: str = net.builder.op("GlobalAveragePool", x)
    mean, variance = net.spread(x).pooled
    return net.record(y, gaussian(mean, 0.1 * variance))


def flatten(net: Net, x: str) -> str:
    """[batch, ...] to [batch, everything else]."""
    y: str = net.builder.op("Flatten", x, axis=1)
    return net.record(y, gaussian(*net.spread(x).pooled))


def reshape(net: Net, x: str, *shape: int) -> str:
    """The same elements in another shape, given as an int64 constant."""
    y: str = net.builder.op("Reshape", x, net.builder.constant(list(shape), "shape"))
    return net.record(y, gaussian(*net.spread(x).pooled))


def transpose(net: Net, x: str, *perm: int) -> str:
    """Axes permuted."""
    y: str = net.builder.op("Transpose", x, perm=perm)
    return net.record(y, gaussian(*net.spread(x).pooled))
