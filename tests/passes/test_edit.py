"""The sweep: outputs keep their names, dead parts go, provenance adds up, nothing loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fusewise.ir.graph import Node
from fusewise.ir.verify import verify
from fusewise.passes.edit import Change, Edit, LocalRule, looking_for, rebuilt, sweep
from fusewise.rewrite.match import Occurrence
from fusewise.trace import Trace

CHAIN = "input x: float32[2]\na = Relu(x)\nb = Exp(a)\nc = Exp(a)\ny = Add(b, c)\nreturn y"


def test_inner_nodes_go_with_their_last_reader(parse: Any, shown: Any) -> None:
    def find(edit: Edit, node: Node) -> Change | None:
        return Change((node,), "test", (rebuilt(node, "Neg", ("x",)),))

    trace = Trace()
    after = sweep(parse(CHAIN), trace, (LocalRule("test", ("Add",), find),))
    assert shown(after) == "y = Neg(x)\nreturn y"
    (event,) = trace.events
    assert (event.what, event.where, event.reason) == ("test", ("n_y",), "test")


def test_reads_are_those_of_now(parse: Any) -> None:
    """A value loses a reader when a later node is taken out before the question is asked."""
    seen = []

    def drop(edit: Edit, node: Node) -> Change | None:
        return Change((node,), "test", same={node.outputs[0]: node.inputs[0]}) if node.outputs[0] == "c" else None

    def look(edit: Edit, node: Node) -> Change | None:
        seen.append((edit.reads("a"), edit.reads("b"), edit.sole("b", "Exp") is not None, node.inputs))
        return None

    rules = (LocalRule("drop", ("Exp",), drop), LocalRule("look", ("Add",), look))
    sweep(parse(CHAIN), Trace(), rules)
    assert seen == [(2, 1, True, ("b", "a"))]


def test_origins_are_joined_and_new_values_typed(parse: Any) -> None:
    def find(edit: Edit, node: Node) -> Change | None:
        before = edit.sole(node.inputs[0], "Exp")
        if before is None:
            return None
        inner = edit.fresh("a")
        first = Node("Neg", before.inputs, (inner,))
        return Change((before, node), "test", (first, rebuilt(node, "Add", (inner, node.inputs[1]))))

    after = sweep(parse(CHAIN), Trace(), (LocalRule("test", ("Add",), find),))
    verify(after)
    fresh = [node for node in after.nodes if node.op == "Neg"]
    assert fresh[0].origin == ("n_b", "n_y")
    assert fresh[0].outputs == ("a_1",)
    assert after.types["a_1"] == after.types["x"]


def test_rules_that_undo_each_other_end(parse: Any) -> None:
    def swap(op: str) -> Any:
        return lambda edit, node: Change((node,), "test", (rebuilt(node, op, node.inputs),))

    rules = (LocalRule("there", ("Exp",), swap("Log")), LocalRule("back", ("Log",), swap("Exp")))
    after = sweep(parse(CHAIN), Trace(), rules)
    verify(after)
    assert {node.op for node in after.nodes} <= {"Relu", "Exp", "Log", "Add"}


def test_shapes_become_known_with_constants(parse: Any) -> None:
    graph = parse("input x: float32[6]\ninput n: int64[2]\nb = Reshape(x, n)\ny = Relu(b)\nreturn y")
    node = Node("Identity", ("n",), ("s",), name="n_s")
    nodes = (node, graph.nodes[0].with_inputs(("x", "s")), graph.nodes[1])
    graph = graph.replace(nodes=nodes, types={**graph.types, "s": graph.types["n"]})

    def find(edit: Edit, node: Node) -> Change | None:
        return Change((node,), "test", known={"s": np.array([2, 3])})

    after = sweep(graph, Trace(), (LocalRule("test", ("Identity",), find),))
    assert str(after.types["y"]) == "float32[2,3]"
    verify(after)


def test_captured_values_follow(parse: Any) -> None:
    graph = parse(CHAIN)
    last = replace(graph.nodes[-1], captured=("c",))
    graph = graph.replace(nodes=(*graph.nodes[:-1], last))

    def find(edit: Edit, node: Node) -> Change | None:
        return Change((node,), "test", same={"c": "b"}) if node.outputs == ("c",) else None

    after = sweep(graph, Trace(), (LocalRule("test", ("Exp",), find),))
    assert (after.nodes[-1].inputs, after.nodes[-1].captured) == (("b", "b"), ("b",))


def test_other_domains_are_left_alone(parse: Any) -> None:
    graph = parse(CHAIN)
    graph = graph.replace(nodes=tuple(replace(node, domain="com.example") for node in graph.nodes))
    rule = LocalRule("test", (), lambda edit, node: Change((node,), "test", (rebuilt(node, "Neg", node.inputs[:1]),)))
    assert sweep(graph, Trace(), (rule,)) is graph


def test_a_pattern_is_looked_for_in_the_graph_of_now(parse: Any, shown: Any) -> None:
    """Every place is offered until one is taken; what has been rewritten is seen as it is by now."""
    offered = []

    def change(edit: Edit, node: Node, found: Occurrence) -> Change | None:
        offered.append((found.value("a"), found.value("b"), [part.op for part in edit.covered(found, node)]))
        if found.value("a") != "c":
            return None
        return Change(edit.covered(found, node), "test", (rebuilt(node, "Sub", ("a", "a")),))

    drop = LocalRule(
        "drop", ("Relu",), lambda edit, node: Change((node,), "test", (rebuilt(node, "Abs", node.inputs),))
    )
    rule = looking_for("test", lambda g, a, b, x: (g.Exp(x) | a) + b, change, {"a": lambda edit, value, root: True})
    trace = Trace()
    after = sweep(parse(CHAIN), trace, (drop, rule))
    assert shown(after) == "a = Abs(x)\ny = Sub(a, a)\nreturn y"
    assert offered == [("", "c", ["Exp", "Add"]), ("b", "c", ["Add"]), ("", "b", ["Exp", "Add"]), ("c", "b", ["Add"])]
