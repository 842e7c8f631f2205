"""Casts, computed sizes, constants in a row, approximations, wishes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from fusewise.frontend.onnx_export import to_model
from fusewise.ir.key import structural_key
from fusewise.passes.canonical_casts import canonical_casts
from fusewise.passes.dynamic_to_static import dynamic_to_static
from fusewise.passes.fast_math import fast_math
from fusewise.passes.hints import FUSION, LAYOUT, alter_op_layout, defuse_ops, fuse_ops, hint
from fusewise.passes.reassociate import reassociate
from fusewise.trace import Trace


def test_every_reader_has_its_own_cast(rewrites: Any, refuses: Any) -> None:
    rewrites(
        canonical_casts,
        """
        input x: float16[4]
        c = Cast(x) {to=1}
        a = Relu(c)
        b = Neg(c)
        return a, b
        """,
        """
        c = Cast(x) {to=1}
        a = Relu(c)
        c_1 = Cast(x) {to=1}
        b = Neg(c_1)
        return a, b
        """,
    )
    refuses(
        canonical_casts,
        """
        input x: float32[4]
        c = Cast(x) {to=10}
        a = Relu(c)
        b = Neg(c)
        return a, b
        """,
    )


def test_sizes_become_numbers_and_other_constants_stay(rewrites: Any) -> None:
    rewrites(
        dynamic_to_static,
        """
        input x: float32[2,3,4]
        constant zero: int64[1] = [0]
        constant rest: int64[1] = [-1]
        constant two: float32[] = 2.0
        s = Shape(x)
        n = Gather(s, zero)
        t = Concat(n, rest) {axis=0}
        k = Neg(two)
        a = Reshape(x, t)
        y = Mul(a, k)
        return y
        """,
        """
        constant two = 2.0
        constant t = [2, -1]
        k = Neg(two)
        a = Reshape(x, t)
        y = Mul(a, k)
        return y
        """,
    )


def test_two_constants_become_one(rewrites: Any, refuses: Any) -> None:
    rewrites(
        reassociate,
        """
        input x: float32[2,3]
        constant a: float32[3] = #a
        constant b: float32[] = 2.0
        c = Mul(a, x)
        y = Mul(c, b)
        return y
        """,
        """
        constant a_merged = [-0.18160358, 1.8612707, -3.388045]
        y = Mul(x, a_merged)
        return y
        """,
        exact=False,
    )
    refuses(
        reassociate,
        """
        input x: float32[2,3]
        constant a: float32[3] = #a
        constant b: float32[2,1] = #b
        c = Add(x, a)
        y = Add(c, b)
        return y
        """,
    )


@pytest.mark.parametrize("text", ["Gelu(x)", "Erf(x)"])
def test_fast_math_stays_within_its_bound(parse: Any, text: str) -> None:
    graph = parse(f"input x: float32[4001]\ny = {text}\nreturn y")
    after = fast_math(graph, Trace())
    assert fast_math(after, Trace()) is after
    assert "Tanh" in {node.op for node in after.nodes} or after.nodes[0].attribute("approximate") == "tanh"
    points = np.linspace(-8, 8, 4001, dtype=np.float32)
    exact, fast = (ReferenceEvaluator(to_model(g)).run(None, {"x": points})[0] for g in (graph, after))
    assert 1e-5 < np.max(np.abs(exact - fast)) < 1e-3


def test_wishes_are_kept_with_the_graph(parse: Any) -> None:
    graph = parse("input x: float32[2,2]\na = MatMul(x, x)\ny = Relu(a)\nreturn y")
    wished = alter_op_layout(fuse_ops(graph, Trace()), Trace())
    assert (hint(wished, FUSION), hint(wished, LAYOUT)) == ("patterns", "packed")
    assert fuse_ops(wished, Trace()) is wished
    assert hint(defuse_ops(wished, Trace()), FUSION) == ""
    assert defuse_ops(graph, Trace()) is graph
    assert fuse_ops(graph, Trace(limit=0)) is graph
    assert structural_key(wished) == structural_key(graph)
    lone = parse("input x: float32[2]\ny = Relu(x)\nreturn y")
    assert fuse_ops(lone, Trace()) is alter_op_layout(lone, Trace()) is lone
