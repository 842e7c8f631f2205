"""Batch normalisation goes into the weights around it, or becomes a product and a sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusewise.passes.fold_batch_norm import fold_batch_norm, lower_batch_norm


def norm(channels: int, shift: str = "#t", mean: str = "#m") -> str:
    """Statistics for so many channels."""
    rows = (("s", "#s"), ("t", shift), ("m", mean), ("v", "#positive"))
    return "".join(f"constant {name}: float32[{channels}] = {key}\n" for name, key in rows)


IMAGE = "input x: float32[2,4,5,5]\n"


@pytest.mark.parametrize(
    "weights, producer, expected",
    [
        ("[10,4,3,3]", "Conv(x, w)", "Conv(x, w_folded, n_a_bias)"),
        ("[10,4,1,1]", "Conv(x, w, k)", "Conv(x, w_folded, n_a_bias)"),
        ("[10,2,3,3]", "Conv(x, w, k) {group=2}", "Conv(x, w_folded, n_a_bias) {group=2}"),
        ("[4,10,2,2]", "ConvTranspose(x, w, k)", "ConvTranspose(x, w_folded, n_a_bias)"),
        ("[4,5,2,2]", "ConvTranspose(x, w) {group=2}", "ConvTranspose(x, w_folded, n_a_bias) {group=2}"),
    ],
)
def test_into_convolutions(rewrites: Any, weights: str, producer: str, expected: str) -> None:
    after = rewrites(
        fold_batch_norm,
        f"{IMAGE}{norm(10)}constant k: float32[10] = #k\nconstant w: float32{weights} = #w\n"
        f"a = {producer}\ny = BatchNormalization(a, s, t, m, v) {{epsilon=0.01}}\nreturn y",
        f"constant w_folded = #\nconstant n_a_bias = #\ny = {expected}\nreturn y",
        exact=False,
    )
    (node,) = after.nodes
    assert node.name == "n_a"
    assert node.origin == ("n_a", "n_y")


@pytest.mark.parametrize(
    "weights, producer, expected",
    [
        ("[7,10]", "Gemm(x, w)", "Gemm(x, w_folded, n_a_bias)"),
        (
            "[10,7]",
            "Gemm(x, w, k) {alpha=0.5, beta=2.0, transB=1}",
            "Gemm(x, w_folded, n_a_bias) {alpha=0.5, transB=1}",
        ),
        ("[7,10]", "Gemm(x, w, full)", "Gemm(x, w_folded, n_a_bias)"),
        ("[7,10]", "Gemm(x, w, one)", "Gemm(x, w_folded, n_a_bias)"),
        ("[7,10]", "MatMul(x, w)", "Gemm(x, w_folded, n_a_bias)"),
    ],
)
def test_into_products(rewrites: Any, weights: str, producer: str, expected: str) -> None:
    rewrites(
        fold_batch_norm,
        f"input x: float32[3,7]\n{norm(10)}constant k: float32[10] = #k\nconstant full: float32[3,10] = #f\n"
        f"constant one: float32[] = 0.5\nconstant w: float32{weights} = #w\n"
        f"a = {producer}\ny = BatchNormalization(a, s, t, m, v)\nreturn y",
        f"constant w_folded = #\nconstant n_a_bias = #\ny = {expected}\nreturn y",
        exact=False,
    )


def test_into_the_convolution_behind(rewrites: Any) -> None:
    rewrites(
        fold_batch_norm,
        f"input x: float32[2,12,5,5]\n{norm(12)}constant k: float32[10] = #k\nconstant w: float32[10,6,3,3] = #w\n"
        "a = BatchNormalization(x, s, t, m, v)\ny = Conv(a, w, k) {group=2}\nreturn y",
        "constant w_folded = #\nconstant n_y_bias = #\ny = Conv(x, w_folded, n_y_bias) {group=2}\nreturn y",
        exact=False,
    )


def test_into_a_padded_convolution_without_a_shift(rewrites: Any) -> None:
    rewrites(
        fold_batch_norm,
        f"{IMAGE}{norm(4, '[0.0, 0.0, 0.0, 0.0]', '[0.0, 0.0, 0.0, 0.0]')}constant w: float32[10,4,3,3] = #w\n"
        "a = BatchNormalization(x, s, t, m, v)\ny = Conv(a, w) {pads=[1, 1, 1, 1]}\nreturn y",
        "constant w_folded = #\nconstant n_y_bias = #\ny = Conv(x, w_folded, n_y_bias) {pads=[1, 1, 1, 1]}\nreturn y",
        exact=False,
    )


CONV = f"{IMAGE}constant w: float32[4,4,3,3] = #w\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{CONV}{norm(4)}a = Conv(x, w)\ny = BatchNormalization(a, s, t, m, v)\nz = Exp(a)\nreturn y, z",
        f"{CONV}{norm(4)}a = Conv(x, w)\ny = BatchNormalization(a, s, t, m, v)\nreturn y, a",
        f"{CONV}{norm(4)}a = BatchNormalization(x, s, t, m, v)\ny = Conv(a, w) {{pads=[1, 1, 1, 1]}}\nreturn y",
        f'{CONV}{norm(4)}a = BatchNormalization(x, s, t, m, v)\ny = Conv(a, w) {{auto_pad="SAME_UPPER"}}\nreturn y',
        f"{CONV}{norm(4)}input live: float32[4]\na = Conv(x, w)\ny = BatchNormalization(a, live, t, m, v)\nreturn y",
        f"{CONV}{norm(4)}input live: float32[4]\na = Conv(x, w, live)\ny = BatchNormalization(a, s, t, m, v)\nreturn y",
        f"{CONV}{norm(4)}input live: float32[4,4,3,3]\na = Conv(x, live)\ny = BatchNormalization(a, s, t, m, v)\nreturn y",
        f"{CONV}{norm(4)}a = Conv(x, w)\ny, p, q = BatchNormalization(a, s, t, m, v) {{training_mode=1}}\nreturn y",
        (
            f"input x: float32[2,4,5]\nconstant w: float32[5,6] = #w\n{norm(4)}"
            "a = MatMul(x, w)\ny = BatchNormalization(a, s, t, m, v)\nreturn y"
        ),
    ],
)
def test_refused(refuses: Any, text: str) -> None:
    refuses(fold_batch_norm, text)


def test_statistics_that_overflow_are_refused(refuses: Any) -> None:
    statistics = norm(4).replace("#positive", "[-1.0, 1.0, 1.0, 1.0]")
    refuses(fold_batch_norm, f"{CONV}{statistics}a = Conv(x, w)\ny = BatchNormalization(a, s, t, m, v)\nreturn y")


def test_others_become_a_product_and_a_sum(rewrites: Any) -> None:
    rewrites(
        lower_batch_norm,
        f"input x: float32[2,10,5,5]\n{norm(10)}y = BatchNormalization(x, s, t, m, v)\nreturn y",
        "constant n_y_slope = #\nconstant n_y_shift = #\n"
        "n_y_scaled = Mul(x, n_y_slope)\ny = Add(n_y_scaled, n_y_shift)\nreturn y",
        exact=False,
    )


def test_weights_are_rounded_once(parse: Any) -> None:
    """Against the same formula in float64: half a unit in the last place at most."""
    graph = parse(f"{CONV}{norm(4)}a = Conv(x, w)\ny = BatchNormalization(a, s, t, m, v)\nreturn y")
    from fusewise.trace import Trace

    after = fold_batch_norm(graph, Trace())
    w, s, v = (graph.constants[name].array.astype(np.float64) for name in "wsv")
    wanted = w * (s / np.sqrt(v + 1e-5)).reshape(-1, 1, 1, 1)
    np.testing.assert_array_equal(after.constants["w_folded"].array, wanted.astype(np.float32))
