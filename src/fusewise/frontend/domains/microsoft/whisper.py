"""Beam search by an encoder of features and a decoder like Whisper's, with rules for tokens that are times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper

from fusewise.errors import InvalidModel, UnsupportedModel
from fusewise.frontend.domains.microsoft.beam_search import beam_searched, encoder_of
from fusewise.frontend.domains.microsoft.beams import NEEDED, Beams
from fusewise.frontend.domains.microsoft.decoders import Feeds, Prompt, decoder_of_encoder
from fusewise.frontend.domains.microsoft.next_scores import LOWEST, last_logits, token_of
from fusewise.frontend.domains.microsoft.protos import Protos
from fusewise.frontend.domains.row import DomainRow, graph, integer
from fusewise.frontend.order import node_label

__all__ = ["WHISPER"]

_FLOAT = onnx.TensorProto.FLOAT
_LATEST_START = 50
"""The first time is at most so many steps of time after the beginning."""


def _whisper_beam_search(node: onnx.NodeProto, opset: int, fresh: Callable[[str], str]) -> list[onnx.NodeProto]:
    g = Protos(node_label(node), "WhisperBeamSearch", opset, fresh)
    given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    operands = dict(zip(_OPERANDS, [*node.input, *[""] * len(_OPERANDS)], strict=False))
    if given.get("model_type", 2) != 2:
        raise InvalidModel(f"{g.where}: its model_type is {given['model_type']}; it must be 2")
    if given.get("decoder_output_cross_qk", 0) or (len(node.output) > 3 and node.output[3]):
        raise UnsupportedModel(f"{g.where}: its output cross_qk is made on graphics processors alone")
    if operands["extra_decoding_ids"]:
        raise UnsupportedModel(f"{g.where}: its input extra_decoding_ids is read on graphics processors alone")
    if operands["logits_processor"] and token_of(g, given, "beginning_timestamp_token_id") <= 0:
        raise InvalidModel(f"{g.where}: its input logits_processor needs the attribute beginning_timestamp_token_id")
    silence = node.output[4] if len(node.output) > 4 else ""
    listened = partial(_listened, silence)
    return beam_searched(g, node, given, _OPERANDS, listened, partial(_processed, given, operands))


def _give_silence(g: Protos, given: Mapping[str, Any], output: str, logits: str) -> None:
    """How likely the token for no speech is after what leads the sequences [samples]; ONNX Runtime leaves it zero on processors."""
    token = token_of(g, given, "no_speech_token_id")
    if token < 0:
        raise InvalidModel(f"{g.where}: its output non_speech_probs needs the attribute no_speech_token_id")
    g.give(output, g.Gather(g.Softmax(last_logits(g, given, logits), axis=-1), np.int64(token), axis=1))


def _listened(silence: str, g: Protos, given: Mapping[str, Any], operands: Mapping[str, str], search: Beams) -> Prompt:
    """The encoder reads features [samples, features, frames] and the tokens that lead each sequence. `silence`: an output."""
    encoder, decoder = encoder_of(g, given), decoder_of_encoder(g, given["decoder"], ("encoder_hidden_states",))
    pairs = len(decoder.caches)
    if len(encoder.input) != 2 or len(encoder.output) != 2 + 2 * pairs:
        raise UnsupportedModel(
            f"{g.where}: its encoder has {len(encoder.input)} inputs and {len(encoder.output)} outputs; with its decoder "
            f"it should have 2 and {2 + 2 * pairs}"
        )
    begun = operands.get("decoder_input_ids", "")
    if not begun:
        start = token_of(g, given, "decoder_start_token_id")
        if start < 0:
            raise InvalidModel(
                f"{g.where}: it lacks the attribute decoder_start_token_id and the input decoder_input_ids"
            )
        begun = g.Expand(start, g.shape(search.samples, 1))
    logits, hidden, *presents = g.run(encoder, operands["input_ids"], begun)
    if silence:
        _give_silence(g, given, silence, logits)
    lasting = [name for name in decoder.fixed if name != "encoder_hidden_states"]
    whole = {"encoder_hidden_states": hidden} | dict(zip(lasting, presents[pairs:], strict=True))
    fixed = {name: g.Gather(whole[name], search.rows, axis=0) for name in decoder.fixed}
    sequences = g.Gather(begun, search.rows, axis=0)
    return Prompt(sequences, decoder, Feeds((), fixed), logits, "", tuple(presents[:pairs]))


def _processed(given: Mapping[str, Any], operands: Mapping[str, str], g: Protos, scores: str, sequences: str) -> str:
    """Scores by the temperature, and by the rules of times where `logits_processor` is 1."""
    if operands["temperature"]:
        warmth = g.number(operands["temperature"], _FLOAT)
        scores = g.Div(scores, g.Where(g.Greater(warmth, np.float32(0)), warmth, np.float32(1)))
    if operands["logits_processor"]:
        asked = g.Equal(g.number(operands["logits_processor"]), np.int64(1))
        scores = g.Where(asked, _with_times(g, given, scores, sequences), scores)
    return scores


def _with_times(g: Protos, given: Mapping[str, Any], scores: str, sequences: str) -> str:
    """Scores by the rules of times: they come in pairs, but for the first, and do not go back; where all of them together are
    likelier than any other token, the next token is one."""
    begin = token_of(g, given, "beginning_timestamp_token_id")
    ids = g.Range(np.int64(0), g.length(scores), np.int64(1))
    tokens, length = g.Cast(sequences, to=onnx.TensorProto.INT64), g.length(sequences)
    is_time = g.Greater(ids, np.int64(begin - 1))
    times = g.Cast(g.Greater(tokens, np.int64(begin - 1)), to=onnx.TensorProto.INT32)
    upto = g.CumSum(times, np.int64(1))
    has = g.Greater(g.Gather(upto, np.array([-1]), axis=1), np.int32(0))
    before = g.total(g.Cast(g.Equal(upto, np.int32(0)), to=onnx.TensorProto.INT64))
    begun = g.Add(before, g.Cast(has, to=onnx.TensorProto.INT64))
    is_past = g.Greater(length, begun)
    last = g.Greater(g.Gather(times, np.array([-1]), axis=1), np.int32(0))
    second = g.shape(g.Where(g.Less(length, np.int64(2)), np.int64(0), g.Sub(length, np.int64(2))))
    pair = g.Or(g.Not(is_past), g.Greater(g.Gather(times, second, axis=1), np.int32(0)))
    latest = g.GatherElements(tokens, g.ArgMax(upto, axis=1, keepdims=1), axis=1)
    is_open = g.And(last, g.Not(pair))
    least = g.Where(is_open, latest, g.Add(latest, np.int64(1)))
    words = [token_of(g, given, f"{name}_token_id") for name in ("decoder_start", "translate", "transcribe")]
    never = [token_of(g, given, f"{name}_token_id") for name in ("no_timestamps", "start_of_lm")]
    forbidden = [
        _one_of(g, ids, never),
        g.And(is_past, _one_of(g, ids, words)),
        g.And(g.And(last, pair), is_time),
        g.And(is_open, g.Less(ids, np.int64(given["eos_token_id"]))),
        g.And(g.And(has, is_time), g.Less(ids, least)),
        g.And(g.Equal(length, begun), g.Greater(ids, np.int64(begin + _LATEST_START))),
    ]
    for mask in forbidden:
        scores = g.Where(mask, LOWEST, scores)
    of_times, of_words = (
        _greatest(g, g.Where(mask, scores, np.float32(-np.inf))) for mask in (is_time, g.Not(is_time))
    )
    counts = g.And(is_time, g.Greater(scores, LOWEST))
    parts = g.Where(counts, g.Exp(g.Sub(scores, of_times)), np.float32(0))
    whole = g.total(parts)
    together = g.Where(g.Greater(whole, np.float32(0)), g.Add(g.Log(whole), of_times), LOWEST)
    return g.Where(g.And(g.Greater(together, of_words), g.Not(is_time)), LOWEST, scores)


def _one_of(g: Protos, ids: str, tokens: Sequence[np.int32]) -> str:
    found = g.Equal(ids, np.int64(tokens[0]))
    for token in tokens[1:]:
        found = g.Or(found, g.Equal(ids, np.int64(token)))
    return found


def _greatest(g: Protos, scores: str) -> str:
    return g.several("TopK", 2, scores, np.array([1]), axis=1)[0]


_OPERANDS = (
    *("input_ids", "max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty"),
    *("repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask", "decoder_input_ids"),
    *("logits_processor", "cross_qk_layer_head", "extra_decoding_ids", "temperature"),
)

WHISPER: tuple[DomainRow, ...] = (
    DomainRow(
        "WhisperBeamSearch",
        None,
        tuple(name if name in NEEDED else f"{name}?" for name in _OPERANDS),
        (
            *(integer("beginning_timestamp_token_id", None), integer("decoder_output_cross_qk", None)),
            *(integer("decoder_start_token_id", -1), integer("early_stopping", 0), integer("eos_token_id")),
            *(integer("model_type", 2), integer("no_repeat_ngram_size", 0), integer("no_speech_token_id", None)),
            *(integer("no_timestamps_token_id", None), integer("pad_token_id"), integer("start_of_lm_token_id", None)),
            *(integer("transcribe_token_id", None), integer("translate_token_id", None), integer("vocab_size", -1)),
            *(graph("decoder"), graph("encoder", None), graph("init_decoder", None)),
        ),
        ("sequences", "sequences_scores?", "scores?", "cross_qk?", "non_speech_probs?"),
        expand=_whisper_beam_search,
    ),
)
