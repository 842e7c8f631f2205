"""Beam search: for each sample some hypotheses that go on, and the best of those that have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from fusewise.frontend.domains.microsoft.decoders import Chosen
from fusewise.frontend.domains.microsoft.next_scores import LOWEST
from fusewise.frontend.domains.microsoft.protos import Protos
from fusewise.records import record

__all__ = ["BEAM_KINDS", "NEEDED", "Beams", "beams_of", "finished", "next_beams", "started"]

_KINDS = onnx.TensorProto
BEAM_KINDS = (
    *((_KINDS.INT32, 2), (_KINDS.FLOAT, 2), (_KINDS.BOOL, 2)),
    *((_KINDS.INT32, 3), (_KINDS.FLOAT, 2), (_KINDS.INT64, 2)),
)
"""Element types and ranks of the states. Of beams: tokens [rows, length], scores [samples, beams], is a sample done [samples, 1].
Of what has ended, the best first: tokens [samples, beams, greatest length], scores [samples, beams], how many [samples, 1]."""

NEEDED = frozenset({"input_ids", "max_length", "num_beams", "num_return_sequences"})
"""Operands of a search that are not optional."""


@record(frozen=True)
class Beams:
    """What stays the same in a search: attributes, and names of values, which have no dimensions or those that are said.

    `rows` [rows]: the sample of each row, a row being one beam of a sample. `own` [rows], `slots` [beams], `numbers` [samples, 1]:
    0, 1, ...
    """

    end: np.int32
    pad: np.int32
    early: bool
    samples: str
    count: str
    most: str
    penalty: str
    own: str
    rows: str
    slots: str
    numbers: str
    twice: str


def beams_of(g: Protos, ends: tuple[np.int32, np.int32, bool], samples: str, operands: Mapping[str, str]) -> Beams:
    """The search that a node's operands ask for."""
    count = g.number(operands["num_beams"])
    penalty = np.float32(1)
    zero, one = np.int64(0), np.int64(1)
    return Beams(
        *ends,
        samples=samples,
        count=count,
        most=g.number(operands["max_length"]),
        penalty=g.number(operands["length_penalty"], _KINDS.FLOAT)
        if operands.get("length_penalty")
        else g.constant(penalty),
        own=g.Range(zero, g.Mul(samples, count), one),
        rows=g.Div(g.Range(zero, g.Mul(samples, count), one), count),
        slots=g.Range(zero, count, one),
        numbers=g.Reshape(g.Range(zero, samples, one), np.array([-1, 1])),
        twice=g.Add(count, count),
    )


def started(g: Protos, search: Beams, sequences: str) -> tuple[str, ...]:
    """The states before the first round: the first beam of each sample is ahead of the others, which read the same."""
    behind = g.Where(g.Greater(search.slots, np.int64(0)), np.float32(-1e9), np.float32(0))
    each = g.shape(search.samples, search.count)
    nobody = g.Less(search.numbers, np.int64(0))
    return (
        sequences,
        g.Expand(behind, each),
        nobody,
        g.Expand(search.pad, g.shape(search.samples, search.count, search.most)),
        g.Expand(np.float32(0), each),
        g.Mul(search.numbers, np.int64(0)),
    )


def next_beams(g: Protos, search: Beams, scores: str, states: Sequence[str], gathers: bool) -> Chosen:
    """The best tokens after each sample's beams, from scores [rows, vocabulary]; those that end go to what has ended."""
    sequences, sums, done, *_ = states
    length = g.length(sequences)
    vocabulary = g.length(scores)
    totals = g.Add(scores, g.Reshape(sums, np.array([-1, 1])))
    flat = g.Reshape(totals, g.shape(search.samples, g.Mul(search.count, vocabulary)))
    best, places = g.several("TopK", 2, flat, g.shape(search.twice), axis=1)
    origin = g.Add(g.Div(places, vocabulary), g.Mul(search.numbers, search.count))
    token = g.Cast(g.Mod(places, vocabulary), to=_KINDS.INT32)
    ends = g.Equal(token, search.end)
    one = np.int64(1)
    order = g.Range(np.int64(0), search.twice, one)

    ahead = [np.array([0]), g.shape(search.count), np.array([1])]
    taken = g.And(g.Slice(ends, *ahead), g.Not(done))
    ended = g.Gather(sequences, g.Slice(origin, *ahead), axis=0)
    worth = _worth(g, search, g.Slice(best, *ahead), length)
    kept = _added(g, search, states[3:], (ended, worth, taken))

    later = g.Where(ends, g.Add(order, search.twice), order)
    going = g.several("TopK", 2, later, g.shape(search.count), axis=1, largest=0)[0]
    going = g.Mod(going, search.twice)
    sums = g.Where(done, np.float32(0), g.GatherElements(best, going, axis=1))
    token = g.Reshape(g.Where(done, search.pad, g.GatherElements(token, going, axis=1)), np.array([-1, 1]))
    origin = g.Reshape(g.Where(done, np.int64(0), g.GatherElements(origin, going, axis=1)), np.array([-1]))

    done = g.Or(done, _is_done(g, search, kept, best, length))
    longer = g.Concat(g.Gather(sequences, origin, axis=0), token, axis=1)
    moved = g.Where(g.Equal(search.count, one), search.own, origin)
    open_ones = g.ReduceMax(g.Cast(g.Not(done), to=_KINDS.INT32), keepdims=0)
    goes_on = g.Greater(open_ones, np.int32(0))
    return Chosen(token, longer, (longer, sums, done, *kept), goes_on, (totals,) if gathers else (), moved)


