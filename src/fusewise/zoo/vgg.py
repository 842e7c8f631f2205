"""VGG: 3x3 convolutions and three wide fully connected layers.

K. Simonyan and A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015.
"""

from __future__ import annotations

from fusewise.ir.graph import Graph
from fusewise.zoo.activations import activate
from fusewise.zoo.layers import conv, flatten, gemm, max_pool
from fusewise.zoo.net import Net, finish

__all__ = ["vgg16"]

_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # width, convolutions


def vgg16(net: Net, batch: int) -> Graph:
    x = net.builder.input("x", (batch, 3, 224, 224))
    for stage, (width, depth) in enumerate(_STAGES):
        for layer in range(depth):
            x = activate(net, conv(net, x, f"features.{stage}.{layer}", width, 3), "relu")
        x = max_pool(net, x, 2)
    x = flatten(net, x)
    for layer in range(2):
        x = activate(net, gemm(net, x, f"classifier.{layer}", 4096, gain=2.0), "relu")
    return finish(net, logits=gemm(net, x, "classifier.2", 1000))
