"""Attention with its projection, and attention of one set of heads, with past and present as tensors that grow or as one buffer."""

from __future__ import annotations

import numpy as np

from fusewise.frontend.domains.microsoft.integer_products import scaled_product
from fusewise.frontend.domains.microsoft.scores import (
    Attending,
    as_long,
    attended,
    by_heads,
    causal,
    counted,
    flat,
    padding,
    parts,
    products,
    scattered,
    side_by_side,
)
from fusewise.frontend.domains.row import DomainCall, DomainRow, Written, integer, integers, real
from fusewise.frontend.domains.writer import DomainValue, DomainWriter, Extent
from fusewise.ir.dtypes import INT64
from fusewise.ops.validity.rules import at_least, flag
from fusewise.records import record

__all__ = ["ATTENTION"]

_NO_DIMS = np.zeros(0, np.int64)
_NO_PADS = np.zeros(7, np.int64)


@record(frozen=True)
class _Heads:
    """Queries, keys and values by heads. `past`: keys and values before these, `length` (int64, no dimensions) how much of the past
    is in use where that is a buffer with room for the new ones, None where they grow."""

    q: DomainValue
    k: DomainValue
    v: DomainValue
    past: tuple[DomainValue, DomainValue] | None = None
    length: DomainValue | None = None


def _scale(call: DomainCall) -> float | None:
    return call.attribute("scale") or None


def _filler(call: DomainCall) -> float:
    """What is added to the score of a key that takes no part."""
    given = call.attribute("mask_filter_value")
    return -10000.0 if given is None else given


def _length(g: DomainWriter, call: DomainCall) -> DomainValue | None:
    """How much of a buffer is in use; None where past and present are tensors that grow."""
    if "past_sequence_length" not in call.row.operand_names or "past_sequence_length" not in call:
        return None
    return g.Reshape(g.cast(call["past_sequence_length"], INT64), g.constant(_NO_DIMS))


def _present(g: DomainWriter, heads: _Heads) -> tuple[DomainValue, DomainValue]:
    """All keys and values: the new ones behind those of the past, or in their places of the buffer."""
    if heads.past is None:
        return heads.k, heads.v
    if heads.length is None:
        return side_by_side(g, heads.past[0], heads.k), side_by_side(g, heads.past[1], heads.v)
    first = g.Expand(g.Unsqueeze(heads.length, [0]), [g.dim(heads.q, 0)])
    return scattered(g, heads.past[0], heads.k, first), scattered(g, heads.past[1], heads.v, first)


def _seen(g: DomainWriter, call: DomainCall, heads: _Heads, keys: Extent) -> tuple[DomainValue | None, bool]:
    """Which keys take part for their places, and whether it is those up to the query's alone."""
    one_way = any(a.name == "unidirectional" and call.attribute(a.name) for a in call.row.attributes)
    if heads.length is not None:
        queries = g.dim(heads.q, 2)
        new = g.Unsqueeze(counted(g, queries), [1]) if one_way else g.scalar(queries) - g.number(1, INT64)
        return g.LessOrEqual(g.Unsqueeze(counted(g, keys), [0]), new + heads.length), False
    if not one_way or heads.q.dims[2] == 1:
        return None, False
    return (None, True) if heads.past is None else (causal(g, g.dim(heads.q, 2), keys), False)


def _between(
    g: DomainWriter, call: DomainCall, heads: _Heads, mask: DomainValue | None, bias: DomainValue | None
) -> tuple[Attending, tuple[DomainValue, DomainValue]]:
    """What is to be computed, and keys and values as the next call needs them."""
    k, v = _present(g, heads)
    keys = g.dim(k, 2)
    added = None if mask is None else padding(g, mask, heads.q, keys, _filler(call))
    reach = as_long if heads.length is None else _to_the_end
    added = None if added is None else reach(g, added, keys)
    if bias is not None:
        bias = reach(g, bias, keys)
        added = bias if added is None else added + bias
    allowed, is_causal = _seen(g, call, heads, keys)
    return Attending(heads.q, k, v, allowed, added, is_causal, _scale(call)), (k, v)


def _to_the_end(g: DomainWriter, added: DomainValue, keys: Extent) -> DomainValue:
    """What is added to the scores of the first keys, for all places of a buffer."""
    if added.dims[-1] == keys:
        return added
    missing = g.scalar(keys) - g.scalar(g.dim(added, -1))
    return g.Pad(added, g.Concat(g.constant(_NO_PADS), g.Unsqueeze(missing, [0]), axis=0))


