"""Architectures at any size: the blocks of the zoo with depth, width, resolution and heads as arguments.

For whoever needs many members of a family, or small ones: classification of architectures, random orders of passes. They keep
what makes the family, not the figures of any published member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Graph
from fusewise.words import no_such
from fusewise.zoo.activations import activate
from fusewise.zoo.attention import LOWEST, additive_mask, feed_forward, self_attention
from fusewise.zoo.blocks import classify, conv_bn, squeeze_excite
from fusewise.zoo.layers import (
    ConvWindow,
    add,
    concat,
    conv,
    conv_transpose,
    flatten,
    gemm,
    global_average,
    layer_norm,
    linear,
    max_pool,
    reshape,
    transpose,
    upsample,
)
from fusewise.zoo.net import Net, finish, image, start, weight
from fusewise.zoo.resnet import basic_block, bottleneck

__all__ = ["SCALED", "Scale", "scaled"]

_CLASSES, _VOCABULARY = 10, 97


@dataclass(frozen=True, slots=True)
class Scale:
    """`depth`: blocks a stage, or layers. `width`: channels of the first stage; of a transformer, of every layer. `size`: pixels
    along a side, or tokens. `heads` of attention."""

    depth: int = 1
    width: int = 8
    size: int = 32
    heads: int = 2


def scaled(kind: str, scale: Scale | None = None, *, seed: int = 0, decomposed: bool = False) -> Graph:
    """The architecture called `kind`, a key of `SCALED`, at `scale`, with random weights that follow from `seed`."""
    if kind not in SCALED:
        raise no_such("scaled architecture", kind, SCALED, f"there are {', '.join(SCALED)}", most=2)
    return SCALED[kind](start(kind, seed=seed, decomposed=decomposed), scale or Scale())


def _picture(net: Net, scale: Scale) -> str:
    return image(net, (1, 3, scale.size, scale.size))


def _resnet(net: Net, scale: Scale) -> Graph:
    x = conv_bn(net, _picture(net, scale), "stem", scale.width, 3)
    for stage in range(3):
        for block in range(scale.depth):
            x = basic_block(net, x, f"layer{stage}.{block}", scale.width << stage, 2 if stage and not block else 1)
    return finish(net, logits=classify(net, x, "fc", _CLASSES))


def _bottlenecks(net: Net, scale: Scale) -> Graph:
    x = conv_bn(net, _picture(net, scale), "stem", scale.width, ConvWindow(3, stride=2))
    x = max_pool(net, x, 3, stride=2, padding=1)
    for stage in range(3):
        for block in range(scale.depth):
            x = bottleneck(net, x, f"layer{stage}.{block}", scale.width << stage, 2 if stage and not block else 1)
    return finish(net, logits=classify(net, x, "fc", _CLASSES))


def _mobile_features(net: Net, x: str, scale: Scale, *, excite: bool, activation: str) -> list[str]:
    """Inverted residuals in three stages; the map behind each."""
    maps = []
    x = conv_bn(net, x, "stem", scale.width, ConvWindow(3, stride=2), activation=activation)
    for stage in range(3):
        channels = scale.width << stage
        for block in range(scale.depth + 1):
            name, stride = f"stage{stage}.{block}", 2 if stage and not block else 1
            wide = 4 * net.shape(x)[1]
            y = conv_bn(net, x, f"{name}.expand", wide, 1, activation=activation)
            y = conv_bn(
                net, y, f"{name}.depthwise", wide, ConvWindow(3, stride=stride, groups=wide), activation=activation
            )
            if excite:
                y = squeeze_excite(net, y, f"{name}.se", max(1, wide // 8), inner=activation, gate="sigmoid")
            y = conv_bn(net, y, f"{name}.project", channels, 1, activation=None)
            x = add(net, x, y) if net.shape(x) == net.shape(y) else y
        maps.append(x)
    return maps


def _mobilenet(net: Net, scale: Scale) -> Graph:
    x = _mobile_features(net, _picture(net, scale), scale, excite=False, activation="relu6")[-1]
    return finish(net, logits=classify(net, x, "classifier", _CLASSES))


def _efficientnet(net: Net, scale: Scale) -> Graph:
    x = _mobile_features(net, _picture(net, scale), scale, excite=True, activation="silu")[-1]
    return finish(net, logits=classify(net, x, "classifier", _CLASSES))


def _ssd(net: Net, scale: Scale) -> Graph:
    """Boxes and scores from four maps of falling size."""
    maps = _mobile_features(net, _picture(net, scale), scale, excite=False, activation="relu6")
    maps.append(conv_bn(net, maps[-1], "extra", 2 * scale.width, ConvWindow(3, stride=2)))
    boxes: list[str] = []
    classes: list[str] = []
    for k, x in enumerate(maps):
        for found, name, figures in ((boxes, "boxes", 4), (classes, "classes", _CLASSES)):
            y = transpose(net, conv(net, x, f"{name}.{k}", 3 * figures, 3), 0, 2, 3, 1)
            found.append(reshape(net, y, 1, -1, figures))
    scores = net.op("Sigmoid", net.op("Concat", *classes, axis=1))
    return finish(net, boxes=net.op("Concat", *boxes, axis=1), scores=scores)


def _vgg(net: Net, scale: Scale) -> Graph:
    x = _picture(net, scale)
    for stage in range(3):
        for block in range(scale.depth):
            x = activate(net, conv(net, x, f"features.{stage}.{block}", scale.width << stage, 3), "relu")
        x = max_pool(net, x, 2)
    x = activate(net, gemm(net, flatten(net, x), "classifier.0", 8 * scale.width, gain=2.0), "relu")
    return finish(net, logits=gemm(net, x, "classifier.1", _CLASSES))


def _fire(net: Net, x: str, name: str, squeezed: int, branch: int) -> str:
    x = activate(net, conv(net, x, f"{name}.squeeze", squeezed), "relu")
    sides = (activate(net, conv(net, x, f"{name}.expand{k}", branch, k), "relu") for k in (1, 3))
    return concat(net, *sides)


def _squeezenet(net: Net, scale: Scale) -> Graph:
    x = activate(net, conv(net, _picture(net, scale), "stem", scale.width, ConvWindow(3, stride=2)), "relu")
    for stage in range(3):
        for block in range(scale.depth):
            x = _fire(net, x, f"fire{stage}.{block}", scale.width, (2 * scale.width) << stage)
        x = max_pool(net, x, 3, stride=2, padding=1)
    x = activate(net, conv(net, x, "classifier", _CLASSES), "relu")
    return finish(net, logits=flatten(net, global_average(net, x)))


def _inception(net: Net, scale: Scale) -> Graph:
    x = conv_bn(net, _picture(net, scale), "stem", scale.width, ConvWindow(3, stride=2))
    for stage in range(2):
        for block in range(scale.depth):
            name, channels = f"mixed{stage}.{block}", scale.width << stage
            reduced = conv_bn(net, x, f"{name}.1.reduce", channels, 1)
            x = concat(
                net,
                conv_bn(net, x, f"{name}.0", channels, 1),
                conv_bn(net, reduced, f"{name}.1", channels, 3),
                conv_bn(net, x, f"{name}.2", channels, 1),
            )
        x = max_pool(net, x, 3, stride=2, padding=1)
    return finish(net, logits=classify(net, x, "fc", _CLASSES))


def _densenet(net: Net, scale: Scale) -> Graph:
    x = conv_bn(net, _picture(net, scale), "stem", scale.width, 3)
    for block in range(2):
        parts = [x]
        for layer in range(scale.depth + 2):
            y = concat(net, *parts) if len(parts) > 1 else x
            parts.append(conv_bn(net, y, f"block{block}.{layer}", scale.width, 3))
        x = max_pool(net, conv_bn(net, concat(net, *parts), f"transition{block}", scale.width, 1), 2)
    return finish(net, logits=classify(net, x, "classifier", _CLASSES))


def _unet(net: Net, scale: Scale) -> Graph:
    x, skips = _picture(net, scale), []
    for level in range(scale.depth + 1):
        x = conv_bn(net, x, f"down.{level}", scale.width << level, 3)
        skips.append(x)
        x = max_pool(net, x, 2)
    x = conv_bn(net, x, "middle", scale.width << (scale.depth + 1), 3)
    for level in reversed(range(scale.depth + 1)):
        up = conv_transpose(net, x, f"up.{level}.transpose", scale.width << level, 2)
        x = conv_bn(net, concat(net, skips[level], up), f"up.{level}", scale.width << level, 3)
    return finish(net, mask=conv(net, x, "head", 2, 1))


def _yolo(net: Net, scale: Scale) -> Graph:
    """Two maps, the coarse one upsampled and set beside the fine one; boxes from both."""
    x = _picture(net, scale)
    maps = []
    for stage in range(3):
        x = conv_bn(
            net, x, f"stage{stage}.down", scale.width << stage, ConvWindow(3, stride=2), activation="leaky_relu"
        )
        for block in range(scale.depth):
            y = conv_bn(net, x, f"stage{stage}.{block}", net.shape(x)[1], 3, activation="leaky_relu")
            x = add(net, x, y)
        maps.append(x)
    up = upsample(net, maps[2], net.shape(maps[1])[2:], "nearest")  # type: ignore[arg-type]  # two axes of four
    fine = conv_bn(net, concat(net, up, maps[1]), "top", scale.width, 3, activation="leaky_relu")
    found = [
        reshape(net, transpose(net, conv(net, y, f"head.{k}", 3 * 7, 1), 0, 2, 3, 1), 1, -1, 7)
        for k, y in enumerate((fine, maps[2]))
    ]
    return finish(net, boxes=net.op("Concat", *found, axis=1))


def _tokens(net: Net, scale: Scale) -> tuple[str, str]:
    """The input ids, and their embeddings with positions added."""
    ids = net.builder.input("input_ids", (1, scale.size), INT64)
    x = net.op("Gather", weight(net, "words", (_VOCABULARY, scale.width), 0.5), ids, axis=0)
    places = net.op(
        "Gather",
        weight(net, "places", (2 * scale.size, scale.width), 0.5),
        net.constant(np.arange(scale.size, dtype=np.int64)[None], "positions"),
        axis=0,
    )
    return ids, add(net, x, places)


def _encoded(net: Net, x: str, scale: Scale, masked: Callable[[str], str] | None) -> str:
    for k in range(scale.depth):
        y = self_attention(net, x, f"layer.{k}.attention", scale.heads, masked=masked)
        x = layer_norm(net, add(net, y, x), f"layer.{k}.attention.norm")
        x = layer_norm(net, add(net, feed_forward(net, x, f"layer.{k}", 4 * scale.width), x), f"layer.{k}.norm")
    return x


def _bert(net: Net, scale: Scale) -> Graph:
    _, x = _tokens(net, scale)
    mask = net.builder.input("attention_mask", (1, scale.size), INT64)
    bias = additive_mask(net, mask)
    x = _encoded(net, layer_norm(net, x, "norm"), scale, lambda scores: net.op("Add", scores, bias))
    return finish(net, last_hidden_state=x)


def _gpt(net: Net, scale: Scale) -> Graph:
    _, x = _tokens(net, scale)
    causal = net.constant(np.tril(np.ones((scale.size, scale.size), bool))[None, None], "causal")
    lowest = net.constant(LOWEST, "lowest")
    x = _encoded(net, x, scale, lambda scores: net.op("Where", causal, scores, lowest))
    return finish(net, logits=linear(net, layer_norm(net, x, "norm"), "head", _VOCABULARY))


def _vit(net: Net, scale: Scale) -> Graph:
    x = net.builder.input("x", (1, 3, scale.size, scale.size))
    x = conv(net, x, "patches", scale.width, ConvWindow(8, stride=8, padding=0))
    x = transpose(net, reshape(net, x, 1, scale.width, -1), 0, 2, 1)
    x = _encoded(net, add(net, x, weight(net, "places", net.shape(x), 0.5)), scale, None)
    first = net.op("Gather", x, net.constant(np.int64(0), "first"), axis=1)
    return finish(net, logits=gemm(net, first, "head", _CLASSES))


def _recurrent(net: Net, scale: Scale) -> Graph:
    """A gated cell that every step runs with the same weights, unrolled."""
    inputs = [net.builder.input(f"x_{step}", (1, scale.width)) for step in range(scale.depth + 1)]
    state = net.builder.input("state", (1, scale.width))

    def product(x: str, name: str) -> str:
        matrix = weight(net, name, (scale.width, scale.width), scale.width**-0.5)
        return net.op("MatMul", x, matrix)

    for x in inputs:
        gate = activate(net, add(net, product(x, "w"), product(state, "u")), "sigmoid")
        new = activate(net, add(net, product(x, "v"), product(state, "t")), "tanh")
        state = add(net, net.op("Mul", gate, state), net.op("Mul", net.op("Sub", net.constant(1.0, "one"), gate), new))
    return finish(net, last_state=state)


SCALED: Mapping[str, Callable[[Net, Scale], Graph]] = MappingProxyType(
    {
        "resnet": _resnet,
        "resnet_bottleneck": _bottlenecks,
        "mobilenet": _mobilenet,
        "efficientnet": _efficientnet,
        "ssd": _ssd,
        "vgg": _vgg,
        "squeezenet": _squeezenet,
        "inception": _inception,
        "densenet": _densenet,
        "unet": _unet,
        "yolo": _yolo,
        "bert": _bert,
        "gpt": _gpt,
        "vit": _vit,
        "recurrent": _recurrent,
    }
)
"""Families by the name of a builder."""
