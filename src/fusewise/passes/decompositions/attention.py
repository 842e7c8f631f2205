"""Attention as two products and the softmax between them."""

from __future__ import annotations

import math

import numpy as np

from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["ATTENTION", "by_heads"]


def _attention(
    g: Notation,
    call: Call,
    q: TensorValue,
    k: TensorValue,
    v: TensorValue,
    mask: TensorValue | None = None,
    *others: TensorValue | None,
) -> TensorValue | None:
    """Without keys and values of the past, and with nothing asked for but the result. Rows with a key to attend to, that is: one
    that is masked as a whole is zeros for the operator, and the mean of the values here."""
    softcap, causal = call.attribute("softcap", 0.0), call.attribute("is_causal", 0)
    if any(other is not None for other in others) or len(call.node.outputs) > 1 or softcap:
        return None
    if mask is not None and mask.dims[-1] not in (1, k.dims[-2]):
        return None
    flat, heads, shared = q.rank == 3, call.attribute("q_num_heads"), call.attribute("kv_num_heads")
    if flat:
        q, k, v = by_heads(g, q, heads), by_heads(g, k, shared), by_heads(g, v, shared)
    k, v = (_repeated(g, x, q.dims[1] // x.dims[1]) for x in (k, v))
    scale = call.attribute("scale") or 1 / math.sqrt(q.dims[-1])
    scores = g.MatMul(q, g.permute(k, (0, 1, 3, 2))) * scale
    never = -3e4 if scores.dtype.bits < 32 else -1e30
    if mask is not None:
        scores = g.Where(mask, scores, never) if mask.dtype.kind == "bool" else scores + mask
    if causal:
        scores = g.Where(g.constant(np.tril(np.ones(scores.dims[-2:], bool))), scores, never)
    y = g.MatMul(g.Softmax(scores, axis=-1), v)
    if not flat:
        return y
    return g.reshape(g.permute(y, (0, 2, 1, 3)), [y.dims[0], y.dims[2], y.dims[1] * y.dims[3]])


def by_heads(g: Notation, x: TensorValue, heads: int) -> TensorValue:
    """[b, s, heads * d] -> [b, heads, s, d]"""
    samples, length, width = x.dims
    return g.permute(g.reshape(x, [samples, length, heads, width // heads]), (0, 2, 1, 3))


def _repeated(g: Notation, x: TensorValue, times: int) -> TensorValue:
    """Every head `times` times, one after the other."""
    if times == 1:
        return x
    samples, heads, length, width = x.dims
    apart = g.reshape(x, [samples, heads, 1, length, width])
    return g.reshape(g.expand(apart, [samples, heads, times, length, width]), [samples, heads * times, length, width])


ATTENTION: tuple[Decomposition, ...] = (row("Attention", _attention),)
