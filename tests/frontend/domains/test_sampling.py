"""Tokens drawn by chance, against ONNX Runtime, whose generator is GNU's: tokens are equal until all rows have ended."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from tests.frontend.domains import test_generation
from tests.frontend.domains.encoded import VOCABULARY
from tests.frontend.domains.searching import Search, agree_to_the_end, feeds_of

from fusewise.errors import UnsupportedModel
from fusewise.frontend.onnx_import import load

OPERANDS = (
    *("input_ids", "max_length", "min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask"),
    *("attention_mask", "presence_mask", "seed"),
)


def sampling(names: tuple[str, ...] = (), outputs: tuple[str, ...] = ("sequences",), **options: Any) -> Search:
    attributes = {"decoder": test_generation.decoder(0.3), "eos_token_id": 10, "pad_token_id": 8, **options}
    return Search("Sampling", OPERANDS, (*OPERANDS[1:4], "seed", *names), outputs, **attributes)


SEARCHES = {
    "the likeliest": sampling(("attention_mask",), top_p=0.6, temperature=0.7, min_tokens_to_keep=3),
    "custom": sampling(("vocab_mask",), opset=11, top_p=0.8, custom=1, no_repeat_ngram_size=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(feeds=feeds_of())
def test_draws(name: str, feeds: dict[str, np.ndarray]) -> None:
    (found,), (wanted,) = SEARCHES[name].both(feeds)
    agree_to_the_end(found, wanted, feeds["input_ids"].shape[1], 8)


def test_presence() -> None:
    """A great penalty forbids the tokens of a mask, row by row, and no others."""
    search = sampling(("presence_mask",), top_p=1.0, custom=1, presence_penalty=60.0, temperature=4.0)
    mask = (np.arange(VOCABULARY) + np.arange(200)[:, None]) % 2
    feeds = {
        "input_ids": np.full((200, 1), 3, np.int32),
        **{name: np.array([n], np.int32) for name, n in (("max_length", 2), ("min_length", 0), ("seed", 7))},
        "repetition_penalty": np.ones(1, np.float32),
        "presence_mask": mask.astype(np.int32),
    }
    drawn = search.program.run(["sequences"], feeds)[0][:, 1]
    assert not mask[np.arange(200), drawn].any() and len(set(drawn.tolist())) > 8


def test_frequencies() -> None:
    """Tokens after one prompt are as frequent as they are likely, and ONNX Runtime's; with top_p 0 there is one."""
    feeds = {
        "input_ids": np.full((2000, 1), 3, np.int32),
        **{name: np.array([n], np.int32) for name, n in (("max_length", 2), ("min_length", 0), ("seed", 7))},
        "repetition_penalty": np.ones(1, np.float32),
    }
    found, wanted = (one[0][:, 1] for one in sampling(top_p=1.0, custom=1, pad_token_id=0, eos_token_id=0).both(feeds))
    np.testing.assert_array_equal(found, wanted)
    logits = _logits(feeds["input_ids"][:1])
    share = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    counts = np.bincount(found, minlength=len(share))
    off = (counts - 2000 * share) ** 2 / (2000 * share)
    assert off[2000 * share > 5].sum() < 40  # of 16 degrees of freedom, beyond one in a thousand
    only = sampling(custom=1, eos_token_id=0, pad_token_id=0).program.run(["sequences"], feeds)[0][:, 1]
    assert set(only.tolist()) == {int(share.argmax())}


def _logits(prompt: np.ndarray) -> np.ndarray:
    """Of the decoder after one token, where attention is its value."""
    weights = {one.name: onnx.numpy_helper.to_array(one) for one in test_generation.decoder(0.3).initializer}
    hidden = weights["tokens"][int(prompt[0, 0])] + weights["places"][0]
    for k in range(test_generation.LAYERS):
        hidden = hidden + (hidden @ weights[f"w{k}"] + weights[f"b{k}"])[2 * test_generation.WIDTH :]
    return hidden @ weights["head"]


def test_filtered_logits_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="'here' .*filtered_logits"):
        load(sampling(outputs=("sequences", "filtered_logits")).model)
