"""ConvNeXt-Tiny: depthwise 7x7 convolutions with a transformer's normalisation and feed-forward block.

Z. Liu et al., "A ConvNet for the 2020s", CVPR 2022.
"""

from __future__ import annotations

from fusewise.ir.graph import Graph
from fusewise.zoo.activations import activate
from fusewise.zoo.layers import ConvWindow, add, conv, flatten, gemm, global_average, layer_norm, linear, mul, transpose
from fusewise.zoo.net import Net, finish, weight

__all__ = ["convnext_tiny"]

_STAGES = ((96, 3), (192, 3), (384, 9), (768, 3))  # channels, blocks
_EPSILON = 1e-6


def convnext_tiny(net: Net, batch: int) -> Graph:
    x = net.builder.input("x", (batch, 3, 224, 224))
    for stage, (channels, blocks) in enumerate(_STAGES):
        if stage == 0:
            x = conv(net, x, "stem", channels, ConvWindow(4, stride=4, padding=0))
            x = _norm_channels(net, x, "stem.norm")
        else:
            x = _norm_channels(net, x, f"downsample.{stage}.norm")
            x = conv(net, x, f"downsample.{stage}", channels, ConvWindow(2, stride=2, padding=0))
        for block in range(blocks):
            x = _block(net, x, f"features.{stage}.{block}")
    x = _norm_channels(net, global_average(net, x), "head.norm")
    return finish(net, logits=gemm(net, flatten(net, x), "head", 1000))


def _norm_channels(net: Net, x: str, name: str) -> str:
    """Layer normalisation over the channels of [batch, channels, height, width], between two transpositions."""
    return transpose(net, layer_norm(net, transpose(net, x, 0, 2, 3, 1), name, epsilon=_EPSILON), 0, 3, 1, 2)


def _block(net: Net, x: str, name: str) -> str:
    channels = net.shape(x)[1]
    y = transpose(net, conv(net, x, f"{name}.depthwise", channels, ConvWindow(7, groups=channels)), 0, 2, 3, 1)
    y = layer_norm(net, y, f"{name}.norm", epsilon=_EPSILON)
    y = activate(net, linear(net, y, f"{name}.expand", 4 * channels), "gelu")
    y = transpose(net, linear(net, y, f"{name}.project", channels), 0, 3, 1, 2)
    return add(net, mul(net, weight(net, f"{name}.scale", (channels, 1, 1), 0.05, 0.5), y), x)
