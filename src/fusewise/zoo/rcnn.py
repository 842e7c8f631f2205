"""Detection in two stages: Faster R-CNN and Mask R-CNN on ResNet-50 with a feature pyramid, as torchvision has them.

S. Ren et al., "Faster R-CNN", NeurIPS 2015; K. He et al., "Mask R-CNN", ICCV 2017; T.-Y. Lin et al., "Feature Pyramid
Networks for Object Detection", CVPR 2017. One image of 800 pixels: 159,882 anchors, a thousand proposals, a hundred
detections of 91 classes, empty places zero. Which anchors and boxes go on follows from the data.
"""

from __future__ import annotations

import numpy as np

from fusewise.errors import UsageError
from fusewise.ir.graph import Graph
from fusewise.zoo.activations import activate
from fusewise.zoo.anchors import anchors
from fusewise.zoo.boxes import clip, decode, first, kept, large, picked, pool, suppress
from fusewise.zoo.detections import select
from fusewise.zoo.extents import RuntimeExtent, divide, extent, known, plus, row, view
from fusewise.zoo.layers import add, conv, conv_transpose, flatten, gemm, max_pool, transpose, upsample
from fusewise.zoo.net import Net, finish, image
from fusewise.zoo.norms import frozen_norms
from fusewise.zoo.resnet import bottleneck, stem_of

__all__ = ["faster_rcnn_resnet50_fpn", "mask_rcnn_resnet50_fpn"]

_SIDE, _CLASSES, _WIDTH, _SHAPES = 800, 91, 256, 3
_CANDIDATES, _PROPOSALS, _DETECTIONS = 1000, 1000, 100
_SHARE = (0.3, 0.3, 0.6, 2.0)  # of a stage in its map, so that the maps, which are sums, are equally strong
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def faster_rcnn_resnet50_fpn(net: Net, batch: int) -> Graph:
    """Outputs `boxes` [100, 4] in pixels, `labels` int64 [100] and `scores` [100], the best first."""
    boxes, labels, scores, _ = _detect(net, batch)
    return _finished(net, boxes=boxes, labels=labels, scores=scores)


def mask_rcnn_resnet50_fpn(net: Net, batch: int) -> Graph:
    """Outputs of Faster R-CNN, and `masks` [100, 1, 28, 28] from 0 to 1 over each box."""
    boxes, labels, scores, maps = _detect(net, batch)
    x = pool(net, maps, boxes, 14, _SIDE)
    for k in range(4):
        x = activate(net, conv(net, x, f"mask_head.{k}", _WIDTH, 3), "relu")
    x = activate(net, conv_transpose(net, x, "mask_predictor.transpose", _WIDTH, 2), "relu")
    x = net.op("Sigmoid", conv(net, x, "mask_predictor", _CLASSES, gain=0.05))
    numbers = net.constant(np.arange(_DETECTIONS) * _CLASSES, "first_masks")
    flat = view(net, x, -1, extent(net, x, 2), extent(net, x, 3))
    masks = net.op("Gather", flat, net.op("Add", labels, numbers), axis=0)
    return _finished(
        net, boxes=boxes, labels=labels, scores=scores, masks=net.op("Unsqueeze", masks, net.constant([1], "axes"))
    )


def _finished(net: Net, **outputs: str) -> Graph:
    graph = finish(net, **outputs)
    return frozen_norms(graph) if net.decomposed else graph


def _detect(net: Net, batch: int) -> tuple[str, str, str, tuple[str, ...]]:
    if batch != 1:
        raise UsageError(f"zoo model {net.builder.name!r} is written for one image, not for a batch of {batch}")
    x = image(net, (1, 3, _SIDE, _SIDE))
    maps = _pyramid(net, x)
    proposals = _propose(net, x, maps)
    scores, deltas = _box_head(net, pool(net, maps[:4], proposals, 7, _SIDE))
    boxes = clip(net, decode(net, deltas, proposals, (10.0, 5.0)), _SIDE)
    boxes, labels, found = select(net, boxes, scores, _DETECTIONS)
    return boxes, labels, found, maps[:4]


def _normalised(net: Net, x: str) -> str:
    """Each colour less its mean, over its deviation."""
    means, deviations = (np.array(figures, np.float32).reshape(3, 1, 1) for figures in (_MEAN, _DEVIATION))
    y = net.op("Div", net.op("Sub", x, net.constant(means, "mean")), net.constant(deviations, "deviation"))
    return net.follow(y, (x,), lambda pixels: (pixels - means) / deviations)


def _pyramid(net: Net, x: str) -> tuple[str, ...]:
    """Five maps of 256 channels, of stride 4 to 64."""
    y, stages = stem_of(net, _normalised(net, x)), []
    for stage, depth in enumerate((3, 4, 6, 3)):
        for block in range(depth):
            stride = 2 if stage and not block else 1
            y = bottleneck(net, y, f"layer{stage + 1}.{block}", 64 << stage, stride)
        stages.append(y)
    above = conv(net, stages[3], "fpn.inner.3", _WIDTH, gain=_SHARE[3])
    maps = [conv(net, above, "fpn.layer.3", _WIDTH, 3, gain=1.0)]
    for k in (2, 1, 0):
        y = conv(net, stages[k], f"fpn.inner.{k}", _WIDTH, gain=_SHARE[k])
        above = add(net, y, _widened(net, above, y))
        maps.insert(0, conv(net, above, f"fpn.layer.{k}", _WIDTH, 3, gain=1.0))
    return (*maps, max_pool(net, maps[-1], 1, stride=2))


