"""GPT-2 small: a causal decoder whose last product reuses the word embeddings, as `transformers` computes it.

A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
"""

from __future__ import annotations

import math

import numpy as np

from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Graph
from fusewise.zoo.activations import activate
from fusewise.zoo.attention import LOWEST, AttentionStyle, attend
from fusewise.zoo.extents import counted, extent, known, minus, row, view
from fusewise.zoo.layers import add, layer_norm, transpose
from fusewise.zoo.net import Net, finish, weight

__all__ = ["gpt2"]

_VOCABULARY, _POSITIONS, _TOKENS = 50257, 1024, 128
_LAYERS, _HEADS, _WIDTH = 12, 12, 768


def gpt2(net: Net, batch: int) -> Graph:
    """Input `input_ids` [batch, 128]; output `logits` [batch, 128, 50257]."""
    ids = net.builder.input("input_ids", (batch, _TOKENS), INT64)
    words = weight(net, "wte.weight", (_VOCABULARY, _WIDTH), 1 / math.sqrt(_WIDTH))
    places = weight(net, "wpe.weight", (_POSITIONS, _WIDTH), 0.5 / math.sqrt(_WIDTH))
    shape = extent(net, ids, 0), extent(net, ids, 1)
    rows, order = ids, _positions(net, ids)
    if net.decomposed:
        rows = view(net, ids, -1, extent(net, ids, 1), folded=False)
    x = add(net, net.op("Gather", words, rows, axis=0), net.op("Gather", places, order, axis=0))
    if net.decomposed:
        x = view(net, x, *shape, extent(net, x, 2))
    causal = _causal(net)
    for k in range(_LAYERS):
        x = _layer(net, x, f"h.{k}", causal)
    x = layer_norm(net, x, "ln_f")
    return finish(net, logits=net.op("MatMul", x, transpose(net, words, 1, 0), name="lm_head"))


def _positions(net: Net, ids: str) -> str:
    """0, 1, 2, ... [1, tokens]; decomposed: counted up to the tokens there are, as its code says."""
    if not net.decomposed:
        return net.constant(np.arange(_TOKENS, dtype=np.int64)[None], "position_ids")
    lone = net.op("Unsqueeze", counted(net, extent(net, ids, 1)), net.constant([0], "axes"))
    return view(net, lone, -1, extent(net, ids, 1), folded=False)


def _product(net: Net, x: str, name: str, width: int) -> str:
    """GPT-2's "Conv1D": tokens of all sequences side by side, one Gemm with weights stored [in, out], back again."""
    fan_in = net.shape(x)[2]
    matrix = weight(net, f"{name}.weight", (fan_in, width), math.sqrt(1 / fan_in))
    offset = weight(net, f"{name}.bias", (width,), 0.05)
    shape = extent(net, x, 0), extent(net, x, 1)
    y = net.op("Gemm", view(net, x, -1, extent(net, x, 2), folded=False), matrix, offset, name=name)
    return view(net, y, *shape, width, folded=False)


def _causal(net: Net) -> str:
    """Which tokens may look at which: a triangle, of bool [1, 1, tokens, tokens]; decomposed, of float32 ones and
    zeros for all positions."""
    if net.decomposed:
        return net.constant(np.tril(np.ones((_POSITIONS, _POSITIONS), np.float32))[None, None], "causal")
    return net.constant(np.tril(np.ones((_TOKENS, _TOKENS), dtype=bool))[None, None], "causal")


def _masked(net: Net, scores: str, causal: str) -> str:
    """A very low number where a token would look ahead.

    Decomposed, `b = bias[:, :, keys - queries : keys, :keys]` and `scores * b - 1e4 * (1 - b)`; the first two colons are
    slices as well. Both forms leave such a token the weight 0.
    """
    if not net.decomposed:
        return net.op("Where", causal, scores, net.constant(LOWEST, "lowest"))
    queries, keys = extent(net, scores, 2), extent(net, scores, 3)
    shape, zero, one = list(net.shape(causal)), net.constant([0], "starts"), net.constant([1], "steps")
    whole = net.constant([np.iinfo(np.int64).max], "ends")
    begins = zero, zero, row(net, [minus(net, keys, queries)]), zero
    ends = whole, whole, row(net, [keys]), row(net, [keys])
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        shape[axis] = shape[axis] if axis < 2 else keys.figure
        causal = known(net, net.op("Slice", causal, begin, end, net.constant([axis], "axes"), one), tuple(shape))
    dropped = net.op("Mul", net.op("Sub", net.constant(1.0, "one"), causal), net.constant(1e4, "far"))
    return net.op("Sub", net.op("Mul", scores, causal), dropped)


def _layer(net: Net, x: str, name: str, causal: str) -> str:
    packed = _product(net, layer_norm(net, x, f"{name}.ln_1"), f"{name}.attn.c_attn", 3 * _WIDTH)
    query, key, value = net.builder.op("Split", packed, outputs=3, axis=2, num_outputs=3)
    y = attend(
        net,
        query,
        key,
        value,
        _HEADS,
        masked=lambda scores: _masked(net, scores, causal),
        style=AttentionStyle(reads_width=True),
    )
    x = add(net, _product(net, y, f"{name}.attn.c_proj", _WIDTH), x)
    y = activate(net, _product(net, layer_norm(net, x, f"{name}.ln_2"), f"{name}.mlp.c_fc", 4 * _WIDTH), "gelu_tanh")
    return add(net, x, _product(net, y, f"{name}.mlp.c_proj", _WIDTH))
