"""Where a pattern is found, and what its variables stand for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.rewrite.match import Several, flattened, matches, occurrences
from fusewise.rewrite.pattern import Variable, pattern_of


def found(function: Any, graph: Graph, index: int = -1) -> list[dict[str, Any]]:
    """What the named variables are in each match at a node."""
    pattern = pattern_of(function).flat()
    index = range(len(graph.nodes))[index]
    return [
        {term.name: what for term, what in match.bound.items() if isinstance(term, Variable)}
        for match in matches(pattern, graph, index)
    ]


def test_operands_of_a_sum_are_a_set(written: Any) -> None:
    graph = written(lambda g, x, y: g.Exp(y) + x)
    assert found(lambda g, a, b: a + g.Exp(b), graph) == [{"b": "y", "a": "x"}]
    graph = written(lambda g, x, y: g.Exp(y) - x)
    assert not found(lambda g, a, b: a - g.Exp(b), graph)


def test_the_same_variable_is_the_same_value(written: Any) -> None:
    graph = written(lambda g, x, y, z: y * x + z * y)
    (first, *_) = found(lambda g, a, b, c: a * b + a * c, graph)
    assert first["a"] == "y"
    assert {first["b"], first["c"]} == {"x", "z"}
    assert not found(lambda g, a, b: a * b + b, graph)


def test_chains_are_matched_in_any_grouping(written: Any) -> None:
    graph = written(lambda g, x, y, z, w: ((x * g.Sqrt(y)) * z) * (g.Sqrt(y) * w))
    graph = merged(graph)
    (match, *_) = matches(pattern_of(lambda g, a: g.Sqrt(a) * g.Sqrt(a)).flat(), graph, len(graph.nodes) - 1)
    assert match.bound[Variable("a")] == "y"
    assert isinstance(match.rest, Several)
    assert sorted(match.rest.values) == ["w", "x", "z"]
    assert match.regrouped == {"Mul"}
    assert len(match.nodes) == len(graph.nodes)


def merged(graph: Graph) -> Graph:
    from fusewise.passes.merge_equal import merge_equal
    from fusewise.trace import Trace

    return merge_equal(graph, Trace())


def test_a_variable_met_once_takes_what_is_left_of_an_inner_product(written: Any) -> None:
    graph = written(lambda g, x, y, z, w: x * y * z + w * x)
    bound = [b for b in found(lambda g, a, b, c: a * b + a * c, graph) if isinstance(b["b"], Several)]
    assert {what["a"] for what in bound} == {"x"}
    assert {frozenset(what["b"].values) for what in bound} == {frozenset("yz")}


def test_a_chain_ends_where_somebody_else_reads(written: Any) -> None:
    graph = written(lambda g, x, y, z: (x * y * z, g.Exp(x * y)))
    index = next(i for i, node in enumerate(graph.nodes) if node.op == "Mul" and "z" in node.inputs)
    assert flattened(graph, index)[0] == (graph.nodes[0].outputs[0], "z")


def test_attributes_must_fit() -> None:
    build = GraphBuilder()
    x = build.input("x", (2, 3, 4))
    axes = build.constant([1])
    kept = build.op("ReduceSum", x, axes, keepdims=1)
    gone = build.op("ReduceSum", x, axes, keepdims=0)
    graph = build.finish(build.op("Add", kept, gone))
    assert not found(lambda g, x, axes: g.ReduceSum(x, axes), graph, 0), "attributes nobody mentions"
    assert found(lambda g, x, axes: g.ReduceSum(x, axes, keepdims=1), graph, 0)
    assert not found(lambda g, x, axes: g.ReduceSum(x, axes, keepdims=1), graph, 1)
    assert found(lambda g, a, p: g.ReduceSum(a, p, like="r"), graph, 1)
    assert not found(lambda g, a, p: g.ReduceSum(a, p, like="r") + g.ReduceSum(a, p, like="r"), graph)
    assert found(lambda g, a, p: g.ReduceSum(a, p, like="r") + g.ReduceSum(a, p, like="s"), graph)


def test_only_optional_variables_may_be_absent() -> None:
    build = GraphBuilder()
    graph = build.finish(build.op("ReduceSum", build.input("x", (2, 3))))
    assert not found(lambda g, x, axes: g.ReduceSum(x, axes), graph)
    assert found(lambda g, x, axes=None: g.ReduceSum(x, axes), graph) == [{"x": "x", "axes": ""}]


def test_literals_are_uniform_constants(written: Any) -> None:
    def halved(g: Any, a: Any) -> Any:
        return a * 0.5

    assert found(halved, written(lambda g, x, c: x * c, constants={"c": 0.5}))
    assert found(halved, written(lambda g, x, c: x * c, constants={"c": [0.5, 0.5, 0.5]}))
    assert not found(halved, written(lambda g, x, c: x * c, constants={"c": [0.5, 0.5, 0.25]}))
    assert not found(halved, written(lambda g, x, c: x * c, constants={"c": []}, x=(1, 1)))
    assert not found(halved, written(lambda g, x, c: x * c))


def test_several_roots_share_an_operand() -> None:
    build = GraphBuilder()
    x = build.input("x", (2, 4))
    one, two = build.constant([[1.0]] * 4), build.constant([[2.0]] * 4)
    other = build.op("MatMul", build.input("y", (2, 4)), one)
    graph = build.finish(build.op("MatMul", x, one), build.op("MatMul", x, two), other)
    pairs = found(lambda g, x, v, w: (g.MatMul(x, v), g.MatMul(x, w)), graph, 1)
    assert pairs == [{"x": "x", "v": one, "w": two}]


def test_a_pattern_may_mean_one_output_of_several() -> None:
    build = GraphBuilder()
    first, second = build.op("Split", build.input("x", (2, 4)), outputs=2, axis=1, num_outputs=2)
    graph = build.finish(build.op("Sub", first, second))

    def turned(g: Any, x: Any) -> Any:
        low, high = g.Split(x, like="s", outputs=2)
        return high - low

    def straight(g: Any, x: Any) -> Any:
        low, high = g.Split(x, like="s", outputs=2)
        return low - high

    assert found(straight, graph) == [{"x": "x"}]
    assert not found(turned, graph)


def places(function: Any, graph: Graph, closed: bool = True) -> list[dict[str, Any]]:
    """What the named variables are where a pattern, as it is written, ends in the last node."""
    occurring = occurrences(pattern_of(function, closed=closed), graph, len(graph.nodes) - 1)
    return [{name: each.value(name) for name in "xyz"} for each in occurring]


def test_a_pattern_as_it_is_written_is_not_regrouped(written: Any) -> None:
    graph = written(lambda g, x, y, z: (x + y) + z)
    assert places(lambda g, x, y, z: x + (y + z), graph) == [
        {"x": "z", "y": "x", "z": "y"},
        {"x": "z", "y": "y", "z": "x"},
    ]
    assert not places(lambda g, x, y, z: x * (y + z), graph)


def test_one_term_or_another(written: Any) -> None:
    def bent(g: Any, x: Any, y: Any) -> Any:
        return (g.Relu(x) | x) - y | g.one_of(("Exp", "Tanh"), g.Neg(x), like="curve")

    assert places(bent, written(lambda g, x, y: g.Relu(x) - y))[0] == {"x": "x", "y": "y", "z": ""}
    assert places(bent, written(lambda g, x, y: x - y)) == [{"x": "x", "y": "y", "z": ""}]
    assert places(bent, written(lambda g, x: g.Tanh(-x))) == [{"x": "x", "y": "", "z": ""}]
    assert not places(bent, written(lambda g, x: g.Tanh(g.Abs(x))))
    assert not places(bent, written(lambda g, x: g.Sqrt(-x)))


def test_operands_that_are_left() -> None:
    build = GraphBuilder()
    graph = build.finish(build.op("Concat", *(build.input(name, (2,)) for name in "xyz"), axis=0))
    assert places(lambda g, x: g.Concat(x, ..., like="c"), graph) == [{"x": "x", "y": "", "z": ""}]
    assert not places(lambda g, x: g.Concat(x, like="c"), graph)


def test_operands_that_are_left_read_no_inner_value() -> None:
    build = GraphBuilder()
    x = build.input("x", (2, 2))
    scaled = build.op("Relu", x)

    def product(g: Any, x: Any, y: Any) -> Any:
        return g.Gemm(g.Relu(x), y, ..., like="p")

    once = build.finish(build.op("Gemm", scaled, build.input("y", (2, 2)), x))
    twice = once.replace(nodes=(once.nodes[0], once.nodes[1].with_inputs((scaled, "y", scaled))))
    assert places(product, once) and not places(product, twice)


def test_outputs_that_are_absent_do_not_count() -> None:
    build = GraphBuilder()
    graph = build.finish(build.op("LayerNormalization", build.input("x", (2, 4)), build.input("y", (4,))))
    (node,) = graph.nodes
    absent = graph.replace(nodes=(replace(node, outputs=(*node.outputs, "", "")),))
    wanted = replace(node, outputs=(*node.outputs, "", "deviation"))
    for each, count in ((graph, 1), (absent, 1), (graph.replace(nodes=(wanted,)), 0)):
        assert len(places(lambda g, x, y: g.LayerNormalization(x, y, like="n"), each)) == count


def test_nobody_else_reads_an_inner_value_of_a_closed_pattern(written: Any) -> None:
    def root(g: Any, x: Any) -> Any:
        return g.Sqrt(g.Exp(x))

    shared = written(lambda g, x: (g.Exp(x), g.Sqrt(g.Exp(x))))
    shared = merged(shared)
    assert places(root, written(lambda g, x: g.Sqrt(g.Exp(x))))
    assert places(root, shared, closed=False)
    assert not places(root, shared)
    assert places(lambda g, x: g.Sqrt(g.Exp(x, shared=True)), shared)
    twice = merged(written(lambda g, x: g.Sqrt(g.Exp(x)) - g.Exp(x)))
    assert not places(lambda g, x, y: g.Sqrt(g.Exp(x)) - y, twice)
    assert places(lambda g, x: g.Sqrt(g.Exp(x)) - g.Exp(x), twice), "the pattern itself may read a value twice"


@pytest.mark.parametrize(
    "product",
    [
        lambda g, x, y, a, b: (a * x) * (y * b),
        lambda g, x, y, a, b: x * ((a * b) * y),
        lambda g, x, y, a, b: (y * (b * a)) * x,
        lambda g, x, y, a, b: (a * (x * y)) * b,
    ],
)
def test_monomials_are_products_in_any_grouping(written: Any, product: Any) -> None:
    graph = written(product, constants={"a": 0.3, "b": 2.0})
    assert {"x": "x", "y": "y", "z": ""} in places(lambda g, x, y: g.monomial(0.6, x, y), graph)
    assert not places(lambda g, x, y: g.monomial(0.61, x, y), graph)
    assert not places(lambda g, x: g.monomial(0.6, x, x), graph)


def test_monomials_go_through_quotients_and_powers(written: Any) -> None:
    graph = written(lambda g, x, a, b: g.Pow(x, a) / b, constants={"a": 3.0, "b": 4.0})
    assert places(lambda g, x: g.monomial(0.25, x, x, x), graph) == [{"x": "x", "y": "", "z": ""}]
    assert not places(lambda g, x: g.monomial(0.25, x, x), graph)
    assert not places(lambda g, x: g.monomial(4, x, x, x), graph)


@given(st.integers(0, 2**32 - 1))
def test_what_may_not_end_a_pattern_is_no_place_of_it(seed: int) -> None:
    """The quick look at the makers of operands never hides a place."""
    graph = random_arithmetic(np.random.default_rng(seed))
    patterns = [
        lambda g, x, y: (g.Exp(x) | g.Neg(x)) * y,
        lambda g, x, y: (x + y) * (g.Exp(x) | x),
        lambda g, x, y: g.monomial(1, x, g.Exp(y)) | g.Neg(x) + y,
    ]
    for pattern in map(pattern_of, patterns):
        for index, node in enumerate(graph.nodes):
            made = {graph.nodes[i].op for x in node.inputs if (i := graph.producer.get(x)) is not None}
            assert pattern.may_end(node.op, made) or not any(occurrences(pattern, graph, index))


def random_arithmetic(rng: np.random.Generator) -> Graph:
    build = GraphBuilder()
    values = [build.input("x", (2,)), build.input("y", (2,))]
    for op in rng.choice(["Add", "Mul", "Exp", "Neg"], int(rng.integers(2, 12))):
        operands = [values[int(k)] for k in rng.integers(len(values), size=2 if op in ("Add", "Mul") else 1)]
        values.append(build.op(str(op), *operands))
    return build.finish(values[-1])
