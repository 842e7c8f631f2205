"""Convolutions and pooling of Microsoft's domain, against ONNX Runtime, and by theirs where it has none for this processor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case, agree, agree_with, expected

from fusewise.errors import InvalidModel, UnsupportedModel
from fusewise.frontend.onnx_import import load

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


X, W, B, Z = floats(2, 3, 9, 9), floats(4, 3, 3, 3), floats(4), floats(2, 4, 9, 9)
SAME = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}


@pytest.mark.parametrize(
    "activation, parameters",
    [
        *(("Relu", []), ("Tanh", []), ("Sigmoid", [])),
        *(("LeakyRelu", [0.1]), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.4])),
    ],
)
def test_fused_conv(activation: str, parameters: list[float]) -> None:
    attributes: dict[str, Any] = {**SAME, "activation": activation}
    if parameters:
        attributes["activation_params"] = parameters
    agree(Case("FusedConv", (X, W, B, Z), attributes, constant=(1, 2)))


def test_fused_conv_without_any() -> None:
    agree(Case("FusedConv", (X, W), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, constant=(1,)))


def test_unknown_activations_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="'here'.*activation 'Magic' is not one of Clip"):
        load(Case("FusedConv", (X, W), {"activation": "Magic"}).model())
    with pytest.raises(InvalidModel, match="'here'.*Clip has 2 parameters, not 1"):
        load(Case("FusedConv", (X, W), {"activation": "Clip", "activation_params": [1.0]}).model())


def last(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def test_channels_last() -> None:
    plain = Case("FusedConv", (X, W, B, Z), {**SAME, "activation": "Relu"})
    (wanted,) = expected(plain.model(), plain.feeds)
    agree_with(Case("NhwcFusedConv", (last(X), W, B, last(Z)), {**SAME, "activation": "Relu"}), last(wanted))
    plain = Case("Conv", (X, W, B), SAME, domain="")
    (wanted,) = expected(plain.model(), plain.feeds)
    free = {0: {0: "batch", 1: "height", 2: "width"}}
    agree_with(Case("NhwcConv", (last(X), W, B), SAME, constant=(1,)), last(wanted), free=free)


def test_pooling_with_channels_last() -> None:
    x = RNG.integers(0, 255, (2, 9, 8, 3)).astype(np.uint8)
    agree(Case("NhwcMaxPool", (x,), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}))


def test_transposed_with_pads_given() -> None:
    pads = np.array([1, 0, 1, 2])
    agree(Case("ConvTransposeWithDynamicPads", (X, floats(3, 4, 3, 3), pads), {"strides": [2, 2]}, constant=(1, 2)))