# -- with its projection ----------------------------------------------------------------------------------------------------


def _attention(g: DomainWriter, call: DomainCall) -> Written:
    if call.attribute("do_rotary"):
        raise call.unsupported(
            "do_rotary is not supported; write the model with MultiHeadAttention and RotaryEmbedding"
        )
    joined = g.total(g.MatMul(call["input"], call["weights"]), call.get("bias"))
    return _of_joined(g, call, joined, call.get("attention_bias"), call.attribute("qkv_hidden_sizes"))


def _quantized(g: DomainWriter, call: DomainCall) -> Written:
    if call.attribute("do_rotary"):
        raise call.unsupported("do_rotary is not supported")
    x = call["input"], call["input_scale"], call.get("input_zero_point")
    weights = call["weight"], call["weight_scale"], call.get("weight_zero_point")
    return _of_joined(g, call, scaled_product(g, x, weights, call["bias"]))


def _of_joined(
    g: DomainWriter,
    call: DomainCall,
    joined: DomainValue,
    bias: DomainValue | None = None,
    sizes: list[int] | None = None,
) -> Written:
    """What follows the projection of queries, keys and values, which lie side by side (batch, tokens, three sizes)."""
    width = joined.extent(2)
    if sizes and (len(sizes) != 3 or sizes[0] != sizes[1] or width not in (None, sum(sizes))):
        raise call.invalid(
            f"qkv_hidden_sizes is {list(sizes)}; it must be three numbers, the first two equal, whose sum is {width}"
        )
    heads = call.attribute("num_heads")
    q, k, v = (by_heads(g, x, heads) for x in parts(g, joined, 2, list(sizes) if sizes else 3))
    past = call.get("past")
    before = None if past is None else (_half(g, past, 0), _half(g, past, 1))
    given = _Heads(q, k, v, before, None if past is None else _length(g, call))
    a, (keys, values) = _between(g, call, given, call.get("mask_index"), bias)
    present = g.Concat(g.Unsqueeze(keys, [0]), g.Unsqueeze(values, [0]), axis=0) if call.wants("present") else None
    return flat(g, attended(g, a)), present


def _half(g: DomainWriter, past: DomainValue, i: int) -> DomainValue:
    return g.Squeeze(g.slice(past, 0, i, i + 1), [0])


# -- of queries, keys and values --------------------------------------------------------------------------------------------


def _multi_head_attention(g: DomainWriter, call: DomainCall) -> Written:
    for name in ("cache_indirection", "beam_width"):
        if name in call.row.operand_names and name in call:
            raise call.unsupported(f"its input {name!r} is not supported; search with one beam")
    q, k, v = _projected(g, call)
    past = (call["past_key"], call["past_value"]) if "past_key" in call else None
    given = _Heads(q, k, v, past, None if past is None else _length(g, call))
    a, present = _between(g, call, given, call.get(_MASKS[call.row.op]), call.get("attention_bias"))
    if not call.wants("qk"):
        return flat(g, attended(g, a)), *present
    if given.length is not None:
        raise call.unsupported("its output 'qk' is not supported where past and present are one buffer")
    y, scores, _ = products(g, a)
    return flat(g, y), *present, scores


_MASKS = {"MultiHeadAttention": "key_padding_mask", "DecoderMaskedMultiHeadAttention": "mask_index"}


def _projected(g: DomainWriter, call: DomainCall) -> tuple[DomainValue, DomainValue, DomainValue]:
    """Queries, keys and values by heads, with the bias of their projection."""
    heads, q, k, v = call.attribute("num_heads"), call["query"], call.get("key"), call.get("value")
    if q.rank == 5:
        q, k, v = _unpacked(g, call, q, 3)
        return q, k, v
    if k is None:
        bias = call.get("bias")
        q, k, v = parts(g, q if bias is None else q + bias, 2, 3)
        return by_heads(g, q, heads), by_heads(g, k, heads), by_heads(g, v, heads)
    if k.rank == 5:
        if "bias" in call:
            raise call.invalid("a bias does not go with packed keys and values")
        return by_heads(g, q, heads), *_unpacked(g, call, k, 2)  # type: ignore[return-value]  # of two
    if v is None:
        raise call.invalid("it has keys, but no values")
    if k.rank == 4:
        return by_heads(g, _biased(g, call, q, 0), heads), k, v
    q, k, v = (_biased(g, call, x, i) for i, x in enumerate((q, k, v)))
    return by_heads(g, q, heads), by_heads(g, k, heads), by_heads(g, v, heads)


