"""BRR: tiles by hand, what it refuses, and its relation to buffer size."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.accel.optimum import optimum
from tests.accel.pinned import pinned, random_group

from fusewise.accel.bits import bits_of, mask_of
from fusewise.accel.network import network_of
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.scheme import UNBOUNDED, weights_of
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Graph, Node, attributes_of
from fusewise.ir.types import TensorType

KIB = 1024
PUBLISHED = BRR(accounting="published")
"""The equations by hand; what running takes besides is held against its execution, see `tests.accel.simulate`."""


def test_two_convolutions_by_hand() -> None:
    """Conv 3, Relu, Conv 3 over 56 x 56 x 64: one row of the last needs three of the first, whole, and eight partial channels."""
    network, group = pinned("resnet18"), mask_of((3, 4, 5))
    held = 64 * 3 * 56 + 8 * 1 * 56
    need = 2 * (held + 3 * 3 * 64)
    assert PUBLISHED.buffer_bytes(network, group) == need == 23_552
    full, *others = PUBLISHED.tilings(network, group, 64 * KIB)
    per_row = 2 * (64 * 56 + 8 * 56)
    rows = (64 * KIB - need) // per_row + 1
    assert (full.full_first, full.rows, full.tiles) == (True, rows, -(-56 // rows))
    image, weights = 2 * 64 * 56 * 56, 2 * 2 * (36_864 + 64)
    # The first convolution, the Relu and the second read one image and write one; nothing outside reads the middle.
    assert full.dram_bytes == 2 * image + full.tiles * weights
    assert PUBLISHED.dram_bytes(network, group, 64 * KIB) == min(t.dram_bytes for t in (full, *others))


def test_weights_stay_when_there_is_room() -> None:
    network, group = pinned("resnet18"), mask_of((3, 4, 5))
    tiling = PUBLISHED.tilings(network, group, 1024 * KIB)[0]
    assert tiling.weights_once and tiling.tiles == 1


def test_one_operator_streams_its_input_or_its_weights() -> None:
    """The cheaper of reading weights for every tile and reading the input for every part of the filters."""
    network = pinned("resnet18")
    node = next(v for v, op in enumerate(network.operators) if op.form.weights == 512 * 512 * 9 + 512)
    weights, image = 2 * (512 * 512 * 9 + 512), 2 * 512 * 49
    capacity = 32 * KIB
    costs = {}
    for tiling in PUBLISHED.tilings(network, 1 << node, capacity):
        costs[tiling.full_first] = tiling.dram_bytes
    held = 2 * 512 * 7  # one row of all channels
    need = held + 2 * 512 * 9
    tiles = -(-7 // ((capacity - need) // held + 1))
    parts = -(-weights // (capacity - held))
    assert costs[True] == min(2 * image + tiles * weights, parts * image + image + weights)


def test_single_operators_always_run() -> None:
    problem = Problem(pinned("vgg16"), PUBLISHED, 2 * KIB)
    costs = GroupCosts(problem)
    assert problem.excluded == 0
    assert all(costs.fits(one) and costs.dram_bytes(one) < UNBOUNDED for one in problem.singletons())
    assert any(costs.buffer_bytes(one) > problem.capacity for one in problem.singletons())


def test_refusals() -> None:
    scheme, resnet, gated = PUBLISHED, pinned("resnet18"), pinned("efficientnet_b0")
    assert scheme.refusal(resnet, mask_of((2, 3))) == f"it starts with the pool {resnet.operators[2].name!r}"
    pool = next(v for v, op in enumerate(gated.operators) if op.form.kind == "global_pool")
    assert "whole map" in str(scheme.refusal(gated, mask_of((pool - 1, pool, pool + 1))))
    assert scheme.refusal(gated, mask_of((pool - 1, pool))) is None


def test_branches_must_shrink_alike() -> None:
    """A valid 3 x 3 convolution and a 2 x 2 pool both make 2 x 2 of 4 x 4, one by its border, one by its stride."""
    kinds = {"x": (1, 8, 4, 4), "a": (1, 8, 4, 4), "b": (1, 8, 2, 2), "c": (1, 8, 2, 2), "y": (1, 8, 2, 2)}
    weights = Constant(np.zeros((8, 8, 3, 3), np.float32))
    nodes = (
        Node("Relu", ("x",), ("a",)),
        Node("Conv", ("a", "w"), ("b",)),
        Node("MaxPool", ("a",), ("c",), attributes_of(kernel_shape=[2, 2], strides=[2, 2])),
        Node("Add", ("b", "c"), ("y",)),
    )
    types = {name: TensorType(FLOAT32, shape) for name, shape in kinds.items()} | {"w": weights.type}
    network, scheme = network_of(Graph(("x",), ("y",), nodes, types, {"w": weights})), PUBLISHED
    assert scheme.refusal(network, 0b1111) == "its branches shrink the image by different factors"
    assert scheme.buffer_bytes(network, 0b1111) == scheme.dram_bytes(network, 0b1111, 1 << 30) == UNBOUNDED
    assert scheme.refusal(network, 0b0111) is None


@pytest.mark.parametrize("name", ["resnet18", pytest.param("mobilenet_v2", marks=pytest.mark.slow)])
def test_optimum_lies_between_its_bounds(name: str) -> None:
    """No fusion above, weights and the network's own inputs and outputs below."""
    problem = Problem(pinned(name), PUBLISHED, 128 * KIB)
    costs = GroupCosts(problem)
    network = problem.network
    best = optimum(costs)
    floor = 2 * (weights_of(network, network.everything) + 3 * 224 * 224 + 1000)
    assert floor < best < 0.75 * costs.total(problem.singletons())
    more = optimum(GroupCosts(Problem(network, BRR(partial_channels=32, accounting="published"), 128 * KIB)))
    assert best < more


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(("mobilenet_v2", "resnet50", "squeezenet1_1", "vgg16")), st.integers(0, 1 << 30))
def test_more_buffer_never_costs_more(name: str, seed: int) -> None:
    network, scheme = pinned(name), PUBLISHED
    group = random_group(network, random.Random(seed), 10)
    costs = [scheme.dram_bytes(network, group, kib * KIB) for kib in (64, 128, 256, 512, 4096, 1 << 20)]
    assert costs == sorted(costs, reverse=True)
    assert (costs[-1] == UNBOUNDED) == (scheme.refusal(network, group) is not None)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(("mobilenet_v2", "resnet50", "squeezenet1_1")), st.integers(0, 1 << 30))
def test_rows_and_tiles_cover_the_result(name: str, seed: int) -> None:
    network, scheme = pinned(name), PUBLISHED
    group = random_group(network, random.Random(seed), 10)
    tallest = max(network.tensors[network.operators[v].writes[0]].height for v in bits_of(group))
    for tiling in scheme.tilings(network, group, 256 * KIB):
        assert 1 <= tiling.rows <= tallest
        assert (tiling.tiles - 1) * tiling.rows < tallest
        assert tiling.buffer_bytes >= scheme.buffer_bytes(network, group)
