"""The MobileNets: depthwise convolutions between pointwise ones.

A. Howard et al., "MobileNets", arXiv 1704.04861; M. Sandler et al., "MobileNetV2: Inverted Residuals and Linear
Bottlenecks", CVPR 2018; A. Howard et al., "Searching for MobileNetV3", ICCV 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusewise.ir.graph import Graph
from fusewise.zoo.activations import activate
from fusewise.zoo.blocks import classify, conv_bn, round_channels, squeeze_excite
from fusewise.zoo.layers import ConvWindow, add, flatten, gemm, global_average
from fusewise.zoo.net import Net, finish, image

__all__ = [
    "LARGE",
    "SMALL",
    "Bneck",
    "mobilenet_v1",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "mobilenet_v3_small",
    "v1_features",
    "v3_features",
]

_V1 = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
    (512, 1), (512, 1), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # channels, stride  # fmt: skip


def v1_features(net: Net, x: str) -> tuple[str, str]:
    """MobileNetV1 up to its last map; gives that of stride 16 and that of stride 32."""
    x = middle = conv_bn(net, x, "stem", 32, ConvWindow(3, stride=2), activation="relu6")
    for k, (channels, stride) in enumerate(_V1):
        if stride == 2:
            middle = x
        width = net.shape(x)[1]
        x = conv_bn(
            net, x, f"features.{k}.depthwise", width, ConvWindow(3, stride=stride, groups=width), activation="relu6"
        )
        x = conv_bn(net, x, f"features.{k}.pointwise", channels, 1, activation="relu6")
    return middle, x


def mobilenet_v1(net: Net, batch: int) -> Graph:
    _, x = v1_features(net, image(net, (batch, 3, 224, 224)))
    return finish(net, logits=classify(net, x, "classifier"))


_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
# expansion, channels, blocks, stride of the first


def mobilenet_v2(net: Net, batch: int) -> Graph:
    x = image(net, (batch, 3, 224, 224))
    x = conv_bn(net, x, "features.0", 32, ConvWindow(3, stride=2), activation="relu6")
    index = 1
    for expansion, channels, blocks, first in _V2:
        for block in range(blocks):
            x = _inverted_residual(net, x, f"features.{index}", expansion, channels, 1 if block else first)
            index += 1
    x = conv_bn(net, x, f"features.{index}", 1280, 1, activation="relu6")
    return finish(net, logits=classify(net, x, "classifier"))


def _inverted_residual(net: Net, x: str, name: str, expansion: int, channels: int, stride: int) -> str:
    narrow = net.shape(x)[1]
    wide, y = narrow * expansion, x
    if expansion > 1:
        y = conv_bn(net, y, f"{name}.expand", wide, 1, activation="relu6")
    y = conv_bn(net, y, f"{name}.depthwise", wide, ConvWindow(3, stride=stride, groups=wide), activation="relu6")
    y = conv_bn(net, y, f"{name}.project", channels, 1, activation=None)
    return add(net, x, y) if stride == 1 and channels == narrow else y


@dataclass(frozen=True, slots=True)
class Bneck:
    """A row of MobileNetV3's tables 1 and 2."""

    kernel: int
    expanded: int
    channels: int
    excite: bool
    activation: str
    stride: int = 1
    dilation: int = 1


_RE, _HS = "relu", "hard_swish"

LARGE = (
    Bneck(3, 16, 16, False, _RE),
    Bneck(3, 64, 24, False, _RE, 2),
    Bneck(3, 72, 24, False, _RE),
    Bneck(5, 72, 40, True, _RE, 2),
    Bneck(5, 120, 40, True, _RE),
    Bneck(5, 120, 40, True, _RE),
    Bneck(3, 240, 80, False, _HS, 2),
    Bneck(3, 200, 80, False, _HS),
    Bneck(3, 184, 80, False, _HS),
    Bneck(3, 184, 80, False, _HS),
    Bneck(3, 480, 112, True, _HS),
    Bneck(3, 672, 112, True, _HS),
    Bneck(5, 672, 160, True, _HS, 2),
    Bneck(5, 960, 160, True, _HS),
    Bneck(5, 960, 160, True, _HS),
)

SMALL = (
    Bneck(3, 16, 16, True, _RE, 2),
    Bneck(3, 72, 24, False, _RE, 2),
    Bneck(3, 88, 24, False, _RE),
    Bneck(5, 96, 40, True, _HS, 2),
    Bneck(5, 240, 40, True, _HS),
    Bneck(5, 240, 40, True, _HS),
    Bneck(5, 120, 48, True, _HS),
    Bneck(5, 144, 48, True, _HS),
    Bneck(5, 288, 96, True, _HS, 2),
    Bneck(5, 576, 96, True, _HS),
    Bneck(5, 576, 96, True, _HS),
)

_EPSILON = 1e-3  # of MobileNetV3's batch normalisation


def v3_features(net: Net, x: str, rows: tuple[Bneck, ...]) -> str:
    """Stem, the blocks of `rows`, and a last pointwise convolution to six times the channels."""
    x = conv_bn(net, x, "features.0", 16, ConvWindow(3, stride=2), activation=_HS, epsilon=_EPSILON)
    for k, row in enumerate(rows):
        x = _bneck(net, x, f"features.{k + 1}", row)
    last = 6 * rows[-1].channels
    return conv_bn(net, x, f"features.{len(rows) + 1}", last, 1, activation=_HS, epsilon=_EPSILON)


def _bneck(net: Net, x: str, name: str, row: Bneck) -> str:
    narrow, wide, y = net.shape(x)[1], row.expanded, x
    if wide != narrow:
        y = conv_bn(net, y, f"{name}.expand", wide, 1, activation=row.activation, epsilon=_EPSILON)
    window = ConvWindow(row.kernel, stride=row.stride, dilation=row.dilation, groups=wide)
    y = conv_bn(net, y, f"{name}.depthwise", wide, window, activation=row.activation, epsilon=_EPSILON)
    if row.excite:
        y = squeeze_excite(net, y, f"{name}.se", round_channels(wide / 4), inner="relu", gate="hard_sigmoid")
    y = conv_bn(net, y, f"{name}.project", row.channels, 1, activation=None, epsilon=_EPSILON)
    return add(net, x, y) if row.stride == 1 and row.channels == narrow else y


def _v3(net: Net, batch: int, rows: tuple[Bneck, ...], hidden: int) -> Graph:
    x = v3_features(net, image(net, (batch, 3, 224, 224)), rows)
    x = activate(net, gemm(net, flatten(net, global_average(net, x)), "classifier.0", hidden), _HS)
    return finish(net, logits=gemm(net, x, "classifier.1", 1000))


def mobilenet_v3_small(net: Net, batch: int) -> Graph:
    return _v3(net, batch, SMALL, 1024)


def mobilenet_v3_large(net: Net, batch: int) -> Graph:
    return _v3(net, batch, LARGE, 1280)
