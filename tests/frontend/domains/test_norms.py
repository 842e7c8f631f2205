"""Normalisations of Microsoft's domain against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case, agree

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("bias", [False, True])
def test_skip_layer_normalization(bias: bool) -> None:
    def case(batch: int, sequence: int) -> Case:
        x, skip = floats(batch, sequence, 8), floats(batch, sequence, 8)
        operands = (x, skip, floats(8), floats(8), floats(8) if bias else None)
        return Case("SkipLayerNormalization", operands, {"epsilon": 1e-5}, outputs=4, absent=(1, 2))

    dims = {0: "batch", 1: "sequence"}
    agree(case(2, 3), case(1, 7), free={0: dims, 1: dims})
