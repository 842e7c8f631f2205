"""Layers with a state that is handed on against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case, agree

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32) / 2


@pytest.mark.parametrize("rule", ["linear", "gated_delta"])
def test_linear_attention(rule: str) -> None:
    attributes = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": rule}
    x = [floats(1, 5, 16), floats(1, 5, 16), floats(1, 5, 16)]
    gates = (None, None) if rule == "linear" else (-np.abs(floats(1, 5, 2)), np.abs(floats(1, 5, 2)))
    agree(Case("LinearAttention", (*x, floats(1, 2, 8, 8), *gates), attributes, outputs=2))


@pytest.mark.parametrize(
    "past, attributes",
    [
        (True, {"activation": "silu"}),
        (False, {}),
        (True, {"dilation": 2}),
        (True, {"channels_last": 1}),
    ],
)
def test_causal_convolution(past: bool, attributes: dict[str, Any]) -> None:
    weight, bias, reach = floats(6, 1, 4), floats(6), 3 * attributes.get("dilation", 1)

    def case(batch: int, length: int) -> Case:
        def of(rows: int) -> np.ndarray:
            return floats(batch, rows, 6) if attributes.get("channels_last") else floats(batch, 6, rows)

        operands = (of(length), weight, bias, of(reach) if past else None)
        return Case("CausalConvWithState", operands, attributes, constant=(1, 2), outputs=2)

    axis = 1 if attributes.get("channels_last") else 2
    free = {0: {0: "batch", axis: "length"}, **({3: {0: "batch"}} if past else {})}
    agree(case(2, 7), case(1, 1), free=free)
