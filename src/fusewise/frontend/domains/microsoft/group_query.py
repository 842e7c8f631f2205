"""GroupQueryAttention: heads that share keys and values, which lie behind those of the past, each sample's for itself.

Sample b has `seqlens_k[b] + 1` keys in all. They stand at the front of its rows of the cache, and the new ones begin behind what it
had before: at the first place where the new tokens are all (the first prompt), else as many before the end as there are new ones.
"""

from __future__ import annotations

import numpy as np

from fusewise.frontend.domains.microsoft.rotary import turned
from fusewise.frontend.domains.microsoft.scores import (
    Attending,
    attended,
    by_heads,
    counted,
    flat,
    products,
    scattered,
    side_by_side,
)
from fusewise.frontend.domains.microsoft.sliding import sliding_cache
from fusewise.frontend.domains.row import DomainCall, DomainRow, Written, integer, real, text
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ir.dtypes import INT64
from fusewise.ops.validity.rules import at_least, between, flag, one_of
from fusewise.records import record

__all__ = ["GROUP_QUERY", "Places", "last_seen", "places_of", "projected"]


_TOGETHER = (
    ("past_key", "past_value"),
    ("cos_cache", "sin_cache"),
    ("key", "value"),
    ("q_norm_weight", "k_norm_weight"),
)


@record(frozen=True)
class Places:
    """Where things are, int64: `total` (batch), how many keys a sample has; `first` (batch), where its new ones begin; `is_prompt`
    (no dimensions), whether there was nothing before."""

    total: DomainValue
    first: DomainValue
    is_prompt: DomainValue


@record(frozen=True)
class _Cached:
    """Keys and values to look at, those to hand on, and the positions of the former, broadcast to (batch, 1, 1, keys)."""

    keys: DomainValue
    values: DomainValue
    present_keys: DomainValue
    present_values: DomainValue
    positions: DomainValue


def _group_query_attention(g: DomainWriter, call: DomainCall) -> Written:
    _check(call)
    heads, shared = call.attribute("num_heads"), call.attribute("kv_num_heads")
    q, k, v = projected(g, call, heads, shared)
    if "q_norm_weight" in call:
        epsilon = call.attribute("qk_norm_epsilon")
        q, k = (
            g.RMSNormalization(x, call[f"{name}_norm_weight"], axis=-1, epsilon=epsilon)
            for name, x in (("q", q), ("k", k))
        )
    places = places_of(g, g.cast(call["seqlens_k"], INT64) + 1, call["total_sequence_length"], q)
    q, k = _turned(g, call, places, q, k)
    cached = _cached(g, call, places, k, v)
    keys, values, present = cached.keys, cached.values, (cached.present_keys, cached.present_values)
    allowed = _allowed(g, call, places, q, cached.positions)
    added = call.get("attention_bias")
    if added is not None and added.dims[3] != keys.dims[2]:
        added = _of_length(g, added, keys)
    scale, softcap = call.attribute("scale") or None, call.attribute("softcap") or 0.0
    a = Attending(q, keys, values, allowed, added, False, scale, softcap)
    sink = call.get("head_sink")
    if sink is None and call.attribute("smooth_softmax") == 1:
        sink = g.constant(np.zeros(heads, q.dtype.numpy))
    wanted = call.attribute("qk_output") if call.wants("output_qk") else 0
    if sink is None and not wanted:
        return flat(g, attended(g, a)), *present
    y, before, after = products(g, a, sink)
    return flat(g, y), *present, before if wanted == 1 else after


def _check(call: DomainCall) -> None:
    for name in ("k_quant_type", "v_quant_type"):
        if call.attribute(name) != "NONE":
            raise call.unsupported(f"{name} = {call.attribute(name)!r} is not supported; keep the cache as floats")
    if call.attribute("sliding_window_cache"):
        if call.attribute("local_window_size") < 1:
            raise call.invalid("sliding_window_cache needs local_window_size, which must be 1 or more")
        if "attention_bias" in call or call.wants("output_qk"):
            raise call.unsupported("a bias or scores beside sliding_window_cache are not supported")
    heads, shared = call.attribute("num_heads"), call.attribute("kv_num_heads")
    if heads % shared:
        raise call.invalid(f"num_heads is {heads}; it must be a multiple of kv_num_heads, which is {shared}")
    for one, other in (
        ("past_key", "past_value"),
        ("cos_cache", "sin_cache"),
        ("key", "value"),
        ("q_norm_weight", "k_norm_weight"),
    ):
        if (one in call) != (other in call):
            raise call.invalid(f"it has one of its inputs {one!r} and {other!r}; it must have both or neither")
    if call.attribute("do_rotary") and "cos_cache" not in call:
        raise call.invalid("do_rotary needs the inputs 'cos_cache' and 'sin_cache'")


