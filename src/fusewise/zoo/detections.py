"""The last step of a two-stage detector: which boxes of which classes were found.

Class by class, boxes that are sure and not too small are taken, and of those that overlap the best. Done for all classes
at once this takes a few operators. Exporters of 2020 traced a loop over the classes, and wrote it out once for each:
that is half of all operators of a detector they exported.
"""

from __future__ import annotations

import numpy as np

from fusewise.ir.graph import Constant
from fusewise.zoo.boxes import column, first, found_by, kept, large, lengths, suppress, where
from fusewise.zoo.extents import known
from fusewise.zoo.layers import reshape
from fusewise.zoo.net import Net

__all__ = ["select"]

_SURE, _LEAST, _OVERLAP = 0.05, 1e-2, 0.5


def select(net: Net, boxes: str, scores: str, count: int) -> tuple[str, str, str]:
    """Boxes [count, 4], labels int64 [count] and scores [count] of what was found, the best first, zeros behind it.

    `boxes` [n, classes, 4] and `scores` [n, classes] are for every proposal and class; class 0 is the background.
    """
    parts = _class_by_class(net, boxes, scores, count) if net.decomposed else _at_once(net, boxes, scores)
    index, *values = parts
    found = first(net, index, count, *values)
    return found[0], found[1], found[2]


def _at_once(net: Net, boxes: str, scores: str) -> tuple[str, ...]:
    """Places of what stays, best first, and boxes, labels and scores that it counts in."""
    proposals, classes = net.shape(scores)
    labels = net.op("Expand", net.constant(np.arange(classes), "label"), net.constant([proposals, classes], "shape"))
    begin, end, axes = net.constant([1], "starts"), net.constant([classes], "ends"), net.constant([1], "axes")
    boxes, scores, labels = (net.op("Slice", value, begin, end, axes) for value in (boxes, scores, labels))
    boxes, scores, labels = reshape(net, boxes, -1, 4), reshape(net, scores, -1), reshape(net, labels, -1)
    sure = where(net, net.op("Greater", scores, net.constant(_SURE, "least")))
    boxes, scores, labels = kept(net, sure, boxes, scores, labels)
    boxes, scores, labels = kept(net, large(net, boxes, _LEAST), boxes, scores, labels)
    return suppress(net, boxes, scores, labels, _OVERLAP), boxes, labels, scores


def _class_by_class(net: Net, boxes: str, scores: str, count: int) -> tuple[str, ...]:
    """The same with a search of its own for every class."""
    wide, high = (net.op("GreaterOrEqual", length, net.constant(_LEAST, "least")) for length in lengths(net, boxes))
    sure = net.op("And", net.op("Greater", scores, net.constant(_SURE, "least")), net.op("And", wide, high))
    every: list[tuple[str, ...]] = []
    for label in range(1, net.shape(scores)[1]):
        index = where(net, column(net, sure, label))
        mine = net.op("Gather", boxes, net.constant(np.int64(label), "label"), axis=1)
        mine, sures = kept(net, index, mine, column(net, scores, label))
        best = kept(net, found_by(net, mine, sures, _OVERLAP), mine, sures)
        value = Constant(np.array([label]))
        every.append((best[0], net.op("ConstantOfShape", net.op("Shape", best[1]), value=value), best[1]))
    boxes, labels, scores = (net.op("Concat", *parts, axis=0) for parts in zip(*every, strict=True))
    most = net.op("Concat", net.op("Shape", scores), net.constant([count], "most"), axis=0)
    most = known(net, net.op("ReduceMin", most, net.constant([0], "axes"), keepdims=1), (1,))
    _, index = net.builder.op("TopK", scores, most, outputs=2, axis=0)
    return index, boxes, labels, scores
