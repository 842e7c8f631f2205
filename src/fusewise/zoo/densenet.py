"""DenseNet-121, as torchvision has it: every layer of a block reads what all layers before it wrote.

G. Huang et al., "Densely Connected Convolutional Networks", CVPR 2017.
"""

from __future__ import annotations

from fusewise.ir.graph import Graph
from fusewise.zoo.activations import activate
from fusewise.zoo.blocks import classify, conv_bn
from fusewise.zoo.layers import ConvWindow, average_pool, batch_norm, concat, conv, max_pool
from fusewise.zoo.net import Net, finish, image

__all__ = ["densenet121"]

_GROWTH, _BOTTLENECK = 32, 4


def densenet121(net: Net, batch: int) -> Graph:
    x = image(net, (batch, 3, 224, 224))
    x = max_pool(net, conv_bn(net, x, "stem", 64, ConvWindow(7, stride=2)), 3, stride=2, padding=1)
    for block, layers in enumerate((6, 12, 24, 16), 1):
        if block > 1:
            name = f"transition{block - 1}"
            x = conv(net, _normalised(net, x, f"{name}.bn"), f"{name}.conv", net.shape(x)[1] // 2, 1, bias=False)
            x = average_pool(net, x, 2, stride=2)
        parts = [x]
        for layer in range(1, layers + 1):
            parts.append(_layer(net, concat(net, *parts) if len(parts) > 1 else x, f"block{block}.{layer}"))
        x = concat(net, *parts)
    return finish(net, logits=classify(net, _normalised(net, x, "bn"), "classifier"))


def _normalised(net: Net, x: str, name: str) -> str:
    return activate(net, batch_norm(net, x, name), "relu")


def _layer(net: Net, x: str, name: str) -> str:
    """The new channels: 1x1 to four times their number, then 3x3, each behind batch normalisation and ReLU."""
    x = conv(net, _normalised(net, x, f"{name}.bn1"), f"{name}.conv1", _BOTTLENECK * _GROWTH, 1, bias=False)
    return conv(net, _normalised(net, x, f"{name}.bn2"), f"{name}.conv2", _GROWTH, 3, bias=False)
