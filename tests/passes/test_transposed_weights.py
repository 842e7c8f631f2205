"""Transpositions of the operands of products."""

from __future__ import annotations

from typing import Any

from fusewise.passes.transposed_weights import simplify_fc_transpose


def test_constant_weights_are_stored_as_read(rewrites: Any) -> None:
    rewrites(
        simplify_fc_transpose,
        """
        input x: float32[2,4]
        constant w: float32[3,4] = #w
        constant v: float32[2,3] = #v
        t = Transpose(w) {perm=[1,0]}
        a = MatMul(x, t)
        y = Gemm(a, v) {transB=1}
        return y
        """,
        """
        constant w_transposed = #
        constant v_transposed = [-0.79267377, -0.4321776, 1.3407547, 1.2433064, 0.6663934, -0.87120515]
        a = MatMul(x, w_transposed)
        y = Gemm(a, v_transposed)
        return y
        """,
    )


def test_gemm_transposes_by_itself(rewrites: Any) -> None:
    rewrites(
        simplify_fc_transpose,
        """
        input x: float32[4,2]
        input w: float32[3,4]
        t = Transpose(x) {perm=[1,0]}
        u = Transpose(w)
        y = Gemm(t, u)
        return y
        """,
        """
        y = Gemm(x, w) {transA=1, transB=1}
        return y
        """,
    )


def test_other_permutations_stay(refuses: Any) -> None:
    refuses(
        simplify_fc_transpose,
        """
        input x: float32[2,4,3]
        constant w: float32[3,4,2] = #w
        t = Transpose(w) {perm=[2,0,1]}
        y = MatMul(x, t)
        return y
        """,
    )
