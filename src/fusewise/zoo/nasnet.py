"""NASNet-A (4 @ 1056), the mobile form: cells found by search, each reading the two cells before it.

B. Zoph et al., "Learning Transferable Architectures for Scalable Image Recognition", CVPR 2018. Cells, widths and the first two,
shrinking stem cells are those of the published weights' PyTorch port (Cadene's pretrained models); paddings are symmetric.
"""

from __future__ import annotations

from fusewise.ir.graph import Graph
from fusewise.zoo.activations import activate
from fusewise.zoo.blocks import classify, conv_bn
from fusewise.zoo.layers import ConvWindow, add, average_pool, batch_norm, concat, conv, max_pool
from fusewise.zoo.net import Net, finish, image

__all__ = ["nasnet_a_mobile"]

_EPSILON, _FILTERS, _REPEATS = 1e-3, 44, 3


def nasnet_a_mobile(net: Net, batch: int) -> Graph:
    x = image(net, (batch, 3, 224, 224))
    stem = conv_bn(net, x, "conv0", 32, ConvWindow(3, stride=2, padding=0), activation=None, epsilon=_EPSILON)
    first = _shrink(net, _squeeze(net, stem, "stem0.1x1", _FILTERS // 4), stem, "stem0", _FILTERS // 4)
    left = _squeeze(net, first, "stem1.1x1", _FILTERS // 2)
    right = _halve(net, stem, "stem1.halve", _FILTERS // 2)
    before, x = first, _shrink(net, left, right, "stem1", _FILTERS // 2)
    for stage, times in enumerate((1, 2, 4)):
        width = _FILTERS * times
        if stage:
            # The reduction reads both last cells; the first normal cell after it reads one of them at twice the resolution.
            name = f"reduction{stage}"
            right, left = _squeeze(net, x, f"{name}.1x1", width), _squeeze(net, before, f"{name}.prev", width)
            before, x = x, _shrink(net, right, left, name, width)
        for cell in range(_REPEATS + 1):
            name = f"stage{stage}.{cell}"
            previous = _halve(net, before, f"{name}.halve", width) if cell == 0 else None
            previous = previous or _squeeze(net, before, f"{name}.prev", width)
            before, x = x, _normal(net, _squeeze(net, x, f"{name}.1x1", width), previous, name, width)
    return finish(net, logits=classify(net, activate(net, x, "relu"), "last_linear"))


def _squeeze(net: Net, x: str, name: str, width: int) -> str:
    return conv_bn(net, activate(net, x, "relu"), name, width, 1, activation=None, epsilon=_EPSILON)


def _halve(net: Net, x: str, name: str, width: int) -> str:
    """Half the resolution: every second pixel, and every second pixel from the next one on, half of the channels each."""
    x = activate(net, x, "relu")
    _, _, height, side = net.shape(x)
    even = conv(net, average_pool(net, x, 1, stride=2), f"{name}.1", width // 2, 1, bias=False)
    moved = net.op("Pad", x, net.constant([0, 0, 0, 0, 0, 0, 1, 1], "pads"))
    starts, ends, axes = ([1, 1], [height + 1, side + 1], [2, 3])
    moved = net.op("Slice", moved, *(net.constant(one, "slice") for one in (starts, ends, axes)))
    net.follow(moved, (x,), lambda pixels: pixels)
    odd = conv(net, average_pool(net, moved, 1, stride=2), f"{name}.2", width - width // 2, 1, bias=False)
    return batch_norm(net, concat(net, even, odd), f"{name}.bn", epsilon=_EPSILON)


def _separable(net: Net, x: str, name: str, width: int, kernel: int, stride: int = 1) -> str:
    """ReLU, depthwise, pointwise, normalisation: twice, the first time with the stride."""
    for turn, step in (("1", stride), ("2", 1)):
        channels = net.shape(x)[1]
        # The stem's branches widen in their first half, all others keep their width anyhow.
        x = activate(net, x, "relu")
        x = conv(
            net,
            x,
            f"{name}.{turn}.depth",
            channels,
            ConvWindow(kernel, stride=step, groups=channels),
            bias=False,
            gain=1.0,
        )
        x = conv_bn(net, x, f"{name}.{turn}.point", width, 1, activation=None, epsilon=_EPSILON)
    return x


def _normal(net: Net, x: str, previous: str, name: str, width: int) -> str:
    """Five sums of two branches, side by side with the cell before the last."""

    def separable(value: str, branch: str, kernel: int) -> str:
        return _separable(net, value, f"{name}.{branch}", width, kernel)

    mean = average_pool(net, previous, 3, padding=1)
    sums = (
        add(net, separable(x, "0.left", 5), separable(previous, "0.right", 3)),
        add(net, separable(previous, "1.left", 5), separable(previous, "1.right", 3)),
        add(net, average_pool(net, x, 3, padding=1), previous),
        add(net, mean, mean),
        add(net, separable(x, "4.left", 3), x),
    )
    return concat(net, previous, *sums)


def _shrink(net: Net, x: str, other: str, name: str, width: int) -> str:
    """The reduction cell: `x` and `other` at half the resolution."""

    def separable(value: str, branch: str, kernel: int, stride: int = 2) -> str:
        return _separable(net, value, f"{name}.{branch}", width, kernel, stride)

    highest = max_pool(net, x, 3, stride=2, padding=1)
    first = add(net, separable(x, "0.left", 5), separable(other, "0.right", 7))
    second = add(net, highest, separable(other, "1.right", 7))
    third = add(net, average_pool(net, x, 3, stride=2, padding=1), separable(other, "2.right", 5))
    fourth = add(net, average_pool(net, first, 3, padding=1), second)
    fifth = add(net, separable(first, "4.left", 3, 1), highest)
    return concat(net, second, third, fourth, fifth)
