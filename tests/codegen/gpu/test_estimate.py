"""Occupancy and rooflines, beside figures that NVIDIA prints and by what has to hold for any kernel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewise.codegen.gpu.device import DEVICES, device_named
from fusewise.codegen.gpu.estimate import launch_estimate, occupancy, operations_per_second, waves

KIB = 1 << 10


@pytest.mark.parametrize(
    "name, registers, shared_bytes, threads, blocks, limit",
    [
        ("sm_80", 32, 0, 256, 8, "threads"),
        ("sm_80", 255, 0, 256, 1, "registers"),  # 8 warps of 8,192 registers are all there are
        ("sm_80", 128, 0, 128, 4, "registers"),
        ("sm_80", 33, 0, 128, 12, "registers"),  # 1,280 a warp: 12 warps fit a part of 16,384, and 13 do not
        ("sm_80", 16, 40 * KIB, 128, 4, "shared memory"),  # 164 KiB hold 41 KiB four times
        ("sm_90", 16, 227 * KIB, 128, 1, "shared memory"),
        ("sm_90", 16, 228 * KIB, 128, 0, "shared memory"),
        ("sm_86", 16, 0, 32, 16, "blocks"),
        ("sm_89", 16, 0, 32, 24, "blocks"),
        ("sm_90", 16, 0, 32, 32, "blocks"),
        ("sm_86", 16, 0, 1024, 1, "threads"),
    ],
)
def test_blocks_on_a_multiprocessor(name, registers, shared_bytes, threads, blocks, limit) -> None:
    found = occupancy(device_named(name), registers=registers, shared_bytes=shared_bytes, threads=threads)
    assert (found.blocks, found.limit) == (blocks, limit)
    assert found.share == blocks * threads / device_named(name).threads_per_sm


@given(
    st.sampled_from(DEVICES),
    st.integers(1, 255),
    st.integers(0, 228 * KIB),
    st.sampled_from([32, 64, 128, 256, 512, 1024]),
)
def test_what_is_held_fits(device, registers, shared_bytes, threads) -> None:
    found = occupancy(device, registers=registers, shared_bytes=shared_bytes, threads=threads)
    assert 0 <= found.share <= 1
    assert found.blocks * threads * registers <= device.registers_per_sm
    assert found.blocks * shared_bytes <= device.shared_per_sm
    more = occupancy(device, registers=min(255, registers + 8), shared_bytes=shared_bytes + KIB, threads=threads)
    assert more.blocks <= found.blocks


def test_few_blocks_and_last_waves_cost() -> None:
    device = device_named("sm_90")
    full = launch_estimate(device, (132,), 10**8, 10**9)
    assert launch_estimate(device, (66,), 10**8, 10**9).memory_us == pytest.approx(2 * full.memory_us)
    assert launch_estimate(device, (66,), 10**8, 10**9).arithmetic_us == pytest.approx(2 * full.arithmetic_us)
    assert launch_estimate(device, (12, 11, 1), 10**8, 10**9) == full
    one_more = launch_estimate(device, (133,), 10**8, 10**9)
    assert one_more.memory_us == full.memory_us
    assert one_more.arithmetic_us == pytest.approx(full.arithmetic_us * 2 * 132 / 133)
    assert waves(device, (133, 4), 2) == 133 * 4 / 264


def test_what_a_launch_takes_longest_for() -> None:
    device = device_named("sm_90")
    assert launch_estimate(device, (132,), 1000, 1000).limit == "launch"
    assert launch_estimate(device, (132,), 10**9, 1000).limit == "memory"
    waiting = launch_estimate(device, (132,), 10**9, 1000, wait_us=1e4)
    assert (waiting.limit, waiting.us) == ("waiting", device.launch_us + 1e4)
    product = launch_estimate(device, (132,), 10**6, 10**12, operations_per_second(device, "float16"))
    assert product.limit == "arithmetic"
    assert product.us == pytest.approx(3 + 1e12 / 989.4e12 * 1e6)


def test_precisions_have_their_rates() -> None:
    device = device_named("sm_90")
    rates = [operations_per_second(device, each) for each in ("exact", "float32", "tf32", "bfloat16")]
    assert rates == pytest.approx([66.9e12, 494.7e12 / 3, 494.7e12, 989.4e12])
    with pytest.raises(KeyError):
        operations_per_second(device, "float8")
