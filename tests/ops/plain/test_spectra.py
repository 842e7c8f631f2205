"""Transforms by NumPy alone, against ONNX's evaluator, and of signals whose length is free, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.ir.graph import Node, attributes_of
from fusewise.ops.evaluate import evaluator
from fusewise.ops.plain.table import plain_evaluator

OPSET = 21


def nobody(*_: Any) -> list[Any]:
    pytest.fail("left to the evaluator")


def same(node: Node, operands: list[np.ndarray]) -> None:
    run = plain_evaluator(node, OPSET, nobody)
    assert run is not None
    (found,), (expected,) = run(*operands), evaluator(node, OPSET)(*operands)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * max(1.0, float(np.abs(expected).max())))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_transforms(data: st.DataObject) -> None:
    onesided, inverse = data.draw(st.booleans()), data.draw(st.booleans())
    parts = (2 if inverse else 1) if onesided else data.draw(st.sampled_from((1, 2)))
    shape = (*data.draw(st.lists(st.integers(2, 9), min_size=1, max_size=3)), parts)
    x = np.random.default_rng(3).standard_normal(shape).astype(data.draw(st.sampled_from((np.float32, np.float64))))
    axis = data.draw(st.integers(0, len(shape) - 2))
    names, operands = ["x", "", "axis"], [x, np.array(axis - data.draw(st.sampled_from((0, len(shape)))))]
    if data.draw(st.booleans()):
        names[1] = "n"
        operands.insert(1, np.array(data.draw(st.integers(2, 12))))
    same(Node("DFT", tuple(names), ("y",), attributes_of(onesided=int(onesided), inverse=int(inverse))), operands)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20), st.integers(1, 9), st.integers(0, 30), st.booleans(), st.booleans())
def test_moving_windows(length: int, step: int, more: int, onesided: bool, windowed: bool) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, length + more, 1)).astype(np.float32)
    operands = [x, np.array(step), rng.standard_normal(length).astype(np.float32) if windowed else np.array(length)]
    names = ("x", "step", "w") if windowed else ("x", "step", "", "n")
    same(Node("STFT", names, ("y",), attributes_of(onesided=int(onesided))), operands)