def _biased(g: DomainWriter, call: DomainCall, x: DomainValue, i: int) -> DomainValue:
    """The i-th of queries, keys and values with its part of the bias."""
    bias = call.get("bias")
    if bias is None:
        return x
    width, own = call["query"].extent(2), x.extent(2)
    if width is None or own is None:
        raise call.unsupported("the width of queries and values must be known beside a bias")
    return x + g.slice(bias, 0, i * width, i * width + own)


def _unpacked(g: DomainWriter, call: DomainCall, x: DomainValue, count: int) -> tuple[DomainValue, ...]:
    """The parts of (batch, tokens, heads, parts, size), each (batch, heads, tokens, size)."""
    bias = call.get("bias")
    if bias is not None:
        x = x + g.permute(g.Reshape(bias, [count, call.attribute("num_heads"), -1]), (1, 0, 2))
    return tuple(g.permute(g.Squeeze(one, [3]), (0, 2, 1, 3)) for one in parts(g, x, 3, count))


# -- rows -------------------------------------------------------------------------------------------------------------------

_SHARED = (
    integer("num_heads"),
    real("mask_filter_value", None),
    real("scale", None),
)
_ONE_WAY = (*_SHARED, integer("unidirectional", 0))
_WITH_PAST = (*_ONE_WAY, integer("do_rotary", None), integer("past_present_share_buffer", None))
_CACHE = "B num_heads P H, B num_heads P V"

ATTENTION: tuple[DomainRow, ...] = (
    DomainRow(
        "Attention",
        _attention,
        operands=("input", "weights", "bias?", "mask_index?", "past?", "attention_bias?", "past_sequence_length?"),
        attributes=(*_WITH_PAST, integers("qkv_hidden_sizes", None), integer("rotary_embedding_dim", None)),
        outputs=("output", "present?"),
        shapes="B S D, D E, E, _, 2 B num_heads P H, 1 . S T | B . S T, one",
        rules=(at_least(1, "num_heads"), flag("unidirectional", "past_present_share_buffer")),
        opset=24,
    ),
    DomainRow(
        "QAttention",
        _quantized,
        operands=(
            *("input", "weight", "bias", "input_scale", "weight_scale", "mask_index?"),
            *("input_zero_point?", "weight_zero_point?", "past?"),
        ),
        attributes=_WITH_PAST,
        outputs=("output", "present?"),
        shapes="B S D, D E, E, one, one | E, _, one, one | E, 2 B num_heads P H",
        rules=(at_least(1, "num_heads"), flag("unidirectional")),
    ),
    DomainRow(
        "MultiHeadAttention",
        _multi_head_attention,
        operands=(
            *("query", "key?", "value?", "bias?", "key_padding_mask?", "attention_bias?", "past_key?", "past_value?"),
            *("past_sequence_length?", "cache_indirection?"),
        ),
        attributes=_ONE_WAY,
        outputs=("output", "present_key?", "present_value?", "qk?"),
        shapes="B S D | B S num_heads 3 H, B L D | B L num_heads 2 H | B num_heads L H, B L . | B num_heads L ., ., _, "
        f"1 . S . | B . S ., {_CACHE}, one",
        rules=(at_least(1, "num_heads"), flag("unidirectional")),
        opset=24,
    ),
    DomainRow(
        "DecoderMaskedMultiHeadAttention",
        _multi_head_attention,
        operands=(
            *("query", "key?", "value?", "mask_index?", "attention_bias?", "past_key?", "past_value?"),
            *("past_sequence_length?", "beam_width?", "cache_indirection?", "bias?"),
        ),
        attributes=(*_SHARED, integer("past_present_share_buffer", None), integer("output_qk", None)),
        outputs=("output", "present_key?", "present_value?", "qk?"),
        shapes=f"B 1 ., B 1 D | B num_heads L H, B 1 D | B num_heads L H, _, 1 . 1 . | B . 1 ., {_CACHE}, one",
        rules=(at_least(1, "num_heads"),),
        opset=24,
    ),
)
