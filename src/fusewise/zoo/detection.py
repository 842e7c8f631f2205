"""Detection in one pass: the two SSDs and YOLO-V4, up to but without non-maximum suppression.

W. Liu et al., "SSD: Single Shot MultiBox Detector", ECCV 2016; A. Bochkovskiy et al., "YOLOv4", arXiv 2004.10934.
"""

from __future__ import annotations

import numpy as np

from fusewise.ir.graph import Graph
from fusewise.zoo.blocks import conv_bn
from fusewise.zoo.extents import extent, view
from fusewise.zoo.layers import ConvWindow, add, concat, conv, max_pool, mul, reshape, transpose, upsample
from fusewise.zoo.mobilenet import v1_features
from fusewise.zoo.net import Net, finish, image
from fusewise.zoo.norms import folded_norms
from fusewise.zoo.resnet import bottleneck, stem

__all__ = ["mobilenet_v1_ssd", "ssd_resnet50", "yolo_v4"]


def mobilenet_v1_ssd(net: Net, batch: int) -> Graph:
    """SSD on MobileNetV1 as in TensorFlow's model zoo: 1917 boxes, 91 classes scored by a sigmoid, 1x1 predictors."""
    maps = list(v1_features(net, image(net, (batch, 3, 300, 300))))
    for k, (narrow, wide) in enumerate(((256, 512), (128, 256), (128, 256), (64, 128))):
        y = conv_bn(net, maps[-1], f"extra.{k}.0", narrow, 1, activation="relu6")
        maps.append(conv_bn(net, y, f"extra.{k}.1", wide, ConvWindow(3, stride=2), activation="relu6"))
    anchors = (3, 6, 6, 6, 6, 6)
    boxes = [_predict(net, x, f"boxes.{k}", n, 4, 1) for k, (x, n) in enumerate(zip(maps, anchors, strict=True))]
    classes = [_predict(net, x, f"classes.{k}", n, 91, 1) for k, (x, n) in enumerate(zip(maps, anchors, strict=True))]
    scores = net.op("Sigmoid", net.op("Concat", *classes, axis=1))
    return finish(net, boxes=net.op("Concat", *boxes, axis=1), scores=scores)


def _predict(net: Net, x: str, name: str, anchors: int, figures: int, kernel: int) -> str:
    """`figures` numbers for each anchor at each point: [batch, points * anchors, figures]."""
    y = transpose(net, conv(net, x, name, anchors * figures, kernel), 0, 2, 3, 1)
    return view(net, y, extent(net, y, 0), -1, figures)


def ssd_resnet50(net: Net, batch: int) -> Graph:
    """SSD on the first three stages of ResNet-50 as in NVIDIA's examples: 8732 boxes, 81 classes, 300 pixels.

    The third stage keeps its resolution, so that the finest map has 38 x 38 points.
    """
    x = stem(net, batch, 300)
    for stage, (depth, first) in enumerate(((3, 1), (4, 2), (6, 1))):
        for block in range(depth):
            x = bottleneck(net, x, f"layer{stage + 1}.{block}", 64 << stage, 1 if block else first)
    maps = [x]
    extras = ((256, 512, 2, 1), (256, 512, 2, 1), (128, 256, 2, 1), (128, 256, 1, 0), (128, 256, 1, 0))
    for k, (narrow, wide, stride, padding) in enumerate(extras):
        y = conv_bn(net, maps[-1], f"extra.{k}.0", narrow, 1)
        maps.append(conv_bn(net, y, f"extra.{k}.1", wide, ConvWindow(3, stride=stride, padding=padding)))
    boxes: list[str] = []
    classes: list[str] = []
    for k, (x, anchors) in enumerate(zip(maps, (4, 6, 6, 6, 4, 4), strict=True)):
        for found, name, figures in ((boxes, "loc", 4), (classes, "conf", 81)):
            y = conv(net, x, f"{name}.{k}", anchors * figures, 3)
            found.append(view(net, y, extent(net, y, 0), figures, -1))
    return finish(net, boxes=net.op("Concat", *boxes, axis=2), scores=net.op("Concat", *classes, axis=2))


_SIZE, _CLASSES = 416, 80
_ANCHORS = (
    ((12, 16), (19, 36), (40, 28)),
    ((36, 75), (76, 55), (72, 146)),
    ((142, 110), (192, 243), (459, 401)),
)  # width and height in pixels, at strides 8, 16, 32
_REACH = (1.2, 1.1, 1.05)  # how far a box centre may leave its cell: the factor on the sigmoid


def yolo_v4(net: Net, batch: int) -> Graph:
    """YOLO-V4 at 416 pixels: `boxes` [batch, 10647, 4] as corners in pixels, `scores` [batch, 10647, 80]."""
    fine, middle, coarse = _backbone(net, image(net, (batch, 3, _SIZE, _SIZE)))
    fine, middle, coarse = _top_down(net, fine, middle, _pyramid_pool(net, coarse))
    heads = [_head(net, fine, "head.0", 256)]
    middle = _chain(net, concat(net, _leaky(net, fine, "pan.1.down", 256, 3, 2), middle), "pan.1", 256, 5)
    heads.append(_head(net, middle, "head.1", 512))
    coarse = _chain(net, concat(net, _leaky(net, middle, "pan.2.down", 512, 3, 2), coarse), "pan.2", 512, 5)
    heads.append(_head(net, coarse, "head.2", 1024))
    decoded = [_decode(net, head, _ANCHORS[k], _REACH[k]) for k, head in enumerate(heads)]
    boxes, scores = ([pair[part] for pair in decoded] for part in (0, 1))
    graph = finish(net, boxes=net.op("Concat", *boxes, axis=1), scores=net.op("Concat", *scores, axis=1))
    return folded_norms(graph) if net.decomposed else graph


