"""A factor of every input channel goes into the weights behind it."""

from __future__ import annotations

from typing import Any

from fusewise.passes.fold_scale_forward import fold_scale_forward


def test_into_a_convolution_with_groups(rewrites: Any) -> None:
    rewrites(
        fold_scale_forward,
        """
        input x: float32[1,4,5,5]
        constant s: float32[4,1,1] = #s
        constant w: float32[6,2,3,3] = #w
        a = Mul(s, x)
        y = Conv(a, w) {group=2, pads=[1,1,1,1]}
        return y
        """,
        """
        constant w_folded = #
        y = Conv(x, w_folded) {group=2, pads=[1, 1, 1, 1]}
        return y
        """,
        exact=False,
    )


def test_through_a_relu_when_positive(rewrites: Any, refuses: Any) -> None:
    text = """
        input x: float32[2,4]
        constant s: float32[4] = #{kind}
        constant w: float32[3,4] = #w
        a = Mul(x, s)
        r = Relu(a)
        y = Gemm(r, w) {transB=1}
        return y
        """
    after = rewrites(
        fold_scale_forward,
        text.replace("{kind}", "positive").replace("{trans", "{trans"),
        """
        constant w_folded = #
        r_unscaled = Relu(x)
        y = Gemm(r_unscaled, w_folded) {transB=1}
        return y
        """,
        exact=False,
    )
    assert len(after.nodes) == 2
    refuses(fold_scale_forward, text.replace("{kind}", "s"))


def test_refused(refuses: Any) -> None:
    refuses(
        fold_scale_forward,
        """
        input x: float32[2,3,4]
        constant s: float32[3,1] = #s
        constant w: float32[4,5] = #w
        a = Mul(x, s)
        y = MatMul(a, w)
        return y
        """,
    )
    refuses(
        fold_scale_forward,
        """
        input x: float32[2,4]
        constant s: float32[4] = #s
        constant w: float32[4,5] = #w
        a = Mul(x, s)
        y = MatMul(a, w)
        return a, y
        """,
    )