def projected(
    g: DomainWriter, call: DomainCall, heads: int, shared: int
) -> tuple[DomainValue, DomainValue, DomainValue]:
    """Queries, keys and values by heads, which are given apart or side by side."""
    q, k, v = call["query"], call.get("key"), call.get("value")
    if k is None or v is None:
        width = q.extent(2)
        if width is None or width % (heads + 2 * shared):
            raise call.invalid(
                f"packed queries, keys and values are {width} wide; they must be a multiple of {heads} + 2 * {shared} heads"
            )
        size = width // (heads + 2 * shared)
        q, k, v = g.several("Split", 3, q, [heads * size, shared * size, shared * size], axis=2)
    return by_heads(g, q, heads), by_heads(g, k, shared), by_heads(g, v, shared)


def places_of(g: DomainWriter, total: DomainValue, longest: DomainValue, q: DomainValue) -> Places:
    """By how many keys each sample has and the most of them, of queries by heads."""
    total = g.Reshape(g.cast(total, INT64), [-1])
    tokens = g.scalar(g.dim(q, 2))
    is_prompt = g.Equal(g.Reshape(g.cast(longest, INT64), g.constant(np.zeros(0, np.int64))), tokens)
    return Places(total, g.Where(is_prompt, g.number(0, INT64), total - tokens), is_prompt)


def _turned(
    g: DomainWriter, call: DomainCall, places: Places, q: DomainValue, k: DomainValue
) -> tuple[DomainValue, DomainValue]:
    if not call.attribute("do_rotary"):
        return q, k
    tokens = counted(g, g.dim(q, 2))
    given = call.get("position_ids")
    if given is None:
        at = g.Unsqueeze(places.first, [1]) + tokens
    else:  # those of a first prompt count from the first of all
        at = g.Where(places.is_prompt, g.slice(g.slice(given, 0, 0, 1), 1, 0, 1) + tokens, given)
    tables = call["cos_cache"], call["sin_cache"]
    one, other = (turned(g, x, tables, at, call.attribute("rotary_interleaved")) for x in (q, k))
    return one, other


def _cached(g: DomainWriter, call: DomainCall, places: Places, k: DomainValue, v: DomainValue) -> _Cached:
    past = call.get("past_key"), call.get("past_value")
    if past[0] is None or past[1] is None or past[0].dims[2] == 0:
        return _Cached(k, v, k, v, counted(g, g.dim(k, 2)))
    if call.attribute("sliding_window_cache"):
        window = call.attribute("local_window_size")
        found = sliding_cache(g, past[0], k, places.total, places.first, window)
        keys, values = side_by_side(g, past[0], k), side_by_side(g, past[1], v)
        return _Cached(keys, values, found.after(g, past[0], keys), found.after(g, past[1], values), found.positions)
    keys, values = _joined(g, call, places, past[0], k), _joined(g, call, places, past[1], v)
    seen = keys, values
    if _is_one_buffer(g, call, past[0]) and _is_of_sizes(g, call):
        end = g.Reshape(g.cast(call["total_sequence_length"], INT64), [1])
        seen = g.Slice(keys, [0], end, [2]), g.Slice(values, [0], end, [2])
    return _Cached(*seen, keys, values, counted(g, g.dim(seen[0], 2)))


def _joined(g: DomainWriter, call: DomainCall, places: Places, past: DomainValue, new: DomainValue) -> DomainValue:
    """The cache with the new rows: in their places of a buffer, or behind the past, where they close up with a shorter one."""
    if new.dims[2] == 0:
        return past
    if _is_one_buffer(g, call, past):
        return scattered(g, past, new, places.first)
    longer = side_by_side(g, past, new)
    return longer if new.dims[0] == 1 else scattered(g, longer, new, places.first)


