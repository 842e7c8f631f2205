"""Models in float16: what computes in float32, what stays, and answers against exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fusewise
from fusewise.ir.dtypes import FLOAT16
from fusewise.ir.graph import Graph
from fusewise.ir.verify import verify
from fusewise.ops.build import GraphBuilder
from fusewise.passes.compute_wider import halves_in_float32
from fusewise.trace import Trace


def kinds(graph: Graph) -> list[tuple[str, str]]:
    """Operators and the element type of their first output."""
    return [(node.op, graph.tensor(node.outputs[0]).dtype.name) for node in graph.nodes]


def applied(graph: Graph) -> Graph:
    after = halves_in_float32(graph, Trace())
    verify(after)
    assert (after.inputs, after.outputs) == (graph.inputs, graph.outputs)
    assert [after.types[v] for v in after.outputs] == [graph.types[v] for v in graph.outputs]
    assert kinds(halves_in_float32(after, Trace())) == kinds(after), "a second time changes nothing"
    assert halves_in_float32(graph, Trace(limit=0)) is graph, "every change asks for leave"
    return after


def test_results_are_rounded_where_they_leave(parse: Callable[[str], Graph]) -> None:
    graph = parse("""
        input x: float16[4,8]
        input w: float16[8,8]
        y: float16[4,8] = MatMul(x, w)
        r: float16[4,8] = Relu(y)
        t: float16[8,4] = Transpose(r){perm=[1,0]}
        wide: float32[8,4] = Cast(t){to=1}
        s: float32[8,4] = Softmax(wide)
        back: float16[8,4] = Cast(s){to=10}
        z: float16[8,4] = Mul(back, t)
        return z, back
    """)
    after = applied(graph)
    assert [kind for kind in kinds(after) if kind[0] != "Identity"] == [
        ("Cast", "float32"),
        ("Cast", "float32"),
        *((op, "float32") for op in ("MatMul", "Relu", "Transpose", "Softmax", "Mul")),
        ("Cast", "float16"),
        ("Cast", "float16"),
    ]


def test_caches_are_copied_as_they_are(parse: Callable[[str], Graph]) -> None:
    graph = parse("""
        input past: float16[1,2,5,4]
        input x: float16[1,2,1,4]
        input q: float16[1,2,1,4]
        new: float16[1,2,1,4] = Mul(x, x)
        present: float16[1,2,6,4] = Concat(past, new){axis=2}
        y: float16[1,2,1,4] = Attention(q, present, present)
        return y, present
    """)
    assert ("Concat", "float16") in kinds(applied(graph))


def test_the_cast_of_a_cache_comes_before_what_gives_it_another_shape(parse: Callable[[str], Graph]) -> None:
    graph = parse("""
        input cache: float16[2,5,4]
        input q: float16[2,3,5]
        turned: float16[2,4,5] = Transpose(cache){perm=[0,2,1]}
        spread: float16[2,5,4] = Transpose(turned){perm=[0,2,1]}
        y: float16[2,3,4] = MatMul(q, spread)
        return y, turned
    """)
    after = applied(graph)
    cast = after.producer_of(next(node.inputs[1] for node in after.nodes if node.op == "MatMul"))
    assert cast is not None and cast.op == "Transpose" and after.tensor(cast.outputs[0]).dtype.name == "float32"
    assert ("Transpose", "float16") in kinds(after), "the result that others read stays as it is"


def test_a_graph_with_casts_settles(parse: Callable[[str], Graph]) -> None:
    """What waits for a round in which nothing changes gets its turn."""
    graph = parse("""
        input past: float16[1,2,5,4]
        input x: float16[1,2,1,4]
        new: float16[1,2,1,4] = Mul(x, x)
        present: float16[1,2,6,4] = Concat(past, new){axis=2}
        y: float16[1,2,6,4] = Relu(present)
        return y, present
    """)
    after = applied(graph)
    assert halves_in_float32(after, Trace()) is after


def test_what_only_moves_or_tests_bits_stays(parse: Callable[[str], Graph]) -> None:
    graph = parse("""
        input x: float16[4,8]
        y: float16[8,4] = Transpose(x){perm=[1,0]}
        return y
    """)
    assert applied(graph) is graph


def test_exact_leaves_every_rounding() -> None:
    b = GraphBuilder("sums")
    x = b.input("x", (64,), FLOAT16)
    big = b.constant(np.float16(2048.0))
    graph = b.finish(b.op("Sub", b.op("Add", x, big), big))
    feeds = {"x": np.linspace(0, 1, 64, dtype=np.float16)}
    (exact,) = fusewise.compile(graph, exact=True, cache=False).run(None, feeds)
    (usual,) = fusewise.compile(graph, cache=False).run(None, feeds)
    np.testing.assert_array_equal(exact, (feeds["x"] + np.float16(2048)) - np.float16(2048))
    assert np.abs(usual - feeds["x"].astype(np.float64)).max() < np.abs(exact - feeds["x"].astype(np.float64)).max()


_UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Exp", "Identity")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.sampled_from((*_UNARY, "Add", "Mul", "MatMul", "Transpose", "Concat", "Softmax")), min_size=2, max_size=8
    )
)
def test_answers_are_as_near_as_one_rounding(ops: list[str]) -> None:
    """Against float64, of small numbers: nearer than by rounding after each operator."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("chain")
    x = b.input("x", (6, 6), FLOAT16)
    w = rng.uniform(-0.4, 0.4, (6, 6)).astype(np.float16)
    feed = rng.uniform(-1, 1, (6, 6)).astype(np.float16)
    truth, value = feed.astype(np.float64), x
    for op in ops:
        value, truth = _step(b, op, value, truth, w)
    graph = b.finish(value)
    (found,) = fusewise.compile(graph, cache=False, strict=True).run(None, {"x": feed})
    assert found.dtype == np.float16
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(found, truth.astype(np.float16), rtol=2.0**-9, atol=1e-5)


