"""Inception-v3 without the auxiliary head, as torchvision has it.

C. Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016.
"""

from __future__ import annotations

from fusewise.ir.graph import Graph
from fusewise.zoo.blocks import classify, conv_bn
from fusewise.zoo.layers import ConvWindow, Size, average_pool, concat, max_pool
from fusewise.zoo.net import Net, finish, image

__all__ = ["inception_v3"]

_EPSILON = 1e-3


def inception_v3(net: Net, batch: int) -> Graph:
    x = image(net, (batch, 3, 299, 299))
    x = _unit(net, x, "1a", 32, 3, stride=2, padding=0)
    x = _unit(net, x, "2a", 32, 3, padding=0)
    x = _unit(net, x, "2b", 64, 3)
    x = max_pool(net, x, 3, stride=2)
    x = _unit(net, x, "3b", 80, 1)
    x = _unit(net, x, "4a", 192, 3, padding=0)
    x = max_pool(net, x, 3, stride=2)
    for name, pooled in (("5b", 32), ("5c", 64), ("5d", 64)):
        x = _five(net, x, name, pooled)
    x = _shrink_to_17(net, x, "6a")
    for name, narrow in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        x = _seven(net, x, name, narrow)
    x = _shrink_to_8(net, x, "7a")
    for name in ("7b", "7c"):
        x = _expanded(net, x, name)
    return finish(net, logits=classify(net, x, "fc"))


def _unit(
    net: Net, x: str, name: str, channels: int, kernel: Size, *, stride: int = 1, padding: Size | None = None
) -> str:
    return conv_bn(net, x, name, channels, ConvWindow(kernel, stride=stride, padding=padding), epsilon=_EPSILON)


def _pooled(net: Net, x: str, name: str, channels: int) -> str:
    return _unit(net, average_pool(net, x, 3, padding=1), f"{name}.pool", channels, 1)


def _five(net: Net, x: str, name: str, pooled: int) -> str:
    """Branches of 1x1, 5x5, twice 3x3, and a pooling."""
    one = _unit(net, x, f"{name}.1x1", 64, 1)
    five = _unit(net, _unit(net, x, f"{name}.5x5.1", 48, 1), f"{name}.5x5.2", 64, 5)
    three = _unit(net, _unit(net, x, f"{name}.3x3.1", 64, 1), f"{name}.3x3.2", 96, 3)
    three = _unit(net, three, f"{name}.3x3.3", 96, 3)
    return concat(net, one, five, three, _pooled(net, x, name, pooled))


def _shrink_to_17(net: Net, x: str, name: str) -> str:
    three = _unit(net, x, f"{name}.3x3", 384, 3, stride=2, padding=0)
    double = _unit(net, _unit(net, x, f"{name}.double.1", 64, 1), f"{name}.double.2", 96, 3)
    double = _unit(net, double, f"{name}.double.3", 96, 3, stride=2, padding=0)
    return concat(net, three, double, max_pool(net, x, 3, stride=2))


def _seven(net: Net, x: str, name: str, narrow: int) -> str:
    """Branches of 1x1, 7x7 written as 1x7 and 7x1, the same twice, and a pooling."""
    one = _unit(net, x, f"{name}.1x1", 192, 1)
    seven = _unit(net, x, f"{name}.7x7.1", narrow, 1)
    seven = _unit(net, seven, f"{name}.7x7.2", narrow, (1, 7))
    seven = _unit(net, seven, f"{name}.7x7.3", 192, (7, 1))
    double = _unit(net, x, f"{name}.double.1", narrow, 1)
    double = _unit(net, double, f"{name}.double.2", narrow, (7, 1))
    double = _unit(net, double, f"{name}.double.3", narrow, (1, 7))
    double = _unit(net, double, f"{name}.double.4", narrow, (7, 1))
    double = _unit(net, double, f"{name}.double.5", 192, (1, 7))
    return concat(net, one, seven, double, _pooled(net, x, name, 192))


def _shrink_to_8(net: Net, x: str, name: str) -> str:
    three = _unit(net, x, f"{name}.3x3.1", 192, 1)
    three = _unit(net, three, f"{name}.3x3.2", 320, 3, stride=2, padding=0)
    seven = _unit(net, x, f"{name}.7x7.1", 192, 1)
    seven = _unit(net, seven, f"{name}.7x7.2", 192, (1, 7))
    seven = _unit(net, seven, f"{name}.7x7.3", 192, (7, 1))
    seven = _unit(net, seven, f"{name}.7x7.4", 192, 3, stride=2, padding=0)
    return concat(net, three, seven, max_pool(net, x, 3, stride=2))


def _expanded(net: Net, x: str, name: str) -> str:
    """Branches that themselves split into a 1x3 and a 3x1 side by side."""
    one = _unit(net, x, f"{name}.1x1", 320, 1)
    three = _split(net, _unit(net, x, f"{name}.3x3.1", 384, 1), f"{name}.3x3")
    double = _unit(net, _unit(net, x, f"{name}.double.1", 448, 1), f"{name}.double.2", 384, 3)
    double = _split(net, double, f"{name}.double")
    return concat(net, one, three, double, _pooled(net, x, name, 192))


def _split(net: Net, x: str, name: str) -> str:
    return concat(net, _unit(net, x, f"{name}.wide", 384, (1, 3)), _unit(net, x, f"{name}.tall", 384, (3, 1)))
