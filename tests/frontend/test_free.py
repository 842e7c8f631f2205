"""Free dimensions: types in terms of symbols, what must be equal found, shape arithmetic replaced by what it comes to."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.errors import InvalidModel, ResourceLimit, UsageError
from fusewise.frontend.bind import bind
from fusewise.frontend.infer_types import infer_types, without_declared
from fusewise.frontend.onnx_export import to_model
from fusewise.frontend.onnx_import import load
from fusewise.ir.at_sizes import at_sizes
from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Graph, SizesConstant
from fusewise.ir.size import Size, Symbol
from fusewise.ir.types import Dim, TensorType
from fusewise.ir.verify import verify
from fusewise.ops.build import GraphBuilder


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _heads(*shape: Dim) -> Graph:
    """[N, S, 12] to [N, 3, S, 4] and back, as exporters write it."""
    b = GraphBuilder()
    x = b.input("x", shape)
    dims = [b.op("Gather", b.op("Shape", x), b.constant(i64(k)), axis=0) for k in (0, 1)]
    there = b.op(
        "Transpose", b.op("Reshape", x, b.op("Concat", *dims, b.constant(i64(3, 4)), axis=0)), perm=[0, 2, 1, 3]
    )
    back = b.op("Concat", *dims, b.constant(i64(-1)), axis=0)
    return b.finish(b.op("Reshape", b.op("Transpose", b.op("Relu", there), perm=[0, 2, 1, 3]), back))


def _output(graph: Graph) -> str:
    return str(graph.types[graph.outputs[0]])


def test_what_nobody_gives_a_size_stays_free_with_or_without_a_name() -> None:
    graph = bind(_heads("N", None, 12), free=True)
    verify(graph)
    assert str(graph.types["x"]) == "float32[N,x_1,12]" and _output(graph) == "float32[N,x_1,12]"
    assert [node.op for node in graph.nodes] == ["Reshape", "Transpose", "Relu", "Transpose", "Reshape"]
    assert [type(graph.constants[node.inputs[1]]) for node in graph.nodes if node.op == "Reshape"] == [
        SizesConstant
    ] * 2
    assert _output(bind(_heads("N", None, 12), None, {"N": 2}, free=True)) == "float32[2,x_1,12]"
    assert _output(bind(_heads("N", None, 12), {"x": (2, 5, 12)}, free=True)) == "float32[2,5,12]"


def test_ranges_and_hints_are_given_with_symbols() -> None:
    graph = bind(_heads("N", "S", 12), None, {"S": Symbol("S", 1, 2048, 128), "N": 4})
    assert graph.symbols == (Symbol("S", 1, 2048, 128),) and _output(graph) == "float32[4,S,12]"
    (symbol,) = bind(_heads("N", "S", 12), None, {"S": Symbol("S", 1, 8)}).symbols
    assert (symbol.low, symbol.high) == (1, 8) and 1 <= symbol.hint <= 8
    with pytest.raises(UsageError, match="free dimensions are 'N', 'S'"):
        bind(_heads("N", "S", 12), None, {"T": Symbol("T")}, free=True)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(0, 7))
def test_at_numbers_the_graph_is_the_one_bound_to_them(batch: int, sequence: int) -> None:
    model = _heads("N", "S", 12)
    found = at_sizes(bind(model, free=True), {"N": batch, "S": sequence})
    verify(found)
    if sequence:  # ONNX's own inference knows no -1 where there are no elements
        static = bind(model, {"x": (batch, sequence, 12)})
        assert all(static.types[name] == kind for name, kind in found.types.items() if name in static.types)
    x = np.random.default_rng(sequence).standard_normal((batch, sequence, 12)).astype(np.float32)
    (answer,) = onnxruntime.InferenceSession(to_model(found).SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(answer, np.maximum(x, 0))


def test_symbols_that_must_be_equal_become_one() -> None:
    b = GraphBuilder()
    key, value, new = (
        b.input("key", ("N", 2, "s54", 8)),
        b.input("value", ("M", 2, "s84", 8)),
        b.input("new", ("N", 2, 1, 8)),
    )
    keys, values = b.op("Concat", key, new, axis=2), b.op("Concat", value, new, axis=2)
    weights = b.op("Softmax", b.op("MatMul", new, b.op("Transpose", keys, perm=[0, 1, 3, 2])))
    graph = bind(b.finish(b.op("MatMul", weights, values), keys), free=True)
    assert [symbol.name for symbol in graph.symbols] == ["N", "s54"] and not graph.checks
    assert str(graph.types["value"]) == "float32[N,2,s54,8]"
    assert str(graph.types[graph.outputs[1]]) == "float32[N,2,s54 + 1,8]"


def test_a_sum_takes_the_place_of_its_symbol() -> None:
    b = GraphBuilder()
    scores = b.op("Concat", b.input("past", (2, "P")), b.input("new", (2, "S")), axis=1)
    graph = bind(b.finish(b.op("Add", scores, b.input("mask", (2, "T")))), free=True)
    assert str(graph.types["mask"]) == "float32[2,P + S]" and [s.name for s in graph.symbols] == ["P", "S"]


def test_sizes_of_one_name_that_cannot_be_equal_are_two() -> None:
    b = GraphBuilder()
    x, past, mask = b.input("x", ("N", "S", 4)), b.input("past", ("N", "P", 4)), b.input("mask", ("N", "S", 1))
    model = b.finish(b.op("Add", b.op("Concat", past, x, axis=1), mask))
    with pytest.warns(RuntimeWarning, match="dimension 1 of input 'mask' has the name 'S', .* it is P \\+ S"):
        graph = bind(model, free=True)
    assert str(graph.types["mask"]) == "float32[N,P + S,1]" and [s.name for s in graph.symbols] == ["N", "S", "P"]
    assert str(graph.types["past"]) == "float32[N,P,4]"


def test_names_that_are_sums_are_sums() -> None:
    b = GraphBuilder()
    x, y = b.input("x", ("P", 3)), b.input("y", ("P + 2*S", 3))
    graph = bind(b.finish(b.op("Relu", x), b.op("Relu", y), b.op("Relu", b.input("z", ("S", "A + B")))), free=True)
    assert [s.name for s in graph.symbols] == ["P", "S", "A + B"]
    assert isinstance(graph.tensor("y").dims[0], Size) and str(graph.types["y"]) == "float32[P + 2*S,3]"


def test_names_that_sizes_could_be_mistaken_for_are_others() -> None:
    b = GraphBuilder()
    names: tuple[Dim, ...] = ("?0_1", "max(P, 3)", "5", "x_1", "a b", "P", None)
    graph = bind(b.finish(b.op("Relu", b.input("x", (3, None))), b.op("Relu", b.input("y", names))), free=True)
    found = [symbol.name for symbol in graph.symbols]
    assert len(set(found)) == 8 and not any(set(name) & set("?(),") for name in found)
    assert graph.tensor(graph.outputs[1]).dims == graph.tensor("y").dims


def test_ranges_become_as_narrow_as_they_must_be() -> None:
    b = GraphBuilder()
    table, x = b.constant(np.ones((1, 512, 4), np.float32)), b.input("x", ("N", "S", 4))
    end = b.op("Slice", b.op("Shape", x), b.constant(i64(1)), b.constant(i64(2)), b.constant(i64(0)))
    y = b.op("Add", x, b.op("Slice", table, b.constant(i64(0)), end, b.constant(i64(1))))
    graph = bind(b.finish(y), free=True)
    assert (graph.symbols[1].low, graph.symbols[1].high) == (0, 512) and not graph.checks
    assert _output(graph) == "float32[N,S,4]"
    b = GraphBuilder()
    x = b.input("x", ("N", 1, "L"))
    for kernel, stride in ((10, 5), (3, 2), (3, 2)):
        x = b.op("Conv", x, b.constant(np.ones((1, 1, kernel), np.float32)), strides=[stride])
    graph = bind(b.finish(x), free=True)
    assert [(s.name, s.low) for s in graph.symbols] == [("N", 0), ("L", 40)] and not graph.checks
    for length in (40, 41, 59, 60, 400):
        static = bind(load(to_model(at_sizes(graph, {"N": 1, "L": length}))), {"x": (1, 1, length)})
        assert static.tensor(static.outputs[0]).dims[2] == at_sizes(graph, {"N": 1, "L": length}).tensor(x).dims[2]


def test_types_inferred_anew_are_the_same() -> None:
    b = GraphBuilder()
    past, x, table = (
        b.input("past", ("N", "P", 4)),
        b.input("x", ("N", "S", 4)),
        b.constant(np.ones((1, 512, 4), np.float32)),
    )
    whole = b.op("Concat", past, x, axis=1)
    end = b.op("Slice", b.op("Shape", whole), *map(b.constant, (i64(1), i64(2))))
    graph = bind(
        b.finish(b.op("Add", whole, b.op("Slice", table, b.constant(i64(0)), end, b.constant(i64(1))))), free=True
    )
    assert [str(check.condition) for check in graph.checks] == ["- P - S + 512 >= 0"] and _output(
        graph
    ) == "float32[N,P + S,4]"
    assert infer_types(graph).types == graph.types and without_declared(graph).types == graph.types


def test_what_cannot_be_decided_is_a_check_with_a_sentence() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 2, "H", 4))
    small = b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    wide = b.op("Resize", small, "", b.constant(np.array([1, 1, 2, 2], np.float32)))
    graph = bind(b.finish(b.op("Concat", x, wide, axis=1)), free=True)
    (check,) = graph.checks
    assert check.condition.holds({"H": 6}) and not check.condition.holds({"H": 7})
    assert "sizes along axis 2 of the operands of node" in check.sentence and "H" in check.sentence


def test_what_never_fits_is_refused_with_a_sentence() -> None:
    b = GraphBuilder()
    x = b.input("x", ("N", "S", 4))
    longer = b.op("Concat", x, b.constant(np.ones((1, 1, 4), np.float32)), axis=1)
    with pytest.raises(InvalidModel, match=r"sizes along axis 1 of the operands of node .* must be equal, and are S"):
        bind(b.finish(b.op("Add", x, longer)), free=True)


def test_what_data_decide_stays_unknown_and_nothing_follows_from_it() -> None:
    b = GraphBuilder()
    x = b.input("x", ("N", 4))
    found = b.op("Transpose", b.op("NonZero", x))
    many = b.op(
        "Gather",
        b.constant(np.ones((4, 3), np.float32)),
        b.op("Slice", found, *map(b.constant, (i64(0), i64(1), i64(1)))),
    )
    graph = bind(b.finish(b.op("Squeeze", many, b.constant(i64(1))), b.op("Add", x, x)), free=True)
    assert str(graph.types[found]) == "int64[?,2]" and _output(graph) == "float32[?,3]" and not graph.checks
    assert [s.name for s in graph.symbols] == ["N"]


@pytest.mark.parametrize("sizes", [(4, 4), (8, 12), (5, 9)])
def test_padding_to_a_multiple_comes_to_one(sizes: tuple[int, int]) -> None:
    """x + (4 - x % 4) % 4 rows are cut into windows of 4."""
    b = GraphBuilder()
    x = b.input("x", ("H", 3))
    four, rows = b.constant(i64(4)), b.op("Slice", b.op("Shape", x), *map(b.constant, (i64(0), i64(1))))
    missing = b.op("Mod", b.op("Sub", four, b.op("Mod", rows, four)), four)
    padded = b.op("Pad", x, b.op("Concat", b.constant(i64(0, 0)), missing, b.constant(i64(0)), axis=0))
    graph = bind(b.finish(b.op("Reshape", padded, b.constant(i64(-1, 4, 3)))), free=True)
    assert _output(graph) == "float32[((H + 3)//4),4,3]" and not graph.checks
    assert all(kind.is_static for kind in graph.types.values() if isinstance(kind, TensorType))
    assert at_sizes(graph, {"H": sizes[1]}).types[graph.outputs[0]] == TensorType(
        graph.tensor("x").dtype, (-(-sizes[1] // 4), 4, 3)
    )


def test_an_output_in_terms_of_sizes_is_computed() -> None:
    b = GraphBuilder()
    x = b.input("x", ("N", 3))
    n = b.op("Mul", b.op("Shape", x), b.constant(i64(2)))
    graph = bind(b.finish(n), free=True)
    verify(graph)
    assert [node.op for node in graph.nodes] == ["Mul"] and graph.types[n] == TensorType(INT64, (2,))
    assert isinstance(graph.constants[graph.nodes[0].inputs[0]], SizesConstant)


_HEADER = '<ir_version: 8, opset_import: ["": 17]> g '

BODIES = {
    "float32[N,S] float32[N,S]": """(float[N,S] x) => (float[N,S] y, float[M,S] z) {
        c = Constant<value = bool {1}>()  h = Shape(x)  i0 = Constant<value = int64 {0}>()  k = Gather(h, i0)
        y, z = Loop(k, c, x) <body = b (int64 i, bool ci, float[P,Q] v) => (bool co, float[P,Q] o, float[Q] s) {
            co = Identity(ci)  o = Add(v, x)  s = Gather(x, i) }> }""",
    "float32[N] float32[T,N]": """(float[N] h, float[T,N] x) => (float[N] y, float[T,N] z) {
        y, z = Scan<num_scan_inputs=1, body = b (float[P] a, float[P] e) => (float[P] o, float[P] s) {
            o = Add(a, e)  s = Relu(o) }>(h, x) }""",
    "float32[N,S]": """(float[N,1,S] x) => (float[N,S] y) {
        h = Shape(x)  i1 = Constant<value = int64 {1}>()  k = Gather(h, i1)  c = Equal(k, i1)  a = Constant<value = int64[1] {1}>()
        y = If(c) <then_branch = a () => (float[N,S] o) { o = Squeeze(x, a) },
            else_branch = b () => (float[N,S] p) { p = Identity(x) }> }""",
    "float32[A]": """(float[B,A] x) => (float[K] y) {
        a = Constant<value = float {0.0}>()  o = Constant<value = float {1.0}>()  h = Shape<start=1>(x)
        q = Squeeze(h)  f = Cast<to=1>(q)  y = Range(a, f, o) }""",
    "float32[B,3,2*H,(W//2)]": """(float[B,3,H,W] x) => (float[B,3,P,Q] y) {
        s = Shape<end=2>(x)  h = Shape<start=2>(x)  f = Cast<to=1>(h)  c = Constant<value=float[2] {2.0, 0.5}>()
        m = Mul(f, c)  l = Floor(m)  i = Cast<to=7>(l)  t = Concat<axis=0>(s, i)  y = Resize<mode="nearest">(x, , , t) }""",
    "float32[B,A]": """(float[B,A] x) => (float[P,Q] y) {
        s = Shape(x)  n = Neg(s)  y = Slice(x, n, s) }""",
}


@pytest.mark.parametrize("types", BODIES)
def test_bodies_and_arithmetic_in_floats(types: str) -> None:
    graph = bind(load(onnx.parser.parse_model(_HEADER + BODIES[types])), free=True)
    assert " ".join(str(graph.types[name]) for name in graph.outputs) == types and not graph.checks


def test_a_range_of_floats_up_to_a_size_is_one_of_integers() -> None:
    graph = bind(load(onnx.parser.parse_model(_HEADER + BODIES["float32[A]"])), free=True)
    verify(graph)
    assert [node.op for node in graph.nodes] == ["Range", "Cast"] and set(graph.constants) == set(graph.nodes[0].inputs)
    session = onnxruntime.InferenceSession(to_model(at_sizes(graph, {"B": 2, "A": 5})).SerializeToString())
    np.testing.assert_array_equal(
        session.run(None, {"x": np.zeros((2, 5), np.float32)})[0], np.arange(5, dtype=np.float32)
    )


def test_rolling_by_a_remainder_keeps_the_size() -> None:
    b = GraphBuilder()
    x, zero, far = b.input("x", ("H", 3)), b.constant(i64(0)), b.constant(i64(2**31 - 1))
    by = b.op("Mod", b.constant(i64(-2)), b.op("Slice", b.op("Shape", x), *map(b.constant, (i64(0), i64(1)))))
    graph = bind(
        b.finish(b.op("Concat", b.op("Slice", x, by, far, zero), b.op("Slice", x, zero, by, zero), axis=0)), free=True
    )
    assert _output(graph) == "float32[H,3]" and graph.symbols[0].low == 1


def test_sizes_without_end_are_refused_in_a_sentence() -> None:
    b = GraphBuilder()
    rank = 16
    x, y = (b.input(name, tuple(f"{name}{d}" for d in range(rank))) for name in "xy")
    dims = b.op("Add", b.op("Shape", x), b.op("Shape", y))
    graph = b.finish(b.op("Flatten", b.op("ConstantOfShape", dims)))
    with pytest.raises(ResourceLimit, match="sum of .* terms; the limit is 1,024"):
        bind(graph, free=True)
