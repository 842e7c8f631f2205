"""Neutral elements go and bounds merge, bit for bit; near misses stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.ops.build import GraphBuilder
from fusewise.ops.evaluate import evaluate
from fusewise.passes.simplify_arithmetic import simplify_arithmetic
from fusewise.trace import Trace

X = "input x: float32[2,3]\ninput i: int64[2,3]\ninput b: bool[2,3]\n"


@pytest.mark.parametrize(
    "body, left",
    [
        ("constant c: float32[] = 1.0\ny = Mul(x, c)", "x"),
        ("constant c: float32[1,3] = [1.0, 1.0, 1.0]\ny = Mul(c, x)", "x"),
        ("constant c: float32[] = 1.0\ny = Div(x, c)", "x"),
        ("constant c: float32[] = 1.0\ny = Pow(x, c)", "x"),
        ("constant c: float32[] = 0.0\ny = Sub(x, c)", "x"),
        ("constant c: float32[] = -0.0\ny = Add(x, c)", "x"),
        ("constant c: int64[] = 0\ny = Add(c, i)", "i"),
        ("constant c: bool[] = true\ny = And(b, c)", "b"),
        ("constant c: bool[] = false\ny = Or(c, b)", "b"),
        ("constant c: bool[] = false\ny = Xor(b, c)", "b"),
        ("a = Not(b)\ny = Not(a)", "b"),
        ("a = Neg(x)\ny = Neg(a)", "x"),
        ("y = Max(x)", "x"),
        ("y = Clip(x)", "x"),
    ],
)
def test_nothing_happens(rewrites: Any, body: str, left: str) -> None:
    use = {"x": "Exp", "i": "Neg", "b": "Identity"}[left]
    before = f"{X}{body}\nw = {use}(y)\nv = Abs(x)\nu = Abs(i)\ns = Or(b, b)\nreturn w, v, u, s"
    after = f"w = {use}({left})\nv = Abs(x)\nu = Abs(i)\ns = Or(b, b)\nreturn w, v, u, s"
    rewrites(simplify_arithmetic, before, after)


@pytest.mark.parametrize(
    "body, expected",
    [
        ("a = Relu(x)\ny = Relu(a)", "y = Relu(x)"),
        ("a = Abs(x)\ny = Abs(a)", "y = Abs(x)"),
        ("constant c: float32[] = 0.0\ny = Max(c, x)", "y = Relu(x)"),
        ("constant c: float32[] = 0.0\ny = Clip(x, c)", "y = Relu(x)"),
        ("constant c: float32[] = 6.0\ny = Min(x, c)", "constant n_y_high = 6.0\ny = Clip(x, _, n_y_high)"),
        (
            "constant c: float32[] = 0.0\nconstant d: float32[1] = [6.0]\na = Max(x, c)\ny = Min(d, a)",
            "constant n_y_low = 0.0\nconstant n_y_high_1 = 6.0\ny = Clip(x, n_y_low, n_y_high_1)",
        ),
        (
            "constant c: float32[] = -1.0\nconstant d: float32[] = 2.0\na = Relu(x)\ny = Clip(a, c, d)",
            "constant n_y_low = 0.0\nconstant n_y_high = 2.0\ny = Clip(x, n_y_low, n_y_high)",
        ),
        ("constant c: float32[] = -1.0\na = Clip(x, c)\ny = Relu(a)", "y = Relu(x)"),
    ],
)
def test_bounds_merge(rewrites: Any, body: str, expected: str) -> None:
    head = "input x: float32[2,3]\n"
    rewrites(simplify_arithmetic, f"{head}{body}\nreturn y", f"{expected}\nreturn y")


@pytest.mark.parametrize(
    "body",
    [
        "constant c: float32[] = 0.0\ny = Add(x, c)",  # -0.0 would stay
        "constant c: float32[] = -0.0\ny = Sub(x, c)",
        "constant c: float32[] = 0.0\ny = Mul(x, c)",  # infinity times zero
        "constant c: float32[] = 1.0\ny = Div(c, x)",
        "constant c: float32[] = 1.0\ny = Pow(c, x)",
        "constant c: float32[1,1,1] = [1.0]\na = Mul(x, c)\ny = Exp(a)",  # adds a dimension
        "constant c: float32[3] = [1.0, 1.0, 2.0]\ny = Mul(x, c)",
        "a = Relu(x)\nz = Exp(a)\nconstant c: float32[] = 6.0\ny = Clip(a, _, c)\nreturn y, z",  # read twice
        "constant c: float32[] = 3.0\nconstant d: float32[] = 1.0\na = Clip(x, _, d)\ny = Clip(a, c)",  # crossed
        "constant c: float32[] = nan\ny = Max(x, c)",
        "constant c: int64[] = 3\ny = Max(i, c)",
        "input c: float32[]\ny = Clip(x, c)",
        "a = Exp(x)\ny = Exp(a)",
    ],
)
def test_refused(refuses: Any, body: str) -> None:
    refuses(simplify_arithmetic, X + body + ("" if "return" in body else "\nreturn y"))


BOUNDS = st.one_of(st.none(), st.floats(-4, 4, width=32), st.sampled_from([np.inf, -np.inf, 0.0, -0.0]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.just("relu"), st.tuples(BOUNDS, BOUNDS)), min_size=1, max_size=4))
def test_any_chain_of_bounds_keeps_its_answer(chain: list[Any]) -> None:
    b = GraphBuilder()
    value = b.input("x", (9,))
    for step in chain:
        if step == "relu":
            value = b.op("Relu", value)
        else:
            value = b.op("Clip", value, *(None if v is None else b.constant(np.float32(v)) for v in step))
    graph = b.finish(value)
    after = simplify_arithmetic(graph, Trace())
    x = np.array([-np.inf, -5, -1.5, -0.0, 0.0, 0.5, 3, np.inf, np.nan], np.float32)
    found = []
    for which in (graph, after):
        values = {"x": x} | {name: constant.array for name, constant in which.constants.items()}
        for node in which.nodes:
            values[node.outputs[0]] = evaluate(node, values, which.opset)[0]
        found.append(values[which.outputs[0]] if which.nodes else x)
    np.testing.assert_array_equal(*found)
    assert len(after.nodes) <= len(graph.nodes)


def test_a_sum_of_two_is_an_addition(rewrites: Any, refuses: Any) -> None:
    before = "input x: float32[2,3]\ninput z: float32[3]\ny = Sum({})\nreturn y"
    rewrites(simplify_arithmetic, before.format("z, x"), "y = Add(z, x)\nreturn y")
    refuses(simplify_arithmetic, before.format("z, x, z"))
