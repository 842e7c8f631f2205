"""Attention with every option of ONNX's, written around the one that has a kernel, or as products and the softmax between them.

Keys and values of the past are joined with the new ones; causality, windows, lengths without padding and a mask become one mask.
That goes to an Attention with nothing else where the softmax is computed in float32 and nobody asks for what lies before it. A
query that may attend to no key gives zeros, as ONNX has it, and not a number is no key's weight.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fusewise.ir.dtypes import BOOL, FLOAT32, FLOAT64, INT64, DType, dtype_of_onnx
from fusewise.ir.size import Size
from fusewise.ops.spec import Call
from fusewise.passes.decompositions.attention import by_heads
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue
from fusewise.records import record

__all__ = ["WHOLE_ATTENTION"]

_AFTER_SOFTCAP, _AFTER_MASK, _AFTER_SOFTMAX = 1, 2, 3
"""What `qk_matmul_output_mode` asks for; 0 is the bare product."""


@record(frozen=True)
class _Heads:
    """Queries, keys and values as (batch, heads, tokens, size), keys and values of the past before the new ones; `flat` where the
    operands had three axes. `past` is how many keys come before the first query."""

    q: TensorValue
    k: TensorValue
    v: TensorValue
    flat: bool
    past: int

    @property
    def scores(self) -> tuple[int, int, int, int]:
        """The shape of the scores."""
        samples, heads, queries, _ = self.q.dims
        return samples, heads, queries, self.k.dims[2]


@record(frozen=True)
class _Mask:
    """Which keys take part, as far as it is known now (`known`) and as far as it is not (`allowed`), broadcast to the scores; and
    what is added to them. None for all, or nothing."""

    known: np.ndarray | None = None
    allowed: TensorValue | None = None
    added: TensorValue | None = None

    @property
    def always_some(self) -> bool:
        """Is there surely a key for every query?"""
        return self.allowed is None and self.added is None and (self.known is None or bool(self.known.any(-1).all()))


def _attention(
    g: Notation,
    call: Call,
    q: TensorValue,
    k: TensorValue,
    v: TensorValue,
    *others: TensorValue | None,
) -> tuple[TensorValue, ...] | None:
    """`others`: a mask, past keys, past values, and how many keys of each sample are no padding; None or left out where absent."""
    mask, past_key, past_value, lengths = (*others, *(None,) * 4)[:4]
    if mask is not None and mask.dtype != BOOL and not mask.dtype.is_float:
        return None
    flat = q.rank == 3
    if flat:
        heads, shared = call.attribute("q_num_heads"), call.attribute("kv_num_heads")
        q, k, v = by_heads(g, q, heads), by_heads(g, k, shared), by_heads(g, v, shared)
    if past_key is not None and past_value is not None:
        k, v = g.Concat(past_key, k, axis=2), g.Concat(past_value, v, axis=2)
    given = _Heads(q, k, v, flat, 0 if past_key is None else past_key.dims[2])
    masks = _masks(g, call, given, mask, lengths)
    present = () if len(call.node.outputs) == 1 else (k, v)
    if _is_fused(call):
        return (_shaped(g, given, _fused(g, call, given, masks), call.output(0).dtype), *present)
    y, scores = _products(g, call, given, masks)
    return (_shaped(g, given, y, call.output(0).dtype), k, v, *(() if scores is None else (scores,)))


def _is_fused(call: Call) -> bool:
    """Is the softmax one of float32, and nobody asks for more than the result?"""
    wide = call.input(0).dtype == FLOAT64
    precision = call.attribute("softmax_precision", FLOAT32.onnx)
    asked = len(call.node.outputs) > 3 and bool(call.node.outputs[3])
    return not wide and precision == FLOAT32.onnx and not asked


def _shaped(g: Notation, given: _Heads, y: TensorValue, dtype: DType) -> TensorValue:
    y = g.cast(y, dtype)
    if not given.flat:
        return y
    return g.reshape(g.permute(y, (0, 2, 1, 3)), [y.dims[0], y.dims[2], y.dims[1] * y.dims[3]])


# -- which keys take part ---------------------------------------------------------------------------------------------------


def _masks(g: Notation, call: Call, given: _Heads, mask: TensorValue | None, lengths: TensorValue | None) -> _Mask:
    """All that keeps keys out. Query i is at position `past` + i; among padded keys, the last one is at the last that is none."""
    samples, _, queries, keys = given.scores
    left, right = call.attribute("left_window_size", -1), call.attribute("right_window_size", -1)
    right = 0 if call.attribute("is_causal", 0) else right
    found = _Mask()
    if lengths is not None:
        count = g.reshape(lengths, [samples, 1, 1, 1])
        found = replace(found, allowed=g.Less(_positions(g, keys), count))
        found = _in_window(g, found, _apart(g, queries, keys) + (count - _size(g, queries)), (left, right))
    elif (left >= 0 or right >= 0) and (isinstance(queries, Size) or isinstance(keys, Size)):
        found = _in_window(g, found, _apart(g, queries, keys) + _size(g, given.past), (left, right))
    elif left >= 0 or right >= 0:
        behind_known = np.arange(queries, dtype=np.int64)[:, None] + given.past - np.arange(keys, dtype=np.int64)
        known = (behind_known >= -right if right >= 0 else True) & (behind_known <= left if left >= 0 else True)
        found = _Mask(None if np.all(known) else np.broadcast_to(known, (queries, keys)))
    if mask is None:
        return found
    mask = _padded(g, mask, keys)
    if mask.dtype != BOOL:
        return replace(found, added=mask)
    contents = g.edit.array(mask.name)
    if contents is not None and contents.size <= _MOST_KNOWN:
        return replace(found, known=contents if found.known is None else found.known & contents)
    return _both(g, found, mask)


def _positions(g: Notation, count: int) -> TensorValue:
    """0, 1, ... of so many."""
    if not isinstance(count, Size):
        return g.constant(np.arange(count, dtype=np.int64))
    return g.Range(g.number(0, INT64), _size(g, count), g.number(1, INT64))


def _size(g: Notation, size: int) -> TensorValue:
    return g.constant(np.array(size, object)) if isinstance(size, Size) else g.number(size, INT64)


def _apart(g: Notation, queries: int, keys: int) -> TensorValue:
    """From a key to a query, by their numbers."""
    if not isinstance(queries, Size) and not isinstance(keys, Size):
        return g.constant(np.arange(queries, dtype=np.int64)[:, None] - np.arange(keys, dtype=np.int64))
    return g.reshape(_positions(g, queries), [queries, 1]) - _positions(g, keys)


def _in_window(g: Notation, mask: _Mask, behind: TensorValue, window: tuple[int, int]) -> _Mask:
    """Keys are so many before a query at most, and so many behind it; -1 for any."""
    left, right = window
    if right >= 0:
        mask = _both(g, mask, g.GreaterOrEqual(behind, g.number(-right, INT64)))
    if left >= 0:
        mask = _both(g, mask, g.LessOrEqual(behind, g.number(left, INT64)))
    return mask


_MOST_KNOWN = 1 << 24
"""Elements of a constant mask that is looked into."""


def _both(g: Notation, mask: _Mask, allowed: TensorValue) -> _Mask:
    return replace(mask, allowed=allowed if mask.allowed is None else g.And(mask.allowed, allowed))


def _padded(g: Notation, mask: TensorValue, keys: int) -> TensorValue:
    """A mask for all keys: those that it does not reach take no part. One element along the keys is for all of them."""
    have = mask.dims[-1] if mask.rank else 1
    if have in (1, keys):
        return mask
    shape = [*mask.dims[:-1], keys - have]
    rest = g.constant(np.zeros(shape, bool)) if mask.dtype == BOOL else g.fill(-math.inf, shape, mask.dtype)
    return g.Concat(mask, rest, axis=mask.rank - 1)


def _allowed(g: Notation, masks: _Mask) -> TensorValue | None:
    """Which keys take part, but for what is added."""
    known = None if masks.known is None or masks.known.all() else g.constant(masks.known)
    if known is None or masks.allowed is None:
        return known if masks.allowed is None else masks.allowed
    return g.And(masks.allowed, known)


def _bias(g: Notation, masks: _Mask, dtype: DType) -> TensorValue | None:
    """What is added to the scores: minus infinity for keys that take no part."""
    allowed = _allowed(g, masks)
    added = None if masks.added is None else g.cast(masks.added, dtype)
    if allowed is None:
        return added
    never = g.number(-math.inf, dtype)
    return g.Where(allowed, g.number(0, dtype) if added is None else added, never)


# -- the two ways -----------------------------------------------------------------------------------------------------------


def _scale(call: Call, given: _Heads) -> float:
    scale = call.attribute("scale")
    return 1 / math.sqrt(max(1, given.q.dims[-1])) if scale is None else float(scale)


def _fused(g: Notation, call: Call, given: _Heads, masks: _Mask) -> TensorValue:
    """By the operator that has a kernel, in float32."""
    q, k, v = (g.cast(x, FLOAT32) for x in (given.q, given.k, given.v))
    mask = _allowed(g, masks) if masks.added is None else _bias(g, masks, FLOAT32)
    return g.Attention(q, k, v, mask, scale=_scale(call, given), softcap=call.attribute("softcap") or None)


def _products(g: Notation, call: Call, given: _Heads, masks: _Mask) -> tuple[TensorValue, TensorValue | None]:
    """By a product, a softmax and a product; and the scores as far as they are asked for."""
    q, k, v = given.q, given.k, given.v
    dtype, out = q.dtype, given.scores
    wide = FLOAT32 if dtype.bits < 32 else dtype
    mode = int(call.attribute("qk_matmul_output_mode", 0)) if _asks_for_scores(call) else -1
    root = math.sqrt(_scale(call, given))
    scores = _together(g, g.cast(q, wide) * root, g.permute(g.cast(k, wide) * root, (0, 1, 3, 2)), out)
    asked = scores if mode == 0 else None
    softcap = float(call.attribute("softcap", 0.0))
    if softcap > 0:
        scores = g.Tanh(scores / softcap) * softcap
    asked = scores if mode == _AFTER_SOFTCAP else asked
    bias = _bias(g, masks, wide)
    scores = scores if bias is None else scores + bias
    asked = scores if mode == _AFTER_MASK else asked
    precision = dtype_of_onnx(int(call.attribute("softmax_precision", wide.onnx)))
    weights = g.cast(g.Softmax(g.cast(scores, precision), axis=-1), wide)
    if bias is not None and not masks.always_some:
        nothing = g.Equal(g.ReduceMax(bias, [bias.rank - 1], keepdims=1), g.number(-math.inf, wide))
        weights = g.Where(nothing, g.number(0, wide), weights)
    asked = weights if mode == _AFTER_SOFTMAX else asked
    y = _together(g, weights, g.cast(v, wide), (*out[:3], v.dims[-1]))
    return y, None if asked is None else g.cast(asked, dtype)


def _asks_for_scores(call: Call) -> bool:
    return len(call.node.outputs) > 3 and bool(call.node.outputs[3])


def _together(g: Notation, a: TensorValue, b: TensorValue, out: tuple[int, ...]) -> TensorValue:
    """The product of (batch, heads, ...) with (batch, fewer heads, ...): heads that share a factor are rows of one matrix."""
    if a.dims[1] == b.dims[1]:
        return g.MatMul(a, b)
    samples, heads, rows, inner = a.dims
    joined = g.reshape(a, [samples, b.dims[1], heads // b.dims[1] * rows, inner])
    return g.reshape(g.MatMul(joined, b), out)


WHOLE_ATTENTION: tuple[Decomposition, ...] = (row("Attention", _attention),)