def _is_one_buffer(g: DomainWriter, call: DomainCall, past: DomainValue) -> bool:
    """Is there room for the new rows in the past, as what the model says of the sizes has it?"""
    room = past.dims[2]
    longest = g.site.value_of(call["total_sequence_length"].name)
    most = None if longest is None or longest.size != 1 else longest.reshape(-1).tolist()[0]
    if room is None:
        return False
    if room in (most, *_declared(g)):
        return True
    return isinstance(room, int) and isinstance(most, int) and most <= room


def _declared(g: DomainWriter) -> tuple[object, ...]:
    """How many rows the model says that keys have that are handed on."""
    kind = g.site.declared(g.node.outputs[1]) if len(g.node.outputs) > 1 else None
    shape = getattr(kind, "shape", None)
    return (shape[2],) if shape is not None and len(shape) == 4 else ()


def _is_of_sizes(g: DomainWriter, call: DomainCall) -> bool:
    longest = g.site.value_of(call["total_sequence_length"].name)
    return longest is not None and None not in longest.reshape(-1).tolist()


def _allowed(g: DomainWriter, call: DomainCall, places: Places, q: DomainValue, j: DomainValue) -> DomainValue:
    """Which keys a query sees: those up to its own place, a window of them, or all there are; (batch, 1, queries, keys)."""
    last = last_seen(g, places, q) if call.attribute("causal") else g.Unsqueeze(places.total, [1, 2, 3]) - 1
    allowed = g.LessOrEqual(j, last)
    window = call.attribute("local_window_size")
    return g.And(allowed, g.Greater(j, last - window)) if window >= 0 else allowed


def last_seen(g: DomainWriter, places: Places, q: DomainValue) -> DomainValue:
    """The last key that each query sees, (batch, 1, queries, 1): that of its own place, or the last there is."""
    own = g.Unsqueeze(counted(g, g.dim(q, 2)), [1]) + g.Unsqueeze(places.first, [1, 2, 3])
    return g.Min(own, g.Unsqueeze(places.total, [1, 2, 3]) - 1)


def _of_length(g: DomainWriter, added: DomainValue, keys: DomainValue) -> DomainValue:
    """What is added to scores, for as many keys as there are."""
    missing = g.scalar(g.dim(keys, 2)) - g.scalar(g.dim(added, 3))
    return g.Pad(added, g.Concat(g.constant(np.zeros(7, np.int64)), g.Unsqueeze(missing, [0]), axis=0))


GROUP_QUERY: tuple[DomainRow, ...] = (
    DomainRow(
        "GroupQueryAttention",
        _group_query_attention,
        operands=(
            *("query", "key?", "value?", "past_key?", "past_value?", "seqlens_k", "total_sequence_length"),
            *("cos_cache?", "sin_cache?", "position_ids?", "attention_bias?", "head_sink?", "k_scale?", "v_scale?"),
            *("q_norm_weight?", "k_norm_weight?"),
        ),
        attributes=(
            integer("num_heads"),
            integer("kv_num_heads"),
            real("scale", None),
            real("softcap", None),
            integer("do_rotary", None),
            integer("rotary_interleaved", None),
            integer("local_window_size", -1),
            integer("smooth_softmax", -1),
            integer("causal", 1),
            integer("qk_output", 0),
            real("qk_norm_epsilon", 1e-6),
            text("k_quant_type", "NONE"),
            text("v_quant_type", "NONE"),
            integer("kv_cache_bit_width", None),
            integer("sliding_window_cache", 0),
        ),
        outputs=("output", "present_key?", "present_value?", "output_qk?"),
        shapes="B S ., B L D, B L D, B kv_num_heads P H, B kv_num_heads P H, B | B 1, one, M R, M R, . S, "
        "1 . S T | B . S T, num_heads",
        rules=(
            at_least(1, "num_heads", "kv_num_heads"),
            flag("do_rotary", "rotary_interleaved", "causal", "sliding_window_cache"),
            at_least(0, "softcap"),
            at_least(-1, "local_window_size"),
            between("qk_output", 0, 2),
            one_of("smooth_softmax", -1, 0, 1),
        ),
        opset=24,
    ),
)
