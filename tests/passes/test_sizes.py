"""Passes on graphs whose dimensions are sizes: at numbers for the symbols, the graph they leave gives the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.conftest import answers, feeds_of
from tests.passes.random_graphs import random_graph

from fusewise.codegen.legalize import for_native
from fusewise.errors import UnsupportedModel
from fusewise.frontend.bind import bind
from fusewise.frontend.onnx_export import to_model
from fusewise.frontend.onnx_import import load
from fusewise.fusion.plan import partition
from fusewise.ir.at_sizes import at_sizes
from fusewise.ir.deciding import at_hint, deciding
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph
from fusewise.ir.types import TensorType
from fusewise.ir.verify import verify
from fusewise.lower.interpret import interpret_lowered
from fusewise.lower.work import HostWork, Lowered, lower_partition
from fusewise.ops.build import GraphBuilder
from fusewise.passes.gradient.first_order import with_gradients
from fusewise.passes.pipeline import run
from fusewise.trace import Trace

CHOICES = st.lists(st.integers(0, 10_000), min_size=1, max_size=60)


def freed(graph: Graph, **names: tuple[int | str, ...]) -> Graph:
    """The graph with such shapes for its inputs, and all else that follows from them."""
    types = {name: TensorType(graph.tensor(name).dtype, shape) for name, shape in names.items()}
    kinds = {name: types.get(name, graph.types[name]) for name in graph.inputs}
    model = to_model(graph.replace(types={**graph.types, **kinds}))
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return bind(load(onnx.ModelProto.FromString(model.SerializeToString())), free=True)


def lowered_at(graph: Graph, env: dict[str, int]) -> Lowered:
    """The graph's work without anchors, with numbers for its symbols."""
    lowered = lower_partition(partition(graph, Trace()), Trace())
    with deciding(env) as conditions:
        work = at_hint(tuple(w if isinstance(w, HostWork) or w.plain is None else w.plain() for w in lowered.work))
        layout = at_hint(lowered.layout)
    assert not list(conditions)
    return Lowered(at_sizes(graph, env), layout, work, lowered.groups)


def same_at(before: Graph, after: Graph, env: dict[str, int]) -> None:
    """Both graphs at these sizes, and the work that the second becomes, to a small part of the largest number on the way."""
    numbers = at_sizes(before, env)
    feeds = feeds_of(numbers)
    floats = [x for node in numbers.nodes for x in node.writes if numbers.tensor(x).dtype == FLOAT32]
    largest = max(float(np.max(np.abs(a), initial=1.0)) for a in answers(numbers.replace(outputs=tuple(floats)), feeds))
    expected = answers(numbers, feeds)
    by_work = interpret_lowered(lowered_at(after, env), feeds)
    for name, a, b in zip(before.outputs, expected, answers(at_sizes(after, env), feeds), strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-5 * largest)
        np.testing.assert_allclose(by_work[name], a, rtol=0, atol=1e-5 * largest)


@settings(max_examples=60, deadline=None)
@given(CHOICES)
def test_random_graphs_keep_their_answers_at_the_sizes_that_they_are_right_for(choices: list[int]) -> None:
    """Targets of Reshape, bounds and the like are numbers there, so that not all sizes do."""
    static = random_graph(choices, mild=True)
    graph = freed(static, x=("batch", 3, "height", 4))
    after = for_native(run(graph), "float32", Trace())
    verify(after)
    for env in ({"batch": 2, "height": 4}, {"batch": 1, "height": 5}, {"batch": 3, "height": 2}):
        env = {symbol.name: env[symbol.name] for symbol in graph.symbols}
        in_range = all(symbol.low <= env[symbol.name] <= symbol.high for symbol in graph.symbols)
        if in_range and all(check.condition.holds(env) for check in graph.checks):
            same_at(graph, after, env)


def heads(b: GraphBuilder, x: str, w: str) -> str:
    """[batch, sequence, 12] times [12, 12], cut in three heads."""
    shape = b.op("Concat", *(b.op("Gather", b.op("Shape", x), b.constant(np.array([k]))) for k in (0, 1)), axis=0)
    apart = b.op("Concat", shape, b.constant(np.array([3, 4])), axis=0)
    return b.op("Transpose", b.op("Reshape", b.op("MatMul", x, w), apart), perm=[0, 2, 1, 3])


def attention() -> Graph:
    """As an exporter writes it, for whatever batch and sequence."""
    b, rng = GraphBuilder("attention"), np.random.default_rng(1)
    x = b.input("x", (2, 5, 12))
    q, k, v = (heads(b, x, b.constant(rng.normal(size=(12, 12)).astype(np.float32))) for _ in range(3))
    scores = b.op("Div", b.op("MatMul", q, b.op("Transpose", k, perm=[0, 1, 3, 2])), b.constant(np.float32(2)))
    mixed = b.op("Transpose", b.op("MatMul", b.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    joined = b.op("Reshape", mixed, b.op("Shape", x))
    total = b.op("Add", x, joined)
    mean = b.op("ReduceMean", total, b.constant(np.array([-1])))
    return b.finish(b.op("Sub", total, mean))


def test_attention_is_found_for_every_size_and_costs_no_copies() -> None:
    static, free = bind(attention()), freed(attention(), x=("batch", "sequence", 12))
    plain, after = (for_native(run(graph), "float32", Trace()) for graph in (static, free))
    assert [node.op for node in after.nodes] == [node.op for node in plain.nodes]
    assert "Attention" in [node.op for node in after.nodes] and not free.checks
    for env in ({"batch": 1, "sequence": 1}, {"batch": 2, "sequence": 5}, {"batch": 3, "sequence": 7}):
        same_at(free, after, env)
    count = len(lower_partition(partition(plain, Trace()), Trace()).work)
    assert len(lower_partition(partition(after, Trace()), Trace()).work) <= count


def test_a_rule_that_needs_numbers_is_left_out(parse: Any) -> None:
    graph = freed(parse("input x: float32[2,3,4]\ny = LpNormalization(x)\nz = Relu(y)\nreturn z"), x=("n", "m", "k"))
    trace = Trace()
    after = run(graph, trace=trace)
    verify(after)
    same_at(graph, after, {"n": 2, "m": 3, "k": 4})


MEAN_OF_PRODUCT = """
input x: float32[2,3,4]
constant w: float32[4,5] = #w
h = MatMul(x, w)
y = ReduceMean(h)
return y
"""


def test_gradients_of_free_dimensions_are_those_of_numbers(parse: Any) -> None:
    static = parse(MEAN_OF_PRODUCT)
    found = with_gradients(freed(static, x=("n", "m", 4)), by=("x",))
    same_at(found, found, {"n": 2, "m": 3})
    for a, b in zip(
        *(answers(g, feeds_of(static)) for g in (at_sizes(found, {"n": 2, "m": 3}), with_gradients(static))),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_gradients_that_depend_on_numbers_say_so(parse: Any) -> None:
    graph = parse(
        "input x: float32[1,3,8,8]\nconstant w: float32[4,3,3,3] = #w\ny = Conv(x, w) {strides=[2, 2]}\nreturn y"
    )
    with pytest.raises(UnsupportedModel, match="give some to n, h"):
        with_gradients(freed(graph, x=("n", 3, "h", 8)), by=("x",))
