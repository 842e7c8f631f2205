"""ViT-B/16: a transformer encoder over 16x16 patches of an image, as torchvision has it.

A. Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021.
"""

from __future__ import annotations

from fusewise.ir.graph import Graph
from fusewise.zoo.attention import attend, feed_forward
from fusewise.zoo.bert import first_token
from fusewise.zoo.extents import extent, view
from fusewise.zoo.layers import ConvWindow, add, conv, gemm, layer_norm, linear, transpose
from fusewise.zoo.net import Net, finish, weight

__all__ = ["vit_b_16"]

_LAYERS, _HEADS, _WIDTH, _HIDDEN, _PATCH, _SIZE = 12, 12, 768, 3072, 16, 224
_EPSILON = 1e-6


def vit_b_16(net: Net, batch: int) -> Graph:
    x = net.builder.input("x", (batch, 3, _SIZE, _SIZE))
    patches = (_SIZE // _PATCH) ** 2
    x = conv(net, x, "patches", _WIDTH, ConvWindow(_PATCH, stride=_PATCH, padding=0))
    x = transpose(net, view(net, x, extent(net, x, 0), _WIDTH, patches), 0, 2, 1)
    token = weight(net, "class_token", (1, 1, _WIDTH), 0.5)
    token = net.op("Expand", token, net.constant([batch, 1, _WIDTH], "shape"))
    x = net.op("Concat", token, x, axis=1)
    x = add(net, x, weight(net, "position_embedding", (1, patches + 1, _WIDTH), 0.5))
    for k in range(_LAYERS):
        x = _layer(net, x, f"layer.{k}")
    return finish(net, logits=gemm(net, first_token(net, layer_norm(net, x, "norm", epsilon=_EPSILON)), "head", 1000))


def _layer(net: Net, x: str, name: str) -> str:
    y = layer_norm(net, x, f"{name}.norm_1", epsilon=_EPSILON)
    packed = linear(net, y, f"{name}.attention.input", 3 * _WIDTH)
    query, key, value = net.builder.op("Split", packed, outputs=3, axis=-1, num_outputs=3)
    y = linear(net, attend(net, query, key, value, _HEADS), f"{name}.attention.output", _WIDTH)
    x = add(net, x, y)
    return add(net, x, feed_forward(net, layer_norm(net, x, f"{name}.norm_2", epsilon=_EPSILON), name, _HIDDEN))
