"""EfficientNets: inverted residuals with squeeze-and-excitation, scaled in width, depth and image size at once.

M. Tan and Q. Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019.
"""

from __future__ import annotations

import math

from fusewise.ir.graph import Graph
from fusewise.zoo.blocks import classify, conv_bn, round_channels, squeeze_excite
from fusewise.zoo.layers import ConvWindow, add, batch_norm, conv
from fusewise.zoo.net import Net, finish, image

__all__ = ["efficientnet_b0", "efficientnet_b3"]

_B0 = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)  # expansion, kernel, stride of the first, channels, blocks
_STEM, _BRANCH_SCALE = 32, 0.5


def _efficientnet(net: Net, batch: int, size: int, width: float, depth: float) -> Graph:
    x = image(net, (batch, 3, size, size))
    x = conv_bn(net, x, "features.0", round_channels(_STEM * width), ConvWindow(3, stride=2), activation="silu")
    for stage, (expansion, kernel, first, channels, blocks) in enumerate(_B0):
        for block in range(math.ceil(blocks * depth)):
            stride, name = 1 if block else first, f"features.{stage + 1}.{block}"
            x = _block(net, x, name, expansion, kernel, stride, round_channels(channels * width))
    x = conv_bn(net, x, "features.8", 4 * net.shape(x)[1], 1, activation="silu")
    return finish(net, logits=classify(net, x, "classifier"))


def _block(net: Net, x: str, name: str, expansion: int, kernel: int, stride: int, channels: int) -> str:
    narrow = net.shape(x)[1]
    wide, y = narrow * expansion, x
    if expansion > 1:
        y = conv_bn(net, y, f"{name}.expand", wide, 1, activation="silu")
    y = conv_bn(net, y, f"{name}.depthwise", wide, ConvWindow(kernel, stride=stride, groups=wide), activation="silu")
    y = squeeze_excite(net, y, f"{name}.se", max(1, narrow // 4), inner="silu", gate="sigmoid")
    joins = stride == 1 and channels == narrow
    y = conv(net, y, f"{name}.project.conv", channels, bias=False)
    y = batch_norm(net, y, f"{name}.project.bn", scale=_BRANCH_SCALE if joins else 1.0)
    return add(net, y, x) if joins else y


def efficientnet_b0(net: Net, batch: int) -> Graph:
    return _efficientnet(net, batch, 224, 1.0, 1.0)


def efficientnet_b3(net: Net, batch: int) -> Graph:
    return _efficientnet(net, batch, 300, 1.2, 1.4)
