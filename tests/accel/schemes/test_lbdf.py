"""LBDF: worked examples to the byte, proven optima on pinned graphs, and the equations written down literally."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.accel.literal import buffer_elements, moved_elements
from tests.accel.optimum import optimum
from tests.accel.pinned import NAMES, OPTIMA, pinned, random_group

from fusewise.accel.bits import bits_of, mask_of
from fusewise.accel.network import Network
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.lbdf import LBDF, lags

KIB = 1024
PUBLISHED = LBDF(waiting="ceiling")
"""What the pinned optima were proven with."""

RESNET_BLOCK = mask_of(range(3, 8))
"""Conv, Relu, Conv, Add, Relu of the first block; its input has 56 x 56 pixels and 64 channels."""

SLOW = {("efficientnet_b0", 1024), ("efficientnet_b0", 2048), ("efficientnet_b3", 1024), ("efficientnet_b3", 2048)} | {
    (name, 2048) for name in ("mobilenet_v2", "mobilenet_v3_large", "squeezenet1_1", "resnet152")
}


def named(network: Network, *names: str) -> int:
    numbers = {network.tensors[op.writes[0]].name: v for v, op in enumerate(network.operators)}
    return mask_of(numbers[name] for name in names)


def test_residual_block_of_resnet18() -> None:
    network, scheme = pinned("resnet18"), LBDF()
    assert [network.operators[v].op for v in bits_of(RESNET_BLOCK)] == ["Conv", "Relu", "Conv", "Add", "Relu"]
    assert scheme.buffer_bytes(network, RESNET_BLOCK) == 177_536
    assert scheme.dram_bytes(network, RESNET_BLOCK) == 950_528
    live = {network.tensors[line.tensor].name: line.live for line in scheme.lines(network, RESNET_BLOCK)}
    assert live == {"max_pool2d": 115, "getitem_3": 1, "relu_1": 115, "getitem_6": 1, "add": 1}
    assert LBDF("row").buffer_bytes(network, RESNET_BLOCK) == 212_224


def test_residual_block_in_parts() -> None:
    network, scheme = pinned("resnet18"), LBDF()
    first, second = mask_of((3, 4)), mask_of((5, 6, 7))
    assert [scheme.buffer_bytes(network, part) / KIB for part in (first, second)] == [86.625, 86.875]
    assert [scheme.dram_bytes(network, part) / KIB for part in (first, second)] == [856.125, 1248.125]
    assert sum(scheme.dram_bytes(network, 1 << v) for v in range(3, 8)) == 4456.25 * KIB


def test_inverted_residual_of_mobilenet_v2() -> None:
    network, scheme = pinned("mobilenet_v2"), LBDF()
    add = next(v for v, op in enumerate(network.operators) if op.op == "Add")
    block = mask_of(range(add - 5, add + 1))
    assert [network.operators[v].op for v in bits_of(block)] == ["Conv", "Clip", "Conv", "Clip", "Conv", "Add"]
    assert scheme.buffer_bytes(network, block) == 53_856
    assert scheme.dram_bytes(network, block) == 318_096


def test_squeeze_and_excite_of_efficientnet_b0() -> None:
    """The gate waits for the whole map; cut after the pool the need falls to a fiftieth."""
    network, scheme = pinned("efficientnet_b0"), LBDF()
    ops = [op.op for op in network.operators]
    start = next(v for v, op in enumerate(network.operators) if op.form.kind == "depthwise")
    block = list(range(start, start + 10))
    assert [ops[v] for v in block] == "Conv Sigmoid Mul ReduceMean Conv Sigmoid Mul Conv Sigmoid Mul".split()
    assert scheme.buffer_bytes(network, mask_of(block)) == 819_440
    assert scheme.buffer_bytes(network, mask_of(block[:4])) == 15_424
    assert ops[block[-1] + 1] == "Conv"
    assert scheme.buffer_bytes(network, mask_of((block[-1], block[-1] + 1))) == 1_248
    gated = next(line for line in scheme.lines(network, mask_of(block)) if line.live == 112 * 112)
    assert network.tensors[gated.tensor].pixels == 112 * 112


def table() -> list[object]:
    rows: list[object] = []
    for name in NAMES:
        for i, kib in enumerate(OPTIMA["buffers_kib"]):
            row = (name, kib, OPTIMA["optimum_kib"][name][i], OPTIMA["excluded_nodes"][name][i])
            rows.append(pytest.param(*row, marks=pytest.mark.slow if (name, kib) in SLOW else ()))
    return rows


@pytest.mark.parametrize("name, kib, kilobytes, excluded", table())
def test_proven_optimum(name: str, kib: int, kilobytes: float, excluded: int) -> None:
    problem = Problem(pinned(name), PUBLISHED, kib * KIB)
    assert problem.excluded.bit_count() == excluded
    assert abs(optimum(GroupCosts(problem)) / KIB - kilobytes) <= 0.051  # the table has one decimal


EIGHT_BITS = {
    "mobilenet_v2": (2076.5, 3),
    "squeezenet1_1": (1158.3, 1),
    "resnet18": (2738.4, 9),
    "resnet50": (14962.4, 29),
    "resnet152": (44277.4, 119),
    "vgg16": (10633.2, 12),
    "mobilenet_v3_large": (3995.1, 2),
    "efficientnet_b0": (7592.0, 3),
    "efficientnet_b3": (27408.2, 16),
    "deeplabv3_mobilenet_v3_large": (33019.6, 7),
}


@pytest.mark.parametrize("name", EIGHT_BITS)
def test_proven_optimum_at_eight_bits(name: str) -> None:
    problem = Problem(pinned(name), LBDF(bits=8, waiting="ceiling"), 256 * KIB)
    kilobytes, excluded = EIGHT_BITS[name]
    assert problem.excluded.bit_count() == excluded
    assert abs(optimum(GroupCosts(problem)) / KIB - kilobytes) <= 0.051


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from((*NAMES, "inception_v3")),
    st.integers(0, 1 << 30),
    st.booleans(),
    st.booleans(),
    st.sampled_from((None, 0, 1)),
)
def test_agrees_with_the_equations(name: str, seed: int, by_pixel: bool, exact: bool, ahead: int | None) -> None:
    network = pinned(name, bilinear_ahead=ahead)
    scheme = LBDF("pixel" if by_pixel else "row", waiting="exact" if exact else "ceiling")
    group = random_group(network, random.Random(seed), 24)
    members = set(bits_of(group))
    assert scheme.buffer_bytes(network, group) == 2 * buffer_elements(network, members, by_pixel, exact)
    assert scheme.dram_bytes(network, group) == 2 * moved_elements(network, members)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(("mobilenet_v2", "resnet50", "efficientnet_b0", "squeezenet1_1")), st.integers(0, 1 << 30))
def test_splitting_never_saves_traffic(name: str, seed: int) -> None:
    network, rng = pinned(name), random.Random(seed)
    group = random_group(network, rng, 16)
    members = list(bits_of(group))
    head = mask_of(members[: rng.randint(0, len(members))])
    parts = [part for part in (head, group & ~head) if part]
    scheme = LBDF()
    assert sum(scheme.dram_bytes(network, part) for part in parts) >= scheme.dram_bytes(network, group)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(("mobilenet_v2", "resnet50", "efficientnet_b3", "squeezenet1_1")), st.integers(0, 1 << 30))
@example("resnet50", 498863671)
def test_a_larger_group_needs_more(name: str, seed: int) -> None:
    """At pixel granularity a node more never needs less buffer (on networks without dilation and Resize), unless it delays others:
    what waited for them then waits less."""
    network = pinned(name)
    inner = random_group(network, random.Random(seed), 12)
    outer = inner
    for node in bits_of(network.everything & ~inner):
        grown = inner | 1 << node
        if network.neighbours[node] & inner and network.is_convex(grown):
            outer = grown
            break
    before, after = lags(network, inner), lags(network, outer)
    if all(old[v] == new[v] for old, new in zip(before, after, strict=True) for v in bits_of(inner)):
        assert LBDF().buffer_bytes(network, outer) >= LBDF().buffer_bytes(network, inner)


def test_what_traffic_counts() -> None:
    network = pinned("resnet18")
    first, last = 1, 1 << len(network) - 1
    image, classes = 2 * 3 * 224 * 224, 2 * 1000
    everything, inner = LBDF(), LBDF(network_io=False)
    assert everything.dram_bytes(network, first) - inner.dram_bytes(network, first) == image
    assert everything.dram_bytes(network, last) - inner.dram_bytes(network, last) == classes
    apart = LBDF(excluded_traffic=False)
    pool = 1 << 2  # reads the Relu alone; its result goes to the block's Conv and Add
    assert apart.dram_bytes(network, pool, 0, 0b10) == apart.dram_bytes(network, pool) - 2 * 64 * 112 * 112
    assert apart.dram_bytes(network, pool, 0, 1 << 3) == apart.dram_bytes(network, pool)
    assert apart.dram_bytes(network, pool, 0, 1 << 3 | 1 << 6) == apart.dram_bytes(network, pool) - 2 * 64 * 56 * 56
    assert everything.dram_bytes(network, pool, 0, 0b10) == everything.dram_bytes(network, pool)


def test_full_metric_of_published_buffers() -> None:
    """Headline plus what excluded operators move; falls as the buffer grows."""
    published = {"efficientnet_b3": (118.2, 82.5), "mobilenet_v2": (13.1, 10.2), "resnet152": (283.7, 258.6)}
    for name, figures in published.items():
        for kib, megabytes in zip((128, 256), figures, strict=True):
            problem = Problem(pinned(name), PUBLISHED, kib * KIB)
            full = optimum(GroupCosts(problem)) + problem.excluded_bytes
            assert abs(full / (1000 * KIB) - megabytes) <= 0.051
