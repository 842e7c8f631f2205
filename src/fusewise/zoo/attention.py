"""Multi-head attention and the feed-forward block, spelled out with products, reshapes and a softmax.

A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fusewise.records import record
from fusewise.zoo.activations import activate
from fusewise.zoo.extents import RuntimeExtent, divide, extent, product, view
from fusewise.zoo.layers import linear, transpose
from fusewise.zoo.net import Net

__all__ = ["LOWEST", "AttentionStyle", "additive_mask", "attend", "feed_forward", "self_attention"]

LOWEST = -3.4028234663852886e38  # the lowest finite float32


def additive_mask(net: Net, mask: str) -> str:
    """An int64 mask [batch, tokens] of ones and zeros as float32 [batch, 1, 1, tokens]: 0 keeps, the lowest drops."""
    row = net.op("Unsqueeze", net.op("Unsqueeze", mask, net.constant([1], "axes")), net.constant([2], "axes"))
    dropped = net.op("Sub", net.constant(1.0, "one"), net.op("Cast", row, to=1))
    return net.op("Mul", dropped, net.constant(LOWEST, "lowest"))


@record(frozen=True)
class AttentionStyle:
    """How a model's code writes attention.

    `scale_query` divides the query instead of the scores by the root of the head's size. Of the form with sizes read at run
    time: `sizes` are batch and tokens where the code reads them once, and not again for every value it takes apart; with
    `reads_width` it reads the width too, works out the size of a head and its root, and is exported without folding constants.
    """

    scale_query: bool = False
    sizes: tuple[RuntimeExtent, RuntimeExtent] | None = None
    reads_width: bool = False


_PLAIN = AttentionStyle()


def attend(
    net: Net,
    query: str,
    key: str,
    value: str,
    heads: int,
    *,
    masked: Callable[[str], str] | None = None,
    style: AttentionStyle = _PLAIN,
) -> str:
    """Scaled dot-product attention of projected [batch, tokens, width] values.

    `masked` turns scores [batch, heads, tokens, tokens] into masked ones.
    """
    width = net.shape(query)[2]
    reads_root = style.reads_width and net.decomposed
    root = "" if reads_root else net.constant(math.sqrt(width // heads), "root")
    if style.scale_query:
        query = net.op("Div", query, root)
    q = transpose(net, _parted(net, query, heads, style), 0, 2, 1, 3)
    k = transpose(net, _parted(net, key, heads, style), 0, 2, 3, 1)
    v = transpose(net, _parted(net, value, heads, style), 0, 2, 1, 3)
    scores = net.op("MatMul", q, k)
    if reads_root:
        root = net.op("Sqrt", net.op("Cast", extent(net, v, 3).value, to=1))
    if not style.scale_query:
        scores = net.op("Div", scores, root)
    weights = net.op("Softmax", scores if masked is None else masked(scores), axis=-1)
    context = transpose(net, net.op("MatMul", weights, v), 0, 2, 1, 3)
    last: RuntimeExtent | int = math.prod(net.shape(context)[2:])
    if style.reads_width:
        last = product(net, extent(net, context, 2), extent(net, context, 3))
    return view(net, context, *(style.sizes or _leading(net, context)), last)


def _leading(net: Net, x: str) -> tuple[RuntimeExtent, RuntimeExtent]:
    """`x.size()[:2]`."""
    return extent(net, x, 0), extent(net, x, 1)


def _parted(net: Net, x: str, heads: int, style: AttentionStyle) -> str:
    """[batch, tokens, width] to [batch, tokens, heads, width / heads]."""
    leading = style.sizes or _leading(net, x)
    if style.reads_width:
        return view(net, x, *leading, heads, divide(net, extent(net, x, 2), heads), folded=False)
    return view(net, x, *leading, heads, net.shape(x)[2] // heads)


def self_attention(
    net: Net,
    x: str,
    name: str,
    heads: int,
    *,
    masked: Callable[[str], str] | None = None,
    scale_query: bool = False,
    sizes: tuple[RuntimeExtent, RuntimeExtent] | None = None,
) -> str:
    """Query, key and value by three products, attention, and the output's product."""
    width = net.shape(x)[-1]
    query, key, value = (linear(net, x, f"{name}.{part}", width) for part in ("query", "key", "value"))
    context = attend(net, query, key, value, heads, masked=masked, style=AttentionStyle(scale_query, sizes))
    return linear(net, context, f"{name}.output", width)


def feed_forward(net: Net, x: str, name: str, hidden: int, activation: str = "gelu") -> str:
    """Two products with an activation between."""
    inner = activate(net, linear(net, x, f"{name}.intermediate", hidden), activation)
    return linear(net, inner, f"{name}.output", net.shape(x)[-1])
