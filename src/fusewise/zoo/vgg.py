"""VGG: 3x3 convolutions and three wide fully connected layers.

K. Simonyan and A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015.
"""

from __future__ import annotations

from fusewise.ir.graph import Graph
from fusewise.zoo.activations import activate
from fusewise.zoo.layers import average_pool, flatten, gemm, max_pool
from fusewise.zoo.net import Net, finish
from fusewise.zoo.norms import normed_conv

__all__ = ["vgg16"]

_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # width, convolutions


def vgg16(net: Net, batch: int) -> Graph:
    """VGG-16; decomposed, with the batch normalisation that is otherwise folded into its convolutions."""
    x = net.builder.input("x", (batch, 3, 224, 224))
    for stage, (width, depth) in enumerate(_STAGES):
        for layer in range(depth):
            x = activate(net, normed_conv(net, x, f"features.{stage}.{layer}", width, 3), "relu")
        x = max_pool(net, x, 2)
    if net.decomposed:
        x = average_pool(net, x, 1)  # torchvision's adaptive pooling to 7x7, which is the map's size
    x = flatten(net, x)
    for layer in range(2):
        x = activate(net, gemm(net, x, f"classifier.{layer}", 4096, gain=2.0), "relu")
    return finish(net, logits=gemm(net, x, "classifier.2", 1000))
