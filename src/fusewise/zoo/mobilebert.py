"""MobileBERT: a deep, thin BERT; every layer works at width 128 between two bottlenecks, as `transformers` computes it.

Z. Sun et al., "MobileBERT: a Compact Task-Agnostic BERT for Resource-Limited Devices", ACL 2020.
"""

from __future__ import annotations

import math

from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Graph
from fusewise.zoo.attention import additive_mask, attend, feed_forward
from fusewise.zoo.bert import TOKENS, embed, first_token, position_ids
from fusewise.zoo.layers import add, linear, mul
from fusewise.zoo.net import Net, finish, weight

__all__ = ["mobilebert"]

_VOCABULARY, _POSITIONS = 30522, 512
_LAYERS, _HEADS, _WIDTH, _NARROW, _HIDDEN = 24, 4, 512, 128, 512


def mobilebert(net: Net, batch: int) -> Graph:
    """MobileBERT uncased; the pooled output is the first token as it is, as in the published checkpoint."""
    ids, mask, types = (
        net.builder.input(name, (batch, TOKENS), INT64) for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    x = _embeddings(net, ids, types)
    bias = additive_mask(net, mask)
    for k in range(_LAYERS):
        x = _layer(net, x, f"layer.{k}", bias)
    return finish(net, last_hidden_state=x, pooler_output=first_token(net, x))


def _embeddings(net: Net, ids: str, types: str) -> str:
    """Each word beside its two neighbours, projected; then positions and types."""
    words = embed(net, ids, "embeddings.word", _VOCABULARY, _NARROW)
    following, preceding = (_shifted(net, words, *edge) for edge in ((1, TOKENS, 0, 1), (0, TOKENS - 1, 1, 0)))
    x = linear(net, net.op("Concat", following, words, preceding, axis=2), "embeddings.projection", _WIDTH)
    x = add(net, x, embed(net, position_ids(net, ids), "embeddings.position", _POSITIONS, _WIDTH))
    return _affine(net, add(net, x, embed(net, types, "embeddings.token_type", 2, _WIDTH)), "embeddings.norm", 1.0)


def _shifted(net: Net, x: str, start: int, stop: int, before: int, after: int) -> str:
    """Tokens `start` to `stop` with rows of zeros before and after."""
    cut = net.op(
        "Slice", x, net.constant([start], "starts"), net.constant([stop], "ends"), net.constant([1], "axes")
    )  # fmt: skip
    return net.op("Pad", cut, net.constant([0, before, 0, 0, after, 0], "pads"), net.constant(0.0, "zero"))


def _affine(net: Net, x: str, name: str, power: float) -> str:
    """A scale and an offset for each feature, which MobileBERT has in place of layer normalisation.

    `power` is the expected square of an element of `x`. The scale divides by its root, since nothing else keeps two
    dozen layers of sums from growing.
    """
    width, scale = net.shape(x)[-1], 1 / math.sqrt(power)
    scaled = mul(net, x, weight(net, f"{name}.weight", (width,), 0.05 * scale, scale))
    return add(net, scaled, weight(net, f"{name}.bias", (width,), 0.05))


def _layer(net: Net, x: str, name: str, bias: str) -> str:
    narrow = _affine(net, linear(net, x, f"{name}.bottleneck.input", _NARROW), f"{name}.bottleneck.input.norm", 1.0)
    shared = linear(net, x, f"{name}.bottleneck.attention", _NARROW)
    shared = _affine(net, shared, f"{name}.bottleneck.attention.norm", 1.0)
    query, key = (linear(net, shared, f"{name}.attention.{part}", _NARROW) for part in ("query", "key"))
    value = linear(net, x, f"{name}.attention.value", _NARROW)
    y = attend(net, query, key, value, _HEADS, masked=lambda scores: net.op("Add", scores, bias))
    y = linear(net, y, f"{name}.attention.output", _NARROW)
    y = _affine(net, add(net, y, narrow), f"{name}.attention.norm", 2.0)
    for k in range(4):
        inner = feed_forward(net, y, f"{name}.ffn.{k}", _HIDDEN, "relu")
        y = _affine(net, add(net, inner, y), f"{name}.ffn.{k}.norm", 1.5)
    wide = add(net, linear(net, y, f"{name}.bottleneck.output", _WIDTH), x)
    return _affine(net, wide, f"{name}.bottleneck.output.norm", 2.0)
