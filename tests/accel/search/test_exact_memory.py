"""What is remembered of a group, operator by operator, leads to what the scheme says of the whole."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.accel.integer_programme import every_group
from tests.accel.pinned import NAMES, pinned, random_group
from tests.accel.search.test_exact import random_graphs

from fusewise.accel.bits import is_connected
from fusewise.accel.network import network_of
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.search.exact_memory import Known, MemorySteps
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Graph, Node, attributes_of
from fusewise.ir.types import TensorType

SCHEMES = (LBDF(), LBDF("row"), LBDF(excluded_traffic=False, network_io=False), LBDF(bits=8), LBDF(waiting="ceiling"))


def problem_of(graph: Graph, scheme: LBDF, share: float) -> Problem:
    """With a buffer of so many times what the most demanding operator, or all at once, take."""
    network = network_of(graph)
    needs = [
        scheme.buffer_bytes(network, group) for group in (*(1 << v for v in range(len(network))), network.everything)
    ]
    return Problem(network, scheme, max(1, int(share * max(need for need in needs if need < 1 << 60))))


def by_steps(memory: MemorySteps, group: int) -> tuple[int, int] | None:
    """Bytes that a group needs and moves; None when it is left and entered again."""
    known: dict[int, Known] = {}
    need = moved = 0
    for node in range(len(memory.problem.network)):
        around = memory.around[node]
        these = {t: known[t] for t in around if t in known}
        step = memory.taken_in(node, these) if group >> node & 1 else memory.left_out(node, these)
        if step is None:
            return None
        assert step.need >= 0 and step.moved >= 0
        need, moved = need + step.need, moved + step.moved
        for t, at in zip(around, step.known, strict=True):
            known.pop(t, None)
            if at is not None:
                known[t] = at
    assert not known
    return need * memory.scheme.bits // 8, moved * memory.scheme.bits // 8


def by_scheme(problem: Problem, group: int) -> tuple[int, int]:
    network, scheme = problem.network, problem.scheme
    return scheme.buffer_bytes(network, group), scheme.dram_bytes(network, group, problem.capacity, problem.excluded)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_needs_and_moves_of_random_groups(name: str, scheme: LBDF) -> None:
    problem, rng = Problem(pinned(name), scheme, 256 << 10), random.Random(1)
    memory = MemorySteps(problem, scheme)
    groups = [group for _ in range(100) if not (group := random_group(problem.network, rng)) & problem.excluded]
    assert len(groups) > 5
    for group in groups:
        assert by_steps(memory, group) == by_scheme(problem, group)


@settings(max_examples=60, deadline=None)
@given(random_graphs(), st.sampled_from(SCHEMES), st.floats(0.2, 1.2))
def test_needs_and_moves_of_every_group_that_fits(graph: Graph, scheme: LBDF, share: float) -> None:
    problem = problem_of(graph, scheme, share)
    memory = MemorySteps(problem, scheme)
    for group in every_group(GroupCosts(problem)):
        assert by_steps(memory, group) == by_scheme(problem, group)


def split_graph() -> Graph:
    """What is read is split into two, which go ways of different length, beside a third from before the split."""
    types = {"x": TensorType(FLOAT32, (1, 8, 12, 12))}
    constants: dict[str, Constant] = {}
    nodes: list[Node] = []

    def conv(source: str, out: str, size: int, stride: int = 1) -> str:
        _, channels, height, width = types[source].shape
        weight = f"{out}.w"
        constants[weight] = Constant(np.broadcast_to(np.float32(0), (4, channels, size, size)))
        types[weight] = constants[weight].type
        types[out] = TensorType(FLOAT32, (1, 4, height // stride, width // stride))
        attributes = attributes_of(kernel_shape=(size, size), pads=(size // 2,) * 4, strides=(stride, stride))
        nodes.append(Node("Conv", (source, weight), (out,), attributes, name=out))
        return out

    nodes.append(Node("Split", ("x",), ("a", "b"), attributes_of(axis=1, num_outputs=2), name="split"))
    types["a"] = types["b"] = TensorType(FLOAT32, (1, 4, 12, 12))
    joined = "b"
    for k, other in enumerate((conv(conv("a", "c", 5), "d", 3), conv("x", "e", 1), conv("b", "f", 3))):
        types[f"s{k}"] = types["a"]
        nodes.append(Node("Add", (joined, other), (f"s{k}",), name=f"s{k}"))
        joined = f"s{k}"
    conv(joined, "out", 3, 2)
    return Graph(("x",), ("out",), tuple(nodes), types, constants, "split")


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_tensors_that_come_together_are_delayed_together(scheme: LBDF) -> None:
    problem = problem_of(split_graph(), scheme, 1.2)
    groups = every_group(GroupCosts(problem))
    assert len(groups) > 60
    for group in groups:
        assert by_steps(MemorySteps(problem, scheme), group) == by_scheme(problem, group)


@settings(max_examples=60, deadline=None)
@given(random_graphs(), st.integers(1, 2**9 - 1))
def test_a_group_that_is_left_and_entered_again_has_no_steps(graph: Graph, group: int) -> None:
    problem = problem_of(graph, LBDF(), 1.2)
    group &= problem.fuseable
    if is_connected(problem.network.neighbours, group):
        steps = by_steps(MemorySteps(problem, LBDF()), group)
        assert (steps is not None) == problem.network.is_convex(group)
