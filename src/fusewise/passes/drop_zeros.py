"""Remove sums with zeros, and filter taps that only meet zeros. Numeric class reassociating: -0.0 may become 0.0."""

from __future__ import annotations

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.trace import Trace

__all__ = ["RULES", "drop_zeros"]


def drop_zeros(graph: Graph, trace: Trace) -> Graph:
    """A float sum or difference with zeros goes, and so do the outer taps of a filter that no output ever places on the image.

    b = Add(x, 0.0)   ->   b = x
    y = Conv(x: [1, C, 33, 33], w: [K, C, 3, 3]) {dilations=[36, 36], pads=[36, 36, 36, 36]}   ->   y = Conv(x, w[:, :, 1:2, 1:2])

    Refused: the padding is chosen by the operator (`auto_pad`), or would have to be negative without the taps.
    """
    return sweep(graph, trace, RULES)


def _zero(edit: Edit, node: Node) -> Change | None:
    for i in (1, 0) if node.op == "Add" else (1,):
        array, other = edit.array(node.inputs[i]), node.inputs[1 - i]
        if array is None or array.size == 0 or array.dtype == object or np.any(array != 0):
            continue
        if edit.same_type(other, node.outputs[0]):
            return Change((node,), "adds zeros", same={node.outputs[0]: other})
    return None


def _padded_taps(edit: Edit, node: Node) -> Change | None:
    image, weight, result = (edit.static(value) for value in (*node.inputs[:2], node.outputs[0]))
    pads = node.attribute("pads", ())
    if image is None or weight is None or result is None or not any(pads) or 0 in (*image.dims, *result.dims):
        return None
    if node.attribute("auto_pad", "NOTSET") != "NOTSET":
        return None
    if not all(isinstance(size, int) for kind in (image, result, weight) for size in kind.dims[2:]):
        return None
    rank = image.rank - 2
    strides, dilations = (node.attribute(name, (1,) * rank) for name in ("strides", "dilations"))
    axes = list(zip(image.dims[2:], result.dims[2:], weight.dims[2:], strides, dilations, pads[:rank], strict=True))
    kept = [_kept(*axis) for axis in axes]
    if all(last - first + 1 == axis[2] for (first, last), axis in zip(kept, axes, strict=True)):
        return None
    before = [axis[5] - first * axis[4] for (first, _), axis in zip(kept, axes, strict=True)]
    after = [
        (out - 1) * stride + (last - first) * dilation + 1 - extent - padding
        for (first, last), (extent, out, _, stride, dilation, _), padding in zip(kept, axes, before, strict=True)
    ]
    array = None if min(*before, *after, 0) < 0 else edit.array(node.inputs[1])
    if array is None:
        return None
    inner = tuple(slice(first, last + 1) for first, last in kept)
    taps = edit.constant(np.ascontiguousarray(array[(slice(None), slice(None), *inner)]), node.inputs[1])
    smaller = node.with_inputs((node.inputs[0], taps, *node.inputs[2:]))
    shape = None if node.attribute("kernel_shape") is None else [last - first + 1 for first, last in kept]
    return Change(
        (node,), "taps meet zeros only", (smaller.with_attributes(pads=[*before, *after], kernel_shape=shape),)
    )


def _kept(extent: int, out: int, kernel: int, stride: int, dilation: int, before: int) -> tuple[int, int]:
    """The first and the last tap along an axis that some output places inside the image; all of them if there is none."""

    def meets(tap: int) -> bool:
        offset = tap * dilation - before
        first = max(0, -(offset // stride))  # the first output that does not place it before the image
        return first < out and first * stride + offset < extent

    found = [tap for tap in range(kernel) if meets(tap)]
    return (found[0], found[-1]) if found else (0, kernel - 1)


RULES: tuple[LocalRule, ...] = (
    LocalRule("drop-zero-term", ("Add", "Sub"), _zero),
    LocalRule("drop-padded-taps", ("Conv",), _padded_taps),
)
