"""A plan as plain data: figures, groups, and the verdicts around one node."""

from __future__ import annotations

import numpy as np
import pytest

from fusewise.errors import UsageError
from fusewise.fusion.describe import described_edges, described_groups, fusion_figures, intermediate_bytes, why
from fusewise.fusion.plan import Plan, plan
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.trace import Trace


def model() -> Graph:
    b = GraphBuilder()
    h = b.op("MatMul", b.input("x", (4, 8)), b.constant(np.ones((8, 8), np.float32)), name="first")
    r = b.op("Relu", h, name="active")
    return b.finish(b.op("MatMul", r, b.constant(np.ones((8, 2), np.float32)), name="second"))


@pytest.fixture
def planned() -> Plan:
    return plan(model(), Trace())


def test_figures_compare_with_the_model_as_it_was(planned: Plan) -> None:
    assert intermediate_bytes(model()) == 2 * 4 * 8 * 4
    assert fusion_figures(model(), planned) == {
        "group_count": 2,
        "cleanup_factor": 1.0,
        "fusion_factor": 1.5,
        "fusion_rate": 1.5,
        "intermediate_bytes_before": 256,
        "intermediate_bytes_after": 128,
    }


def test_the_rate_is_that_of_clean_up_times_that_of_fusion(planned: Plan) -> None:
    b = GraphBuilder()
    x = b.input("x", (4, 8))
    for _ in range(6):
        x = b.op("Identity", x)
    found = fusion_figures(b.finish(x), planned)
    assert (found["cleanup_factor"], found["fusion_factor"], found["fusion_rate"]) == (2.0, 1.5, 3.0)


def test_groups_say_what_they_save_and_why_they_end(planned: Plan) -> None:
    first, second = described_groups(planned)
    assert first == {
        "group": 0,
        "type": "many_to_many",
        "anchor": "first",
        "members": [{"node": "first", "op": "MatMul"}, {"node": "active", "op": "Relu"}],
        "bytes_saved": 128,
        "stopped_by": ["the types do not fuse"],
    }
    assert (second["anchor"], second["bytes_saved"]) == ("second", 0)


def test_why_names_every_neighbour(planned: Plan) -> None:
    found = why(planned, "active")
    assert (found["group"], found["members"]) == (0, ["first", "active"])
    assert [(edge["neighbour"], edge["side"], edge["fused"]) for edge in found["edges"]] == [
        ("first", "before", True),
        ("second", "after", False),
    ]
    assert len(described_edges(planned)) == 2


def test_an_unknown_node_is_answered_with_like_names(planned: Plan) -> None:
    with pytest.raises(UsageError, match="no node is called 'activ'; did you mean 'active'"):
        why(planned, "activ")
