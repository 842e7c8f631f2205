"""The layers the architectures share, written node by node as an exporter writes them.

Each takes the network, a value and, where it has weights, the name its weights get; each returns the value it made.
"Same" padding (the default) means half the kernel on both sides, so stride 1 keeps the size.
"""

from __future__ import annotations

import math

import numpy as np

from fusewise.records import record
from fusewise.zoo.net import Net, spread_out, weight

__all__ = [
    "ConvWindow",
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
    "upsample",
]

Size = int | tuple[int, ...]
"""A kernel, stride or padding: one figure for every spatial axis, or one for each."""


@record(frozen=True)
class ConvWindow:
    """What a convolution reads for an element of its result; the padding is "same" when None."""

    kernel: Size = 1
    stride: Size = 1
    padding: Size | None = None
    dilation: Size = 1
    groups: int = 1


def _each(size: Size, rank: int) -> tuple[int, ...]:
    return (size,) * rank if isinstance(size, int) else size


def _neighbours(pixels: np.ndarray, count: int) -> np.ndarray:
    """[channels, rings, pixels] to [channels, count, rings, pixels]: a pixel's neighbours, itself in the middle."""
    return np.stack([np.roll(pixels, count // 2 - tap, axis=2) for tap in range(count)], axis=1)


def conv(
    net: Net,
    x: str,
    name: str,
    channels: int,
    window: Size | ConvWindow = 1,
    *,
    bias: bool = True,
    gain: float = 2.0,
) -> str:
    """Convolution of `x` [batch, in, spatial...] in one, two or three dimensions, with He-initialised weights.

    `gain` is the factor from the power of `x` to that of the result; 2 suits a ReLU behind it. K. He et al., "Delving
    Deep into Rectifiers", ICCV 2015.
    """
    in_channels, rank = net.shape(x)[1], len(net.shape(x)) - 2
    window = window if isinstance(window, ConvWindow) else ConvWindow(window)
    kernels, dilations, groups = _each(window.kernel, rank), _each(window.dilation, rank), window.groups
    same = tuple((k - 1) * d // 2 for k, d in zip(kernels, dilations, strict=True))
    pads = same if window.padding is None else _each(window.padding, rank)
    taps = math.prod(kernels)
    deviation = math.sqrt(gain / (in_channels // groups * taps))
    filters = weight(net, f"{name}.weight", (channels, in_channels // groups, *kernels), deviation)
    offset = weight(net, f"{name}.bias", (channels,), 0.05) if bias else None
    y = net.op(
        "Conv",
        x,
        filters,
        offset,
        name=name,
        kernel_shape=kernels,
        strides=_each(window.stride, rank),
        pads=pads + pads,
        dilations=dilations,
        group=groups,
    )

    def values(pixels: np.ndarray) -> np.ndarray:
        patches = _neighbours(pixels, taps).reshape(groups, in_channels // groups * taps, -1)
        found = net.array(filters).reshape(groups, channels // groups, -1) @ patches
        shift = 0 if offset is None else net.array(offset)[:, None, None]
        return np.asarray(found.reshape(channels, *pixels.shape[1:]) + shift)

    return net.follow(y, (x,), values)


def conv_transpose(net: Net, x: str, name: str, channels: int, kernel: int) -> str:
    """Transposed convolution whose stride is its kernel, so that nothing overlaps: U-Net's way to upsample."""
    in_channels = net.shape(x)[1]
    shape = (in_channels, channels, kernel, kernel)
    filters = weight(net, f"{name}.weight", shape, math.sqrt(1 / in_channels))
    offset = weight(net, f"{name}.bias", (channels,), 0.05)
    y = net.op(
        "ConvTranspose",
        x,
        filters,
        offset,
        name=name,
        kernel_shape=(kernel, kernel),
        strides=(kernel, kernel),
        pads=(0, 0, 0, 0),
        dilations=(1, 1),
        group=1,
    )
    # One corner of the filter stands for all: they are alike in distribution.
    return net.follow(y, (x,), lambda pixels: np.tensordot(net.array(filters)[:, :, 0, 0].T, pixels, 1))


_SHIFT = 1.0
"""Mean of beta in deviations. With none, a deep chain of batch norm and ReLU multiplies rounding noise by about 1.2 a layer
(Yang et al., "A mean field theory of batch normalization", 2019); trained networks, and this shift, keep it flat."""


def batch_norm(net: Net, x: str, name: str, *, epsilon: float = 1e-5, scale: float = 1.0) -> str:
    """Inference-time batch normalisation of `x`, which must carry a probe: its running statistics are the probe's.

    `scale` is the mean of gamma: less than 1 at the end of a residual branch keeps deep sums from growing.
    """
    channels, pixels = net.shape(x)[1], net.probe[x]
    gamma = weight(net, f"{name}.weight", (channels,), 0.1 * scale, scale)
    beta = weight(net, f"{name}.bias", (channels,), 0.1, _SHIFT * scale)
    mean, variance = pixels.mean((1, 2)), pixels.var((1, 2))
    variance = np.maximum(variance, 1e-3 * variance.mean())
    statistics = net.constant(mean, f"{name}.running_mean"), net.constant(variance, f"{name}.running_var")
    y = net.op("BatchNormalization", x, gamma, beta, *statistics, name=name, epsilon=epsilon, momentum=0.9)
    slope = net.array(gamma) / np.sqrt(variance + epsilon)
    offset = net.array(beta) - slope * mean
    return net.follow(y, (x,), lambda pixels: slope[:, None, None] * pixels + offset[:, None, None])


def layer_norm(net: Net, x: str, name: str, *, epsilon: float = 1e-5) -> str:
    """Layer normalisation over the last axis: one operator, or the nine older exporters wrote."""
    width = net.shape(x)[-1]
    gamma = weight(net, f"{name}.weight", (width,), 0.05, 1.0)
    beta = weight(net, f"{name}.bias", (width,), 0.05)
    if not net.decomposed:
        return net.op("LayerNormalization", x, gamma, beta, name=name, axis=-1, epsilon=epsilon)
    axes = net.constant([-1], f"{name}.axes")
    centred = net.op("Sub", x, net.op("ReduceMean", x, axes, keepdims=1))
    squared = net.op("Pow", centred, net.constant(2.0, f"{name}.exponent"))
    variance = net.op("ReduceMean", squared, axes, keepdims=1)
    deviation = net.op("Sqrt", net.op("Add", variance, net.constant(epsilon, f"{name}.epsilon")))
    return net.op("Add", net.op("Mul", net.op("Div", centred, deviation), gamma), beta, name=name)


def gemm(net: Net, x: str, name: str, width: int, *, gain: float = 1.0) -> str:
    """A fully connected layer on `x` [batch, in], weights stored [out, in]; `gain` 2 suits a ReLU behind it."""
    fan_in = net.shape(x)[1]
    matrix = weight(net, f"{name}.weight", (width, fan_in), math.sqrt(gain / fan_in))
    return net.op("Gemm", x, matrix, weight(net, f"{name}.bias", (width,), 0.05), name=name, transB=1)


def linear(net: Net, x: str, name: str, width: int, *, gain: float = 1.0) -> str:
    """A fully connected layer on the last axis of `x` [..., in]: MatMul and Add, weights stored [in, out]."""
    fan_in = net.shape(x)[-1]
    matrix = weight(net, f"{name}.weight", (fan_in, width), math.sqrt(gain / fan_in))
    return net.op(
        "Add", net.op("MatMul", x, matrix, name=name), weight(net, f"{name}.bias", (width,), 0.05), name=f"{name}.add"
    )


def add(net: Net, x: str, y: str) -> str:
    """Elementwise sum, as at the end of a residual block."""
    return net.follow(net.op("Add", x, y), (x, y), np.add)


def mul(net: Net, x: str, y: str) -> str:
    """Elementwise product."""
    return net.follow(net.op("Mul", x, y), (x, y), np.multiply)


def concat(net: Net, *values: str) -> str:
    """Concatenation along the channels."""
    return net.follow(net.op("Concat", *values, axis=1), values, lambda *pixels: np.concatenate(pixels))


def max_pool(
    net: Net, x: str, kernel: Size, *, stride: Size | None = None, padding: Size = 0, ceil: bool = False
) -> str:
    """Maximum over windows; `stride` is the kernel's size when None."""
    rank = len(net.shape(x)) - 2
    kernels, pads = _each(kernel, rank), _each(padding, rank)
    y = net.op(
        "MaxPool",
        x,
        kernel_shape=kernels,
        strides=_each(kernel if stride is None else stride, rank),
        pads=pads + pads,
        dilations=(1,) * rank,
        ceil_mode=int(ceil),
    )
    # A wide window (SPP has 13 x 13) would cover the ring; beyond nine pixels the maximum hardly moves.
    window = min(math.prod(kernels), 9)
    return net.follow(y, (x,), lambda pixels: _neighbours(pixels, window).max(1))


def average_pool(net: Net, x: str, kernel: Size, *, stride: Size = 1, padding: Size = 0) -> str:
    """Mean over windows, padding counted, as PyTorch does."""
    rank = len(net.shape(x)) - 2
    kernels, pads = _each(kernel, rank), _each(padding, rank)
    y = net.op(
        "AveragePool",
        x,
        kernel_shape=kernels,
        strides=_each(stride, rank),
        pads=pads + pads,
        count_include_pad=1,
        ceil_mode=0,
    )
    return net.follow(y, (x,), lambda pixels: _neighbours(pixels, math.prod(kernels)).mean(1))


def global_average(net: Net, x: str) -> str:
    """Mean over all spatial axes, which stay as ones."""
    return net.follow(net.op("GlobalAveragePool", x), (x,), lambda pixels: pixels.mean(2, keepdims=True))


def upsample(net: Net, x: str, size: tuple[int, int], mode: str) -> str:
    """Resize [batch, channels, height, width] to `size`: `nearest` repeats, `linear` is PyTorch's bilinear.

    Both as PyTorch's exporter writes them, corners not aligned.
    """
    sizes = net.constant([*net.shape(x)[:2], *size], "sizes")
    settings = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if mode == "linear":
        settings = {"coordinate_transformation_mode": "pytorch_half_pixel"}
    return net.follow(net.op("Resize", x, None, None, sizes, mode=mode, **settings), (x,), spread_out)


def flatten(net: Net, x: str) -> str:
    """[batch, ...] to [batch, everything else]."""
    return net.op("Flatten", x, axis=1)


def reshape(net: Net, x: str, *shape: int) -> str:
    """The same elements in another shape, given as an int64 constant."""
    return net.op("Reshape", x, net.constant(list(shape), "shape"))


def transpose(net: Net, x: str, *perm: int) -> str:
    """Axes permuted."""
    return net.op("Transpose", x, perm=perm)