def finished(g: Protos, search: Beams, states: Sequence[str], returned: str) -> tuple[str, str]:
    """The best sequences of each sample [samples, returned, greatest length] and their scores, once no round follows.

    More than there are beams are positions beyond the last, an error when the model runs.
    """
    sequences, sums, done, *kept = states
    length = g.length(sequences)
    open_ones = g.Reshape(sequences, g.shape(search.samples, search.count, length))
    taken = g.And(g.Not(done), g.Greater(search.slots, np.int64(-1)))
    tokens, scores, _ = _added(g, search, kept, (open_ones, _worth(g, search, sums, length), taken))
    wanted = g.Range(np.int64(0), returned, np.int64(1))
    return g.Gather(tokens, wanted, axis=1), g.Gather(scores, wanted, axis=1)


def _worth(g: Protos, search: Beams, sums: str, length: str) -> str:
    return g.Div(sums, g.Pow(g.Cast(length, to=_KINDS.FLOAT), search.penalty))


def _added(g: Protos, search: Beams, kept: Sequence[str], new: tuple[str, str, str]) -> tuple[str, str, str]:
    """What has ended, with new ones where they are better; of equals the earlier. `new`: tokens [samples, beams, length], scores,
    and which of them count."""
    tokens, scores, used = kept
    new_tokens, new_scores, taken = new
    least, nothing = LOWEST, np.float32(-np.inf)
    old_key = g.Where(g.Less(search.slots, used), g.Max(scores, least), nothing)
    new_key = g.Where(taken, g.Max(new_scores, least), nothing)
    best = g.several("TopK", 2, g.Concat(old_key, new_key, axis=1), g.shape(search.count), axis=1)[1]
    missing = g.Sub(search.most, g.length(new_tokens, 2))
    padded = g.Pad(new_tokens, g.Concat(np.zeros(5, np.int64), g.shape(missing), axis=0), search.pad)
    both = g.Reshape(g.Concat(tokens, padded, axis=1), g.shape(-1, search.most))
    tokens = g.Gather(both, g.Add(best, g.Mul(search.numbers, search.twice)), axis=0)
    scores = g.GatherElements(g.Concat(scores, new_scores, axis=1), best, axis=1)
    more = g.total(g.Cast(taken, to=_KINDS.INT64))
    used = g.Add(used, more)
    return tokens, scores, g.Where(g.Less(used, search.count), used, search.count)


def _is_done(g: Protos, search: Beams, kept: Sequence[str], best: str, length: str) -> str:
    """Have as many ended as there are beams, and can none that goes on be better?

    What is best is looked for where ONNX Runtime does: in as many sums as are picked for a sample, but from where they would begin
    if half as many were picked, which is by what the samples before have.
    """
    _, scores, used = kept
    full = g.Equal(used, search.count)
    if search.early:
        return full
    window = g.Add(g.Mul(search.numbers, search.count), g.Range(np.int64(0), search.twice, np.int64(1)))
    looked_at = g.Gather(g.Reshape(best, np.array([-1])), window)
    greatest = g.several("TopK", 2, looked_at, np.array([1]), axis=1)[0]
    worst = g.Gather(scores, g.shape(g.Sub(search.count, np.int64(1))), axis=1)
    return g.And(full, g.Not(g.Less(worst, _worth(g, search, greatest, length))))
