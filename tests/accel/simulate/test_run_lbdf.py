"""LBDF as it runs: the buffer it takes, the traffic it causes and the values it gives are what equations and ONNX say."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.accel.pinned import NAMES, pinned, pinned_graph, random_group
from tests.accel.simulate.small import SHAPES, outside, small

from fusewise.accel.bits import bits_of, mask_of
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.simulate.lbdf import run_lbdf
from fusewise.accel.simulate.schedule import schedule_of, spans


def check(name: str, group: int) -> None:
    """Run a group in line buffers of the sizes that the equations give."""
    graph, network, maps = small(name)
    scheme = LBDF()
    sizes = {line.tensor: line.live for line in scheme.lines(network, group)}
    needed = spans(network, group, schedule_of(graph, network, group))
    # aligned corners make the pace of a Resize drift within the map; the equation takes the most it looks ahead, and back, apart
    assert sizes == needed if name != "aligned" else all(sizes[t] >= needed[t] for t in needed)
    found = run_lbdf(graph, network, group, {t: maps[t] for t in outside(network, group)}, sizes)
    assert 2 * found.buffer == scheme.buffer_bytes(network, group)
    assert 2 * (found.read + found.written) == scheme.dram_bytes(network, group)
    made = {t for v in bits_of(group) for t in network.operators[v].writes}
    leaving = {t for t in made if network.tensors[t].is_output or network.tensors[t].consumers & ~group}
    assert set(found.outputs) == leaving
    for t, image in found.outputs.items():
        np.testing.assert_allclose(image, maps[t], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SHAPES)
def test_whole_networks(name: str) -> None:
    check(name, small(name)[1].everything)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(SHAPES)), st.integers(0, 1 << 30))
def test_parts_of_networks(name: str, seed: int) -> None:
    check(name, random_group(small(name)[1], random.Random(seed)))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted({*NAMES, "inception_v3"} - {"deeplabv3_mobilenet_v3_large"})), st.integers(0, 1 << 30))
def test_line_buffers_of_large_networks(name: str, seed: int) -> None:
    network = pinned(name, bilinear_ahead=None)
    group = random_group(network, random.Random(seed), 12)
    if LBDF().refusal(network, group) is None:
        lines = {line.tensor: line.live for line in LBDF().lines(network, group)}
        assert lines == spans(network, group, schedule_of(pinned_graph(name), network, group))


def test_smaller_buffers_do_not_do() -> None:
    graph, network, maps = small("shortcut")
    group = network.everything
    for line in LBDF().lines(network, group):
        sizes = {one.tensor: one.live - (one is line) for one in LBDF().lines(network, group)}
        sizes[line.tensor] = line.live - 1
        if line.live > 1:
            with pytest.raises(AssertionError, match="is not held"):
                run_lbdf(graph, network, group, {t: maps[t] for t in outside(network, group)}, sizes)


def test_the_simpler_form_rounds_up() -> None:
    """At a strided shortcut, a part of a row is counted beside the whole rows that wait."""
    network = pinned("resnet18")
    block = mask_of(range(12, 21))
    exact, ceiling = (LBDF(waiting=w).buffer_bytes(network, block) for w in ("exact", "ceiling"))
    assert exact < ceiling
