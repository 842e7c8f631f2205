"""Long sums keep their digits: rounding errors must not grow with the length, along whatever axes the lanes run."""

from __future__ import annotations

import numpy as np
import pytest

from fusewise import api
from fusewise.ops.build import GraphBuilder

LONG_SUM = 8e-7
"""Relative error a mean of twelve thousand may have: some ten roundings, what chains of about a hundred additions come to.

One chain of all of them has two to five times as much.
"""


@pytest.mark.parametrize(
    "shape, axes",
    [
        ((2, 12544), [1]),
        ((3, 12544, 32), [1]),
        ((3, 9973, 8), [1]),
        ((12000, 16), [0]),
        ((1, 112, 112, 32), [1, 2]),
        ((2, 31, 613, 5), [1, 2]),
        ((1, 16, 97, 131), [2, 3]),
        ((300, 7, 60), [0, 2]),
    ],
    ids=str,
)
def test_the_mean_of_many_numbers_is_exact_to_the_last_digits(shape: tuple[int, ...], axes: list[int]) -> None:
    x = np.random.default_rng(0).uniform(0.3, 1.3, shape).astype(np.float32)
    b = GraphBuilder("mean")
    graph = b.finish(b.op("ReduceMean", b.input("x", shape), b.constant(np.array(axes)), keepdims=0))
    (found,) = api.compile(graph, cache=False, strict=True).run(None, {"x": x})
    expected = x.mean(tuple(axes), dtype=np.float64)
    assert np.abs(found / expected - 1).max() <= LONG_SUM


def test_pooling_what_a_convolution_wrote_with_channels_last() -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(0.3, 1.3, (1, 32, 112, 112)).astype(np.float32)
    w = np.eye(32, dtype=np.float32)[:, :, None, None]
    b = GraphBuilder("pool")
    graph = b.finish(b.op("GlobalAveragePool", b.op("Relu", b.op("Conv", b.input("x", x.shape), b.constant(w)))))
    (found,) = api.compile(graph, cache=False, strict=True).run(None, {"x": x})
    expected = x.mean((2, 3), dtype=np.float64, keepdims=True)
    assert np.abs(found / expected - 1).max() <= LONG_SUM
