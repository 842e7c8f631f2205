"""Operators with a state, and rotary embeddings by three places, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case, agree

from fusewise.errors import InvalidModel
from fusewise.frontend.onnx_import import load

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention(rule: str) -> None:
    def case(tokens: int) -> Case:
        key = floats(2, tokens, 2, 8)
        key /= np.linalg.norm(key, axis=-1, keepdims=True)
        decay = -np.abs(floats(2, tokens, 2)) if "gated" in rule else None
        beta = np.abs(floats(2, tokens, 2)) / 4 if "delta" in rule else None
        operands = (
            floats(2, tokens, 32),
            key.reshape(2, tokens, 16),
            floats(2, tokens, 12),
            floats(2, 2, 8, 6),
            decay,
            beta,
        )
        attributes = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule}
        return Case("LinearAttention", operands, attributes, outputs=2)

    agree(case(5))
    agree(case(1))


@pytest.mark.parametrize("activation, dilation, past", [("none", 1, True), ("silu", 2, True), ("swish", 1, False)])
def test_causal_convolution(activation: str, dilation: int, past: bool) -> None:
    weight, bias = floats(6, 1, 4), floats(6)

    def case(length: int) -> Case:
        operands = (floats(2, 6, length), weight, bias, floats(2, 6, 3 * dilation) if past else None)
        return Case("CausalConvWithState", operands, {"activation": activation, "dilation": dilation}, (1, 2), 2)

    agree(case(5), case(1), case(9), free={0: {2: "length"}})


@pytest.mark.parametrize("axes", [(6,), (2, 3)])
def test_causal_convolution_with_channels_last(axes: tuple[int, ...]) -> None:
    operands = (floats(2, 5, *axes), floats(6, 1, 4), floats(6), floats(2, 3, *axes))
    agree(Case("CausalConvWithState", operands, {"channels_last": 1}, (1, 2), 2))


@pytest.mark.parametrize(
    "attributes",
    [
        {"mrope_layout": 0},
        {"mrope_layout": 1, "scale": 0.5},
        {"mrope_layout": 1, "interleaved": 1},
        {"mrope_layout": 0, "rotary_embedding_dim": 16},
    ],
)
def test_places_in_time_height_and_width(attributes: dict[str, Any]) -> None:
    tables = floats(12, 8), floats(12, 8)
    size = 24 if "rotary_embedding_dim" in attributes else 16

    def case(tokens: int) -> Case:
        places = RNG.integers(0, 12, (3, 2, tokens))
        operands = (floats(2, tokens, 2 * size), places, *tables)
        return Case("MRotaryEmbedding", operands, {"mrope_section": [4, 2, 2], "num_heads": 2, **attributes}, (2, 3))

    agree(case(5), case(1), free={0: {1: "tokens"}, 1: {2: "tokens"}})


def test_sections_have_to_fit() -> None:
    operands = (floats(2, 5, 32), RNG.integers(0, 12, (3, 2, 5)), floats(12, 8), floats(12, 8))
    with pytest.raises(InvalidModel, match="mrope_section must be three numbers whose sum is 8"):
        load(Case("MRotaryEmbedding", operands, {"mrope_section": [4, 2, 3]}).model())
