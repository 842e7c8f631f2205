"""Normalisations of Microsoft's domain, against ONNX Runtime, and by their definition where it has none for this processor."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case, agree, agree_with

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


DIMS = {0: "batch", 1: "sequence"}


@pytest.mark.parametrize("bias", [False, True])
def test_skip_layer_normalization(bias: bool) -> None:
    def case(batch: int, sequence: int) -> Case:
        x, skip = floats(batch, sequence, 8), floats(batch, sequence, 8)
        operands = (x, skip, floats(8), floats(8), floats(8) if bias else None)
        return Case("SkipLayerNormalization", operands, {"epsilon": 1e-5}, outputs=4, absent=(1, 2))

    agree(case(2, 3), case(1, 7), free={0: DIMS, 1: DIMS})


@pytest.mark.parametrize("skip", [(1, 3, 8), (3, 8)])
def test_skip_is_one_for_all_samples(skip: tuple[int, ...]) -> None:
    agree(Case("SkipLayerNormalization", (floats(2, 3, 8), floats(*skip), floats(8))))


def test_root_mean_square() -> None:
    def case(batch: int, sequence: int) -> Case:
        operands = (floats(batch, sequence, 8), floats(batch, sequence, 8), floats(8), floats(8))
        return Case("SkipSimplifiedLayerNormalization", operands, {"epsilon": 1e-5}, outputs=4, absent=(1, 2))

    agree(case(2, 3), case(1, 7), free={0: DIMS, 1: DIMS})
    agree(Case("SimplifiedLayerNormalization", (floats(2, 3, 8), floats(8)), {"axis": -1}, outputs=2, domain=""))
    half = floats(2, 3, 8).astype(np.float16)
    agree(Case("SkipSimplifiedLayerNormalization", (half, half * half, half[0, 0])))


def test_layer_normalization_before_onnx_had_it() -> None:
    agree(Case("LayerNormalization", (floats(2, 3, 8), floats(8), floats(8)), {"epsilon": 0.01}, domain="", opset=13))


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("segments", [False, True])
def test_embed_layer_normalization(mask: bool, segments: bool) -> None:
    def case(batch: int, sequence: int) -> Case:
        ids, kinds = (RNG.integers(0, n, (batch, sequence)).astype(np.int32) for n in (20, 2))
        given = (np.arange(sequence) < 2) * np.ones((batch, 1), np.int32) if mask else None
        operands = (
            *(ids, kinds if segments else None, floats(20, 8), floats(9, 8), floats(2, 8) if segments else None),
            *(floats(8), floats(8), None if given is None else given.astype(np.int32)),
        )
        return Case("EmbedLayerNormalization", operands, {"epsilon": 1e-5}, outputs=3)

    free = {0: DIMS} | ({1: DIMS} if segments else {}) | ({7: DIMS} if mask else {})
    agree(case(2, 3), case(1, 7), free=free)


def test_embeddings_at_positions_of_their_own() -> None:
    ids = RNG.integers(0, 20, (2, 5)).astype(np.int32)
    positions = np.array([[3, 1, 2, 0, 4]], np.int32)
    operands = (ids, None, floats(20, 8), floats(9, 8), None, floats(8), floats(8), None, positions)
    agree(Case("EmbedLayerNormalization", operands, outputs=3, absent=(1,)))


def group_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, groups: int, silu: bool) -> np.ndarray:
    """Of [N, H, W, C]."""
    parts = x.astype(np.float64).reshape(x.shape[0], -1, groups, x.shape[3] // groups)
    centred = parts - parts.mean((1, 3), keepdims=True)
    y = (centred / np.sqrt((centred**2).mean((1, 3), keepdims=True) + 1e-5)).reshape(x.shape) * gamma + beta
    return (y / (1 + np.exp(-y)) if silu else y).astype(x.dtype)


@pytest.mark.parametrize("silu", [0, 1])
def test_group_norm(silu: int) -> None:
    x, gamma, beta, bias = floats(2, 4, 5, 8), floats(8), floats(8), floats(8)
    attributes = {"groups": 4, "activation": silu}
    agree_with(Case("GroupNorm", (x, gamma, beta), attributes), group_norm(x, gamma, beta, 4, bool(silu)))
    first = Case("GroupNorm", (x.transpose(0, 3, 1, 2), gamma, beta), {**attributes, "channels_last": 0})
    agree_with(first, group_norm(x, gamma, beta, 4, bool(silu)).transpose(0, 3, 1, 2))
    for skip in (floats(*x.shape), floats(2, 1, 1, 8), floats(2, 8)):
        total = x + (skip[:, None, None] if skip.ndim == 2 else skip) + bias
        case = Case("SkipGroupNorm", (x, gamma, beta, skip, bias), attributes, outputs=2)
        agree_with(case, group_norm(total, gamma, beta, 4, bool(silu)), total)


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gated_rms_norm(activation: str) -> None:
    def case(batch: int, sequence: int) -> Case:
        operands = (floats(batch, sequence, 24), floats(8), floats(batch, sequence, 24))
        return Case("GatedRMSNorm", operands, {"activation": activation})

    agree(case(2, 3), case(1, 7), free={0: DIMS, 2: DIMS})


@pytest.mark.parametrize("shape, branches, scale", [((2, 3, 24), 3, 24), ((2, 3, 3, 8), 0, 8), ((2, 3, 3, 8), 0, 24)])
def test_branchwise_rms_norm(shape: tuple[int, ...], branches: int, scale: int) -> None:
    agree(Case("BranchwiseRMSNorm", (floats(*shape), floats(scale)), {"num_branches": branches}))


def test_engram_gate() -> None:
    scales = [1 + floats(2, 8) / 4 for _ in range(3)]
    agree(Case("EngramGate", (floats(1, 3, 2, 8), floats(1, 3, 2, 8), floats(1, 3, 8), *scales), outputs=2))
