"""Beam search by a decoder like GPT-2's, or by an encoder and a decoder like T5's, as a loop over the decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from fusewise.errors import InvalidModel, UnsupportedModel
from fusewise.frontend.domains.microsoft.beams import (
    BEAM_KINDS,
    NEEDED,
    Beams,
    beams_of,
    finished,
    next_beams,
    started,
)
from fusewise.frontend.domains.microsoft.decoders import (
    Chosen,
    Feeds,
    Prompt,
    begun,
    decoder_of_encoder,
    looped,
    prompted_gpt,
)
from fusewise.frontend.domains.microsoft.next_scores import Penalties, changed, last_logits, mask_of, token_of
from fusewise.frontend.domains.microsoft.protos import Protos
from fusewise.frontend.domains.row import DomainRow, graph, integer
from fusewise.frontend.order import node_label

__all__ = ["BEAM_SEARCH", "beam_searched", "encoder_of"]

Processor = Callable[[Protos, str, str], str]
"""From scores [rows, vocabulary] and tokens so far [rows, length]: scores by rules of one model."""


def _beam_search(node: onnx.NodeProto, opset: int, fresh: Callable[[str], str]) -> list[onnx.NodeProto]:
    g = Protos(node_label(node), "BeamSearch", opset, fresh)
    given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    kind = given.get("model_type", 0)
    makers = {0: _gpt, 1: _encoded}
    if kind not in makers:
        raise UnsupportedModel(
            f"{g.where}: its model_type is {kind}; supported are 0 (GPT-2) and 1 (an encoder and a decoder)"
        )
    return beam_searched(g, node, given, _OPERANDS, makers[kind])


def beam_searched(
    g: Protos,
    node: onnx.NodeProto,
    given: Mapping[str, Any],
    names: Sequence[str],
    prompted: Callable[[Protos, Mapping[str, Any], Mapping[str, str], Beams], Prompt],
    process: Processor | None = None,
) -> list[onnx.NodeProto]:
    """The nodes of a search; `names` are those of the operands, `prompted` says what it begins with."""
    operands = dict(zip(names, [*node.input, *[""] * len(names)], strict=False))
    early = given.get("early_stopping", 0) == 1
    ends = token_of(g, given, "eos_token_id"), token_of(g, given, "pad_token_id"), early
    search = beams_of(g, ends, g.length(operands["input_ids"], 0), operands)
    prompt = prompted(g, given, operands, search)
    penalties = Penalties(given, operands, search.rows)
    wants_scores = len(node.output) > 2 and bool(node.output[2])

    def choose(inner: Protos, logits: str, states: Sequence[str], is_first: str | bool) -> Chosen:
        scores = inner.LogSoftmax(last_logits(inner, given, logits), axis=-1)
        if is_first is True:
            scores = inner.Gather(scores, search.rows, axis=0)
        scores = changed(inner, penalties, scores, states[0], is_first)
        scores = process(inner, scores, states[0]) if process else scores
        return next_beams(inner, search, scores, states, wants_scores)

    first, feeds, gathered = started(g, search, prompt.sequences), prompt.feeds, []
    rounds = g.Sub(search.most, g.length(prompt.sequences))
    if prompt.logits:
        chosen = choose(g, prompt.logits, first, True)
        gathered = [g.Reshape(one, g.shape(1, *(g.length(one, k) for k in range(2)))) for one in chosen.gathered]
        first, feeds = chosen.states, begun(g, prompt, chosen, search.rows)
        rounds = g.Sub(rounds, np.int64(1))

    def body(inner: Protos, logits: str, states: Sequence[str], counter: str) -> Chosen:
        return choose(inner, logits, states, False if prompt.logits else inner.Equal(counter, np.int64(0)))

    states = [(name, kind, rank) for name, (kind, rank) in zip(first, BEAM_KINDS, strict=True)]
    made = looped(g, prompt.decoder, rounds, states, feeds, body)
    last, more = made[: len(states)], made[len(states) :]
    sequences, worth = finished(g, search, last, g.number(operands["num_return_sequences"]))
    g.give(node.output[0], sequences)
    half = given["decoder"].output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    kind = onnx.TensorProto.FLOAT16 if half else onnx.TensorProto.FLOAT
    if len(node.output) > 1 and node.output[1]:
        g.give(node.output[1], g.Cast(worth, to=kind))
    if wants_scores:
        totals = _all_totals(g, search, [*gathered, *more])
        missing = g.Sub(g.Sub(search.most, g.length(prompt.sequences)), g.length(totals, 0))
        padding = g.Concat(np.zeros(4, np.int64), g.shape(missing), np.zeros(3, np.int64), axis=0)
        g.give(node.output[2], g.Cast(g.Pad(totals, padding), to=kind))
    return g.nodes


def _all_totals(g: Protos, search: Beams, parts: Sequence[str]) -> str:
    """Scores of all rounds [rounds, samples, beams, vocabulary]. Rounds of a loop that has none have no other dimensions either."""
    rounds = [g.length(one, 0) for one in parts]
    flat = [g.Reshape(one, np.array([-1])) for one in parts]
    total = rounds[0] if len(parts) == 1 else g.Add(*rounds)
    return g.Reshape(g.Concat(*flat, axis=0), g.shape(total, search.samples, search.count, g.length(parts[0], 2)))


def _gpt(g: Protos, given: Mapping[str, Any], operands: Mapping[str, str], search: Beams) -> Prompt:
    return prompted_gpt(g, given, operands, search.rows)


def _encoded(g: Protos, given: Mapping[str, Any], operands: Mapping[str, str], search: Beams) -> Prompt:
    """The encoder reads the prompt; what it gives are keys and values for the decoder, or the first logits and all caches."""
    leading = ("encoder_input_ids", "encoder_attention_mask", "encoder_hidden_states")
    encoder, decoder = encoder_of(g, given), decoder_of_encoder(g, given["decoder"], leading)
    start = token_of(g, given, "decoder_start_token_id")
    if start < 0:
        raise InvalidModel(f"{g.where}: it lacks the attribute decoder_start_token_id")
    ids = operands["input_ids"]
    mask = operands.get("attention_mask") or mask_of(g, ids, search.pad)
    begun = g.Expand(start, g.shape(search.samples, 1))
    pairs = len(decoder.caches)
    lasting = [name for name in decoder.fixed if name not in leading]
    whole = {"encoder_input_ids": ids, "encoder_attention_mask": mask}
    if len(encoder.input) == 3 and len(encoder.output) == 2 + 2 * pairs:
        logits, hidden, *presents = g.run(encoder, ids, mask, begun)
        whole["encoder_hidden_states"] = hidden
    elif len(encoder.input) == 2 and len(encoder.output) == pairs and "encoder_hidden_states" not in decoder.fixed:
        logits, presents = "", g.run(encoder, ids, mask)
    else:
        raise UnsupportedModel(
            f"{g.where}: its encoder has {len(encoder.input)} inputs and {len(encoder.output)} outputs, which does not fit "
            f"the {2 * pairs} caches of its decoder"
        )
    whole |= dict(zip(lasting, presents[-pairs:], strict=True))
    fixed = {name: g.Gather(whole[name], search.rows, axis=0) for name in decoder.fixed}
    sequences = g.Gather(begun, search.rows, axis=0)
    if logits:
        return Prompt(sequences, decoder, Feeds((), fixed), logits, "", tuple(presents[:pairs]))
    nothing = [np.array([0]), np.array([0]), np.array([2])]
    caches = [g.Slice(fixed[name], *nothing) for name in lasting]
    return Prompt(sequences, decoder, Feeds((sequences, *caches), fixed))


def encoder_of(g: Protos, given: Mapping[str, Any]) -> onnx.GraphProto:
    """The graph of the attribute encoder. Raises `InvalidModel` where it is missing."""
    if "encoder" not in given:
        raise InvalidModel(f"{g.where}: it lacks the attribute encoder")
    found: onnx.GraphProto = given["encoder"]
    return found


_OPERANDS = (
    *(
        "input_ids",
        "max_length",
        "min_length",
        "num_beams",
        "num_return_sequences",
        "length_penalty",
        "repetition_penalty",
    ),
    *("vocab_mask", "prefix_vocab_mask", "attention_mask", "decoder_input_ids", "logits_processor"),
)

BEAM_SEARCH: tuple[DomainRow, ...] = (
    DomainRow(
        "BeamSearch",
        None,
        tuple(name if name in NEEDED else f"{name}?" for name in _OPERANDS),
        (
            *(integer("decoder_start_token_id", -1), integer("early_stopping", 0), integer("eos_token_id")),
            *(integer("model_type", 0), integer("no_repeat_ngram_size", 0), integer("pad_token_id")),
            *(integer("vocab_size", -1), graph("decoder"), graph("encoder", None), graph("init_decoder", None)),
        ),
        ("sequences", "sequences_scores?", "scores?"),
        expand=_beam_search,
    ),
)
