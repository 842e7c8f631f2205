"""Mixed precision: what computes in bfloat16, what keeps float32, and answers against every operator done by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fusewise
from fusewise import api
from fusewise.errors import UsageError
from fusewise.ir.dtypes import BFLOAT16, FLOAT32
from fusewise.ir.graph import Graph
from fusewise.ir.types import TensorType
from fusewise.ir.verify import verify
from fusewise.ops.build import GraphBuilder
from fusewise.passes.mixed_precision import FOLLOWING, KEPT, PRODUCTS, mixed_half, mixed_precision
from fusewise.trace import Trace
from fusewise.zoo.scaled import scaled

BOUND = 2.0**-7
"""Two roundings to bfloat16, relative to the largest value."""


def rounded(array: np.ndarray) -> np.ndarray:
    """To the nearest bfloat16, ties to even, by the bits of a float32."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def kinds(graph: Graph) -> list[tuple[str, str]]:
    """Operators and the element type of their first output."""
    return [(node.op, graph.tensor(node.outputs[0]).dtype.name) for node in graph.nodes]


def applied(graph: Graph) -> Graph:
    trace = Trace()
    after = mixed_precision(graph, trace)
    verify(after)
    assert (after.inputs, after.outputs) == (graph.inputs, graph.outputs)
    assert [after.types[v] for v in after.outputs] == [graph.types[v] for v in graph.outputs]
    assert mixed_precision(after, Trace()) is after, "a second time changes nothing"
    assert mixed_precision(graph, Trace(limit=0)) is graph, "every change asks for leave"
    return after


def test_values_stay_in_bfloat16_until_something_sensitive_reads_them(parse: Callable[[str], Graph]) -> None:
    graph = parse("""
        input x: float32[1,4,6,6]
        constant w: float32[8,4,3,3] = #w
        constant v: float32[8,8,1,1] = #v
        y: float32[1,8,4,4] = Conv(x, w)
        r: float32[1,8,4,4] = Relu(y)
        z: float32[1,8,4,4] = Conv(r, v)
        s: float32[1,8,4,4] = Add(z, r)
        p: float32[1,8,1,1] = GlobalAveragePool(s)
        q: float32[1,8,1,1] = Relu(p)
        return q, r
    """)
    after = applied(graph)
    assert kinds(after) == [
        ("Cast", "bfloat16"),
        ("Conv", "bfloat16"),
        ("Relu", "bfloat16"),
        ("Conv", "bfloat16"),
        ("Add", "bfloat16"),
        ("Cast", "float32"),
        ("GlobalAveragePool", "float32"),
        ("Relu", "float32"),
        ("Cast", "float32"),
    ]
    assert {constant.type.dtype for constant in after.constants.values()} == {BFLOAT16}


def test_a_sum_with_float32_stays_float32_and_one_cast_serves_all_readers(parse: Callable[[str], Graph]) -> None:
    graph = parse("""
        input x: float32[5,8]
        constant w: float32[8,8] = #w
        constant v: float32[8,8] = #v
        a: float32[5,8] = MatMul(x, w)
        b: float32[5,8] = MatMul(x, v)
        c: float32[5,8] = Add(a, b)
        d: float32[5,8] = Add(c, x)
        e: float32[5,8] = Softmax(d)
        return e
    """)
    after = applied(graph)
    narrow = [("Cast", "bfloat16"), ("MatMul", "bfloat16"), ("MatMul", "bfloat16"), ("Add", "bfloat16")]
    assert kinds(after) == [*narrow, ("Cast", "float32"), ("Add", "float32"), ("Softmax", "float32")]


def test_other_operands_keep_their_type(parse: Callable[[str], Graph]) -> None:
    graph = parse("""
        input x: float32[1,2,4,4]
        constant w: float32[2,2,1,1] = #w
        constant scales: float32[4] = [1.0, 1.0, 2.0, 2.0]
        y: float32[1,2,4,4] = Conv(x, w)
        z: float32[1,2,8,8] = Resize(y, _, scales)
        return z
    """)
    after = applied(graph)
    assert ("Resize", "bfloat16") in kinds(after)
    assert after.tensor("scales").dtype == FLOAT32


