"""Segmentation: a class for every pixel.

L.-C. Chen et al., "Rethinking Atrous Convolution for Semantic Image Segmentation", arXiv 1706.05587 (DeepLabV3);
O. Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", MICCAI 2015.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fusewise.ir.graph import Constant, Graph
from fusewise.zoo.blocks import conv_bn
from fusewise.zoo.extents import RuntimeExtent, divide, extent, known, minus, row
from fusewise.zoo.layers import (
    ConvWindow,
    concat,
    conv,
    conv_transpose,
    global_average,
    max_pool,
    reshape,
    transpose,
    upsample,
)
from fusewise.zoo.mobilenet import LARGE, v3_features
from fusewise.zoo.net import Net, finish, image

__all__ = ["deeplabv3_mobilenet_v3_large", "unet"]

_RATES = (12, 24, 36)
_DILATED = LARGE[:12] + tuple(replace(row, stride=1, dilation=2) for row in LARGE[12:])
"""MobileNetV3-Large whose last stage keeps its resolution and widens its kernels instead."""


def deeplabv3_mobilenet_v3_large(net: Net, batch: int, *, size: int = 513) -> Graph:
    """torchvision's DeepLabV3 without the auxiliary head: 21 classes, output stride 16."""
    x = v3_features(net, image(net, (batch, 3, size, size)), _DILATED)
    y = conv_bn(net, _pyramid(net, x), "classifier.4", 256, 3)
    y = conv(net, y, "classifier.5", 21, 1)
    return finish(net, logits=upsample(net, y, (size, size), "linear"))


def _pyramid(net: Net, x: str) -> str:
    """Atrous spatial pyramid pooling: one point, three dilated kernels, the mean of the whole map."""
    name, (_, _, height, width) = "classifier.0", net.shape(x)
    branches = [conv_bn(net, x, f"{name}.0", 256, 1)]
    branches += [conv_bn(net, x, f"{name}.{k + 1}", 256, ConvWindow(3, dilation=rate)) for k, rate in enumerate(_RATES)]
    pooled = conv_bn(net, global_average(net, x), f"{name}.4", 256, 1)
    branches.append(upsample(net, pooled, (height, width), "linear"))
    return conv_bn(net, concat(net, *branches), f"{name}.project", 256, 1)


def unet(net: Net, batch: int) -> Graph:
    """U-Net with widths 64 to 1024, batch normalisation and padded convolutions, two classes."""
    x = _double(net, image(net, (batch, 3, 256, 256)), "down.0", 64)
    skips = []
    for level in range(1, 5):
        skips.append(x)
        x = _double(net, max_pool(net, x, 2), f"down.{level}", 64 << level)
    for level in reversed(range(4)):
        up = conv_transpose(net, x, f"up.{level}.transpose", 64 << level, 2)
        x = _double(net, concat(net, skips[level], _padded_to(net, up, skips[level])), f"up.{level}", 64 << level)
    return finish(net, logits=conv(net, x, "head", 2, 1))


def _double(net: Net, x: str, name: str, channels: int) -> str:
    return conv_bn(net, conv_bn(net, x, f"{name}.0", channels, 3), f"{name}.1", channels, 3)


def _padded_to(net: Net, x: str, like: str) -> str:
    """`x` padded to the height and width of `like`, which it has already; so only the decomposed form says it.

    `dx, dy = like.size(3) - x.size(3), like.size(2) - x.size(2)`, `F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])`:
    the list is of the last axis first, begin and end in turn, and what follows puts it into the order of ONNX.
    """
    if not net.decomposed:
        return x
    edges: list[RuntimeExtent] = []
    for axis in (3, 2):
        missing = minus(net, extent(net, like, axis), extent(net, x, axis))
        edges += [divide(net, missing, 2), minus(net, missing, divide(net, missing, 2))]
    pads = net.op("Cast", row(net, edges), to=7)
    entries = net.op("Gather", net.op("Shape", pads), net.constant([0], "axis"), axis=0)
    lacking = net.op("Sub", net.op("Mul", net.constant([4], "rank"), net.constant([2], "ends")), entries)
    zeros = net.op("ConstantOfShape", lacking, value=Constant(np.zeros(1, np.int64)))
    pairs = reshape(net, net.op("Concat", pads, known(net, zeros, (4,)), axis=0), -1, 2)
    begin, end, axes, step = (net.constant([k], "flip") for k in (-1, np.iinfo(np.int64).min, 0, -1))
    turned = transpose(net, known(net, net.op("Slice", pairs, begin, end, axes, step), (4, 2)), 1, 0)
    ordered = net.op("Cast", reshape(net, turned, -1), to=7)
    y = known(net, net.op("Pad", x, ordered, net.constant(0.0, "zero")), net.shape(x))
    return net.follow(y, (x,), lambda pixels: pixels)
