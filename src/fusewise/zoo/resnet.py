"""Residual networks, with the stride in the 3x3 convolution ("v1.5") as torchvision has them.

K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; S. Xie et al., "Aggregated Residual
Transformations for Deep Neural Networks", CVPR 2017.
"""

from __future__ import annotations

from fusewise.ir.graph import Graph
from fusewise.zoo.activations import activate
from fusewise.zoo.blocks import classify, conv_bn
from fusewise.zoo.layers import ConvWindow, add, batch_norm, conv, max_pool
from fusewise.zoo.net import Net, finish, image

__all__ = [
    "basic_block",
    "bottleneck",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50",
    "stem",
    "stem_of",
]

_BRANCH_SCALE = 0.5  # of the last gamma in a residual branch


def stem(net: Net, batch: int, size: int) -> str:
    """The image input `x`, a 7x7 convolution and a pooling: [batch, 64, size / 4, size / 4]."""
    return stem_of(net, image(net, (batch, 3, size, size)))


def stem_of(net: Net, x: str) -> str:
    """A 7x7 convolution and a pooling: a quarter of the size, 64 channels."""
    return max_pool(net, conv_bn(net, x, "stem", 64, ConvWindow(7, stride=2)), 3, stride=2, padding=1)


def _shortcut(net: Net, x: str, name: str, channels: int, stride: int) -> str:
    if stride == 1 and net.shape(x)[1] == channels:
        return x
    return conv_bn(net, x, f"{name}.downsample", channels, ConvWindow(1, stride=stride), activation=None)


def basic_block(net: Net, x: str, name: str, width: int, stride: int) -> str:
    """Two 3x3 convolutions beside a shortcut."""
    y = conv_bn(net, x, f"{name}.1", width, ConvWindow(3, stride=stride))
    y = batch_norm(net, conv(net, y, f"{name}.2.conv", width, 3, bias=False), f"{name}.2.bn", scale=_BRANCH_SCALE)
    return activate(net, add(net, y, _shortcut(net, x, name, width, stride)), "relu")


def bottleneck(
    net: Net, x: str, name: str, width: int, stride: int, *, groups: int = 1, inner: int | None = None
) -> str:
    """1x1, 3x3, 1x1 to `4 * width` channels beside a shortcut; `inner` channels in the middle (`width` when None)."""
    middle = width if inner is None else inner
    y = conv_bn(net, x, f"{name}.1", middle, 1)
    y = conv_bn(net, y, f"{name}.2", middle, ConvWindow(3, stride=stride, groups=groups))
    y = batch_norm(net, conv(net, y, f"{name}.3.conv", 4 * width, bias=False), f"{name}.3.bn", scale=_BRANCH_SCALE)
    return activate(net, add(net, y, _shortcut(net, x, name, 4 * width, stride)), "relu")


def _resnet(
    net: Net, batch: int, depths: tuple[int, ...], *, deep: bool, groups: int = 1, group_width: int = 64
) -> Graph:
    x = stem(net, batch, 224)
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for block in range(depth):
            name, stride = f"layer{stage + 1}.{block}", 2 if stage and not block else 1
            if deep:
                inner = width * group_width // 64 * groups
                x = bottleneck(net, x, name, width, stride, groups=groups, inner=inner)
            else:
                x = basic_block(net, x, name, width, stride)
    return finish(net, logits=classify(net, x, "fc"))


def resnet18(net: Net, batch: int) -> Graph:
    return _resnet(net, batch, (2, 2, 2, 2), deep=False)


def resnet34(net: Net, batch: int) -> Graph:
    return _resnet(net, batch, (3, 4, 6, 3), deep=False)


def resnet50(net: Net, batch: int) -> Graph:
    return _resnet(net, batch, (3, 4, 6, 3), deep=True)


def resnet101(net: Net, batch: int) -> Graph:
    return _resnet(net, batch, (3, 4, 23, 3), deep=True)


def resnet152(net: Net, batch: int) -> Graph:
    return _resnet(net, batch, (3, 8, 36, 3), deep=True)


def resnext50(net: Net, batch: int) -> Graph:
    """ResNeXt-50 32x4d: thirty-two groups, four channels each in the first stage."""
    return _resnet(net, batch, (3, 4, 6, 3), deep=True, groups=32, group_width=4)