def test_no_operator_is_in_two_lists() -> None:
    assert not PRODUCTS & FOLLOWING and not PRODUCTS & KEPT and not FOLLOWING & KEPT


def test_answers_are_those_of_rounded_operands_and_wide_sums() -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("perceptron")
    first, second = (rng.standard_normal((64, 64)).astype(np.float32) / 8 for _ in range(2))
    bias = rng.standard_normal(64).astype(np.float32)
    x = b.input("x", (9, 64))
    hidden = b.op("Relu", b.op("Gemm", x, b.constant(first), b.constant(bias)))
    graph = b.finish(b.op("Softmax", b.op("MatMul", hidden, b.constant(second))))
    fed = rng.standard_normal((9, 64)).astype(np.float32)
    (found,) = fusewise.compile(graph, cache=False, precision="bfloat16").run(None, {"x": fed})
    hidden_values = np.maximum(rounded(rounded(fed) @ rounded(first) + rounded(bias)), 0)
    logits = hidden_values @ rounded(second)  # which are float32 again before anything rounds them
    wanted = np.exp(logits - logits.max(-1, keepdims=True))
    wanted /= wanted.sum(-1, keepdims=True)
    assert found.dtype == np.float32
    # a sum near the middle between two numbers may go to either: one such in the hidden values moves a logit very little
    assert np.abs(found - wanted).max() <= BOUND * np.abs(wanted).max()
    assert np.median(np.abs(found - wanted)) <= 1e-6


@pytest.mark.parametrize("kind", ["resnet_bottleneck", "bert"])
def test_whole_networks_stay_close_and_store_half(kind: str) -> None:
    graph = scaled(kind)
    wide = fusewise.compile(graph, cache=False, threads=1)
    narrow = fusewise.compile(graph, cache=False, threads=1, precision="bfloat16")
    feeds = wide.random_inputs(0)
    for a, b in zip(narrow.run(None, feeds), wide.run(None, feeds), strict=True):
        first, second = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
        assert a.dtype == b.dtype
        assert first @ second >= 0.999 * np.linalg.norm(first) * np.linalg.norm(second)
    assert narrow.summary["host_steps"] == 0
    assert narrow.summary["constant_bytes"] < 0.8 * wide.summary["constant_bytes"]


def test_what_cannot_be_asked_for_is_refused() -> None:
    graph = scaled("resnet_bottleneck")
    with pytest.raises(UsageError, match="there are float32, float16, bfloat16"):
        api.compile(graph, precision="float8")
    with pytest.raises(UsageError, match="bfloat16 changes answers"):
        api.compile(graph, precision="bfloat16", exact=True)


def test_types_without_a_shape_are_left_alone() -> None:
    b = GraphBuilder("unknown")
    x = b.input("x", (2, 4))
    graph = b.finish(b.op("MatMul", x, b.constant(np.ones((4, 4), np.float32))))
    graph = graph.replace(types={**graph.types, graph.outputs[0]: TensorType(FLOAT32, None)})
    assert kinds(mixed_precision(graph, Trace()))[1][1] == "bfloat16"


def test_in_float16_constants_that_no_float16_comes_near_stay() -> None:
    """A mask's least number would become infinite; weights are as good as ever, infinite ones too."""
    b = GraphBuilder("half")
    x = b.input("x", (2, 4))
    y = b.op("MatMul", x, b.constant(np.array([[1, -np.inf], [2, 3], [4, 5], [6, 7]], np.float32)))
    z = b.op("MatMul", x, b.constant(np.full((4, 2), 1e5, np.float32)))
    graph = b.finish(b.op("Relu", y), b.op("Relu", z), b.op("Mul", y, b.constant(np.float32(1e30))))
    after = mixed_half(graph, Trace())
    verify(after)
    assert [kind for kind in kinds(after) if kind[0] != "Cast"] == [
        ("MatMul", "float16"),
        ("MatMul", "float32"),
        ("Relu", "float16"),
        ("Relu", "float32"),
        ("Mul", "float32"),
    ]
    assert mixed_half(after, Trace()).nodes == after.nodes
