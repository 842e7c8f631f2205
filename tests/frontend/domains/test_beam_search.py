"""Beam search by decoders, and by encoders and decoders, against ONNX Runtime: tokens are equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.frontend.domains import test_generation
from tests.frontend.domains.encoded import decoder, encoder
from tests.frontend.domains.searching import Search, feeds_of

from fusewise.errors import InvalidData, InvalidModel, UnsupportedModel
from fusewise.frontend.onnx_import import load

OPERANDS = (
    *("input_ids", "max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty"),
    *(
        "repetition_penalty",
        "vocab_mask",
        "prefix_vocab_mask",
        "attention_mask",
        "decoder_input_ids",
        "logits_processor",
    ),
)
NUMBERS = OPERANDS[1:7]
OUTPUTS = ("sequences", "sequences_scores", "scores")


def gpt(names: tuple[str, ...] = (), **options: Any) -> Search:
    attributes = {"decoder": test_generation.decoder(0.3), "eos_token_id": 10, "pad_token_id": 8, **options}
    return Search("BeamSearch", OPERANDS, (*NUMBERS, *names), OUTPUTS, **attributes)


def encoded(first: str, names: tuple[str, ...] = (), options: dict[str, Any] | None = None, **others: Any) -> Search:
    attributes = {
        "encoder": encoder(3, first, 0.5),
        "decoder": decoder(3, 0.5, **others),
        "model_type": 1,
        "decoder_start_token_id": 2,
        "eos_token_id": 6,
        "pad_token_id": 0,
        **(options or {}),
    }
    return Search("BeamSearch", OPERANDS, (*NUMBERS, *names), OUTPUTS, **attributes)


SEARCHES = {
    "a decoder": gpt(("vocab_mask", "prefix_vocab_mask"), opset=11, no_repeat_ngram_size=2),
    "two decoders": gpt(
        ("attention_mask",), early_stopping=1, eos_token_id=5, init_decoder=test_generation.decoder(0.3)
    ),
    "keys and values": encoded("caches", ("vocab_mask", "prefix_vocab_mask")),
    "logits": encoded("logits", ("attention_mask",), {"early_stopping": 1}, hidden=True, whole=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(feeds=feeds_of(shortest=2))
def test_searches(name: str, feeds: dict[str, np.ndarray]) -> None:
    SEARCHES[name].agree(feeds)


def test_part_of_a_vocabulary() -> None:
    """What pads the logits is never chosen; else tokens are ONNX Runtime's."""
    feeds = {
        "input_ids": np.array([[3, 1, 8], [8, 2, 4]], np.int32),
        **{name: np.array([n], np.int32) for name, n in (("max_length", 9), ("num_beams", 3), ("min_length", 0))},
        "num_return_sequences": np.array([3], np.int32),
        **{name: np.ones(1, np.float32) for name in ("length_penalty", "repetition_penalty")},
    }
    wide = gpt()
    wide.agree(feeds)
    names = list(OUTPUTS)
    assert wide.program.run(names, feeds)[0].max() > 8
    with pytest.raises(InvalidData, match="'here.*finds 3 .*only -3 to 2 are allowed"):
        wide.program.run(names, feeds | {"num_return_sequences": np.array([4], np.int32)})
    sequences, _, scores = gpt(vocab_size=9).program.run(names, feeds)
    assert sequences.max() <= 8 and scores.shape == (6, 2, 3, 9)


@pytest.mark.parametrize(
    "search, error, words",
    [
        (gpt(model_type=7), UnsupportedModel, "its model_type is 7"),
        (gpt(model_type=1), InvalidModel, "lacks the attribute encoder"),
        (gpt(eos_token_id=-2), InvalidModel, "eos_token_id is -2, which is no token"),
        (encoded("caches", (), {"decoder_start_token_id": -1}), InvalidModel, "lacks .*decoder_start_token_id"),
        (encoded("caches", hidden=True), UnsupportedModel, "its encoder has 2 inputs and 4 outputs"),
        (encoded("caches", (), {"decoder": encoder(3, "caches")}), UnsupportedModel, "its decoder has 2 inputs"),
    ],
)
def test_what_does_not_fit_is_refused(search: Search, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"'here' .BeamSearch.: .*{words}"):
        load(search.model)
