"""BRR as it runs: the buffer it takes, the traffic it causes and the values it gives are what equations and ONNX say."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.accel.pinned import random_group
from tests.accel.simulate.small import SHAPES, outside, small

from fusewise.accel.schemes.brr import BRR, BrrTiling, frame_of
from fusewise.accel.schemes.tiles import leaving
from fusewise.accel.simulate.brr import TileExecution, run_brr

SCHEME = BRR(partial_channels=3, accounting="executed")


def execute(name: str, group: int, tiling: BrrTiling, scheme: BRR = SCHEME) -> TileExecution:
    graph, network, maps = small(name)
    found = run_brr(graph, network, group, {t: maps[t] for t in outside(network, group)}, scheme, tiling)
    assert set(found.outputs) == set(leaving(network, group))
    for t, image in found.outputs.items():
        np.testing.assert_allclose(image, maps[t], rtol=1e-4, atol=1e-4)
    return found


def check(name: str, group: int, capacity: int, scheme: BRR = SCHEME) -> int:
    """Run a group in every way that the scheme says it can."""
    network = small(name)[1]
    if scheme.refusal(network, group) is not None:
        return 0
    ways = scheme.tilings(network, group, capacity)
    for tiling in ways:
        found = execute(name, group, tiling, scheme)
        assert 2 * (found.read + found.written) == tiling.dram_bytes, tiling
        assert 2 * found.buffer <= capacity or group & (group - 1) == 0
        low = BrrTiling(tiling.full_first, 1, frame_of(network, group).height, False, 0, 0)
        assert 2 * execute(name, group, low, scheme).buffer == tiling.buffer_bytes
    return len(ways)


@pytest.mark.parametrize("name", SHAPES)
def test_whole_networks(name: str) -> None:
    network = small(name)[1]
    if SCHEME.refusal(network, network.everything) is None:
        need = SCHEME.buffer_bytes(network, network.everything)
        assert check(name, network.everything, need + 1)
        assert check(name, network.everything, need + need // 2)
        assert check(name, network.everything, 1 << 20)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(SHAPES)), st.integers(0, 1 << 30), st.floats(1, 2), st.integers(1, 12))
def test_parts_of_networks(name: str, seed: int, room: float, channels: int) -> None:
    network, scheme = small(name)[1], BRR(channels, accounting="executed")
    group = random_group(network, random.Random(seed), 8)
    if scheme.refusal(network, group) is None:
        assert check(name, group, int(scheme.buffer_bytes(network, group) * room) + 1, scheme)
