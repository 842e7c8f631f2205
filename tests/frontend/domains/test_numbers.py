"""Arithmetic of Microsoft's domain, against ONNX Runtime, and against NumPy where it has none for this processor."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case, agree, agree_with

from fusewise.errors import UnsupportedModel
from fusewise.frontend.onnx_import import load

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def pairs(x: np.ndarray) -> np.ndarray:
    return np.stack([x.real, x.imag], -1).astype(np.float32)


def test_complex_numbers() -> None:
    a, b = (floats(*shape, 2) for shape in ((2, 3), (3,)))
    whole, other = (x[..., 0] + 1j * x[..., 1] for x in (a, b))
    agree_with(Case("ComplexMul", (a, b)), pairs(whole * other))
    agree_with(Case("ComplexMulConj", (a, b)), pairs(whole * other.conj()))


def test_transforms() -> None:
    x = floats(3, 16)
    spectrum = np.fft.rfft(x)
    agree_with(Case("Rfft", (x,), {"signal_ndim": 1}), pairs(spectrum), tolerance=1e-5)
    agree_with(Case("Irfft", (pairs(spectrum),), {"signal_ndim": 1}), x, tolerance=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 3, 7, 7)])
def test_inverses(shape: tuple[int, ...]) -> None:
    agree(Case("Inverse", (floats(*shape),)), tolerance=1e-4)
    agree(Case("Inverse", (RNG.standard_normal(shape),)), tolerance=1e-10)


def test_inverses_need_pivots() -> None:
    agree(Case("Inverse", (np.array([[0, 2, 0], [1, 0, 0], [0, 0, 4]], np.float32),)))
    with pytest.raises(UnsupportedModel, match="'here'.*at most 64 rows"):
        load(Case("Inverse", (floats(65, 65),)).model())


@pytest.mark.parametrize("positive", [0, 1])
def test_hashes(positive: int) -> None:
    x = np.array([0, 1, -1, 3, 2**31 - 1, -(2**31)], np.int32)
    agree(Case("MurmurHash3", (x,), {"positive": positive, "seed": 7}))
    agree(Case("MurmurHash3", (np.array([0, 2**32 - 1], np.uint32),), {"positive": positive}))


def test_gated_sums() -> None:
    agree(Case("GatedAdd", (floats(2, 3, 8), floats(2, 3, 8), floats(2, 3, 1))))


def test_finite_numbers() -> None:
    odd = np.array([1, np.inf], np.float32)
    for operands, attributes, wanted in (
        ((floats(3), floats(2)), {}, True),
        ((floats(3), odd), {}, False),
        ((odd,), {"isnan_only": 1}, True),
        ((np.array([np.nan], np.float32),), {"isinf_only": 1}, True),
    ):
        agree_with(Case("IsAllFinite", operands, attributes), np.array(wanted))
