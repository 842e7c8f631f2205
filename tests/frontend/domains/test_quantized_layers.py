"""Layers of 8-bit weights of Microsoft's domain against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case, agree
from tests.frontend.domains.test_quantized import KINDS, RNG, bytes_of, scale, zero

from fusewise.errors import InvalidModel
from fusewise.frontend.onnx_import import load


def embedding(kind: Any, batch: int, length: int, segments: bool, mask: bool) -> Case:
    def table(*shape: int) -> np.ndarray:
        return np.random.default_rng(shape[0]).integers(0, 127, shape).astype(kind)

    def ids(below: int) -> np.ndarray:
        return RNG.integers(0, below, (batch, length)).astype(np.int32)

    operands = (
        *(ids(20), ids(2) if segments else None, table(20, 8), table(16, 8)),
        *(table(2, 8) if segments else None, table(8), table(8), ids(2) if mask else None),
        *(scale(0.01), scale(0.02), scale(0.03) if segments else None, scale(0.01), scale(0.01)),
        *(zero(kind, p) if segments or p != 0.6 else None for p in (0.5, 0.4, 0.6, 0.3, 0.5)),
    )
    constant = tuple(k for k in range(18) if k not in (0, 1, 7))
    return Case("QEmbedLayerNormalization", operands, {"epsilon": 1e-5}, constant, outputs=2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("segments, mask", [(True, True), (False, False)])
def test_embedding(kind: Any, segments: bool, mask: bool) -> None:
    dims = {0: "batch", 1: "length"}
    free = {0: dims} | ({1: dims} if segments else {}) | ({7: dims} if mask else {})
    cases = (embedding(kind, 2, 5, segments, mask), embedding(kind, 1, 9, segments, mask))
    agree(*cases, free=free, tolerance=1e-5)


def lstm(kind: Any, columns: bool, direction: str) -> tuple[np.ndarray | None, ...]:
    directions, hidden = 1 + (direction == "bidirectional"), 6
    n = (directions, 4 * hidden) if columns else (directions,)
    x = RNG.normal(0, 1, (5, 2, 8)).astype(np.float32)
    w, r = bytes_of(kind, directions, 8, 4 * hidden), bytes_of(kind, directions, hidden, 4 * hidden)
    bias = RNG.normal(0, 0.1, (directions, 8 * hidden)).astype(np.float32)
    point = np.full(n, 0 if columns else 130 if kind == np.uint8 else 3, kind)  # ONNX Runtime takes no other
    return (x, w, r, bias, None, None, None, None, scale(0.005, *n), point, scale(0.004, *n), point)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns, direction", [(False, "bidirectional"), (True, "reverse")])
def test_recurrence(kind: Any, columns: bool, direction: str) -> None:
    """As near as what rounding states does: ONNX Runtime rounds them in each step."""
    constant = (1, 2, 3, 8, 9, 10, 11)
    attributes = {"direction": direction, "hidden_size": 6}
    agree(Case("DynamicQuantizeLSTM", lstm(kind, columns, direction), attributes, constant, 3), tolerance=2e-2)


def test_what_does_not_fit() -> None:
    operands = list(lstm(np.int8, True, "forward"))
    operands[8] = scale(0.005, 1, 5)
    with pytest.raises(InvalidModel, match=r"input 8 \(W_scale\) has the shape \[1, 5\]"):
        load(Case("DynamicQuantizeLSTM", tuple(operands), {"hidden_size": 6}).model())
