"""Zeros around an image become a convolution's padding."""

from __future__ import annotations

from typing import Any

import pytest

from fusewise.passes.absorb_padding import absorb_padding
from fusewise.trace import Trace

HEAD = "input x: float32[1,2,5,6]\nconstant w: float32[3,2,3,3] = #w\nconstant zero: float32[] = 0.0\n"


@pytest.mark.parametrize(
    "pad, conv, pads",
    [
        ("p: int64[8] = [0, 0, 1, 0, 0, 0, 2, 3]\na = Pad(x, p)", "Conv(a, w)", "[1, 0, 2, 3]"),
        (
            "p: int64[4] = [1, 1, 2, 2]\nconstant k: int64[2] = [-1, 2]\na = Pad(x, p, zero, k)",
            "Conv(a, w)",
            "[1, 1, 2, 2]",
        ),
        ("p: int64[8] = [0, 0, 1, 1, 0, 0, 1, 1]\na = Pad(x, p)", "Conv(a, w) {pads=[1, 0, 1, 2]}", "[2, 1, 2, 3]"),
        ("p: int64[8] = [0, 0, 1, 1, 0, 0, 1, 1]\na = Pad(x, p)", 'Conv(a, w) {auto_pad="VALID"}', "[1, 1, 1, 1]"),
    ],
)
def test_zeros(rewrites: Any, pad: str, conv: str, pads: str) -> None:
    rewrites(
        absorb_padding,
        f"{HEAD}constant {pad}\ny = {conv}\nreturn y",
        f"constant w = #\ny = Conv(x, w) {{pads={pads}}}\nreturn y",
    )


@pytest.mark.parametrize(
    "pad",
    [
        "p: int64[8] = [0, 0, 1, 1, 0, 0, 1, 1]\nconstant one: float32[] = 1.0\na = Pad(x, p, one)\ny = Conv(a, w)",
        'p: int64[8] = [0, 0, 1, 1, 0, 0, 1, 1]\na = Pad(x, p) {mode="edge"}\ny = Conv(a, w)',
        "p: int64[8] = [0, 0, -1, 1, 0, 0, 1, 1]\na = Pad(x, p)\ny = Conv(a, w)",
        "p: int64[8] = [1, 0, 1, 1, 0, 0, 1, 1]\na = Pad(x, p)\ny = Conv(a, w)",
        'p: int64[8] = [0, 0, 1, 1, 0, 0, 1, 1]\na = Pad(x, p)\ny = Conv(a, w) {auto_pad="SAME_UPPER"}',
        "p: int64[8] = [0, 0, 1, 1, 0, 0, 1, 1]\na = Pad(x, p)\nb = Conv(a, w)\nc = ReduceSum(a)\ny = Add(b, c)",
    ],
)
def test_refused(refuses: Any, pad: str) -> None:
    refuses(absorb_padding, f"{HEAD}constant {pad}\nreturn y")


POOLED = "input x: float32[1,2,5,6]\nconstant p: int64[8] = [0, 0, 1, 1, 0, 0, 1, 0]\n"


@pytest.mark.parametrize(
    "before, pool",
    [
        ("r = Relu(x)\na = Pad(r, p)", "MaxPool({}) {{kernel_shape=[3, 3]{}}}"),
        (
            "constant low: float32[] = -3.4028234663852886e+38\nr = Neg(x)\na = Pad(r, p, low)",
            "MaxPool({}) {{kernel_shape=[2, 2]{}}}",
        ),
        ("r = Neg(x)\na = Pad(r, p)", "AveragePool({}) {{count_include_pad=1, kernel_shape=[2, 2]{}}}"),
    ],
)
def test_into_a_pooling(parse: Any, same_answers: Any, before: str, pool: str) -> None:
    graph = parse(f"{POOLED}{before}\ny = {pool.format('a', '')}\nreturn y")
    after = absorb_padding(graph, Trace())
    assert after.nodes[-1].inputs == ("r",)
    assert after.nodes[-1].attribute("pads") == (1, 1, 1, 0)
    same_answers(graph, after, after.nodes[-1].op == "MaxPool")
    assert absorb_padding(graph, Trace(limit=0)) is graph


@pytest.mark.parametrize(
    "text",
    [
        "a = Pad(x, p)\ny = MaxPool(a) {kernel_shape=[3, 3]}",
        "r = Relu(x)\na = Pad(r, p)\ny = MaxPool(a) {kernel_shape=[1, 3]}",
        "r = Relu(x)\na = Pad(r, p)\ny = MaxPool(a) {ceil_mode=1, kernel_shape=[3, 3]}",
        "r = Relu(x)\na = Pad(r, p)\ny = MaxPool(a) {dilations=[2, 2], kernel_shape=[2, 2]}",
        "a = Pad(x, p)\ny = AveragePool(a) {kernel_shape=[3, 3], pads=[1, 1, 1, 1]}",
        "constant low: float32[] = -1.0\nr = Clip(x, low)\na = Pad(r, p)\ny = MaxPool(a) {kernel_shape=[3, 3]}",
    ],
)
def test_poolings_that_would_see_the_difference(refuses: Any, text: str) -> None:
    refuses(absorb_padding, f"{POOLED}{text}\nreturn y")
