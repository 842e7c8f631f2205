"""BERT and the smaller models made from it, as Hugging Face's `transformers` computes them, on 128 tokens.

J. Devlin et al., "BERT", NAACL 2019; V. Sanh et al., "DistilBERT", arXiv 1910.01108; X. Jiao et al., "TinyBERT",
EMNLP Findings 2020; Z. Lan et al., "ALBERT", ICLR 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Graph
from fusewise.zoo.activations import activate
from fusewise.zoo.attention import LOWEST, additive_mask, feed_forward, self_attention
from fusewise.zoo.extents import RuntimeExtent, counted, extent, known, rest, row, view
from fusewise.zoo.layers import add, gemm, layer_norm, linear
from fusewise.zoo.net import Net, finish, weight

__all__ = ["TOKENS", "albert", "bert_base", "distilbert", "embed", "first_token", "position_ids", "tinybert"]

TOKENS = 128
_POSITIONS = 512
_EPSILON = 1e-12


@dataclass(frozen=True, slots=True)
class _Config:
    vocabulary: int
    layers: int
    heads: int
    width: int
    hidden: int


_BASE = _Config(vocabulary=30522, layers=12, heads=12, width=768, hidden=3072)
_DISTIL = _Config(vocabulary=30522, layers=6, heads=12, width=768, hidden=3072)
_TINY = _Config(vocabulary=30522, layers=4, heads=12, width=312, hidden=1200)
_ALBERT = _Config(vocabulary=30000, layers=12, heads=12, width=768, hidden=3072)


def embed(net: Net, ids: str, name: str, rows: int, width: int) -> str:
    """Rows of a table of `rows` x `width` weights, by int64 index."""
    return net.op("Gather", weight(net, f"{name}.weight", (rows, width), 0.5), ids, axis=0, name=name)


def position_ids(net: Net, ids: str) -> str:
    """0, 1, 2, ... for each token [1, tokens]; decomposed: cut from those of the longest sequence."""
    tokens = extent(net, ids, 1)
    if not net.decomposed:
        return net.constant(np.arange(TOKENS, dtype=np.int64)[None], "position_ids")
    every = net.constant(np.arange(_POSITIONS, dtype=np.int64)[None], "position_ids")
    begin, axes = net.constant([0], "starts"), net.constant([1], "axes")
    return known(net, net.op("Slice", every, begin, row(net, [tokens]), axes), (1, TOKENS))


def _counted_positions(net: Net, ids: str) -> str:
    """The same as DistilBERT has it: counted up, and repeated for every sequence."""
    if not net.decomposed:
        return position_ids(net, ids)
    lone = net.op("Unsqueeze", counted(net, extent(net, ids, 1)), net.constant([0], "axes"))
    return known(net, net.op("Expand", lone, net.op("Shape", ids)), net.shape(ids))


def _embeddings(net: Net, ids: str, types: str | None, order: str, vocabulary: int, width: int) -> str:
    x = embed(net, ids, "embeddings.word", vocabulary, width)
    if types is not None:
        x = add(net, x, embed(net, types, "embeddings.token_type", 2, width))
    places = embed(net, order, "embeddings.position", _POSITIONS, width)
    return layer_norm(net, add(net, x, places), "embeddings.norm", epsilon=_EPSILON)


def first_token(net: Net, x: str) -> str:
    """[batch, tokens, width] to the first token's [batch, width]."""
    return net.op("Gather", x, net.constant(np.int64(0), "first"), axis=1)


def _inputs(net: Net, batch: int, *names: str) -> list[str]:
    return [net.builder.input(name, (batch, TOKENS), INT64) for name in names]


def _bert(net: Net, batch: int, config: _Config) -> Graph:
    ids, mask, types = _inputs(net, batch, "input_ids", "attention_mask", "token_type_ids")
    x = _embeddings(net, ids, types, position_ids(net, ids), config.vocabulary, config.width)
    bias = additive_mask(net, mask)
    for k in range(config.layers):
        name = f"layer.{k}"
        y = self_attention(net, x, f"{name}.attention", config.heads, masked=lambda s: net.op("Add", s, bias))
        x = layer_norm(net, add(net, y, x), f"{name}.attention.norm", epsilon=_EPSILON)
        y = feed_forward(net, x, name, config.hidden)
        x = layer_norm(net, add(net, y, x), f"{name}.norm", epsilon=_EPSILON)
    pooled = activate(net, gemm(net, first_token(net, x), "pooler", config.width), "tanh")
    return finish(net, last_hidden_state=x, pooler_output=pooled)


