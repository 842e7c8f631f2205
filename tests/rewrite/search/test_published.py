"""The published example: which steps lead to the published end, on which machine, and from which alpha on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewrite.search.modules import agree, conv, cost_on, published_module

from fusewise.fusion.plan import plan
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.rewrite.cost import MACHINES, machine_named
from fusewise.rewrite.engine import drafts_of
from fusewise.rewrite.rules.parts import PARTS
from fusewise.rewrite.rules.table import SUBSTITUTIONS, rule_named
from fusewise.rewrite.search.backtracking import backtrack
from fusewise.rewrite.search.found import Found
from fusewise.rewrite.search.relaxed import search
from fusewise.rewrite.substitute import carried_out, folded
from fusewise.trace import Trace

STEPS = ["enlarge-kernel", "merge-parallel-convolutions", "second-part-into-convolution-of-first"]
END = ["Conv", "Conv", "Relu"]
CUDNN, H100 = machine_named("cudnn"), machine_named("cudnn-h100")

Engine = Callable[..., Found]


def ends_as_published(found: Found) -> bool:
    return [node.op for node in found.graph.nodes] == END


def test_the_steps_are_the_published_ones() -> None:
    """The 1x1 kernel grows, the parallel convolutions become one and a Split, the second takes in Split and Add, and the Relu
    goes with it."""
    graph, cost = published_module(), cost_on(H100)
    found = backtrack(graph, SUBSTITUTIONS, cost, alpha=1.05)
    assert [step.rule for step in found.steps] == STEPS
    assert ends_as_published(found)
    first, second, third = found.steps
    assert first.cost_after > first.cost_before, "a 3x3 kernel alone costs more than a 1x1"
    assert first.cost_before > second.cost_after > third.cost_after
    wide, narrow = (node for node in found.graph.nodes if node.op == "Conv")
    weights = [found.graph.constants[node.inputs[1]].type.dims for node in (wide, narrow)]
    assert weights == [(128, 64, 3, 3), (64, 128, 3, 3)]
    assert [len(group.nodes) for group in plan(found.graph, Trace()).partition.groups] == [1, 2]
    agree(graph, found.graph)


def test_a_module_with_a_relu_inside_ends_so_too() -> None:
    graph, cost = published_module(rectified=True), cost_on(H100)
    found = backtrack(graph, SUBSTITUTIONS, cost, alpha=1.05)
    assert [step.rule for step in found.steps] == [*STEPS[:2], "second-part-into-convolution-of-rectified-first"]
    assert [node.op for node in found.graph.nodes] == ["Conv", "PRelu", "Conv", "Relu"]
    assert found.cost < min(step.cost_after for step in found.steps[:2])
    agree(graph, found.graph)


@pytest.mark.parametrize("machine, channels", [("cudnn", 8), ("cudnn", 32), ("cudnn-h100", 64), ("cudnn-h100", 256)])
def test_backtracking_needs_an_alpha_that_lets_the_kernel_grow(machine: str, channels: int) -> None:
    """Nothing else goes up: what the first step costs is what alpha must allow, and no less."""
    graph, cost = published_module(channels), cost_on(machine_named(machine))
    rule = rule_named("enlarge-kernel")
    assert rule is not None
    (grown,) = (carried_out(graph, [folded(draft)]) for draft in drafts_of(graph, [rule]))
    least = cost(grown) / cost(graph)
    assert not backtrack(graph, SUBSTITUTIONS, cost, alpha=least * 0.9999).steps
    assert ends_as_published(backtrack(graph, SUBSTITUTIONS, cost, alpha=least * 1.0001))


@pytest.mark.parametrize("channels", [8, 64, 256])
def test_the_relaxed_search_must_also_look_past_a_nearer_graph(channels: int) -> None:
    """Of the grown kernel two graphs come: the cheaper one joins images and leads nowhere, and the published way must cost less
    than alpha times that."""
    graph, cost = published_module(channels), cost_on(H100)
    published = backtrack(graph, SUBSTITUTIONS, cost, alpha=1.1)
    grown, merged = (step.cost_after for step in published.steps[:2])
    near = search(graph, SUBSTITUTIONS, cost, alpha=grown / published.cost_before + 1e-6)
    assert [step.rule for step in near.steps] == ["enlarge-kernel", "sum-of-convolutions"]
    least = merged / near.cost
    assert not ends_as_published(search(graph, SUBSTITUTIONS, cost, alpha=least - 1e-4))
    found = search(graph, SUBSTITUTIONS, cost, alpha=least + 1e-4)
    assert ends_as_published(found)
    assert found.cost == pytest.approx(published.cost)


@pytest.mark.parametrize("engine", [search, backtrack])
def test_on_a_narrow_machine_the_zeros_cost_what_they_cost(engine: Engine) -> None:
    machine = replace(CUDNN, width=1, start_us=0.0)
    assert not ends_as_published(engine(published_module(), SUBSTITUTIONS, cost_on(machine), alpha=1.6))


@pytest.mark.parametrize("engine", [search, backtrack])
def test_greedy_finds_nothing(engine: Engine) -> None:
    for machine in MACHINES:
        assert not engine(published_module(), SUBSTITUTIONS, cost_on(machine), alpha=1.0).steps


def split_and_added(part: int, sizes: list[int], kernel: int, swapped: bool, rectified: bool) -> Graph:
    """An image cut in two, one part convolved to as many channels as the other has, and both added."""
    build = GraphBuilder("parts")
    x = build.input("x", (2, sum(sizes), 5, 4))
    names = build.op("Split", x, build.constant(np.array(sizes, np.int64), "sizes"), outputs=2, axis=1)
    read = build.op("Relu", names[part]) if rectified else names[part]
    made = conv(build, read, sizes[part], sizes[1 - part], kernel, "c")
    pair = (names[1 - part], made) if swapped else (made, names[1 - part])
    return build.finish(build.op("Relu", build.op("Add", *pair)))


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([0, 1]),
    st.lists(st.integers(1, 5), min_size=2, max_size=2),
    st.sampled_from([1, 3, 5]),
    st.booleans(),
    st.booleans(),
)
def test_either_part_goes_into_the_convolution_of_the_other(
    part: int, sizes: list[int], kernel: int, swapped: bool, rectified: bool
) -> None:
    graph = split_and_added(part, sizes, kernel, swapped, rectified)
    (draft,) = drafts_of(graph, PARTS)
    after = carried_out(graph, [folded(draft)])
    assert [node.op for node in after.nodes] == [*(["PRelu"] if rectified else []), "Conv", "Relu"]
    agree(graph, after)