def _step(b: GraphBuilder, op: str, value: str, truth: np.ndarray, w: np.ndarray) -> tuple[str, np.ndarray]:
    clipped = np.clip(truth, -4, 4)
    plain: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "Relu": lambda a: np.maximum(a, 0),
        "Sigmoid": lambda a: 1 / (1 + np.exp(-a)),
        "Tanh": np.tanh,
        "Neg": np.negative,
        "Abs": np.abs,
        "Identity": lambda a: a,
        "Transpose": np.transpose,
        "Softmax": lambda a: np.exp(a) / np.exp(a).sum(-1, keepdims=True),
    }
    if op in plain:
        return b.op(op, value), plain[op](truth)
    if op == "Exp":
        low, high = b.constant(np.float16(-4)), b.constant(np.float16(4))
        return b.op("Exp", b.op("Clip", value, low, high)), np.exp(clipped)
    if op == "Concat":
        joined = b.op("Concat", value, b.constant(w), axis=0)
        return b.op("MatMul", b.constant(np.ones((6, 12), np.float16)), joined), np.ones((6, 12)) @ np.vstack(
            (truth, w)
        )
    other = b.constant(w)
    if op == "MatMul":
        return b.op("MatMul", value, other), truth @ w.astype(np.float64)
    return b.op(op, value, other), truth + w if op == "Add" else truth * w


@pytest.mark.parametrize("taken", [True, False])
def test_bodies_read_their_own_type(taken: bool) -> None:
    import onnx

    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float16[4] x, bool c) => (float16[4] z) {'
        " y = Sin(x)  z = If(c) <then_branch = t () => (float16[4] p) { p = Add(y, y) }, "
        "else_branch = e () => (float16[4] q) { q = Neg(y) }> }"
    )
    feeds = {"x": np.linspace(-2, 2, 4).astype(np.float16), "c": np.array(taken)}
    (z,) = fusewise.compile(model, cache=False).run(None, feeds)
    y = np.sin(feeds["x"].astype(np.float32)).astype(np.float16)
    np.testing.assert_allclose(z, y + y if taken else -y, rtol=2.0**-9)
