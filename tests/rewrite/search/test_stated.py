"""What exporters leave out is written out, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewrite.search.modules import agree

from fusewise.ops.build import GraphBuilder
from fusewise.rewrite.search.stated import stated

RNG = np.random.default_rng(0)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]),
    st.lists(st.integers(1, 4), min_size=2, max_size=2),
    st.lists(st.integers(1, 3), min_size=2, max_size=2),
    st.lists(st.integers(7, 9), min_size=2, max_size=2),
    st.booleans(),
)
def test_a_convolution_states_every_attribute(
    mode: str, kernel: list[int], steps: list[int], size: list[int], dilated: bool
) -> None:
    build = GraphBuilder("stated")
    x = build.input("x", (1, 2, *size))
    weights = build.constant(RNG.standard_normal((3, 2, *kernel)).astype(np.float32))
    apart = {"dilations": [2, 1]} if dilated and mode in ("NOTSET", "VALID") else {}
    graph = build.finish(build.op("Conv", x, weights, auto_pad=mode, strides=steps, **apart))
    found = stated(graph)
    (node,) = found.nodes
    assert {name for name, _ in node.attributes} == {"kernel_shape", "strides", "dilations", "pads", "group"}
    agree(graph, found)
    assert stated(found) is found


@pytest.mark.parametrize("count, op", [(1, "Sum"), (2, "Add"), (3, "Sum")])
def test_a_sum_of_two_is_an_add(count: int, op: str) -> None:
    build = GraphBuilder("sum")
    x = build.input("x", (2, 3))
    parts = [build.constant(RNG.standard_normal((2, 3)).astype(np.float32)) for _ in range(count - 1)]
    graph = build.finish(build.op("Sum", x, *parts))
    found = stated(graph)
    assert [node.op for node in found.nodes] == [op]
    agree(graph, found)
