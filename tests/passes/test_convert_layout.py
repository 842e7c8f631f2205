"""Transpositions move behind operators until they cancel."""

from __future__ import annotations

from typing import Any

from fusewise.passes.convert_layout import convert_layout


def test_a_block_between_layouts_loses_its_transpositions(rewrites: Any) -> None:
    rewrites(
        convert_layout,
        """
        input x: float32[1,3,4,4]
        constant w: float32[3,3,1,1] = #w
        constant s: float32[3] = #s
        constant zero: float32[] = 0.0
        constant six: float32[] = 6.0
        a = Conv(x, w)
        b = Transpose(a) {perm=[0,2,3,1]}
        c = Mul(b, s)
        d = Clip(c, zero, six)
        e = Transpose(d) {perm=[0,3,1,2]}
        y = Conv(e, w)
        return y
        """,
        """
        constant w = #
        constant zero = 0.0
        constant six = 6.0
        constant s_turned = [-2.0921535, -0.10904068, -1.9392598]
        a = Conv(x, w)
        c_before = Mul(a, s_turned)
        d_before = Clip(c_before, zero, six)
        y = Conv(d_before, w)
        return y
        """,
    )


def test_concat_pad_and_mean(rewrites: Any) -> None:
    after = rewrites(
        convert_layout,
        """
        input x: float32[1,3,4,4]
        input z: float32[1,3,4,4]
        constant pads: int64[8] = [0,1,1,0,0,1,1,0]
        constant axes: int64[2] = [1,2]
        a = Transpose(x) {perm=[0,2,3,1]}
        b = Transpose(z) {perm=[0,2,3,1]}
        c = Concat(a, b) {axis=3}
        p = Pad(c, pads)
        y = ReduceMean(p, axes) {keepdims=0}
        return y
        """,
        """
        constant pads_turned = [0, 0, 1, 1, 0, 0, 1, 1]
        constant axes_turned = [2, 3]
        c_before = Concat(x, z) {axis=1}
        p_before = Pad(c_before, pads_turned)
        y = ReduceMean(p_before, axes_turned) {keepdims=0}
        return y
        """,
        exact=False,
    )
    assert [node.op for node in after.nodes] == ["Concat", "Pad", "ReduceMean"]


def test_a_swish_reads_its_operand_twice(rewrites: Any) -> None:
    rewrites(
        convert_layout,
        """
        input x: float32[1,3,4,4]
        a = Transpose(x) {perm=[0,2,3,1]}
        b = Sigmoid(a)
        c = Mul(a, b)
        y = Transpose(c) {perm=[0,3,1,2]}
        return y
        """,
        """
        b_before = Sigmoid(x)
        y = Mul(x, b_before)
        return y
        """,
    )


def test_nothing_moves_when_as_many_would_be_left(refuses: Any) -> None:
    for text in ("Relu(a)", "ReduceMax(a, axes)", "Concat(a, a) {axis=1}"):
        refuses(
            convert_layout,
            f"""
            input x: float32[1,3,4,5]
            constant axes: int64[1] = [-1]
            a = Transpose(x) {{perm=[0,2,3,1]}}
            y = {text}
            return y
            """,
        )


def test_operands_that_are_not_alike_stay(refuses: Any) -> None:
    refuses(
        convert_layout,
        """
        input x: float32[2,2]
        input z: float32[2,2]
        a = Transpose(x) {perm=[1,0]}
        y = Add(a, z)
        return y
        """,
    )
    refuses(
        convert_layout,
        """
        input x: float32[2,2]
        a = Transpose(x) {perm=[1,0]}
        y = Relu(a)
        return a, y
        """,
    )
