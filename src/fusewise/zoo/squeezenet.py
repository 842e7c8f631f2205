"""SqueezeNet 1.1: a narrow convolution that feeds a 1x1 and a 3x3 one side by side.

F. Iandola et al., "SqueezeNet", arXiv 1602.07360; version 1.1 is the authors' later release.
"""

from __future__ import annotations

from fusewise.ir.graph import Graph
from fusewise.zoo.activations import activate
from fusewise.zoo.layers import ConvWindow, Size, concat, conv, flatten, global_average, max_pool
from fusewise.zoo.net import Net, finish

__all__ = ["squeezenet1_1"]

_STAGES = (((16, 64), (16, 64)), ((32, 128), (32, 128)), ((48, 192), (48, 192), (64, 256), (64, 256)))
# squeezed channels, channels of either branch; a pooling before every stage


def squeezenet1_1(net: Net, batch: int) -> Graph:
    x = net.builder.input("x", (batch, 3, 224, 224))
    x = _conv_relu(net, x, "features.0", 64, 3, stride=2, padding=0)
    index = 1
    for stage in _STAGES:
        x = max_pool(net, x, 3, stride=2, ceil=True)
        for squeezed, branch in stage:
            x = _fire(net, x, f"features.{index}", squeezed, branch)
            index += 1
    x = _conv_relu(net, x, "classifier", 1000, 1)
    return finish(net, logits=flatten(net, global_average(net, x)))


def _fire(net: Net, x: str, name: str, squeezed: int, branch: int) -> str:
    x = _conv_relu(net, x, f"{name}.squeeze", squeezed, 1)
    return concat(
        net,
        _conv_relu(net, x, f"{name}.expand1x1", branch, 1),
        _conv_relu(net, x, f"{name}.expand3x3", branch, 3),
    )


def _conv_relu(
    net: Net, x: str, name: str, channels: int, kernel: int, *, stride: int = 1, padding: Size | None = None
) -> str:
    return activate(net, conv(net, x, name, channels, ConvWindow(kernel, stride=stride, padding=padding)), "relu")
