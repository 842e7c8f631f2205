"""Products of Microsoft's domain against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case, agree

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("batch_a", [0, 1])
@pytest.mark.parametrize("trans_b, batch_b", [(0, 0), (1, 1)])
def test_fused_matmul(trans_a: int, batch_a: int, trans_b: int, batch_b: int) -> None:
    """Operands as they are before they are turned: [2, 3, m, k] and [2, 3, k, n]."""

    def stored(dims: list[int], trans: int, batch: int) -> np.ndarray:
        if trans:
            dims[-2:] = dims[:-3:-1]
        if batch:
            dims = [dims[-2], *dims[:-2], dims[-1]]
        return floats(*dims)

    def case(m: int) -> Case:
        a, b = stored([2, 3, m, 5], trans_a, batch_a), stored([2, 3, 5, 4], trans_b, batch_b)
        attributes = {"transA": trans_a, "transBatchA": batch_a, "transB": trans_b, "transBatchB": batch_b}
        return Case("FusedMatMul", (a, b), {"alpha": 0.5, **attributes})

    agree(case(6), case(9), free={0: {next(i for i, d in enumerate(case(6).operands[0].shape) if d == 6): "rows"}})
