"""What the attention operators of the domain share: heads, which keys take part, and the softmax with what is around it."""

from __future__ import annotations

import math

import numpy as np

from fusewise.frontend.domains.writer import DomainValue, DomainWriter, Extent
from fusewise.ir.dtypes import FLOAT32, INT64
from fusewise.records import record

__all__ = [
    "Attending",
    "as_long",
    "attended",
    "by_heads",
    "causal",
    "counted",
    "flat",
    "padding",
    "parts",
    "products",
    "scattered",
    "side_by_side",
]


@record(frozen=True)
class Attending:
    """Queries (batch, heads, queries, size), keys and values (batch, shared heads, keys, size), and what is done to the scores.

    Both broadcast to the scores (batch, heads, queries, keys): `allowed`, true for keys that take part, and `added`, of the
    queries' type. `is_causal` lets query i see keys up to i. `scale` None is the root of the size; a `softcap` of 0 does nothing.
    """

    q: DomainValue
    k: DomainValue
    v: DomainValue
    allowed: DomainValue | None = None
    added: DomainValue | None = None
    is_causal: bool = False
    scale: float | None = None
    softcap: float = 0.0


# -- heads ------------------------------------------------------------------------------------------------------------------


def by_heads(g: DomainWriter, x: DomainValue, heads: int) -> DomainValue:
    """(batch, tokens, heads * size) as (batch, heads, tokens, size)."""
    width = x.extent(2)
    if width is not None and width % heads:
        raise g.invalid(f"{width} elements are not shared out evenly among {heads} heads")
    size = -1 if width is None else width // heads
    return g.permute(g.Reshape(x, [0, 0, heads, size]), (0, 2, 1, 3))


def flat(g: DomainWriter, y: DomainValue) -> DomainValue:
    """(batch, heads, tokens, size) as (batch, tokens, heads * size)."""
    heads, size = y.extent(1), y.extent(3)
    width = -1 if heads is None or size is None else heads * size
    return g.Reshape(g.permute(y, (0, 2, 1, 3)), [0, 0, width])


def parts(g: DomainWriter, x: DomainValue, axis: int, sizes: list[int] | int) -> tuple[DomainValue, ...]:
    """Parts of these sizes along one axis, or so many equal ones."""
    if isinstance(sizes, int):
        return g.several("Split", sizes, x, axis=axis, num_outputs=sizes)
    return g.several("Split", len(sizes), x, sizes, axis=axis)


def side_by_side(g: DomainWriter, past: DomainValue | None, new: DomainValue) -> DomainValue:
    """Keys or values of the past, and the new ones behind them."""
    return new if past is None else g.Concat(past, new, axis=2)


def scattered(g: DomainWriter, cache: DomainValue, new: DomainValue, first: DomainValue) -> DomainValue:
    """A cache (batch, heads, places, size) with new rows from place `first` (batch) on."""
    return g.TensorScatter(cache, new, first, axis=2, mode="linear")


# -- which keys take part ---------------------------------------------------------------------------------------------------


def counted(g: DomainWriter, extent: Extent) -> DomainValue:
    """0, 1, ... below an extent."""
    if isinstance(extent, int):
        return g.constant(np.arange(extent, dtype=np.int64))
    return g.Range(g.number(0, INT64), g.scalar(extent), g.number(1, INT64))


def causal(g: DomainWriter, queries: Extent, keys: Extent) -> DomainValue:
    """Which of the keys (axis 1) come no later than each of the queries (axis 0), which are the last of them."""
    if isinstance(queries, int) and isinstance(keys, int):
        return g.constant(np.tri(queries, keys, keys - queries, dtype=bool))
    places = counted(g, queries) + (g.scalar(keys) - g.scalar(queries))
    return g.LessOrEqual(g.Unsqueeze(counted(g, keys), [0]), g.Unsqueeze(places, [1]))


def padding(g: DomainWriter, mask: DomainValue, batch: DomainValue, keys: Extent, filler: float) -> DomainValue | None:
    """What a mask of any of the domain's forms adds to scores: `filler` where it keeps a key out. `batch` has the batch in front.

    (batch): how many keys there are; (2 batch): the ends, then where they begin; (3 batch + 2): the first `batch` as before;
    (batch, keys) and (batch, queries, keys): above 0 for a key that takes part; one column is for no mask.
    """
    if mask.rank == 1:
        return _added(g, _between(g, mask, batch, keys), batch, filler)
    if mask.rank == 2:
        return None if mask.dims[1] == 1 else _added(g, g.Unsqueeze(_positive(g, mask), [1, 2]), batch, filler)
    if mask.rank == 3:
        return _added(g, g.Unsqueeze(_positive(g, mask), [1]), batch, filler)
    raise g.unsupported(f"a mask of {mask.rank} dimensions is not supported; give one of 1, 2 or 3")


def as_long(g: DomainWriter, added: DomainValue, keys: Extent) -> DomainValue:
    """What is added to scores, which has to reach as far as the keys do."""
    known = added.dims[-1]
    if known == 1 or (known == keys and isinstance(keys, int)):
        return added
    return g.Expand(added, [keys])


