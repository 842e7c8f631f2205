"""GPT-2 small: a causal decoder whose last product reuses the word embeddings, as `transformers` computes it.

A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
"""

from __future__ import annotations

import math

import numpy as np

from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Graph
from fusewise.zoo.activations import activate
from fusewise.zoo.attention import LOWEST, attend
from fusewise.zoo.layers import add, layer_norm, reshape, transpose
from fusewise.zoo.net import Net, finish, weight

__all__ = ["gpt2"]

_VOCABULARY, _POSITIONS, _TOKENS = 50257, 1024, 128
_LAYERS, _HEADS, _WIDTH = 12, 12, 768


def gpt2(net: Net, batch: int) -> Graph:
    """Input `input_ids` [batch, 128]; output `logits` [batch, 128, 50257]."""
    ids = net.builder.input("input_ids", (batch, _TOKENS), INT64)
    words = weight(net, "wte.weight", (_VOCABULARY, _WIDTH), 1 / math.sqrt(_WIDTH))
    places = weight(net, "wpe.weight", (_POSITIONS, _WIDTH), 0.5 / math.sqrt(_WIDTH))
    order = net.constant(np.arange(_TOKENS, dtype=np.int64)[None], "position_ids")
    x = add(net, net.op("Gather", words, ids, axis=0), net.op("Gather", places, order, axis=0))
    causal = net.constant(np.tril(np.ones((_TOKENS, _TOKENS), dtype=bool))[None, None], "causal")
    for k in range(_LAYERS):
        x = _layer(net, x, f"h.{k}", causal)
    x = layer_norm(net, x, "ln_f")
    return finish(net, logits=net.op("MatMul", x, transpose(net, words, 1, 0), name="lm_head"))


def _product(net: Net, x: str, name: str, width: int) -> str:
    """GPT-2's "Conv1D": tokens of all sequences side by side, one Gemm with weights stored [in, out], back again."""
    batch, tokens, fan_in = net.shape(x)
    matrix = weight(net, f"{name}.weight", (fan_in, width), math.sqrt(1 / fan_in))
    offset = weight(net, f"{name}.bias", (width,), 0.05)
    y = net.op("Gemm", reshape(net, x, -1, fan_in), matrix, offset, name=name)
    return reshape(net, y, batch, tokens, width)


def _layer(net: Net, x: str, name: str, causal: str) -> str:
    def masked(scores: str) -> str:
        return net.op("Where", causal, scores, net.constant(LOWEST, "lowest"))

    packed = _product(net, layer_norm(net, x, f"{name}.ln_1"), f"{name}.attn.c_attn", 3 * _WIDTH)
    query, key, value = net.builder.op("Split", packed, outputs=3, axis=2, num_outputs=3)
    y = attend(net, query, key, value, _HEADS, masked=masked)
    x = add(net, _product(net, y, f"{name}.attn.c_proj", _WIDTH), x)
    y = activate(net, _product(net, layer_norm(net, x, f"{name}.ln_2"), f"{name}.mlp.c_fc", 4 * _WIDTH), "gelu_tanh")
    return add(net, x, _product(net, y, f"{name}.mlp.c_proj", _WIDTH))
