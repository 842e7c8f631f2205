"""Sums with zeros, and taps that no output places on the image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fusewise import api
from fusewise.benchmarking.inputs import random_feeds
from fusewise.ops.build import GraphBuilder
from fusewise.passes.drop_zeros import drop_zeros
from fusewise.trace import Trace


def test_sums_with_zero(rewrites: Any, refuses: Any) -> None:
    head = "input x: float32[2,3]\nconstant c: float32[] = 0.0\n"
    rewrites(
        drop_zeros, head + "a = Add(c, x)\nb = Sub(a, c)\ny = Exp(b)\nreturn y", "y = Exp(x)\nreturn y", exact=False
    )
    refuses(drop_zeros, head + "a = Sub(c, x)\ny = Exp(a)\nreturn y")
    refuses(drop_zeros, head + "constant z: float32[4,1,1] = [0.0, 0.0, 0.0, 0.0]\na = Add(x, z)\ny = Exp(a)\nreturn y")


HEAD = "input x: float32[1,2,5,9]\nconstant w: float32[30,2,3,3] = #w\n"


@pytest.mark.parametrize(
    "options, left, taps",
    [
        ("dilations=[6, 6], pads=[6, 6, 6, 6]", "dilations=[6, 6], pads=[0, 6, 0, 6]", (1, 3)),
        ("dilations=[9, 9], pads=[9, 9, 9, 9]", "dilations=[9, 9], pads=[0, 0, 0, 0]", (1, 1)),
        ("dilations=[4, 1], pads=[8, 1, 0, 1]", "dilations=[4, 1], pads=[4, 1, 0, 1]", (2, 3)),
    ],
)
def test_taps_that_meet_padding_only(rewrites: Any, options: str, left: str, taps: tuple[int, int]) -> None:
    after = rewrites(
        drop_zeros,
        f"{HEAD}y = Conv(x, w) {{{options}}}\nreturn y",
        f"constant w_1 = #\ny = Conv(x, w_1) {{{left}}}\nreturn y",
        exact=False,
    )
    assert after.tensor("w_1").dims == (30, 2, *taps)


def test_the_size_of_the_filter_is_stated_anew(rewrites: Any) -> None:
    rewrites(
        drop_zeros,
        f"{HEAD}y = Conv(x, w) {{dilations=[9, 9], kernel_shape=[3, 3], pads=[9, 9, 9, 9]}}\nreturn y",
        "constant w_1 = #\ny = Conv(x, w_1) {dilations=[9, 9], kernel_shape=[1, 1], pads=[0, 0, 0, 0]}\nreturn y",
        exact=False,
    )


@pytest.mark.parametrize("given", ["pads=[1, 1, 1, 1]", "dilations=[2, 4], pads=[2, 4, 2, 4]", 'auto_pad="SAME_UPPER"'])
def test_refused(refuses: Any, given: str) -> None:
    refuses(drop_zeros, f"{HEAD}y = Conv(x, w) {{{given}}}\nreturn y")


@settings(max_examples=60, deadline=None)
@given(
    extent=st.integers(1, 9),
    taps=st.integers(1, 5),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 7),
    pads=st.tuples(st.integers(0, 12), st.integers(0, 12)),
)
def test_any_geometry_keeps_its_answer(
    extent: int, taps: int, stride: int, dilation: int, pads: tuple[int, int]
) -> None:
    assume(extent + sum(pads) >= (taps - 1) * dilation + 1)
    b = GraphBuilder()
    x, weights = b.input("x", (1, 2, extent)), np.random.default_rng(taps).standard_normal((3, 2, taps))
    w = b.constant(weights.astype(np.float32))
    graph = b.finish(b.op("Conv", x, w, strides=(stride,), dilations=(dilation,), pads=pads))
    after = drop_zeros(graph, Trace())
    assert after.tensor(after.outputs[0]) == graph.tensor(graph.outputs[0])
    feeds = random_feeds(graph)
    expected, found = (
        api.compile(which, passes=False, threads=1, cache=False).run(None, feeds)[0] for which in (graph, after)
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)
