"""Blocks that several convolutional families share: convolution with normalisation, and squeeze-and-excitation."""

from __future__ import annotations

from fusewise.zoo.activations import activate
from fusewise.zoo.layers import ConvWindow, Size, batch_norm, conv, flatten, gemm, global_average, mul
from fusewise.zoo.net import Net

__all__ = ["classify", "conv_bn", "round_channels", "squeeze_excite"]


def conv_bn(
    net: Net,
    x: str,
    name: str,
    channels: int,
    window: Size | ConvWindow = 1,
    *,
    activation: str | None = "relu",
    epsilon: float = 1e-5,
) -> str:
    """Convolution without bias, batch normalisation, activation: three nodes, none folded."""
    y = batch_norm(net, conv(net, x, f"{name}.conv", channels, window, bias=False), f"{name}.bn", epsilon=epsilon)
    return activate(net, y, activation)


def squeeze_excite(net: Net, x: str, name: str, squeezed: int, *, inner: str, gate: str) -> str:
    """Scale each channel of `x` by a figure from 0 to 1 that follows from all channels' means.

    J. Hu et al., "Squeeze-and-Excitation Networks", CVPR 2018.
    """
    channels = net.shape(x)[1]
    y = activate(net, conv(net, global_average(net, x), f"{name}.fc1", squeezed), inner)
    y = activate(net, conv(net, y, f"{name}.fc2", channels), gate)
    return mul(net, x, y)


def classify(net: Net, x: str, name: str, classes: int = 1000) -> str:
    """Global average, flatten, one fully connected layer."""
    return gemm(net, flatten(net, global_average(net, x)), name, classes)


def round_channels(channels: float, divisor: int = 8) -> int:
    """The nearest multiple of `divisor`, never more than a tenth below: the MobileNets' rule for scaled widths."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded
