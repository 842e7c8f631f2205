"""Operators on one tensor become one wider operator and a Split."""

from __future__ import annotations

from typing import Any

import pytest

from fusewise.passes.combine_parallel import combine_batch_matmul, combine_conv2d, combine_dense


def test_convolutions_with_and_without_bias(rewrites: Any) -> None:
    rewrites(
        combine_conv2d,
        """
        input x: float32[1,3,6,6]
        constant v: float32[4,3,3,3] = #v
        constant w: float32[2,3,3,3] = #w
        constant b: float32[2] = #b
        a = Conv(x, v) {pads=[1,1,1,1]}
        c = Conv(x, w, b) {pads=[1,1,1,1]}
        return a, c
        """,
        """
        constant v_combined = #
        constant n_a_biases = [0.0, 0.0, 0.0, 0.0, 0.7178021, 1.476261]
        constant n_a_combined_widths = [4, 2]
        n_a_combined = Conv(x, v_combined, n_a_biases) {pads=[1, 1, 1, 1]}
        a, c = Split(n_a_combined, n_a_combined_widths) {axis=1}
        return a, c
        """,
    )


@pytest.mark.parametrize(
    "second",
    ["Conv(x, w) {strides=[2,2]}", "Conv(x, w) {dilations=[2,2]}", "Conv(x, u)", "Conv(x, g) {group=3}", "Conv(o, w)"],
)
def test_convolutions_that_differ_stay(refuses: Any, second: str) -> None:
    refuses(
        combine_conv2d,
        f"""
        input x: float32[1,3,6,6]
        input o: float32[1,3,6,6]
        constant v: float32[4,3,3,3] = #v
        constant w: float32[2,3,3,3] = #w
        constant u: float32[2,3,1,1] = #u
        constant g: float32[3,1,3,3] = #g
        a = Conv(x, v)
        c = {second}
        return a, c
        """,
    )


def test_one_that_needs_the_other_waits(refuses: Any) -> None:
    refuses(
        combine_batch_matmul,
        """
        input x: float32[4,4]
        input y: float32[4,4]
        a = MatMul(x, y)
        b = MatMul(x, a)
        return b
        """,
    )


def test_products_with_constant_matrices(rewrites: Any) -> None:
    rewrites(
        combine_dense,
        """
        input x: float32[2,3,4]
        constant v: float32[4,5] = #v
        constant w: float32[4,1] = #w
        a = MatMul(x, v)
        c = MatMul(x, w)
        return a, c
        """,
        """
        constant v_combined = #
        constant n_a_combined_widths = [5, 1]
        n_a_combined = MatMul(x, v_combined)
        a, c = Split(n_a_combined, n_a_combined_widths) {axis=2}
        return a, c
        """,
        exact=False,
    )


def test_gemms_with_bias_and_transposed_weights(rewrites: Any) -> None:
    after = rewrites(
        combine_dense,
        """
        input x: float32[2,4]
        constant v: float32[5,4] = #v
        constant w: float32[2,4] = #w
        constant p: float32[5] = #p
        constant q: float32[2] = #q
        a = Gemm(x, v, p) {transB=1, beta=0.5}
        c = Gemm(x, w, q) {transB=1, beta=0.5}
        return a, c
        """,
        """
        constant v_combined = #
        constant n_a_biases = [0.114974216, 0.9270023, 1.1505691, -0.3366785, -0.9576523, -0.029686648, -0.19080564]
        constant n_a_combined_widths = [5, 2]
        n_a_combined = Gemm(x, v_combined, n_a_biases) {transB=1, beta=0.5}
        a, c = Split(n_a_combined, n_a_combined_widths) {axis=1}
        return a, c
        """,
        exact=False,
    )
    assert set(after.nodes[0].origin) == {"n_a", "n_c"}


def test_products_of_computed_tensors(rewrites: Any) -> None:
    rewrites(
        combine_batch_matmul,
        """
        input x: float32[2,3,4]
        input y: float32[2,4,2]
        input z: float32[2,4,3]
        a = MatMul(x, y)
        c = MatMul(x, z)
        return a, c
        """,
        """
        constant n_a_combined_widths = [2, 3]
        n_a_right = Concat(y, z) {axis=2}
        n_a_combined = MatMul(x, n_a_right)
        a, c = Split(n_a_combined, n_a_combined_widths) {axis=2}
        return a, c
        """,
        exact=False,
    )
