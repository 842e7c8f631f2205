"""What does not depend on inputs becomes a constant, within limits of growth and work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusewise.ir.graph import Constant, Node, Subgraph, attributes_of
from fusewise.ops.build import GraphBuilder
from fusewise.ops.evaluate import evaluate
from fusewise.ops.interpret import interpret
from fusewise.ops.spec import Call
from fusewise.ops.table import spec_of
from fusewise.passes import fold_constants as module
from fusewise.passes.fold_constants import fold_constants
from fusewise.trace import Trace


def test_a_shape_computation(rewrites: Any) -> None:
    rewrites(
        fold_constants,
        """
        input x: float32[2,3,4]
        constant zero: int64[] = 0
        constant ax: int64[1] = [0]
        constant rest: int64[1] = [-1]
        s = Shape(x)
        n = Gather(s, zero)
        u = Unsqueeze(n, ax)
        t = Concat(u, rest) {axis=0}
        y = Reshape(x, t)
        z = Size(x)
        return y, z
        """,
        "constant t = [2, -1]\nconstant z = 24\ny = Reshape(x, t)\nreturn y, z",
    )


@pytest.mark.parametrize(
    "body, expected",
    [
        ("y = Range(a, b, c)", "[0, 2]"),
        ("y = ConstantOfShape(e) {value=tensor int64[1] = [7]}", "[7, 7]"),
        ("d = Cast(a) {to=1}\nf = Exp(d)\ny = Unsqueeze(f, g)", "[1.0]"),
        ("y = OneHot(g, b, h)", "[1, 0, 0]"),
    ],
)
def test_generators_and_arithmetic(rewrites: Any, body: str, expected: str) -> None:
    head = (
        "input x: float32[2]\nconstant a: int64[] = 0\nconstant b: int64[] = 3\nconstant c: int64[] = 2\n"
        "constant e: int64[1] = [2]\nconstant h: int64[2] = [0, 1]\nconstant g: int64[1] = [0]\nw = Relu(x)\n"
    )
    after = rewrites(fold_constants, f"{head}{body}\nreturn y, w", f"constant y = {expected}\nw = Relu(x)\nreturn y, w")
    assert list(after.constants) == ["y"]


def test_weights_are_dequantised(parse: Any, same_answers: Any) -> None:
    b = GraphBuilder()
    x = b.input("x", (512,))
    quantised = np.random.default_rng(0).integers(-99, 99, (256, 512)).astype(np.int8)
    weights = b.op("DequantizeLinear", b.constant(quantised), b.constant(np.float32(0.01)), b.constant(np.int8(3)))
    graph = b.finish(b.op("Mul", x, weights))
    after = fold_constants(graph, Trace())
    assert [node.op for node in after.nodes] == ["Mul"]
    same_answers(graph, after, True)


@pytest.mark.parametrize(
    "body",
    [
        "a = Gather(w, j) {axis=-1}",
        "a = Transpose(w) {perm=[2, 0, 1]}",
        "a = Transpose(w)",
        "constant k: int64[2] = [0, -1]\na = Unsqueeze(w, k)",
        "a = Cast(w) {to=11}",
        "a = Cast(w) {to=10}",
        "a = Cast(w) {to=9}",
        "b = Cast(w) {to=6}\na = Cast(b) {to=3}",
        "a = ReduceSum(w)",
    ],
)
def test_large_tensors_are_moved_as_onnx_does(parse: Any, body: str) -> None:
    text = f"constant w: float32[40,30,4] = #w\nconstant j: int64[1,2] = [-1, 2]\n{body}\nreturn a"
    graph = parse(text)
    after = fold_constants(graph, Trace())
    assert not after.nodes
    values: dict[str, Any] = {name: constant.array for name, constant in graph.constants.items()}
    for node in graph.nodes:
        (values[node.outputs[0]],) = evaluate(node, values, graph.opset)
    np.testing.assert_array_equal(after.constants["a"].array, values["a"])
    assert after.constants["a"].dtype == graph.tensor("a").dtype


def test_growth_is_limited(refuses: Any, rewrites: Any) -> None:
    text = "input x: float32[{n}]\nconstant c: float32[1] = [2.0]\nconstant s: int64[1] = [{n}]\n"
    text += "a = Expand(c, s)\ny = Mul(a, x)\nreturn y"
    refuses(fold_constants, text.format(n=module.SMALL_BYTES // 4 + 1))
    rewrites(fold_constants, text.format(n=module.SMALL_BYTES // 4), "constant a = #\ny = Mul(a, x)\nreturn y")


def test_products_of_weights_are_computed_once(same_answers: Any) -> None:
    """As of position embeddings that every layer projects with its own weights."""
    b = GraphBuilder()
    rng = np.random.default_rng(0)
    x = b.input("x", (512, 512))
    table, weights = (b.constant(rng.standard_normal((512, 512), dtype=np.float32)) for _ in range(2))
    graph = b.finish(b.op("Add", x, b.op("MatMul", table, weights)))
    after = fold_constants(graph, Trace())
    assert [node.op for node in after.nodes] == ["Add"]
    same_answers(graph, after, False)


def test_random_and_expensive_nodes_stay(refuses: Any) -> None:
    refuses(fold_constants, "input x: float32[2]\na = RandomNormal() {shape=[2]}\ny = Add(x, a)\nreturn y")
    refuses(
        fold_constants, "input x: float32[2]\nconstant c: float32[2] = #c\na = Bernoulli(c)\ny = Add(x, a)\nreturn y"
    )
    b = GraphBuilder()
    image, filters = np.zeros((1, 64, 64, 64), np.float32), np.zeros((64, 64, 3, 3), np.float32)
    graph = b.finish(b.op("Conv", b.constant(image), b.constant(filters)))
    assert fold_constants(graph, Trace()) is graph


def test_what_cannot_be_evaluated_stays(refuses: Any) -> None:
    """Integer division by zero is left to the run."""
    refuses(
        fold_constants,
        "constant a: int64[2] = [4, 5]\nconstant p: int64[1] = [7]\ninput x: int64[2]\ng = Gather(a, p)\ny = Add(x, g)\nreturn y",
    )


def test_bodies_of_control_flow_stay(parse: Any) -> None:
    base = parse("constant c: bool[] = true\ninput x: float32[2]\ny = Relu(x)\nreturn y")
    attributes = attributes_of(then_branch=Subgraph(b"", ()), else_branch=Subgraph(b"", ()))
    node = Node("If", ("c",), ("z",), attributes)
    graph = base.replace(nodes=(*base.nodes, node), types={**base.types, "z": base.types["y"]}, outputs=("y", "z"))
    assert fold_constants(graph, Trace()) is graph


@pytest.mark.parametrize(
    ("op", "shape", "attributes"),
    [
        ("LpNormalization", (3, 4), {"p": 1, "axis": -1}),
        ("LRN", (2, 5, 2, 2), {"size": 3, "alpha": 0.5}),
        ("LRN", (1, 5, 2), {"size": 2, "alpha": 0.5}),
        ("GlobalMaxPool", (2, 3, 5), {}),
        ("AveragePool", (1, 2, 7), {"kernel_shape": (3,), "strides": (3,), "ceil_mode": 1}),
    ],
)
def test_constants_are_folded_by_our_own_definitions(
    op: str, shape: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    """ONNX's evaluator has these wrong, or not at all."""
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    b = GraphBuilder()
    graph = fold_constants(b.finish(b.op(op, b.constant(x), **attributes)), Trace())
    (found,) = graph.constants.values()
    spec = spec_of(op)
    assert spec is not None and not graph.nodes
    node = Node(op, ("x",), ("y",), attributes_of(**attributes))
    wanted = interpret(spec, Call(node, (Constant(x).type,), (found.type,), (x,)), (x,))
    np.testing.assert_array_equal(found.array, wanted)


def test_a_sharp_softmax_in_halves_is_not_minus_infinity() -> None:
    b = GraphBuilder()
    graph = fold_constants(b.finish(b.op("LogSoftmax", b.constant(np.array([[60, -60]], np.float16)))), Trace())
    (found,) = graph.constants.values()
    np.testing.assert_array_equal(found.array, np.array([[0, -120]], np.float16))
