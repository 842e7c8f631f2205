"""Convolutions by NumPy: all windows at once and tap by tap give the same, with every stride, dilation, padding and group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.ir.graph import Node, attributes_of
from fusewise.ops.evaluate import evaluator
from fusewise.ops.plain import products
from fusewise.ops.plain.table import plain_evaluator


def nobody(*_: Any) -> list[Any]:
    pytest.fail("left to the evaluator")


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(("Conv", "ConvTranspose")),
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 2),
    st.integers(0, 99),
)
def test_both_ways(op: str, rank: int, groups: int, stride: int, dilation: int, pad: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kernel = [int(k) for k in rng.integers(1, 4, rank)]
    extents = [int(n) for n in rng.integers(7, 10, rank)]
    outer, inner = 2 * groups, int(rng.integers(1, 3))
    data = rng.normal(size=(2, groups * inner if op == "Conv" else outer, *extents)).astype(np.float32)
    weights = rng.normal(size=(outer, inner, *kernel)).astype(np.float32)
    bias = rng.normal(size=outer if op == "Conv" else groups * inner).astype(np.float32)
    attributes = {
        "group": groups,
        "strides": (stride,) * rank,
        "dilations": (dilation,) * rank,
        "pads": (min(pad, 1),) * rank + (pad,) * rank,
        "kernel_shape": tuple(kernel),
    }
    node = Node(op, ("x", "w", "b"), ("y",), attributes_of(**attributes))
    run = plain_evaluator(node, 21, nobody)
    assert run is not None
    (right,) = evaluator(node, 21)(data, weights, bias)
    most = products._MOST_ELEMENTS
    try:
        for products._MOST_ELEMENTS in (most, 0):
            (found,) = run(data, weights, bias)
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4, strict=True)
    finally:
        products._MOST_ELEMENTS = most
