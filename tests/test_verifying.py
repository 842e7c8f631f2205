"""Verifying: sets of inputs, what is said of each, and where a fault is looked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fusewise
from fusewise.benchmarking.verification import Case, Fault, Verification
from fusewise.errors import InvalidModel, UnsupportedModel, UsageError
from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.trace import Trace


def network(batch: int | str = 3) -> Graph:
    """Token ids into a table, a product, and a Relu; the batch may be free."""
    b = GraphBuilder("network")
    ids = b.input("ids", (batch, 5), INT64)
    x = b.input("x", (batch, 5, 4))
    table = b.constant(np.random.default_rng(0).standard_normal((11, 4)).astype(np.float32))
    summed = b.op("Add", b.op("Gather", table, ids, name="look-up"), x, name="add")
    return b.finish(b.op("Relu", b.op("MatMul", summed, b.constant(np.eye(4, dtype=np.float32))), name="relu"))


def always(op: str, instead: str) -> Callable[[Graph, Trace], Graph]:
    """A pass that does what nobody asked for, and asks nobody: no decision is to blame for it."""

    def change(graph: Graph, trace: Trace) -> Graph:
        nodes = tuple(replace(node, op=instead) if node.op == op else node for node in graph.nodes)
        return graph if nodes == graph.nodes else graph.replace(nodes=nodes)

    return change


def test_hostile_inputs_agree_on_a_sound_compiler():
    found = fusewise.verify(network("n"), inputs="hostile", cache=False)
    assert found.agrees, found.sentence
    names = [case.inputs for case in found.cases]
    values = ["random", "zeros", "signed zeros and denormals", "integer extremes", "infinities", "NaN"]
    assert names == [*values, "odd sizes (n=3)", "large primes (n=2)", "empty (n=0)"]
    assert all(case.refused is None and list(case.errors) == list(network("n").outputs) for case in found.cases)
    assert found.sentence.startswith("answers agree with onnxruntime's: output ")
    assert "(inputs: random, zeros," in found.sentence


def test_random_inputs_are_one_set():
    found = fusewise.verify(network(), cache=False)
    assert found.agrees and [case.inputs for case in found.cases] == ["random"]


def test_what_is_always_done_is_looked_for_node_by_node():
    found = fusewise.verify(network(), passes=(always("Relu", "Neg"),), cache=False)
    assert not found.agrees
    assert found.blamed is None and not found.confirmed
    assert found.fault is not None
    assert (found.fault.node, found.fault.op, found.fault.part) == ("relu", "Relu", "native code")
    assert "node 'relu'" in found.sentence and found.sentence.startswith("answers differ: output")
    assert json.loads(json.dumps(found.summary))["fault"]["node"] == "relu"


def test_a_fault_that_only_hostile_inputs_show():
    """In the place of Identity, ThresholdedRelu at -1e30, which loses negative infinity alone."""
    b = GraphBuilder()
    graph = b.finish(b.op("Identity", b.input("x", (4, 30)), name="same"))

    def careless(graph: Graph, trace: Trace) -> Graph:
        nodes = tuple(
            replace(node, op="ThresholdedRelu", attributes=(("alpha", -1e30),)) if node.op == "Identity" else node
            for node in graph.nodes
        )
        return graph if nodes == graph.nodes else graph.replace(nodes=nodes)

    assert fusewise.verify(graph, passes=(careless,), cache=False).agrees
    found = fusewise.verify(graph, passes=(careless,), inputs="hostile", cache=False)
    assert not found.agrees and found.inputs == "infinities"
    assert "(inputs: infinities)" in found.sentence
    assert [case.inputs for case in found.cases if case.agrees][:2] == ["random", "zeros"]


def test_without_a_search_nothing_is_blamed():
    found = fusewise.verify(network(), passes=(always("Relu", "Neg"),), cache=False, bisect=False)
    assert not found.agrees and found.blame is None and found.fault is None and found.builds == 1


def test_sizes_that_only_this_program_refuses_differ():
    from fusewise import verifying

    def build(graph: Graph, trace: Trace) -> Any:
        if 0 in graph.tensor("x").dims:
            raise InvalidModel("nothing in it")
        return fusewise.compile(graph, trace=trace, cache=False)

    found = verifying.verified(network("n"), network("n"), build, verifying.VerificationSettings(inputs="hostile"))
    assert not found.agrees and found.inputs == "empty"
    assert "nothing in it" in found.sentence


def test_a_shorter_precision_may_round_and_do_no_more():
    b = GraphBuilder("rounded")
    x, weights = b.input("x", (5, 64)), np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    y = b.op("MatMul", x, b.constant(weights))
    graph = b.finish(b.op("Relu", y, name="relu"), b.op("ArgMax", y, axis=1))
    found = fusewise.verify(graph, precision="bfloat16", cache=False)
    assert found.agrees and list(found.tolerances.values()) == [3e-2, 0.0]
    assert found.errors[graph.outputs[0]] > 1e-4, "products are computed in bfloat16"
    stated = fusewise.verify(graph, precision="bfloat16", tolerance=1e-5, cache=False)
    assert not stated.agrees and "ToMixedPrecision" in (stated.blame or "")
    wrong = fusewise.verify(graph, precision="bfloat16", passes=(always("Relu", "Neg"),), cache=False)
    assert not wrong.agrees and wrong.fault is not None and wrong.fault.node == "relu"


def test_a_model_that_nobody_else_runs_is_unsupported(monkeypatch):
    from fusewise import verifying

    def nobody(*words: Any) -> Any:
        raise UnsupportedModel("nobody runs it")

    monkeypatch.setattr(verifying, "answer", nobody)
    monkeypatch.setattr(verifying, "answers_by_nodes", nobody)
    with pytest.raises(UnsupportedModel, match="nobody"):
        fusewise.verify(network(), cache=False)


def test_an_unknown_kind_of_inputs_is_named():
    with pytest.raises(UsageError, match="'nasty'; there are random, hostile"):
        fusewise.verify(network(), inputs="nasty", cache=False)


def test_inputs_that_nobody_takes_are_said_not_to_be_compared(monkeypatch):
    from fusewise import verifying

    def choosy(model: Any, feeds: Any) -> Any:
        if not feeds["x"].size:
            raise UnsupportedModel("nothing in it")
        return answer(model, feeds)

    answer = verifying.answer
    monkeypatch.setattr(verifying, "answer", choosy)
    monkeypatch.setattr(verifying, "answers_by_nodes", choosy)
    found = fusewise.verify(network("n"), inputs="hostile", cache=False)
    assert found.agrees
    assert found.sentence.endswith("no reference takes empty (n=0))")


def test_sizes_that_contradict_the_model_are_left_out():
    b = GraphBuilder("fixed")
    x = b.input("x", ("n", 4))
    found = fusewise.verify(b.finish(b.op("Reshape", x, b.constant([2, 2]))), inputs="hostile", cache=False)
    assert found.agrees and not {"empty", "odd sizes"} & {case.inputs for case in found.cases}


def test_sentences_say_what_where_and_by_how_much():
    case = Case("NaN", False, {"a": 0.0, "b": float("inf")}, {"a": 1e-5, "b": 0.0})
    fault = Fault("n", "Relu", "b", "host step", "onnxruntime", float("inf"), 0.0)
    found = Verification(
        False, "onnxruntime", case.errors, case.tolerances, 3, inputs="NaN", cases=(case,), fault=fault
    )
    assert found.sentence == (
        "answers differ: output 'b' differs from onnxruntime's by inf, more than 0e+00 (inputs: NaN); look at: node 'n' (Relu):"
        " 'b' is inf from onnxruntime's answer, more than 0e+00, though its operands agree; at fault: the operator's host step"
    )