def _positive(g: DomainWriter, mask: DomainValue) -> DomainValue:
    return g.Greater(mask, 0)


def _between(g: DomainWriter, mask: DomainValue, batch: DomainValue, keys: Extent) -> DomainValue:
    """Which keys lie before an end, and not before where they begin, each given for each sample."""
    count, samples = mask.extent(0), batch.extent(0)
    place = g.Cast(counted(g, keys), to=mask.dtype.onnx)
    if count is None or samples is None or count == samples:
        return g.Less(place, g.Unsqueeze(mask, [1, 2, 3]))
    if count not in (2 * samples, 3 * samples + 2):
        raise g.invalid(
            f"a mask of one dimension has {count} elements; {samples} samples need {samples} or {2 * samples}"
        )
    inside = g.Less(place, g.Unsqueeze(g.slice(mask, 0, 0, samples), [1, 2, 3]))
    if count != 2 * samples:
        return inside
    starts = g.Unsqueeze(g.slice(mask, 0, samples, count), [1, 2, 3])
    return g.And(inside, g.GreaterOrEqual(place, starts))


def _added(g: DomainWriter, allowed: DomainValue, like: DomainValue, filler: float) -> DomainValue:
    return g.Where(allowed, g.number(0, like.dtype), g.number(filler, like.dtype))


# -- the softmax and what is around it --------------------------------------------------------------------------------------


def attended(g: DomainWriter, a: Attending) -> DomainValue:
    """The values' mean for each query, by ONNX's operator."""
    mask = a.allowed
    if a.added is not None:
        mask = a.added if mask is None else g.Where(mask, a.added, g.number(-math.inf, a.added.dtype))
    extra = {"scale": a.scale, "softcap": a.softcap or None, "is_causal": 1 if a.is_causal else None}
    return g.Attention(a.q, a.k, a.v, mask, **extra)


def products(
    g: DomainWriter, a: Attending, sink: DomainValue | None = None
) -> tuple[DomainValue, DomainValue, DomainValue]:
    """The same in steps, and the scores before and after the softmax, (batch, heads, queries, keys).

    `sink` (heads): a score for each head that is part of the softmax's sum alone.
    """
    heads, shared = a.q.extent(1), a.k.extent(1)
    if heads is None or shared is None:
        raise g.unsupported(f"how many heads {a.k.name!r} has must be known here; state it in the model")
    wide = [g.cast(x, FLOAT32) for x in (a.q, a.k, a.v)]
    q = _grouped(g, wide[0], heads, shared)
    k, v = (g.Unsqueeze(x, [2]) for x in wide[1:])
    scores = g.MatMul(q, g.permute(k, (0, 1, 2, 4, 3))) * _factor(g, a)
    if a.softcap:
        scores = g.Tanh(scores / a.softcap) * a.softcap
    before = _joined(g, scores, a, heads)
    if a.added is not None:
        before = before + g.cast(a.added, FLOAT32)
    allowed = a.allowed
    if a.is_causal:
        seen = causal(g, g.dim(a.q, 2), g.dim(a.k, 2))
        allowed = seen if allowed is None else g.And(allowed, seen)
    masked = before if allowed is None else g.Where(allowed, before, g.number(-math.inf, FLOAT32))
    after = _softmax(g, masked, sink)
    if allowed is not None:
        before = g.Where(allowed, before, g.number(0, FLOAT32))
    y = g.MatMul(_grouped(g, after, heads, shared), v)
    y = _joined(g, y, a, heads)
    return g.cast(y, a.q.dtype), g.cast(before, a.q.dtype), g.cast(after, a.q.dtype)


def _factor(g: DomainWriter, a: Attending) -> DomainValue:
    if a.scale is not None:
        return g.number(a.scale, FLOAT32)
    size = a.q.extent(3)
    if size is not None:
        return g.number(1 / math.sqrt(max(1, size)), FLOAT32)
    return g.Reciprocal(g.Sqrt(g.cast(g.scalar(g.dim(a.q, 3)), FLOAT32)))


def _grouped(g: DomainWriter, x: DomainValue, heads: int, shared: int) -> DomainValue:
    """(batch, heads, rows, columns) as (batch, shared heads, heads that share one, rows, columns)."""
    return g.reshape(x, [g.dim(x, 0), shared, heads // shared, g.dim(x, 2), g.dim(x, 3)])


def _joined(g: DomainWriter, x: DomainValue, a: Attending, heads: int) -> DomainValue:
    return g.reshape(x, [g.dim(a.q, 0), heads, g.dim(a.q, 2), g.dim(x, 4)])


def _softmax(g: DomainWriter, scores: DomainValue, sink: DomainValue | None) -> DomainValue:
    if sink is None:
        return g.Softmax(scores, axis=-1)
    column = g.Unsqueeze(g.cast(sink, FLOAT32), [0, 2, 3])
    top = g.Max(g.ReduceMax(scores, [-1], keepdims=1), column)
    weights = g.Exp(scores - top)
    return weights / (g.ReduceSum(weights, [-1], keepdims=1) + g.Exp(column - top))
