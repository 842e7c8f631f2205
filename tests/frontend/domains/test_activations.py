"""Activations of Microsoft's domain, against ONNX Runtime, and by their definition where it has none for this processor."""

from __future__ import annotations

from math import erf

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case, agree, agree_with

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def gelu(x: np.ndarray) -> np.ndarray:
    return (0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))).astype(np.float32)


FREE = {0: {0: "batch", 1: "sequence"}}


@pytest.mark.parametrize("op, bias", [("Gelu", 0), ("BiasGelu", 1), ("FastGelu", 0), ("FastGelu", 1), ("QuickGelu", 0)])
def test_gelu_and_its_kin(op: str, bias: int) -> None:
    def case(*shape: int) -> Case:
        operands = (floats(*shape, 40), floats(40))[: 1 + bias]
        return Case(op, operands, {"alpha": 1.5} if op == "QuickGelu" else {})

    agree(case(2, 3), case(1, 5), free=FREE)


def test_scaled_silu() -> None:
    agree(Case("ScaledSiLU", (floats(3, 8),), {"alpha": 0.5}))


def test_the_gate_of_linear_attention() -> None:
    agree(Case("LinearAttentionGate", (floats(2, 3, 4), floats(4), -np.abs(floats(4)), floats(2, 3, 4)), outputs=2))


def test_by_definition() -> None:
    x, b, skip = floats(2, 5, 8), floats(8), floats(2, 5, 8)
    agree_with(Case("BiasAdd", (x, b, skip)), x + b + skip)
    agree_with(Case("BiasSplitGelu", (x, b)), (x + b)[..., :4] * gelu((x + b)[..., 4:]), free=FREE)
    agree_with(Case("BiasDropout", (x, b, skip), outputs=2), x + b + skip, np.ones(x.shape, bool))
    agree_with(Case("BitmaskBiasDropout", (x, b)), x + b)
    agree_with(Case("BitmaskDropout", (x,)), x)
    mask = floats(2, 1, 8)
    powers = np.exp(x + mask)
    attributes = {"axis": 2, "is_inner_broadcast": 1}
    agree_with(Case("BiasSoftmax", (x, mask), attributes), powers / powers.sum(-1, keepdims=True), free=FREE)
    attributes = {"axis": 1, "is_inner_broadcast": 1}
    agree_with(Case("BiasSoftmax", (x, mask), attributes), powers / powers.sum((1, 2), keepdims=True))
