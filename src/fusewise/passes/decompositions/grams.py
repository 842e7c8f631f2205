"""Counting of words by comparisons: every place of a text with every sequence of words that is looked for.

count[g] = sum over places p of (x[p] = pool[g, 0] and x[p + 1] = pool[g, 1] and ...)
"""

from __future__ import annotations

import numpy as np

from fusewise.ir.dtypes import FLOAT32, INT64
from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["GRAMS"]

_MOST_COMPARISONS = 1 << 22
"""Beyond so many a table of what is looked for is faster."""


def _counted(g: Notation, call: Call, x: TensorValue) -> TensorValue | None:
    pool, starts = call.attribute("pool_int64s") or (), call.attribute("ngram_counts") or ()
    places, weights = call.attribute("ngram_indexes") or (), call.attribute("weights")
    shortest, longest = call.attribute("min_gram_length"), call.attribute("max_gram_length")
    mode = call.attribute("mode")
    length, rows = (x.dims[-1] if x.rank else 0), x.size // max(1, x.dims[-1] if x.rank else 1)
    if (
        not pool
        or call.attribute("max_skip_count")
        or x.rank not in (1, 2)
        or 0 in x.dims
        or len(set(places)) < len(places)
    ):
        return None
    if x.size * len(pool) > _MOST_COMPARISONS or x.dtype.kind == "string":
        return None
    texts = g.reshape(g.cast(x, INT64), [rows, length])
    counts = []
    for size, (begin, end) in enumerate(zip(starts, (*starts[1:], len(pool)), strict=True), start=1):
        grams = np.array(pool[begin:end], np.int64).reshape(-1, size)
        if shortest <= size <= longest and size <= length and len(grams):
            counts.append(_found(g, texts, grams, length - size + 1))
        elif len(grams):
            counts.append(g.fill(0.0, [rows, len(grams)], FLOAT32))
    found = counts[0] if len(counts) == 1 else g.Concat(*counts, axis=1)
    if found.dims[1] != len(places):
        return None
    if mode == "IDF":
        found = g.cast(g.Greater(found, 0.0), FLOAT32)
    if weights and mode != "TF":
        found = found * np.array(weights, np.float32)
    column = np.full(max(places) + 1, len(places), np.int64)
    column[list(places)] = np.arange(len(places))
    if len(places) < len(column):
        found = g.pad(found, 1, 0, 1)
    return g.reshape(g.Gather(found, g.constant(column), axis=1), call.output().dims)


def _found(g: Notation, texts: TensorValue, grams: np.ndarray, places: int) -> TensorValue:
    """How often each of the grams [count, size] stands in each text: [texts, count]."""
    same: TensorValue | None = None
    for k in range(grams.shape[1]):
        word = g.Unsqueeze(g.slice(texts, 1, k, k + places), [2])
        here = g.Equal(word, grams[None, None, :, k])
        same = here if same is None else g.And(same, here)
    assert same is not None
    return g.ReduceSum(g.cast(same, FLOAT32), [1], keepdims=0)


GRAMS: tuple[Decomposition, ...] = (row("TfIdfVectorizer", _counted),)