def bert_base(net: Net, batch: int) -> Graph:
    """BERT-base uncased: embeddings, encoder and pooler."""
    return _bert(net, batch, _BASE)


def tinybert(net: Net, batch: int) -> Graph:
    """TinyBERT with four layers of width 312, with the pooler."""
    return _bert(net, batch, _TINY)


def distilbert(net: Net, batch: int) -> Graph:
    """DistilBERT uncased: no token types, no pooler; masked scores are replaced, not added to."""
    ids, mask = _inputs(net, batch, "input_ids", "attention_mask")
    config = _DISTIL
    x = _embeddings(net, ids, None, _counted_positions(net, ids), config.vocabulary, config.width)
    masked = _replaced(net, mask, config.heads)
    for k in range(config.layers):
        name = f"layer.{k}"
        sizes = extent(net, x, 0), rest(TOKENS)
        y = self_attention(net, x, f"{name}.attention", config.heads, masked=masked, scale_query=True, sizes=sizes)
        x = layer_norm(net, add(net, y, x), f"{name}.attention.norm", epsilon=_EPSILON)
        y = feed_forward(net, x, name, config.hidden)
        x = layer_norm(net, add(net, y, x), f"{name}.norm", epsilon=_EPSILON)
    return finish(net, last_hidden_state=x)


def _replaced(net: Net, mask: str, heads: int) -> Callable[[str], str]:
    """Puts the lowest number in place of scores whose token the int64 `mask` [batch, tokens] drops.

    Decomposed, every layer makes its own grid of what to drop, as its code says.
    """
    batch = net.shape(mask)[0]

    def dropped(sizes: tuple[RuntimeExtent, RuntimeExtent]) -> str:
        zero = net.constant(np.int64(0), "zero")
        if net.decomposed:
            return view(net, net.op("Equal", mask, zero), sizes[0], 1, 1, sizes[1])
        return net.op("Equal", view(net, mask, sizes[0], 1, 1, sizes[1]), zero)

    shared = None if net.decomposed else dropped((RuntimeExtent(batch), RuntimeExtent(TOKENS)))
    grid = "" if net.decomposed else net.constant([batch, heads, TOKENS, TOKENS], "shape")

    def masked(scores: str) -> str:
        if shared is None:
            one = dropped((extent(net, mask, 0), extent(net, mask, 1)))
            one = known(net, net.op("Expand", one, net.op("Shape", scores)), net.shape(scores))
        else:
            one = net.op("Expand", shared, grid)
        return net.op("Where", one, net.constant(LOWEST, "lowest"), scores)

    return masked


def albert(net: Net, batch: int) -> Graph:
    """ALBERT-base v2: embeddings of width 128, and one set of layer weights that all twelve layers read."""
    ids, mask, types = _inputs(net, batch, "input_ids", "attention_mask", "token_type_ids")
    config, name = _ALBERT, "layer"
    x = _embeddings(net, ids, types, position_ids(net, ids), config.vocabulary, 128)
    x = linear(net, x, "embeddings.projection", config.width)
    bias = additive_mask(net, mask)
    for _ in range(config.layers):
        y = self_attention(net, x, f"{name}.attention", config.heads, masked=lambda s: net.op("Add", s, bias))
        x = layer_norm(net, add(net, y, x), f"{name}.attention.norm", epsilon=_EPSILON)
        y = feed_forward(net, x, name, config.hidden, "gelu_tanh")
        x = layer_norm(net, add(net, y, x), f"{name}.norm", epsilon=_EPSILON)
    pooled = activate(net, gemm(net, first_token(net, x), "pooler", config.width), "tanh")
    return finish(net, last_hidden_state=x, pooler_output=pooled)
