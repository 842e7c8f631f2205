"""A constant factor per channel goes into weights and bias."""

from __future__ import annotations

from typing import Any

import pytest

from fusewise.passes.absorb_scale import absorb_scale

IMAGE = "input x: float32[2,4,5,5]\nconstant k: float32[10] = #k\nconstant c: float32[10,1,1] = #positive\n"


@pytest.mark.parametrize(
    "weights, producer, scale, expected",
    [
        ("[10,4,3,3]", "Conv(x, w)", "Mul(a, c)", "Conv(x, w_folded)"),
        ("[10,4,3,3]", "Conv(x, w, k)", "Div(a, c)", "Conv(x, w_folded, n_a_bias)"),
        ("[10,2,3,3]", "Conv(x, w, k) {group=2}", "Mul(c, a)", "Conv(x, w_folded, n_a_bias) {group=2}"),
        (
            "[4,5,2,2]",
            "ConvTranspose(x, w, k) {group=2}",
            "Mul(a, c)",
            "ConvTranspose(x, w_folded, n_a_bias) {group=2}",
        ),
        ("[10,4,3,3]", "Conv(x, w, k)", "Mul(a, one)", "Conv(x, w_folded, n_a_bias)"),
    ],
)
def test_convolutions(rewrites: Any, weights: str, producer: str, scale: str, expected: str) -> None:
    bias = "constant n_a_bias = #\n" if "bias" in expected else ""
    rewrites(
        absorb_scale,
        f"{IMAGE}constant one: float32[] = 0.5\nconstant w: float32{weights} = #w\na = {producer}\ny = {scale}\nreturn y",
        f"constant w_folded = #\n{bias}y = {expected}\nreturn y",
        exact=False,
    )


@pytest.mark.parametrize(
    "producer, expected, bias",
    [
        ("a = MatMul(x, w)", "y = MatMul(x, w_folded)", ""),
        (
            "p = MatMul(x, w)\na = Add(p, b)",
            "p_scaled = MatMul(x, w_folded)\ny = Add(p_scaled, b_folded)",
            "constant b_folded = #\n",
        ),
        (
            "p = MatMul(x, w)\na = Add(full, p)",
            "p_scaled = MatMul(x, w_folded)\ny = Add(p_scaled, full_folded)",
            "constant full_folded = #\n",
        ),
    ],
)
@pytest.mark.parametrize("scale", ["Mul(a, c)", "Div(a, c)", "Div(a, one)"])
def test_products_in_any_number_of_dimensions(
    rewrites: Any, producer: str, expected: str, bias: str, scale: str
) -> None:
    rewrites(
        absorb_scale,
        "input x: float32[2,3,7]\nconstant w: float32[7,10] = #w\nconstant b: float32[10] = #b\n"
        "constant full: float32[3,10] = #f\nconstant c: float32[10] = #positive\nconstant one: float32[] = 8.0\n"
        f"{producer}\ny = {scale}\nreturn y",
        f"constant w_folded = #\n{bias}{expected}\nreturn y",
        exact=False,
    )


CONV = f"{IMAGE}constant w: float32[10,4,3,3] = #w\na = Conv(x, w)\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{CONV}y = Mul(a, c)\nreturn y, a",
        f"{CONV}y = Div(c, a)\nreturn y",
        f"{CONV}constant z: float32[] = 0.0\ny = Div(a, z)\nreturn y",
        f"{CONV}constant z: float32[] = inf\ny = Mul(a, z)\nreturn y",
        f"{CONV}constant d: float32[3] = #d\ny = Mul(a, d)\nreturn y",
        f"{CONV}input d: float32[10,1,1]\ny = Mul(a, d)\nreturn y",
        "input x: float32[2,3,7]\ninput w: float32[7,10]\nconstant c: float32[10] = #c\na = MatMul(x, w)\ny = Mul(a, c)\nreturn y",
        (
            "input x: float32[2,3,7]\nconstant w: float32[7,10] = #w\nconstant c: float32[10] = #c\ninput b: float32[10]\n"
            "p = MatMul(x, w)\na = Add(p, b)\ny = Mul(a, c)\nreturn y"
        ),
    ],
)
def test_refused(refuses: Any, text: str) -> None:
    refuses(absorb_scale, text)
