"""What every round of a Loop or Scan hands on as it is comes from outside; what changes is carried."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import fusewise
from fusewise.frontend.bodies import bodies_of
from fusewise.frontend.onnx_export import to_model
from fusewise.frontend.onnx_import import load
from fusewise.ir.graph import Graph
from fusewise.ir.verify import verify
from fusewise.passes.fold_constants import fold_constants
from fusewise.passes.pipeline import run
from fusewise.trace import Trace

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
STATES = ("a", "b", "d")
value = helper.make_tensor_value_info


def body_of(results: dict[str, str], inputs: list[Any], first: list[Any], gathers: list[str]) -> onnx.GraphProto:
    """`results` has for each state what becomes of it; `handed a` is `a` by two Identities."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Mul", ["sum", "half"], ["made"]),
        helper.make_node("Sub", ["made", "d"], ["less"]),
        *(node for name in STATES for node in handed(name)),
        helper.make_node("Identity", ["c"], ["c2"]),
        helper.make_node("Identity", ["i"], ["i2"]),
    ]
    nodes = nodes if first else [node for node in nodes if node.output[0] not in ("c2", "i2")]
    outputs = [*first, *(value(results[name], FLOAT, [2, 3]) for name in STATES)]
    outputs += [value(name, FLOAT, [2, 3]) for name in gathers]
    return helper.make_graph(nodes, "body", inputs, outputs)


def handed(name: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Identity", [name], [f"once {name}"]),
        helper.make_node("Identity", [f"once {name}"], [f"handed {name}"]),
    ]


def graph_of(op: str, results: dict[str, str], gathers: list[str], constant: str) -> Graph:
    """Of three rounds; what is `constant` begins as one."""
    states = [value(name, FLOAT, [2, 3]) for name in STATES]
    begins = [f"{name}0" for name in STATES]
    outputs = [*(f"{name}_end" for name in STATES), *(f"all{k}" for k in range(len(gathers)))]
    if op == "Loop":
        first = [value("i", INT64, []), value("c", BOOL, [])]
        body = body_of(results, [*first, *states], [value("c2", BOOL, [])], gathers)
        node = helper.make_node("Loop", ["three", "", *begins], outputs, body=body)
    else:
        body = body_of(results, [*states, value("x", FLOAT, [2, 3])], [], gathers)
        node = helper.make_node("Scan", [*begins, "xs"], outputs, body=body, num_scan_inputs=1)
    inputs = [value(name, FLOAT, [2, 3]) for name in begins if name != f"{constant}0"]
    inputs += [value("xs", FLOAT, [3, 2, 3])] if op == "Scan" else []
    constants = {
        "three": np.array(3),
        "half": np.array(0.5, np.float32),
        f"{constant}0": np.arange(6, dtype=np.float32).reshape(2, 3),
    }
    nodes = [node, *(helper.make_node("Neg", [name], [f"n {name}"]) for name in outputs[:3])]
    results_of_all = [value(name, FLOAT, None) for name in outputs]
    results_of_all += [value(f"n {name}", FLOAT, [2, 3]) for name in outputs[:3]]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, results_of_all, tensors)
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def feeds_of(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {name: rng.standard_normal(graph.types[name].dims, dtype=np.float32) for name in graph.inputs}  # type: ignore[union-attr]


def wanted_of(
    results: dict[str, str], gathers: list[str], constant: str, feeds: dict[str, np.ndarray]
) -> list[np.ndarray]:
    """What three rounds give, one after the other: ONNX Runtime reads memory that nobody wrote where a Scan hands states on,
    and ONNX's evaluator knows no Loop without any."""
    known = {**feeds, f"{constant}0": np.arange(6, dtype=np.float32).reshape(2, 3)}
    states = {name: known[f"{name}0"] for name in STATES}
    gathered: list[list[np.ndarray]] = [[] for _ in gathers]
    for _ in range(3):
        total = states["a"] + states["b"]
        made = total * np.float32(0.5)
        values = {**states, "sum": total, "made": made, "less": made - states["d"]}
        values |= {f"handed {name}": states[name] for name in STATES}
        for found, name in zip(gathered, gathers, strict=True):
            found.append(values[name])
        states = {name: values[results[name]] for name in STATES}
    ends = list(states.values())
    return [*ends, *map(np.stack, gathered), *(-end for end in ends)]


@settings(max_examples=20, deadline=None)
@given(
    op=st.sampled_from(("Loop", "Scan")),
    results=st.fixed_dictionaries(
        {name: st.sampled_from((name, f"handed {name}", "made", "less", "sum", "a", "b")) for name in STATES}
    ),
    gathers=st.lists(st.sampled_from(("made", "a", "handed b", "sum", "d")), min_size=1, max_size=2),
    constant=st.sampled_from(("", *STATES)),
)
def test_what_is_handed_on_comes_from_outside(
    op: str, results: dict[str, str], gathers: list[str], constant: str
) -> None:
    graph = graph_of(op, results, gathers, constant)
    steady = [name for name in STATES if results[name] in (name, f"handed {name}")]
    trace = Trace()
    after = run(graph, (fold_constants,), trace)
    verify(after)
    assert ("steady-states" in [event.what for event in trace]) == bool(steady)
    left = [node for node in after.nodes if node.op == op]
    for node in left:
        ((_, subgraph, captured),) = bodies_of(node)
        assert len(node.inputs) == len(graph.nodes[0].inputs) - len(steady)
        assert len(node.outputs) == len(graph.nodes[0].outputs) - len(steady)
        assert len(subgraph.captures) == len(captured)
        assert set(captured) >= {f"{name}0" for name in steady}
    feeds = feeds_of(graph)
    found_all = fusewise.compile(to_model(graph), cache=False, threads=1).run(None, feeds)
    for found, expected in zip(found_all, wanted_of(results, gathers, constant, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert fold_constants(after, Trace()) is after


@pytest.mark.parametrize("op", ["Loop", "Scan"])
@pytest.mark.parametrize("gathers", [["made"], []])
def test_nothing_is_left_of_what_gives_nothing_else(op: str, gathers: list[str]) -> None:
    results = {name: name for name in STATES}
    graph = graph_of(op, results, gathers, "b")
    assert sum(node.op == op for node in fold_constants(graph, Trace()).nodes) == len(gathers)
    feeds = feeds_of(graph)
    found_all = fusewise.compile(to_model(graph), cache=False, threads=1).run(None, feeds)
    for found, expected in zip(found_all, wanted_of(results, gathers, "b", feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
