"""A constant sum per channel becomes a bias."""

from __future__ import annotations

from typing import Any

import pytest

from fusewise.passes.absorb_bias import absorb_bias

IMAGE = "input x: float32[2,4,5,5]\nconstant k: float32[10] = #k\n"
CHANNELS = "constant c: float32[10,1,1] = #c\n"


@pytest.mark.parametrize(
    "weights, producer, add, expected",
    [
        ("[10,4,3,3]", "Conv(x, w)", "Add(a, c)", "Conv(x, w, n_a_bias)"),
        ("[10,4,3,3]", "Conv(x, w, k)", "Add(c, a)", "Conv(x, w, n_a_bias)"),
        ("[10,2,3,3]", "Conv(x, w, k) {group=2}", "Sub(a, c)", "Conv(x, w, n_a_bias) {group=2}"),
        ("[4,10,2,2]", "ConvTranspose(x, w)", "Add(a, c)", "ConvTranspose(x, w, n_a_bias)"),
        ("[10,4,3,3]", "Conv(x, w)", "Add(a, one)", "Conv(x, w, n_a_bias)"),
    ],
)
def test_convolutions(rewrites: Any, weights: str, producer: str, add: str, expected: str) -> None:
    rewrites(
        absorb_bias,
        f"{IMAGE}{CHANNELS}constant one: float32[] = 0.5\nconstant w: float32{weights} = #w\na = {producer}\ny = {add}\nreturn y",
        f"constant w = #\nconstant n_a_bias = #\ny = {expected}\nreturn y",
        exact=False,
    )


@pytest.mark.parametrize(
    "producer, add, expected",
    [
        ("MatMul(x, w)", "Add(a, c)", "Gemm(x, w, n_a_bias)"),
        ("MatMul(x, w)", "Add(one, a)", "Gemm(x, w, n_a_bias)"),
        ("Gemm(x, w)", "Add(a, c)", "Gemm(x, w, n_a_bias)"),
        ("Gemm(x, w, full) {alpha=2.0, beta=0.5}", "Sub(a, c)", "Gemm(x, w, n_a_bias) {alpha=2.0}"),
    ],
)
def test_products(rewrites: Any, producer: str, add: str, expected: str) -> None:
    rewrites(
        absorb_bias,
        "input x: float32[3,7]\nconstant w: float32[7,10] = #w\nconstant c: float32[1,10] = #c\n"
        f"constant one: float32[1] = [0.5]\nconstant full: float32[3,10] = #f\na = {producer}\ny = {add}\nreturn y",
        f"constant w = #\nconstant n_a_bias = #\ny = {expected}\nreturn y",
        exact=False,
    )


CONV = f"{IMAGE}{CHANNELS}constant w: float32[10,4,3,3] = #w\na = Conv(x, w)\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{CONV}y = Add(a, c)\nreturn y, a",
        f"{CONV}y = Add(a, a)\nreturn y",
        f"{CONV}y = Sub(c, a)\nreturn y",
        f"{CONV}constant d: float32[3] = #d\ny = Add(a, d)\nreturn y",  # along the width
        f"{CONV}input d: float32[10,1,1]\ny = Add(a, d)\nreturn y",
        f"{CONV}constant d: float32[1,1,1,1,1] = [1.0]\ny = Add(a, d)\nreturn y",  # adds a dimension
        (
            "input x: float32[2,3,7]\nconstant w: float32[7,10] = #w\nconstant c: float32[10] = #c\n"
            "a = MatMul(x, w)\ny = Add(a, c)\nreturn y"
        ),
        "input x: float32[3,7]\ninput w: float32[7,10]\nconstant c: float32[10] = #c\na = MatMul(x, w)\ny = Add(a, c)\nreturn y",
    ],
)
def test_refused(refuses: Any, text: str) -> None:
    refuses(absorb_bias, text)