def _mish(net: Net, x: str, name: str, channels: int, kernel: int = 1, stride: int = 1) -> str:
    return conv_bn(net, x, name, channels, ConvWindow(kernel, stride=stride), activation="mish")


def _leaky(net: Net, x: str, name: str, channels: int, kernel: int = 1, stride: int = 1) -> str:
    return conv_bn(net, x, name, channels, ConvWindow(kernel, stride=stride), activation="leaky_relu")


def _chain(net: Net, x: str, name: str, channels: int, count: int) -> str:
    """1x1 and 3x3 convolutions in turn, `channels` after the former and twice that after the latter."""
    for k in range(count):
        x = _leaky(net, x, f"{name}.{k}", channels << k % 2, 3 if k % 2 else 1)
    return x


def _backbone(net: Net, x: str) -> tuple[str, str, str]:
    """CSPDarknet53: the maps of stride 8, 16 and 32."""
    x = _mish(net, x, "stem", 32, 3)
    maps = []
    for stage, blocks in enumerate((1, 2, 8, 8, 4)):
        name, channels = f"stage.{stage}", 64 << stage
        x = _mish(net, x, f"{name}.down", channels, 3, 2)
        # The first stage neither halves its branches nor keeps the blocks as wide inside.
        branch = channels if stage == 0 else channels // 2
        beside, y = _mish(net, x, f"{name}.beside", branch), _mish(net, x, f"{name}.through", branch)
        for block in range(blocks):
            inner = _mish(net, y, f"{name}.{block}.0", channels // 2)
            y = add(net, y, _mish(net, inner, f"{name}.{block}.1", branch, 3))
        y = _mish(net, y, f"{name}.after", branch)
        x = _mish(net, concat(net, y, beside), f"{name}.join", channels)
        maps.append(x)
    return maps[2], maps[3], maps[4]


def _pyramid_pool(net: Net, x: str) -> str:
    """Spatial pyramid pooling between two runs of three convolutions."""
    x = _chain(net, x, "spp.before", 512, 3)
    pooled = [max_pool(net, x, kernel, stride=1, padding=kernel // 2) for kernel in (13, 9, 5)]
    return _chain(net, concat(net, *pooled, x), "spp.after", 512, 3)


def _top_down(net: Net, fine: str, middle: str, coarse: str) -> tuple[str, str, str]:
    """The path from coarse to fine: upsample, set beside the finer map, convolve."""
    found, x = [coarse], coarse
    for k, (finer, channels) in enumerate(((middle, 256), (fine, 128))):
        height, width = net.shape(finer)[2:]
        up = upsample(net, _leaky(net, x, f"top.{k}.up", channels), (height, width), "nearest")
        x = _chain(net, concat(net, _leaky(net, finer, f"top.{k}.beside", channels), up), f"top.{k}", channels, 5)
        found.append(x)
    return found[2], found[1], found[0]


def _head(net: Net, x: str, name: str, channels: int) -> str:
    # Extents go through an exponential, so the raw figures stay small.
    return conv(net, _leaky(net, x, f"{name}.0", channels, 3), f"{name}.1", 3 * (5 + _CLASSES), gain=0.1)


def _decode(net: Net, head: str, anchors: tuple[tuple[int, int], ...], reach: float) -> tuple[str, str]:
    """Raw figures [batch, 3 * 85, side, side] to corners [batch, boxes, 4] and class scores [batch, boxes, 80]."""
    batch, _, side, _ = net.shape(head)
    count, figures = len(anchors) * side * side, 5 + _CLASSES
    rows = transpose(net, reshape(net, head, batch, len(anchors), figures, side * side), 0, 1, 3, 2)
    rows = reshape(net, rows, batch, count, figures)
    cuts = net.constant([2, 2, 1, _CLASSES], "cuts")
    centre, extent, certainty, classes = net.builder.op("Split", rows, cuts, outputs=4, axis=2)
    across = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(1, -1, 2)
    cells = _floats(net, np.tile(across, (1, len(anchors), 1)), "cells")
    sizes = _floats(net, np.repeat(np.array(anchors), side * side, axis=0)[None], "anchors")
    offset = net.op("Mul", net.op("Sigmoid", centre), net.constant(reach, "reach"))
    offset = net.op("Sub", offset, net.constant((reach - 1) / 2, "overlap"))
    middle = net.op("Mul", net.op("Add", offset, cells), net.constant(float(_SIZE // side), "stride"))
    half = net.op("Mul", net.op("Mul", net.op("Exp", extent), sizes), net.constant(0.5, "half"))
    corners = net.op("Concat", net.op("Sub", middle, half), net.op("Add", middle, half), axis=2)
    return corners, mul(net, net.op("Sigmoid", classes), net.op("Sigmoid", certainty))


def _floats(net: Net, figures: np.ndarray, name: str) -> str:
    """Whole numbers as float32: cast when the model runs, or by the exporter where it wrote the decomposed form."""
    if net.decomposed:
        return net.constant(figures.astype(np.float32), name)
    return net.op("Cast", net.constant(figures, name), to=1)