def _widened(net: Net, x: str, like: str) -> str:
    """`x` as high and wide as `like`, each pixel repeated."""
    height, width = net.shape(like)[2:]
    if not net.decomposed:
        return upsample(net, x, (height, width), "nearest")
    sizes = row(net, [extent(net, like, 2), extent(net, like, 3)])
    begin, end, axes = net.constant([0], "starts"), net.constant([2], "ends"), net.constant([0], "axes")
    whole = net.op("Concat", net.op("Slice", net.op("Shape", x), begin, end, axes), net.op("Cast", sizes, to=7), axis=0)
    settings = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return known(net, net.op("Resize", x, None, None, whole, mode="nearest", **settings), net.shape(like))


def _per_anchor(net: Net, x: str, deltas: str) -> str:
    """Of each anchor its figures: [1, anchors * figures, height, width] to [1, height * width * anchors, figures].

    How many anchors a point has is read off its `deltas`, which are four for each.
    """
    shapes = divide(net, extent(net, deltas, 1), 4)
    batch, channels, height, width = (extent(net, x, axis) for axis in range(4))
    figures = divide(net, channels, shapes)
    y = transpose(net, view(net, x, batch, -1, figures, height, width), 0, 3, 4, 1, 2)
    return view(net, y, batch, -1, figures)


def _propose(net: Net, x: str, maps: tuple[str, ...]) -> str:
    """A thousand boxes [1000, 4] that may hold something: the best anchors of each map, decoded, the best of those."""
    objectness, deltas = [], []
    for features in maps:
        y = activate(net, conv(net, features, "rpn.conv", _WIDTH, 3), "relu")
        logits = conv(net, y, "rpn.cls_logits", _SHAPES, gain=0.15)
        moves = conv(net, y, "rpn.bbox_pred", 4 * _SHAPES, gain=0.00002)
        objectness.append(_per_anchor(net, logits, moves))
        deltas.append(_per_anchor(net, moves, moves))
    counts = [net.shape(value)[1] for value in objectness]
    every = view(net, net.op("Concat", *deltas, axis=1), -1, 4)
    boxes = decode(net, every, anchors(net, maps, x), (1.0, 1.0))
    boxes = view(net, boxes, extent(net, x, 0), -1, 4)
    scores = view(net, net.op("Concat", *objectness, axis=1), extent(net, x, 0), -1)
    index = _best(net, scores, counts)
    levels = net.constant(np.repeat(np.arange(len(maps)), counts)[None], "levels")
    boxes, scores, levels = (picked(net, value, index) for value in (boxes, scores, levels))
    axes = net.constant([0], "axes")
    boxes, scores, levels = (net.op("Squeeze", value, axes) for value in (boxes, net.op("Sigmoid", scores), levels))
    boxes = clip(net, boxes, _SIDE)
    boxes, scores, levels = kept(net, large(net, boxes, 1e-3), boxes, scores, levels)
    (found,) = first(net, suppress(net, boxes, scores, levels, 0.7), _PROPOSALS, boxes)
    return found


def _best(net: Net, scores: str, counts: list[int]) -> str:
    """Where [1, n] the best anchors of each map are among all, given all `scores` [1, anchors]."""
    parts = net.builder.op("Split", scores, net.constant(counts, "cuts"), outputs=len(counts), axis=1)
    offset, found = RuntimeExtent(0, net.constant(np.int64(0), "offset") if net.decomposed else ""), []
    for part in parts:
        count = extent(net, part, 1)
        most = min(_CANDIDATES, count.figure)
        _, index = net.builder.op("TopK", part, _at_most(net, count), outputs=2, axis=1)
        start = offset.value if net.decomposed else net.constant(np.int64(offset.figure), "offset")
        found.append(net.op("Add", known(net, index, (1, most)), start))
        offset = plus(net, offset, count)
    return net.op("Concat", *found, axis=1)


def _at_most(net: Net, count: RuntimeExtent) -> str:
    """int64 [1]: a thousand, or as many as there are."""
    if not net.decomposed:
        return net.constant([min(_CANDIDATES, count.figure)], "most")
    both = net.op("Concat", net.constant([_CANDIDATES], "most"), row(net, [count]), axis=0)
    return net.op("ReduceMin", both, net.constant([0], "axes"), keepdims=1)


def _box_head(net: Net, x: str) -> tuple[str, str]:
    """Pooled features to class scores [n, 91] and box deltas [n, 364]."""
    x = flatten(net, x)
    for k in (6, 7):
        x = activate(net, gemm(net, x, f"box_head.fc{k}", 1024, gain=2.0), "relu")
    logits = gemm(net, x, "box_predictor.cls_score", _CLASSES, gain=0.08)
    return net.op("Softmax", logits, axis=-1), gemm(net, x, "box_predictor.bbox_pred", 4 * _CLASSES, gain=0.01)
