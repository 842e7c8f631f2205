"""An If with a known condition is the branch that is taken; any other stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.passes.conftest import answers, feeds_of

from fusewise.frontend.onnx_import import load
from fusewise.ir.graph import Graph
from fusewise.ir.verify import verify
from fusewise.passes.fold_constants import fold_constants
from fusewise.passes.pipeline import run
from fusewise.trace import Trace

FLOAT = TensorProto.FLOAT


def value(name: str, *shape: int) -> Any:
    return helper.make_tensor_value_info(name, FLOAT, shape)


def branch(name: str, nodes: list[Any], outputs: list[str], constants: dict[str, np.ndarray] | None = None) -> Any:
    tensors = [numpy_helper.from_array(array, key) for key, array in (constants or {}).items()]
    return helper.make_graph(nodes, name, [], [value(x, 2, 3) for x in outputs], tensors)


def model(condition: np.ndarray | None, then: Any, other: Any, outputs: int = 1) -> Graph:
    """`y0, ... = If(condition, then, other)` and what is made of them; the condition is a constant or an input."""
    made = [f"y{k}" for k in range(outputs)]
    inputs = [value("x", 2, 3), value("z", 2, 3)]
    initializers = []
    if condition is None:
        inputs.append(helper.make_tensor_value_info("c", TensorProto.BOOL, ()))
    else:
        initializers.append(numpy_helper.from_array(condition, "c"))
    nodes = [helper.make_node("If", ["c"], made, name="choice", then_branch=then, else_branch=other)]
    nodes += [helper.make_node("Relu", [x], [f"r_{x}"]) for x in made]
    results = [value(x, 2, 3) for y in made for x in (y, f"r_{y}")]
    graph = helper.make_graph(nodes, "test", inputs, results, initializers)
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


TWO = branch(
    "two",
    [helper.make_node("Mul", ["x", "k"], ["h"]), helper.make_node("Add", ["h", "z"], ["t"])],
    ["t"],
    {"k": np.array(3, np.float32)},
)
ONE = branch("one", [helper.make_node("Neg", ["x"], ["h"])], ["h"])


@pytest.mark.parametrize("taken, left", [(True, ["Mul", "Add", "Relu"]), (False, ["Neg", "Relu"])])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_the_branch_that_is_taken_is_left(same_answers: Any, taken: bool, left: list[str], shape: Any) -> None:
    graph, trace = model(np.full(shape, taken), TWO, ONE), Trace()
    after = fold_constants(graph, trace)
    verify(after)
    assert [node.op for node in after.nodes] == left
    assert [event.what for event in trace] == ["known-branch"]
    assert after.outputs == graph.outputs
    same_answers(graph, after, True)
    assert fold_constants(after, Trace()) is after
    assert fold_constants(graph, Trace(limit=0)) is graph


def test_an_unknown_condition_stays(same_answers: Any) -> None:
    graph = model(None, TWO, ONE)
    assert fold_constants(graph, Trace()) is graph


@pytest.mark.parametrize("taken", [True, False])
def test_outputs_that_are_values_from_outside_or_constants(taken: bool) -> None:
    """One result is an input of the model, one a constant, one is given out twice, which ONNX Runtime gets wrong."""
    nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Exp", ["z"], ["e"])]
    known = branch("many", nodes, ["same", "k", "e", "e"], {"k": np.full((2, 3), -1, np.float32)})
    other = branch("other", [helper.make_node("Abs", ["x"], ["a"])], ["a", "a", "a", "a"])
    graph = model(np.array(taken), known, other, outputs=4)
    after = run(graph)
    verify(after)
    assert not [node for node in after.nodes if node.op == "If"]
    feeds = feeds_of(graph)
    x, z = feeds["x"], feeds["z"]
    results = (x, np.full_like(x, -1), np.exp(z), np.exp(z)) if taken else (np.abs(x),) * 4
    expected = [each for y in results for each in (y, np.maximum(y, 0))]
    for found, right in zip(answers(after, feeds), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-6)


def test_a_branch_within_a_branch(same_answers: Any) -> None:
    within = helper.make_node("If", ["c"], ["n"], then_branch=ONE, else_branch=TWO)
    outer = branch("outer", [within, helper.make_node("Add", ["n", "x"], ["s"])], ["s"])
    graph = model(np.array(True), outer, ONE)
    after = run(graph)
    verify(after)
    assert sorted(node.op for node in after.nodes) == ["Relu", "Sub"]
    same_answers(graph, after, False)
