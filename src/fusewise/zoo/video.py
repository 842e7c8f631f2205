"""Video: convolutions over time as well as space, clips of 16 frames.

D. Tran et al., "Learning Spatiotemporal Features with 3D Convolutional Networks", ICCV 2015 (C3D); S. Xie et al.,
"Rethinking Spatiotemporal Feature Learning", ECCV 2018 (S3D).
"""

from __future__ import annotations

from fusewise.ir.graph import Graph
from fusewise.zoo.activations import activate
from fusewise.zoo.blocks import conv_bn
from fusewise.zoo.layers import ConvWindow, Size, average_pool, concat, conv, flatten, gemm, max_pool
from fusewise.zoo.net import Net, finish, image

__all__ = ["c3d", "s3d"]

_C3D = ((64, 1), (128, 1), (256, 2), (512, 2), (512, 2))  # channels, convolutions


def c3d(net: Net, batch: int) -> Graph:
    """C3D with the 487 classes of Sports-1M."""
    x = net.builder.input("x", (batch, 3, 16, 112, 112))
    for stage, (channels, depth) in enumerate(_C3D):
        for layer in range(depth):
            x = activate(net, conv(net, x, f"conv{stage + 1}.{layer}", channels, 3), "relu")
        last = stage == len(_C3D) - 1
        x = max_pool(net, x, (2, 2, 2) if stage else (1, 2, 2), padding=(0, 1, 1) if last else 0)
    x = flatten(net, x)
    for layer in (6, 7):
        x = activate(net, gemm(net, x, f"fc{layer}", 4096, gain=2.0), "relu")
    return finish(net, logits=gemm(net, x, "fc8", 487))


_EPSILON = 1e-3
_S3D = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)  # of each block: channels of the 1x1, narrow and wide of two separable branches, of the pooled branch


def s3d(net: Net, batch: int, *, size: int = 112) -> Graph:
    """S3D with the 400 classes of Kinetics, as torchvision has it; `size` pixels a side."""
    x = image(net, (batch, 3, 16, size, size))
    x = max_pool(net, _separable(net, x, "stem.0", 64, 7, stride=2), (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))
    x = _separable(net, _unit(net, x, "stem.1", 64), "stem.2", 192, 3)
    pools: tuple[tuple[Size, Size, Size], ...] = (((1, 3, 3), (1, 2, 2), (0, 1, 1)), (3, 2, 1), (2, 2, 0))
    for stage, (blocks, (kernel, stride, padding)) in enumerate(zip(_S3D, pools, strict=True)):
        x = max_pool(net, x, kernel, stride=stride, padding=padding)
        for block, widths in enumerate(blocks):
            x = _inception(net, x, f"features.{stage}.{block}", widths)
    _, _, _, height, width = net.shape(x)
    x = conv(net, average_pool(net, x, (2, height, width)), "classifier", 400, 1)
    axes = net.constant([2, 3, 4], "axes")
    return finish(net, logits=net.op("ReduceMean", x, axes, keepdims=0))


def _unit(net: Net, x: str, name: str, channels: int) -> str:
    return conv_bn(net, x, name, channels, 1, epsilon=_EPSILON)


def _separable(net: Net, x: str, name: str, channels: int, kernel: int, *, stride: int = 1) -> str:
    """A convolution over space, then one over time."""
    x = conv_bn(
        net, x, f"{name}.space", channels, ConvWindow((1, kernel, kernel), stride=(1, stride, stride)), epsilon=_EPSILON
    )
    return conv_bn(
        net, x, f"{name}.time", channels, ConvWindow((kernel, 1, 1), stride=(stride, 1, 1)), epsilon=_EPSILON
    )


def _inception(net: Net, x: str, name: str, widths: tuple[int, ...]) -> str:
    point, narrow_a, wide_a, narrow_b, wide_b, pooled = widths
    return concat(
        net,
        _unit(net, x, f"{name}.0", point),
        _separable(net, _unit(net, x, f"{name}.1", narrow_a), f"{name}.1", wide_a, 3),
        _separable(net, _unit(net, x, f"{name}.2", narrow_b), f"{name}.2", wide_b, 3),
        _unit(net, max_pool(net, x, 3, stride=1, padding=1), f"{name}.3", pooled),
    )
