"""The runner: order, rounds, events, verification; and whole architectures through the clean-up."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fusewise.errors import BrokenGraph
from fusewise.ir.graph import Graph
from fusewise.ir.verify import verify
from fusewise.passes.catalogue import CATALOGUE
from fusewise.passes.drop_dead import drop_dead
from fusewise.passes.pipeline import CLEAN, MOST_ROUNDS, run
from fusewise.trace import Trace
from fusewise.zoo.catalogue import build

MIXED = """
input x: float32[1,4,6,6]
constant w: float32[8,4,3,3] = #w
constant c: float32[8,1,1] = #c
constant s: float32[8] = #s
constant v: float32[8] = #positive
constant one: float32[] = 1.0
a = Conv(x, w)
b = Add(a, c)
d = BatchNormalization(b, s, s, s, v)
e = Mul(d, one)
f = Identity(e)
y = Relu(f)
z = Relu(f)
u = Add(y, z)
return u
"""


def test_catalogue_names_every_pass_once() -> None:
    names = [row.name for row in CATALOGUE]
    assert len(set(names)) == len(names)
    assert {row.numeric_class for row in CATALOGUE} <= {"exact", "reassociating", "approximate"}
    assert all(row.summary for row in CATALOGUE)
    assert tuple(row.function for row in CATALOGUE) == CLEAN


def test_passes_work_into_each_others_hands(parse: Any, shown: Any, same_answers: Any) -> None:
    graph, trace = parse(MIXED), Trace()
    after = run(graph, CLEAN, trace)
    assert shown(after).splitlines()[-4:] == [
        "d = Conv(x, w_folded, n_a_bias_1)",
        "y = Relu(d)",
        "u = Add(y, y)",
        "return u",
    ]
    same_answers(graph, after, False)
    events = [event for event in trace if event.kind == "pass"]
    assert {event.what for event in events} == {row.name for row in CATALOGUE}
    assert events[0].before == 8
    assert events[-1].after == 3
    assert run(after, CLEAN, Trace()) is after


def test_exact_leaves_out_what_rounds(parse: Any, same_answers: Any) -> None:
    graph = parse(MIXED)
    after = run(graph, exact=True)
    assert Counter(node.op for node in after.nodes) == Counter("Conv Add BatchNormalization Relu Add".split())
    same_answers(graph, after, True)


def test_passes_and_rules_can_be_disabled_by_name(parse: Any) -> None:
    graph = parse(MIXED)
    for name in ("fold_batch_norm", "batch-norm-into-producer", "batch-norm-into-producer@n_d"):
        disabled = frozenset({name, "lower_batch_norm"})
        after = run(graph, CLEAN, Trace(disabled=disabled))
        assert [node.op for node in after.nodes if node.op == "BatchNormalization"]


@pytest.mark.parametrize("limit", range(7))
def test_every_prefix_of_decisions_is_a_sound_graph(parse: Any, same_answers: Any, limit: int) -> None:
    """What bisection stands on: refuse all decisions from some number on, and the answers are still right."""
    graph = parse(MIXED)
    trace = Trace(limit=limit)
    after = run(graph, CLEAN, trace)
    verify(after)
    assert sum(event.kind == "rewrite" and event.applied for event in trace) == min(limit, 5)
    same_answers(graph, after, False)


def test_a_pass_that_breaks_the_graph_is_named(parse: Any) -> None:
    def careless(graph: Graph, trace: Trace) -> Graph:
        return graph.replace(nodes=graph.nodes[1:])

    with pytest.raises(BrokenGraph, match=r"pass careless broke the graph: node 'n_b' .* reads 'a'"):
        run(parse(MIXED), (careless,))
    assert not run(parse(MIXED), (careless,), verify=False).nodes


def test_passes_that_never_settle_end(parse: Any) -> None:
    def restless(graph: Graph, trace: Trace) -> Graph:
        return graph.replace(name=graph.name + "'")

    assert run(parse(MIXED), (restless, drop_dead)).name == "test" + "'" * MOST_ROUNDS


def test_time_is_measured_with_the_clock_that_is_given(parse: Any) -> None:
    ticks = iter(range(1000))
    trace = Trace()
    run(parse(MIXED), (drop_dead,), trace, clock=lambda: float(next(ticks)))
    assert trace.events[0].reason.startswith("1000.00 ms")


@pytest.mark.parametrize(
    "name, decomposed, left",
    [
        ("squeezenet1_1", False, {"Relu": 26}),
        ("mobilenet_v2", False, {"Conv": 52, "BatchNormalization": 0}),
        ("mobilenet_v3_small", True, {"BatchNormalization": 0, "HardSwish": 19, "HardSigmoid": 9, "Div": 0}),
        ("tinybert", True, {"LayerNormalization": 9, "Gelu": 4, "Erf": 0, "Sqrt": 0}),
    ],
)
def test_whole_architectures(name: str, decomposed: bool, left: dict[str, int], same_answers: Any) -> None:
    graph = build(name, decomposed=decomposed)
    after = run(graph)
    counts = Counter(node.op for node in after.nodes)
    assert {op: counts[op] for op in left} == left
    assert run(after) is after
    assert set(after.inputs) == set(graph.inputs)
    same_answers(graph, after, False)
