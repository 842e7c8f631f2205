"""Activations of Microsoft's domain against ONNX Runtime."""

from __future__ import annotations

import numpy as np
from tests.frontend.domains.one_node import Case, agree

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_gelu() -> None:
    agree(Case("Gelu", (floats(3, 40),)), Case("Gelu", (floats(5, 7),)), free={0: {0: "n", 1: "m"}})
