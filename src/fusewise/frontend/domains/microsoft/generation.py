"""Generating text: the likeliest token after each prompt, or one by chance, from a decoder that the node holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from fusewise.errors import UnsupportedModel
from fusewise.frontend.domains.microsoft.decoders import Chosen, State, begun, looped, prompted_gpt
from fusewise.frontend.domains.microsoft.next_scores import Penalties, changed, last_logits, token_of
from fusewise.frontend.domains.microsoft.protos import Protos
from fusewise.frontend.domains.row import DomainRow, graph, integer
from fusewise.frontend.order import node_label

__all__ = ["ATTRIBUTES", "GENERATION", "OPERANDS", "generated"]

_KINDS = onnx.TensorProto
Pick = Callable[[Protos, str, Sequence[str]], tuple[str, tuple[str, ...]]]
"""In the body, from scores [rows, vocabulary] and states of its own: tokens [rows, 1] of int32, and the states after that."""


def _greedy_search(node: onnx.NodeProto, opset: int, fresh: Callable[[str], str]) -> list[onnx.NodeProto]:
    """The likeliest token after each prompt, again and again, until every row has met its end or is as long as it may be."""
    return generated(Protos(node_label(node), "GreedySearch", opset, fresh), node, OPERANDS, _likeliest)


def _likeliest(g: Protos, given: Mapping[str, Any], operands: Mapping[str, str]) -> tuple[Pick, list[State]]:
    def pick(inner: Protos, scores: str, own: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        return inner.Cast(inner.ArgMax(scores, axis=1, keepdims=1), to=_KINDS.INT32), ()

    return pick, []


def generated(
    g: Protos,
    node: onnx.NodeProto,
    names: Sequence[str],
    picker: Callable[[Protos, Mapping[str, Any], Mapping[str, str]], tuple[Pick, list[State]]],
) -> list[onnx.NodeProto]:
    """A sequence for each prompt by a decoder like GPT-2's, padded to the greatest length; `names` are those of the operands."""
    given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    end, pad = token_of(g, given, "eos_token_id"), token_of(g, given, "pad_token_id")
    if given.get("model_type", 0) != 0 or "encoder" in given:
        raise UnsupportedModel(
            f"{g.where}: only one decoder like GPT-2's (model_type 0) is supported, as by ONNX Runtime; "
            "BeamSearch with one beam does the same for an encoder and a decoder"
        )
    operands = dict(zip(names, [*node.input, *[""] * len(names)], strict=False))
    penalties = Penalties(given, operands)
    pick, own = picker(g, given, operands)
    ids, most = operands["input_ids"], g.number(operands["max_length"])
    prompt = prompted_gpt(g, given, operands, "")
    unfinished = g.Greater(g.Gather(ids, np.zeros(1, np.int64), axis=1), np.int32(np.iinfo(np.int32).max))
    first = ids, unfinished, *(name for name, _, _ in own)

    def choose(inner: Protos, logits: str, states: Sequence[str], is_first: str | bool) -> Chosen:
        sequences, finished, *rest = states
        scores = changed(inner, penalties, last_logits(inner, given, logits), sequences, is_first)
        best, following = pick(inner, scores, rest)
        over = inner.Or(finished, inner.Equal(best, end))
        token = inner.Where(over, pad, best)
        goes_on = inner.Equal(inner.ReduceMin(inner.Cast(over, to=_KINDS.INT32), keepdims=0), np.int32(0))
        longer = inner.Concat(sequences, token, axis=1)
        return Chosen(token, longer, (longer, over, *following), goes_on)

    rounds, feeds = g.Sub(most, g.length(ids)), prompt.feeds
    if prompt.logits:
        chosen = choose(g, prompt.logits, first, True)
        first, feeds = chosen.states, begun(g, prompt, chosen, "")
        rounds = g.Where(chosen.goes_on, g.Sub(rounds, np.int64(1)), np.int64(0))
    kinds = [(_KINDS.INT32, 2), (_KINDS.BOOL, 2), *((kind, rank) for _, kind, rank in own)]

    def body(inner: Protos, logits: str, states: Sequence[str], counter: str) -> Chosen:
        is_first = False if prompt.logits else inner.Equal(counter, np.int64(0))
        return choose(inner, logits, states, is_first)

    states = [(name, kind, rank) for name, (kind, rank) in zip(first, kinds, strict=True)]
    sequences = looped(g, prompt.decoder, rounds, states, feeds, body)[0]
    missing = g.Reshape(g.Sub(most, g.length(sequences)), np.ones(1, np.int64))
    g.give(node.output[0], g.Pad(sequences, g.Concat(np.zeros(3, np.int64), missing, axis=0), pad))
    return g.nodes


OPERANDS = (
    *("input_ids", "max_length", "min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask"),
    "attention_mask",
)
ATTRIBUTES = (
    *(integer("decoder_start_token_id", -1), integer("eos_token_id"), integer("model_type", 0)),
    *(integer("no_repeat_ngram_size", 0), integer("pad_token_id"), integer("vocab_size", -1)),
    *(graph("decoder"), graph("encoder", None), graph("init_decoder", None)),
)

GENERATION: tuple[DomainRow, ...] = (
    DomainRow(
        "GreedySearch",
        None,
        tuple(f"{name}?" if k > 1 else name for k, name in enumerate(OPERANDS)),
        ATTRIBUTES,
        ("sequences",),
        expand=_greedy_search,
    ),
)
