"""Generating text by chance: after each prompt a token that is drawn by its probability, among the likeliest ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from fusewise.errors import UnsupportedModel
from fusewise.frontend.domains.microsoft.decoders import State
from fusewise.frontend.domains.microsoft.generation import ATTRIBUTES, OPERANDS, Pick, generated
from fusewise.frontend.domains.microsoft.protos import Protos
from fusewise.frontend.domains.row import DomainRow, integer, real
from fusewise.frontend.order import node_label

__all__ = ["SAMPLING"]

_KINDS = onnx.TensorProto
_MODULUS, _MULTIPLIER = 2**31 - 1, 16807
"""Of the generator minstd_rand0 in C++, which ONNX Runtime draws from where it is built with GNU's library."""
_SPAN = float(_MODULUS - 1)
_BITS = 16
"""Draws of one round are counted with so many bits."""


def _sampling(node: onnx.NodeProto, opset: int, fresh: Callable[[str], str]) -> list[onnx.NodeProto]:
    g = Protos(node_label(node), "Sampling", opset, fresh)
    if len(node.output) > 1 and node.output[1]:
        raise UnsupportedModel(f"{g.where}: its output filtered_logits is for its makers' debugging")
    return generated(g, node, _SAMPLED, _drawn)


def _drawn(g: Protos, given: Mapping[str, Any], operands: Mapping[str, str]) -> tuple[Pick, list[State]]:
    """How tokens are drawn; the state is that of the generator. Without a seed it is 0, so that runs can be repeated.

    Each token of `presence_mask` loses the penalty, as the operator is described; ONNX Runtime takes all of it from one token.
    """
    seed = g.number(operands["seed"]) if operands.get("seed") else g.constant(np.int64(0))
    begun = g.Mod(g.Mod(seed, np.int64(2**32)), np.int64(_MODULUS))
    begun = g.Where(g.Equal(begun, np.int64(0)), np.int64(1), begun)
    samples = g.length(operands["input_ids"], 0)
    powers = _powers(g, g.Mul(samples, np.int64(2)))
    temperature, penalty = given.get("temperature", 1.0), given.get("presence_penalty", 0.0)

    def pick(inner: Protos, scores: str, own: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        if temperature > 0 and temperature != 1:
            scores = inner.Div(scores, np.float32(temperature))
        if penalty and operands.get("presence_mask"):
            present = inner.Cast(operands["presence_mask"], to=_KINDS.FLOAT)
            scores = inner.Sub(scores, inner.Mul(present, np.float32(penalty)))
        kept = (_filtered_custom if given.get("custom", 0) else _filtered)(inner, given, scores)
        draws = inner.Mod(inner.Mul(own[0], powers), np.int64(_MODULUS))
        following = inner.Gather(draws, np.int64(-1))
        return _token_at(inner, kept, _uniform(inner, draws)), (following,)

    return pick, [(begun, _KINDS.INT64, 0)]


def _powers(g: Protos, count: str) -> str:
    """The first powers of the generator's multiplier, from the first on, `count` of them."""
    exponents = g.Range(np.int64(1), g.Add(count, np.int64(1)), np.int64(1))
    result = g.Add(g.Mul(exponents, np.int64(0)), np.int64(1))
    square = _MULTIPLIER
    for bit in range(_BITS):
        is_set = g.Equal(g.Mod(g.Div(exponents, np.int64(2**bit)), np.int64(2)), np.int64(1))
        result = g.Where(is_set, g.Mod(g.Mul(result, np.int64(square)), np.int64(_MODULUS)), result)
        square = square * square % _MODULUS
    return result


def _uniform(g: Protos, draws: str) -> str:
    """A number of [0, 1) for each sample [samples, 1], in double, of two draws each, the earlier in the lower digits."""
    pairs = g.Cast(g.Sub(g.Reshape(draws, np.array([-1, 2])), np.int64(1)), to=_KINDS.DOUBLE)
    low, high = (g.Gather(pairs, np.array([k]), axis=1) for k in range(2))
    return g.Div(g.Add(low, g.Mul(high, np.float64(_SPAN))), np.float64(_SPAN * _SPAN))


def _token_at(g: Protos, scores: str, at: str) -> str:
    """The token in whose part of the cumulative distribution a number lies; scores that are not finite have no part."""
    wide = g.Cast(scores, to=_KINDS.DOUBLE)
    most = g.several(
        "TopK", 2, g.Where(_is_finite(g, wide), wide, np.float64(np.finfo(np.float32).min)), np.array([1])
    )[0]
    part = g.Where(_is_finite(g, wide), g.Exp(g.Sub(wide, most)), np.float64(0))
    upto = g.CumSum(part, np.int64(1))
    whole = g.Gather(upto, np.array([-1]), axis=1)
    below = g.Cast(g.Not(g.Greater(upto, g.Mul(at, whole))), to=_KINDS.INT32)
    return g.total(below)


def _is_finite(g: Protos, x: str) -> str:
    return g.Less(g.Abs(x), np.float64(np.inf))


def _filtered(g: Protos, given: Mapping[str, Any], scores: str) -> str:
    """Scores with `filter_value` in place of the least likely tokens that come to no more than 1 - top_p together."""
    size = g.length(scores)
    least_first, order = g.several("TopK", 2, scores, g.shape(size), axis=1, largest=0)
    upto = g.CumSum(g.Softmax(least_first, axis=1), np.int64(1))
    place = g.Range(np.int64(0), size, np.int64(1))
    may_go = g.Less(place, g.Sub(size, np.int64(max(given.get("min_tokens_to_keep", 0), 0))))
    may_go = g.Or(may_go, g.Equal(place, np.int64(0)))
    limit = np.float32(1) - np.float32(given.get("top_p", 0.0))
    return _without(g, given, (scores, least_first, order), g.And(may_go, g.Not(g.Greater(upto, limit))))


def _filtered_custom(g: Protos, given: Mapping[str, Any], scores: str) -> str:
    """The same for tokens after the likeliest ones that come to more than top_p together; the likeliest stays."""
    size = g.length(scores)
    first, order = g.several("TopK", 2, scores, g.shape(size), axis=1)
    parts = g.Softmax(first, axis=1)
    before = g.CumSum(parts, np.int64(1), exclusive=1)
    place = g.Range(np.int64(0), size, np.int64(1))
    goes = g.And(g.Greater(place, np.int64(0)), g.Greater(before, np.float32(given.get("top_p", 0.0))))
    return _without(g, given, (scores, first, order), goes)


def _without(g: Protos, given: Mapping[str, Any], scores: tuple[str, str, str], goes: str) -> str:
    """`scores`: as they were, sorted, and where those come from."""
    plain, sorted_, order = scores
    return g.ScatterElements(plain, order, g.Where(goes, np.float32(given.get("filter_value", -1e20)), sorted_), axis=1)


_SAMPLED = (*OPERANDS, "presence_mask", "seed")

SAMPLING: tuple[DomainRow, ...] = (
    DomainRow(
        "Sampling",
        None,
        tuple(f"{name}?" if k > 1 else name for k, name in enumerate(_SAMPLED)),
        (
            *ATTRIBUTES,
            *(integer("custom", 0), real("filter_value", -1e20), integer("min_tokens_to_keep", 0)),
            *(real("presence_penalty", 0.0), real("temperature", 1.0), real("top_p", 0.0)),
        ),
        ("sequences", "filtered_logits?"),
        expand=_sampling,
    ),
)
