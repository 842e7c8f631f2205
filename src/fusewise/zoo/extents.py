"""Sizes of axes as an exporter with free axes writes them: read from the tensor at run time, and computed with.

PyTorch traces `x.size(0)` as Shape and Gather, `x.size(-1) // 12` as a Div and more on top, and `x.view(x.size(0), -1, 64)`
as an Unsqueeze for each such figure, a Concat with the rest, and the Reshape. A network that is not `decomposed` has none of
these nodes: there a size is a number. Both forms have the same shapes, which are all known when the graph is written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusewise.ir.types import TensorType
from fusewise.zoo.net import Net

__all__ = ["RuntimeExtent", "counted", "divide", "extent", "known", "minus", "plus", "product", "rest", "row", "view"]

_FLOAT, _INT64 = 1, 7  # ONNX's numbers for the types


@dataclass(frozen=True, slots=True)
class RuntimeExtent:
    """A size: its figure, and the int64 scalar that holds it at run time.

    `value` is empty in a network that is not decomposed, and None for a size that Reshape works out itself.
    """

    figure: int
    value: str | None = ""


def extent(net: Net, x: str, axis: int) -> RuntimeExtent:
    """The length of an axis of `x`: Shape and Gather."""
    figure = net.shape(x)[axis]
    if not net.decomposed:
        return RuntimeExtent(figure)
    index = net.constant(np.int64(axis % len(net.shape(x))), "axis")
    return RuntimeExtent(figure, net.op("Gather", net.op("Shape", x), index, axis=0))


def rest(figure: int) -> RuntimeExtent:
    """The size that is left over, -1 in a decomposed network."""
    return RuntimeExtent(figure, None)


def divide(net: Net, dividend: RuntimeExtent, divisor: RuntimeExtent | int) -> RuntimeExtent:
    """Floor division, which tracers wrote on float32 numbers: Cast, Div, Floor, Cast."""
    figure = dividend.figure // (divisor if isinstance(divisor, int) else divisor.figure)
    if not net.decomposed:
        return RuntimeExtent(figure)
    if isinstance(divisor, int):
        other = net.constant(float(divisor), "divisor")
    else:
        other = net.op("Cast", divisor.value, to=_FLOAT)
    quotient = net.op("Div", net.op("Cast", dividend.value, to=_FLOAT), other)
    return RuntimeExtent(figure, net.op("Cast", net.op("Floor", quotient), to=_INT64))


def product(net: Net, first: RuntimeExtent, second: RuntimeExtent) -> RuntimeExtent:
    return RuntimeExtent(first.figure * second.figure, _both(net, "Mul", first, second))


def plus(net: Net, first: RuntimeExtent, second: RuntimeExtent) -> RuntimeExtent:
    return RuntimeExtent(first.figure + second.figure, _both(net, "Add", first, second))


def counted(net: Net, count: RuntimeExtent) -> str:
    """0, 1, 2, ... int64 [count], in a decomposed network: Range."""
    zero, one = net.constant(np.int64(0), "zero"), net.constant(np.int64(1), "one")
    return known(net, net.op("Range", zero, count.value, one), (count.figure,))


def minus(net: Net, first: RuntimeExtent, second: RuntimeExtent) -> RuntimeExtent:
    return RuntimeExtent(first.figure - second.figure, _both(net, "Sub", first, second))


def _both(net: Net, kind: str, first: RuntimeExtent, second: RuntimeExtent) -> str:
    return net.op(kind, first.value, second.value) if net.decomposed else ""


def row(net: Net, sizes: Sequence[RuntimeExtent | int], *, folded: bool = True) -> str:
    """An int64 vector of sizes: one constant, or an Unsqueeze for each that is read and a Concat.

    An exporter that does not fold constants unsqueezes those too: `folded` False.
    """
    if not net.decomposed:
        return net.constant([part if isinstance(part, int) else part.figure for part in sizes], "shape")
    parts = []
    for part in sizes:
        fixed = part if isinstance(part, int) else -1
        if isinstance(part, RuntimeExtent) and part.value is not None:
            parts.append(net.op("Unsqueeze", part.value, net.constant([0], "axes")))
        elif folded:
            parts.append(net.constant([fixed], "figure"))
        else:
            parts.append(net.op("Unsqueeze", net.constant(np.int64(fixed), "figure"), net.constant([0], "axes")))
    return net.op("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]


def view(net: Net, x: str, *sizes: RuntimeExtent | int, folded: bool = True) -> str:
    """`x` in another shape, as `Tensor.view` gives it."""
    dims = [part if isinstance(part, int) else part.figure for part in sizes]
    if -1 in dims:
        dims[dims.index(-1)] = math.prod(net.shape(x)) // -math.prod(dims)
    return known(net, net.op("Reshape", x, row(net, sizes, folded=folded)), tuple(dims))


def known(net: Net, x: str, dims: tuple[int, ...]) -> str:
    """State the shape of `x`, which its operands do not tell before they are computed."""
    kind = net.builder.types[x]
    assert isinstance(kind, TensorType)
    if not kind.is_static:
        net.builder.types[x] = TensorType(kind.dtype, dims)
    return x
