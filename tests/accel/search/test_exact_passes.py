"""The bounds by which the exact search prunes groups that are priced as they run."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.accel.optimum import optimum
from tests.accel.pinned import pinned, random_group
from tests.accel.simulate.small import SHAPES, small

from fusewise.accel.bits import bits_of
from fusewise.accel.problem import Costs, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.search.exact import exact_search
from fusewise.accel.search.exact_passes import PassGrowth

SCHEME = BRR(accounting="executed")


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(("mobilenet_v2", "resnet50", "squeezenet1_1", "efficientnet_b0", "inception_v3")),
    st.sampled_from((64, 128, 512, 2048, 4096)),
    st.sampled_from((6, 16, 40)),
    st.integers(0, 1 << 30),
)
def test_never_above_the_scheme(name: str, kib: int, most: int, seed: int) -> None:
    network = pinned(name)
    problem, group = Problem(network, SCHEME, kib << 10), random_group(network, random.Random(seed), most)
    if SCHEME.refusal(network, group) is not None:
        return
    growth, needs = PassGrowth(problem, SCHEME), [0]
    for node in bits_of(group):
        growth.push(node)
        needs.append(growth.need)
    assert needs == sorted(needs)
    assert 2 * growth.need <= SCHEME.buffer_bytes(network, group)
    assert 2 * growth.least <= 2 * growth.traffic <= SCHEME.dram_bytes(network, group, kib << 10)
    for node in reversed(list(bits_of(group))):
        assert growth.need == needs.pop()
        growth.pop(node)
    assert (growth.need, growth.traffic, growth.group) == (0, 0, 0)


def test_proves_the_optimum() -> None:
    for name in SHAPES:
        costs = Costs(Problem(small(name)[1], BRR(3, accounting="executed"), 2000))
        found = exact_search(costs)
        assert found.optimal and found.cost == optimum(costs)
