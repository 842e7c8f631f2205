"""The simulated device: memory that is looked after, launches that are watched, a process that may end."""

import os
import signal

import ml_dtypes
import numpy as np
import pytest
from tests.runtime.gpu.kernels import needs_triton, pointwise, saxpy, total

from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.errors import FusewiseError
from fusewise.runtime.gpu.driver import (
    BrokenAccess,
    Cubin,
    DeviceLost,
    DeviceMemoryFull,
    Launch,
    LaunchRefused,
    Span,
    WrongArchitecture,
)
from fusewise.runtime.gpu.fake import FakeDriver
from fusewise.runtime.gpu.process import TritonStopped


def cubin(architecture: str) -> Cubin:
    return Cubin("saxpy", architecture, b"", 10, 0, 0, 0, 128, 3, 2)


def placed(device, *arrays) -> list[Span]:
    spans = []
    for array in arrays:
        spans.append(Span(device.allocate(array.nbytes), array.nbytes))
        device.copy_in(spans[-1].address, array)
    return spans


@pytest.fixture
def three(device):
    """Two operands and a result of 100 floats on the device, given back afterwards."""
    spans = placed(device, *(np.arange(100, dtype=np.float32) + k for k in range(3)))
    yield spans
    for one in spans:
        device.free(one.address)


def launch_of(device, kernel, spans, grid=None) -> Launch:
    return Launch(
        device.load(kernel, None),
        grid or kernel.grid,
        tuple(one.address for one in spans),
        (*spans[:-1],),
        (spans[-1],),
    )


def test_memory_is_aligned_apart_poisoned_and_found_again():
    driver = FakeDriver(nbytes=1 << 16)
    first, second = driver.allocate(1), driver.allocate(300)
    assert first % 256 == second % 256 == 0
    assert not driver.holds(first, second - first + 1)
    found = np.zeros(75, np.float32)
    driver.copy_out(found, second)
    assert np.isnan(found).all()
    driver.free(first)
    assert driver.allocate(200) == first
    with pytest.raises(LaunchRefused, match="could be given back"):
        driver.free(first + 8)
    with pytest.raises(BrokenAccess, match="lie in no allocation"):
        driver.copy_in(second, np.zeros(1000, np.float32))
    with pytest.raises(DeviceMemoryFull, match=r"100,000 bytes .* of 65,536 in all"):
        driver.allocate(100_000)
    driver.close()
    driver.close()
    with pytest.raises(DeviceLost):
        driver.allocate(1)


def test_code_for_another_architecture_is_refused():
    driver = FakeDriver("sm_86")
    driver.load(saxpy(100), cubin("sm_80"))
    with pytest.raises(WrongArchitecture, match=r"compiled for sm_90a .* compile the model for sm_86") as told:
        driver.load(saxpy(100), cubin("sm_90a"))
    assert told.value.exit_status == 2
    driver.close()


@needs_triton
def test_launches_by_hand(device, three):
    x, _, out = three
    device.launch(launch_of(device, saxpy(100), three))
    found = np.empty(100, np.float32)
    device.copy_out(found, out.address)
    np.testing.assert_array_equal(found, 2 * np.arange(100) + np.arange(100) + 1)
    device.launch(launch_of(device, total(100), [x, out]))
    device.copy_out(found, out.address)
    assert found[0] == 4950
    device.launch(launch_of(device, pointwise("sines", "x", "libdevice.asin(libdevice.sin(vx * 0.01))", 100), [x, out]))
    device.copy_out(found, out.address)
    np.testing.assert_allclose(found, np.arange(100) * 0.01, atol=1e-6)


@needs_triton
def test_bfloat16_is_rounded_and_comparisons_are_true_or_false(device):
    kernel = GpuKernel(
        "rounded",
        "@triton.jit\ndef rounded(x, out, sign):\n    i = tl.arange(0, 128)\n    m = i < 100\n"
        "    v = tl.load(x + i, mask=m)\n    tl.store(out + i, v.to(tl.bfloat16), mask=m)\n"
        "    tl.store(sign, (tl.load(x) < 0.0).to(tl.int8) + 1)\n",
        ("x", "out", "sign"),
        ("fp32", "bf16", "i8"),
        (16, 16, 16),
        (1,),
    )
    x = np.random.default_rng(0).standard_normal(100).astype(np.float32)
    x[:4] = -0.5, np.nan, np.inf, 3.4e38
    rounded, sign = np.zeros(100, ml_dtypes.bfloat16), np.zeros(1, np.int8)
    spans = placed(device, x, rounded.view(np.uint16), sign)
    at = tuple(one.address for one in spans)
    device.launch(Launch(device.load(kernel, None), (1,), at, tuple(spans[:1]), tuple(spans[1:])))
    device.copy_out(rounded.view(np.uint16), at[1])
    device.copy_out(sign, at[2])
    for address in at:
        device.free(address)
    np.testing.assert_array_equal(rounded.astype(np.float32), x.astype(ml_dtypes.bfloat16).astype(np.float32))
    assert sign[0] == 2


@needs_triton
@pytest.mark.parametrize(
    "count, cut, words",
    [
        (101, (0, 0, 0), "reads 4 bytes"),
        (100, (0, 1, 0), "reads 4 bytes"),
        (100, (0, 0, 1), "writes 4 bytes"),
        (100, (0, 0, 400), "writes 4 bytes"),
    ],
)
def test_no_byte_outside_what_a_launch_names(device, three, count, cut, words):
    spans = [Span(one.address, one.nbytes - less) for one, less in zip(three, cut, strict=True)]
    with pytest.raises(BrokenAccess, match=f"kernel 'saxpy': it {words}"):
        device.launch(launch_of(device, saxpy(count), spans, (2,)))


@needs_triton
def test_a_result_may_be_read_and_an_operand_not_written(device, three):
    x, y, out = three
    device.launch(launch_of(device, saxpy(100), [x, out, out]))
    with pytest.raises(BrokenAccess, match="writes"):
        device.launch(Launch(device.load(saxpy(100), None), (2,), (y.address, out.address, x.address), (x, y), (out,)))


@needs_triton
def test_crooked_pointers_and_kernels_of_others_are_refused(device, three):
    x, y, out = three
    launch = launch_of(device, saxpy(99), [Span(x.address + 4, 396), y, out])
    with pytest.raises(LaunchRefused, match="'x' at .* no multiple of 16"):
        device.launch(launch)
    other = FakeDriver()
    with pytest.raises(LaunchRefused, match="never loaded"):
        device.launch(launch_of(other, saxpy(100), three))
    other.close()
    with pytest.raises(LaunchRefused, match="an edge from 1 to 0"):
        device.graph([launch, launch], [(1, 0)])


@needs_triton
def test_a_kernel_that_cannot_be_interpreted(device, three):
    with pytest.raises(FusewiseError, match=r"kernel 'lost': name 'nothing' is not defined"):
        device.launch(launch_of(device, pointwise("lost", "x", "nothing(vx)", 100), [three[0], three[2]]))


@needs_triton
def test_a_process_that_ends_is_told_and_replaced():
    driver = FakeDriver()
    spans = placed(driver, *(np.ones(100, np.float32) for _ in range(3)))
    launch = launch_of(driver, saxpy(100), spans)
    driver.launch(launch)
    process = driver._interpreter._process
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with pytest.raises(TritonStopped, match="ended by SIGKILL"):
        driver.launch(launch)
    driver.launch(launch)
    replaced = driver._interpreter._process
    driver.close()
    assert replaced.returncode is not None, "nothing is left running"
