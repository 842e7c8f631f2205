"""Equality saturation: what it finds, that answers stay, what picking nodes pays for, how it ends."""

from __future__ import annotations

import numpy as np
import pytest

from fusewise.errors import UsageError
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.ir.verify import verify
from fusewise.ops.build import GraphBuilder
from fusewise.ops.evaluate import evaluate
from fusewise.rewrite.cost import Cost, CostMetric, analytic_metrics, machine_named
from fusewise.rewrite.rules.table import ALGEBRA, SUBSTITUTIONS, rule_named
from fusewise.rewrite.saturate.extract import NodeCandidate, extracted
from fusewise.rewrite.saturate.search import SaturationLimits, expressible, saturate

pytest.importorskip("egglog")
pytest.importorskip("scipy")

GPU = Cost(((1.0, analytic_metrics(machine_named("gpu"))[0]),))
NODES = Cost(((1.0, CostMetric("nodes", "nodes", lambda kernel: 1.0)),))


def answer(graph: Graph) -> list[np.ndarray]:
    values: dict[str, np.ndarray] = {name: constant.array for name, constant in graph.constants.items()}
    for k, name in enumerate(graph.inputs):
        values[name] = np.random.default_rng(k).standard_normal(graph.tensor(name).dims).astype(np.float32)
    for node in graph.nodes:
        values.update(zip(node.outputs, evaluate(node, values, graph.opset), strict=True))
    return [values[name] for name in graph.outputs]


def agree(before: Graph, after: Graph) -> None:
    verify(after)
    assert (before.inputs, before.outputs) == (after.inputs, after.outputs)
    for a, b in zip(answer(before), answer(after), strict=True):
        assert np.abs(a - b).max() <= 1e-5 * np.abs(a).max()


def module() -> Graph:
    """A 1x1 beside a 3x3 convolution with an add, as in a residual network."""
    rng, build = np.random.default_rng(0), GraphBuilder("module")
    x = build.input("x", (1, 32, 14, 14))
    made = [
        build.op("Conv", x, build.constant(rng.standard_normal((32, 32, k, k)).astype(np.float32)), pads=(k // 2,) * 4)
        for k in (3, 1)
    ]
    return build.finish(build.op("Relu", build.op("Add", *made)))


def gates() -> Graph:
    """Three products of one operand, each with a bias of its own."""
    rng, build = np.random.default_rng(0), GraphBuilder("gates")
    x = build.input("x", (4, 8))
    made = [
        build.op("Tanh", build.op("MatMul", x, build.constant(rng.standard_normal((8, 40)).astype(np.float32))))
        for _ in range(3)
    ]
    return build.finish(*made)


def test_the_published_module_becomes_one_convolution() -> None:
    graph = module()
    found = saturate(graph, SUBSTITUTIONS, GPU)
    assert [node.op for node in found.graph.nodes] == ["Conv", "Relu"]
    assert found.cost < found.cost_before
    assert found.steps
    assert {step.cost_after for step in found.steps} == {found.cost}
    agree(graph, found.graph)


def test_parallel_products_are_merged_though_a_rule_has_two_roots() -> None:
    graph = gates()
    found = saturate(graph, SUBSTITUTIONS, GPU)
    assert [node.op for node in found.graph.nodes].count("MatMul") < 3
    assert "merge-parallel-products" in [step.rule for step in found.steps]
    agree(graph, found.graph)


def test_it_is_deterministic_and_keeps_the_input_when_nothing_is_cheaper() -> None:
    runs = [saturate(gates(), SUBSTITUTIONS, GPU) for _ in range(2)]
    assert (runs[0].cost, runs[0].steps, runs[0].graph.nodes) == (runs[1].cost, runs[1].steps, runs[1].graph.nodes)
    graph = module()
    found = saturate(graph, [], GPU)
    assert (found.graph, found.cost, found.steps, found.ended) == (graph, found.cost_before, (), "searched")


def test_bounds() -> None:
    assert saturate(module(), SUBSTITUTIONS, GPU, bounds=SaturationLimits(nodes=6)).ended == "graphs"
    ticks = iter(range(10_000))
    found = saturate(module(), SUBSTITUTIONS, GPU, bounds=SaturationLimits(seconds=2), clock=lambda: float(next(ticks)))
    assert found.ended == "seconds"


def test_what_cannot_be_said_is_named() -> None:
    said = expressible((*SUBSTITUTIONS, *ALGEBRA))
    assert set(said) >= {rule.name for rule in SUBSTITUTIONS}
    assert "power-two" not in said, "it looks for a number"
    build = GraphBuilder("wide")
    parts = [build.input(f"x{k}", (1, 2)) for k in range(13)]
    with pytest.raises(UsageError, match="cannot say Concat"):
        saturate(build.finish(build.op("Concat", *parts, axis=1)), SUBSTITUTIONS, GPU)


def test_a_guard_holds_in_classes_too() -> None:
    """Halving a Split that is not in two halves is refused, whatever class it is in."""
    rng, build = np.random.default_rng(0), GraphBuilder("thirds")
    x = build.input("x", (1, 4, 3, 3))
    made = build.op("Conv", x, build.constant(rng.standard_normal((6, 4, 1, 1)).astype(np.float32)))
    first, second = build.op("Split", made, build.constant(np.array([2, 4])), axis=1, outputs=2)
    graph = build.finish(first, second)
    halved = rule_named("sum-of-halves-into-convolution")
    assert halved is not None
    assert saturate(graph, [halved], GPU).graph is graph


def test_what_is_read_twice_is_paid_once_and_nothing_is_made_of_itself() -> None:
    """y = Add(a, b) of two nodes that share t, or Sub of two others; and a that would be made of y."""
    kind = TensorType(module().tensor("x").dtype, (1,))
    choices = [
        NodeCandidate("Exp", ("x",), (), {0: "t"}),
        NodeCandidate("Neg", ("t",), (), {0: "a"}),
        NodeCandidate("Abs", ("y",), (), {0: "a"}),
        NodeCandidate("Sqrt", ("t",), (), {0: "b"}),
        NodeCandidate("Add", ("a", "b"), (), {0: "y"}),
        NodeCandidate("Tanh", ("x",), (), {0: "c"}),
        NodeCandidate("Erf", ("c",), (), {0: "d"}),
        NodeCandidate("Cos", ("d",), (), {0: "e"}),
        NodeCandidate("Sin", ("e",), (), {0: "f"}),
        NodeCandidate("Sub", ("f", "x"), (), {0: "y"}),
    ]
    types = dict.fromkeys("xtabcdefy", kind)
    graph = Graph(("x",), ("y",), (Node("Relu", ("x",), ("y",)),), {"x": kind, "y": kind}, {}, "one", 21)
    found = extracted(graph, choices, {"y": "y"}, {"x": "x"}, types, {}, NODES)
    assert found is not None
    assert sorted(node.op for node in found.nodes) == ["Add", "Exp", "Neg", "Sqrt"]
    verify(found)
