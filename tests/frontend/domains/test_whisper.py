"""Beam search by an encoder of features, with rules for times, against ONNX Runtime: tokens are equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator
from tests.frontend.domains.encoded import FEATURES, VOCABULARY, decoder, listener
from tests.frontend.domains.one_node import model_of
from tests.frontend.domains.searching import Search, feeds_of

import fusewise
from fusewise.errors import InvalidModel, UnsupportedModel
from fusewise.frontend.onnx_import import load

OPERANDS = (
    *("input_ids", "max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty"),
    *("repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask", "decoder_input_ids"),
    *("logits_processor", "cross_qk_layer_head", "extra_decoding_ids", "temperature"),
)
OUTPUTS = ("sequences", "sequences_scores", "scores")
TOKENS = {
    "eos_token_id": 6,
    "pad_token_id": 0,
    "decoder_start_token_id": 2,
    "translate_token_id": 3,
    "transcribe_token_id": 4,
    "no_timestamps_token_id": 7,
    "start_of_lm_token_id": 8,
    "beginning_timestamp_token_id": 9,
    "no_speech_token_id": 5,
}


def whisper(names: tuple[str, ...] = (), outputs: tuple[str, ...] = OUTPUTS, **options: Any) -> Search:
    attributes = {"encoder": listener(1, 0.4), "decoder": decoder(1, 0.4, mask=False, hidden=True), **TOKENS, **options}
    return Search("WhisperBeamSearch", OPERANDS, (*OPERANDS[1:7], *names), outputs, **attributes)


SEARCHES = {
    "one token leads": whisper(("prefix_vocab_mask",), decoder=decoder(1, 0.4, mask=False, whole=True)),
    "times": whisper(("decoder_input_ids", "logits_processor", "temperature"), opset=11, early_stopping=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(feeds=feeds_of(shortest=2), data=st.data())
def test_searches(name: str, feeds: dict[str, np.ndarray], data: st.DataObject) -> None:
    SEARCHES[name].agree(feeds | _heard(feeds, data.draw(st.integers(0, 2**32)), data.draw(st.integers(1, 4))))


def _heard(feeds: dict[str, np.ndarray], seed: int, leading: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    samples, frames = feeds["input_ids"].shape
    return {
        "input_ids": rng.standard_normal((samples, FEATURES, frames)).astype(np.float32),
        "decoder_input_ids": rng.integers(0, VOCABULARY, (samples, leading)).astype(np.int32),
        "max_length": np.array([leading + rng.integers(2, 9)], np.int32),
        "logits_processor": rng.choice([0, 1, 1], 1).astype(np.int32),
        "temperature": rng.choice([0.5, 1.0, 2.0], 1).astype(np.float32),
    }


def test_no_speech() -> None:
    """The share of a token after those that lead; ONNX Runtime leaves the output zero."""
    outputs = ("sequences", "", "", "", "non_speech_probs")
    search = whisper(("decoder_input_ids",), outputs)
    feeds: dict[str, np.ndarray] = {
        "input_ids": np.random.default_rng(0).standard_normal((2, FEATURES, 4)).astype(np.float32),
        **{name: np.array([n], np.int32) for name, n in (("max_length", 6), ("min_length", 0), ("num_beams", 2))},
        "num_return_sequences": np.ones(1, np.int32),
        **{name: np.ones(1, np.float32) for name in ("length_penalty", "repetition_penalty")},
        "decoder_input_ids": np.array([[2, 5, 1], [2, 3, 9]], np.int32),
    }
    found = fusewise.compile(search.model, cache=False).run(["non_speech_probs"], feeds)[0]
    heard = {"encoder_input_ids": feeds["input_ids"], "decoder_input_ids": feeds["decoder_input_ids"]}
    logits = ReferenceEvaluator(model_of(listener(1, 0.4), 17)).run(["logits"], heard)[0][:, -1]
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(found, shares[:, 5], rtol=1e-4)


@pytest.mark.parametrize(
    "search, error, words",
    [
        (whisper(model_type=1), InvalidModel, "its model_type is 1; it must be 2"),
        (whisper(decoder_output_cross_qk=1), UnsupportedModel, "cross_qk is made on graphics"),
        (whisper(("extra_decoding_ids",)), UnsupportedModel, "extra_decoding_ids is read on graphics"),
        (whisper(("logits_processor",), beginning_timestamp_token_id=-1), InvalidModel, "beginning_timestamp_token_id"),
        (whisper(decoder_start_token_id=-1), InvalidModel, "lacks the attribute decoder_start_token_id"),
        (whisper((), ("sequences", "", "", "", "p"), no_speech_token_id=-1), InvalidModel, "no_speech_token_id"),
        (whisper(encoder=onnx.GraphProto(name="e")), UnsupportedModel, "its encoder has 0 inputs and 0 outputs"),
    ],
)
def test_what_does_not_fit_is_refused(search: Search, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"'here' .WhisperBeamSearch.: .*{words}"):
        load(search.model)
