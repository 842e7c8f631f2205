"""Zeros around an image become a convolution's padding."""

from __future__ import annotations

from typing import Any

import pytest

from fusewise.passes.absorb_padding import absorb_padding

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
