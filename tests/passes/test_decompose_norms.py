"""Normalisations are written out, and recognised again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fusewise.passes.decompose_norms import simplify_inference
from fusewise.passes.recognise_norms import recognise_norms
from fusewise.trace import Trace


def test_layer_normalisation_and_back(rewrites: Any, parse: Any, shown: Any) -> None:
    text = """
        input x: float32[2,3,4]
        constant s: float32[4] = #s
        constant b: float32[4] = #b
        y = LayerNormalization(x, s, b) {axis=-1, epsilon=0.001}
        return y
        """
    after = rewrites(
        simplify_inference,
        text,
        """
        constant s = [-2.0921535, -0.10904068, -1.9392598, 1.7201694]
        constant b = [0.7178021, 1.476261, 1.3770623, 0.5434402]
        constant n_y_number = [2]
        constant n_y_number_1 = 0.001
        n_y_reducemean = ReduceMean(x, n_y_number) {keepdims=1}
        n_y_sub = Sub(x, n_y_reducemean)
        n_y_mul = Mul(n_y_sub, n_y_sub)
        n_y_reducemean_1 = ReduceMean(n_y_mul, n_y_number) {keepdims=1}
        n_y_add = Add(n_y_reducemean_1, n_y_number_1)
        n_y_sqrt = Sqrt(n_y_add)
        n_y_div = Div(n_y_sub, n_y_sqrt)
        n_y_mul_1 = Mul(n_y_div, s)
        y = Add(n_y_mul_1, b)
        return y
        """,
        exact=False,
    )
    assert [node.op for node in recognise_norms(after, Trace()).nodes] == ["LayerNormalization"]


@pytest.mark.parametrize(
    "norm, operators",
    [
        ("RMSNormalization(x, s)", "Mul ReduceMean Add Sqrt Div Mul"),
        ("InstanceNormalization(x, c, c)", "ReduceMean Sub Mul ReduceMean Add Sqrt Div Mul Add"),
        ("BatchNormalization(x, c, c, c, p)", "Mul Add"),
        ("Identity(x)", ""),
    ],
)
def test_others(parse: Any, same_answers: Any, norm: str, operators: str) -> None:
    graph = parse(
        f"""
        input x: float32[2,3,4]
        constant s: float32[4] = #s
        constant c: float32[3] = #c
        constant p: float32[3] = #positive
        a = {norm}
        y = Relu(a)
        return y
        """
    )
    after = simplify_inference(graph, Trace())
    assert Counter(node.op for node in after.nodes) == Counter([*operators.split(), "Relu"])
    same_answers(graph, after, False)
    assert simplify_inference(graph, Trace(limit=0)) is graph


def test_statistics_that_are_asked_for_stay(refuses: Any) -> None:
    refuses(
        simplify_inference,
        """
        input x: float32[2,4]
        constant s: float32[4] = #s
        y, m = LayerNormalization(x, s)
        return y, m
        """,
    )
