"""The data-flow tree of a group: every value once, types as the planner combines them, and groups by number or node."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from tests.fusion.graphs import random_graph

from fusewise.errors import UsageError
from fusewise.fusion.plan import PLANNERS, Plan, plan
from fusewise.fusion.tree import data_flow_tree, group_named
from fusewise.ir.dtypes import FLOAT32
from fusewise.ops.build import GraphBuilder
from fusewise.trace import Trace


@pytest.fixture
def planned() -> Plan:
    b = GraphBuilder()
    h = b.op("MatMul", b.input("x", (4, 8)), b.constant(np.ones((8, 8), np.float32), "w"), name="first")
    h = b.op("Mul", h, b.op("Sigmoid", h, name="gate"), name="gated")
    return plan(b.finish(b.op("MatMul", h, b.constant(np.ones((8, 2), np.float32), "v"), name="second")), Trace())


def test_a_tree_has_results_above_operands_and_leaves_below(planned: Plan) -> None:
    found = data_flow_tree(planned, 0)
    assert (found["group"], found["type"], found["roots"]) == (0, "many_to_many", ["gated_out"])
    rows = {row["value"]: row for row in found["values"]}
    assert {value: row["kind"] for value, row in rows.items()} == {
        "x": "input",
        "w": "constant",
        "first_out": "operator",
        "gate_out": "operator",
        "gated_out": "operator",
    }
    gated = rows["gated_out"]
    assert (gated["op"], gated["node"], gated["type"]) == ("Mul", "gated", "float32[4,8]")
    assert (gated["mapping"], gated["together"]) == ("one_to_one", "many_to_many")
    assert gated["operands"] == [
        {"value": "first_out", "along": "one_to_one"},
        {"value": "gate_out", "along": "one_to_one"},
    ]


def test_a_group_is_called_by_its_number_or_by_a_node_in_it(planned: Plan) -> None:
    assert [group_named(planned, name) for name in (0, "0", "first", "gated", 1, "1", "second")] == [
        0,
        0,
        0,
        0,
        1,
        1,
        1,
    ]


@pytest.mark.parametrize(
    "name, sentence",
    [
        (2, "there is no group 2; groups are 0 to 1"),
        ("-1", "there is no group -1; groups are 0 to 1"),
        ("9" * 5000, "there is no group 9+; groups are 0 to 1"),
        ("gat", "no group or node is called 'gat'; did you mean 'gate'"),
        ("§", "no group or node is called '§'; `inspect --groups` lists them"),
        ("", "no group or node is called ''; `inspect --groups` lists them"),
    ],
)
def test_a_wrong_name_is_answered_in_a_sentence(planned: Plan, name: str | int, sentence: str) -> None:
    with pytest.raises(UsageError, match=f"^{sentence}"):
        group_named(planned, name)


def test_a_graph_without_operators_has_no_groups() -> None:
    b = GraphBuilder()
    with pytest.raises(UsageError, match="there is no group 0; the graph has no operators"):
        group_named(plan(b.finish(b.input("x", (2,))), Trace()), 0)


@pytest.mark.parametrize("how", PLANNERS)
def test_trees_of_random_graphs_hold_every_value_of_the_group_once(how: str) -> None:
    @seed(0)
    @settings(database=None, deadline=None, max_examples=40)
    @given(st.randoms(use_true_random=False))
    def check(source: Random) -> None:
        planned = plan(random_graph(source, FLOAT32), Trace(), how)
        graph = planned.partition.graph
        for position, group in enumerate(planned.partition.groups):
            found = data_flow_tree(planned, position)
            seen: set[str] = set()
            for row in found["values"]:
                assert row["value"] not in seen
                assert all(operand["value"] in seen for operand in row.get("operands", ()))
                seen.add(row["value"])
            made = {v for node in group.members(graph) for v in node.writes}
            assert seen == made | set(group.inputs(graph))
            assert set(found["roots"]) == set(group.outputs(graph)) <= made

    check()
