"""Every option that a document names does change the decision beside which it stands."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import pytest

from fusewise.compiling import planned
from fusewise.ir.graph import Graph
from fusewise.making import Planned
from fusewise.ops.build import GraphBuilder
from fusewise.options import Options, options_from
from fusewise.reporting.document.groups import owners
from fusewise.reporting.document.taking_back import DecisionOptions, EdgeOptions, gated
from fusewise.trace import Trace


def network() -> Graph:
    """What has something for passes, rules, kernels, groups, and steps that overwrite; two nodes have one name."""
    b, rng = GraphBuilder(), np.random.default_rng(0)
    x = b.input("x", (1, 16, 24, 24))
    h = x
    for k in range(2):
        weights = b.constant(rng.standard_normal((16, 16, 3, 3), np.float32))
        h = b.op("Conv", h, weights, pads=[1, 1, 1, 1], name=f"conv {k}")
        scale = [b.constant(rng.uniform(0.5, 1.0, 16).astype(np.float32)) for _ in range(4)]
        h = b.op("Relu", b.op("BatchNormalization", h, *scale, name=f"bn@{k}"), name="twice")
    h = b.op("Add", h, b.op("Sigmoid", x, name="gate"), name="sum")
    h = b.op("MaxPool", b.op("Identity", h, name="nothing"), kernel_shape=[2, 2], strides=[2, 2], name="pool")
    h = b.op("Reshape", b.op("Transpose", h, perm=[0, 2, 3, 1], name="turned"), b.constant([144, 16]), name="flat")
    h = b.op("MatMul", h, b.constant(rng.standard_normal((16, 10), np.float32)), name="product")
    return b.finish(b.op("Softmax", b.op("Mul", h, b.constant(np.float32(0.5)), name="half"), axis=-1, name="end"))


def run(graph: Graph, **settings: Any) -> tuple[Planned, Trace]:
    options = options_from(Options(cache=False), settings)
    trace = Trace(disabled=frozenset(options.disable))
    return planned(graph, options, trace, lambda sentence: None), trace


def settings_of(option: str, **others: Any) -> dict[str, Any]:
    """What the command line makes of the words of an option."""
    word, value = shlex.split(option)
    return others | ({"disable": (value,)} if word == "--disable" else {"fusion": value})


def together(made: Planned, ends: tuple[str, str]) -> bool:
    """Are the nodes of these names in one group?"""
    owner, number = owners(made.program), {node.label: n for n, node in enumerate(made.graph.nodes)}
    return owner[number[ends[0]]] == owner[number[ends[1]]]


@pytest.mark.slow
@pytest.mark.parametrize("fusion", ["dnnfusion", "published", "patterns", "none"])
def test_options_change_verdicts(fusion: str) -> None:
    graph = network()
    made, trace = run(graph, fusion=fusion)
    options, owner, nodes = EdgeOptions.of_plan(made.plan, trace, fusion), owners(made.program), made.graph.nodes
    names = [node.label for node in nodes]
    told = set()
    for edge in made.plan.edges:
        ends = nodes[edge.producer].label, nodes[edge.consumer].label
        fused = owner[edge.producer] == owner[edge.consumer]
        rule, option = options.of(edge.producer, edge.consumer, fused)
        if option is None or any(names.count(end) > 1 for end in ends):
            continue
        told.add(rule)
        other, _ = run(graph, **settings_of(option, fusion=fusion))
        assert together(other, ends) != fused, (ends, option)
    assert told == {"dnnfusion": {"fuse", "ask"}, "published": {"fuse", None}, "patterns": {"pattern", None}}.get(
        fusion, {None}
    )


@pytest.mark.slow
def test_options_take_decisions_back() -> None:
    graph = network()
    _, trace = run(graph)
    options, kinds = DecisionOptions.here(), set()
    for event, is_gated in zip(trace.events, gated(trace), strict=True):
        option = options.of(event, is_gated)
        if option is None:
            continue
        kinds.add(event.kind)
        _, after = run(graph, **settings_of(option))
        same = [one for one in after if one.applied and (one.kind, one.what) == (event.kind, event.what)]
        assert (event.kind == "pass" and not same) or all(one.where != event.where for one in same), option
    assert kinds == {"pass", "rewrite", "kernel", "fuse"}


def test_what_runs_where_all_else_is_refused_has_no_option() -> None:
    b = GraphBuilder()
    graph = b.finish(b.op("Exp", b.input("x", (4, 6)), name="exp"))
    _, trace = run(graph)
    rows = {event.what: DecisionOptions.here().of(event, True) for event in trace if event.kind == "kernel"}
    assert rows == {"any-nest": None}
