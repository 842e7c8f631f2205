"""Groups timed on a simulated GPU, and kept apart from those of processors and of other GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.gpu.kernels import needs_triton

from fusewise.ops.build import GraphBuilder
from fusewise.runtime.gpu.compile import TritonCompiler
from fusewise.runtime.gpu.driver import DeviceLost
from fusewise.runtime.gpu.fake import FakeDriver
from fusewise.runtime.gpu.measure import GpuProfile, GpuTimer, gpu_name
from fusewise.runtime.measure import group_key, profiled
from fusewise.runtime.profile import ProfileDatabase


def graph():
    b = GraphBuilder()
    x = b.input("x", (4, 8))
    return b.finish(b.op("Relu", b.op("MatMul", x, b.constant([[0.5] * 3] * 8))), b.op("NonZero", x))


def test_a_device_is_its_product_and_not_its_number():
    assert gpu_name("NVIDIA H100 (GPU 0)") == gpu_name("NVIDIA H100 (GPU 3)") == "NVIDIA H100"
    assert gpu_name("NVIDIA GH200 480GB (GPU 0)") == "NVIDIA GH200 480GB"


def test_keys_tell_devices_precisions_and_processors_apart(tmp_path: Path):
    database, small = ProfileDatabase(tmp_path, "here"), graph()
    h100, other = (GpuProfile(database, f"NVIDIA {name} (GPU 0)") for name in ("H100", "H200"))
    precisions = [GpuProfile(database, h100.device, "tf32"), GpuProfile(database, h100.device, exact=True)]
    keys = [one.key(small, (0, 1)) for one in (h100, other, *precisions)]
    assert len({*keys, group_key(small, (0, 1), 1)}) == 5
    database.record(h100.key(small, (0, 1)), [3000.0])
    assert h100.known(small, (0, 1)) == 3000.0
    assert other.known(small, (0, 1)) is None and profiled(database, 1)(small, (0, 1)) is None


@needs_triton
def test_a_group_is_timed_by_the_device_and_kept(tmp_path: Path):
    small = graph()
    driver = FakeDriver("sm_90", 1 << 24, takes=lambda kernel: 4.0)
    profile = GpuProfile(ProfileDatabase(tmp_path, "here"), driver.name)
    host = next(number for number, node in enumerate(small.nodes) if node.op == "NonZero")
    together = tuple(number for number in range(len(small.nodes)) if number != host)
    with TritonCompiler() as compiler:
        timer = GpuTimer(profile, driver, compiler, repeats=2)
        found = timer.measurement(small, together)
        assert (found.what, found.median_ns, found.count) == ("MatMul+Relu", pytest.approx(4000.0), 7)
        launches = driver.launches
        assert timer.measurement(small, together) == found
        assert driver.launches == launches, "known"
        failed = timer.measurement(small, (host,))
        assert failed.median_ns is None and failed.failure
        driver.lost_after = driver.launches
        with pytest.raises(DeviceLost):
            timer.measurement(small, together[:1])
        assert profile.known(small, together[:1]) is None, "a lost device says nothing of a group"
    assert driver.allocations == 0
