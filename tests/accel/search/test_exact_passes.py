"""The bounds by which the exact search prunes groups that are priced as they run."""

from __future__ import annotations

import random
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.accel.optimum import optimum
from tests.accel.pinned import pinned, random_group
from tests.accel.simulate.small import SHAPES, small

from fusewise.accel.bits import bits_of, is_connected
from fusewise.accel.network import Network, network_of, prepare
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.search.exact import exact_search
from fusewise.accel.search.exact_passes import PassGrowth
from fusewise.zoo.catalogue import build

SCHEME = BRR(accounting="executed")


def check_growth(problem: Problem, group: int) -> None:
    """Need and traffic of the group, and of all that it grows from, are no more than the scheme's; the need only grows, and what is
    moved more than once is so in all that it grows to."""
    network, capacity = problem.network, problem.capacity
    growth, needs, twice = PassGrowth(problem, SCHEME), [0], 0
    for node in bits_of(group):
        growth.push(node)
        needs.append(growth.need)
        twice = max(twice, growth.excess)
        part = growth.group
        if is_connected(network.neighbours, part) and SCHEME.refusal(network, part) is None:
            assert 2 * growth.need <= SCHEME.buffer_bytes(network, part)
            assert 2 * growth.least <= 2 * growth.traffic <= SCHEME.dram_bytes(network, part, capacity)
            several = part & (part - 1) != 0
            assert 2 * (growth.least + twice * several) <= SCHEME.dram_bytes(network, part, capacity)
    assert needs == sorted(needs)
    for node in reversed(list(bits_of(group))):
        assert growth.need == needs.pop()
        growth.pop(node)
    assert (growth.need, growth.traffic, growth.group) == (0, 0, 0)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(
        (
            "mobilenet_v2",
            "resnet50",
            "squeezenet1_1",
            "efficientnet_b0",
            "inception_v3",
            "deeplabv3_mobilenet_v3_large",
        )
    ),
    st.sampled_from((64, 128, 512, 2048, 4096)),
    st.sampled_from((6, 16, 40)),
    st.integers(0, 1 << 30),
)
def test_never_above_the_scheme(name: str, kib: int, most: int, seed: int) -> None:
    network = pinned(name)
    check_growth(Problem(network, SCHEME, kib << 10), random_group(network, random.Random(seed), most))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(SHAPES)), st.sampled_from((300, 1000, 2000, 6000)), st.integers(0, 1 << 30))
def test_never_above_the_scheme_on_small_maps(name: str, capacity: int, seed: int) -> None:
    """Where windows are as large as maps, and maps grow."""
    network = small(name)[1]
    check_growth(Problem(network, SCHEME, capacity), random_group(network, random.Random(seed), 12))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from((64, 256, 1024, 2048)), st.sampled_from((6, 16)), st.integers(0, 1 << 30))
def test_never_above_the_scheme_around_a_resize(kib: int, most: int, seed: int) -> None:
    """Dilated branches side by side, one of them stretched from a pixel, and a map that grows at the end."""
    network = pinned("deeplabv3_mobilenet_v3_large")
    resize = next(v for v, operator in enumerate(network.operators) if operator.form.kind == "resize")
    tail = sum(1 << v for v in range(resize - 20, len(network)))
    check_growth(Problem(network, SCHEME, kib << 10), random_group(network, random.Random(seed), most, tail))


@cache
def dense() -> Network:
    """Every layer reads all before it, through a normalisation with weights of its own."""
    return network_of(prepare(build("densenet121")))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from((64, 128, 512, 2048)), st.sampled_from((6, 16, 40)), st.integers(0, 1 << 30))
def test_never_above_the_scheme_where_layers_read_all_before_them(kib: int, most: int, seed: int) -> None:
    check_growth(Problem(dense(), SCHEME, kib << 10), random_group(dense(), random.Random(seed), most))


def test_proves_a_dense_network() -> None:
    """Takes 7,000 groups; 45,000 without knowing what must be whole and what is loaded again."""
    found = exact_search(GroupCosts(Problem(dense(), SCHEME, 128 << 10)), steps=15_000)
    assert found.optimal, found.notes


def test_counts_depth_as_the_scheme_does() -> None:
    """Two convolutions on one map, one of them behind an activation that starts the group, are in the same phase."""
    network = pinned("resnet50")
    joins = [v for v, operator in enumerate(network.operators) if operator.op == "Add"]
    before = network.ancestors[joins[0]] | 1 << joins[0]
    for first in bits_of(before):
        group = sum(1 << v for v in bits_of(before) if v >= first)
        check_growth(Problem(network, SCHEME, 128 << 10), group)


def test_proves_a_network_with_a_resize() -> None:
    costs = GroupCosts(Problem(pinned("deeplabv3_mobilenet_v3_large"), SCHEME, 256 << 10))
    found = exact_search(costs)
    assert found.optimal and found.cost == costs.total(found.groups)
    assert all(map(costs.fits, found.groups))


def test_proves_the_optimum() -> None:
    for name in SHAPES:
        costs = GroupCosts(Problem(small(name)[1], BRR(3, accounting="executed"), 2000))
        found = exact_search(costs)
        assert found.optimal and found.cost == optimum(costs)
