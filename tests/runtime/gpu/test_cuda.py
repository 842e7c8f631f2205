"""NVIDIA's driver as it is called, on a stand-in for its bindings; what it says when something is missing."""

import builtins
import re
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.gpu.bindings import Bindings
from tests.runtime.gpu.programs import DIAMOND, expected, program_of, vectors

from fusewise.errors import FusewiseError, InvalidModel
from fusewise.ir.dtypes import dtype_named
from fusewise.runtime.gpu import cuda
from fusewise.runtime.gpu.cuda import CudaDriver
from fusewise.runtime.gpu.dlpack import DeviceArray
from fusewise.runtime.gpu.driver import (
    Cubin,
    DeviceLost,
    DeviceMemoryFull,
    LaunchRefused,
    NoDevice,
    NoDriver,
    WrongArchitecture,
)
from fusewise.runtime.gpu.executable import GpuExecutable

W = vectors("w", seed=9)


def cubins_of(program, architecture="sm_90a", shared_bytes=0) -> list[Cubin]:
    return [
        Cubin(one.symbol, architecture, one.symbol.encode(), 16, shared_bytes, 0, 0, 128, len(one.arguments), 2)
        for one in program.kernels
    ]


@pytest.fixture
def bindings():
    return Bindings()


@pytest.fixture
def opened(bindings):
    driver = CudaDriver(bindings=bindings)
    yield driver
    driver.close()
    assert not bindings.current
    assert not bindings.memory
    assert not bindings.held
    assert bindings.retained == 0


def diamond(driver, **how) -> GpuExecutable:
    program = program_of(DIAMOND, ["x", "y"], ["f", "d"], W)
    return GpuExecutable(program, driver, cubins_of(program, **how))


def test_what_a_device_says_of_itself(opened):
    assert (opened.name, opened.architecture) == ("NVIDIA Stand-in (GPU 0)", "sm_90")
    assert (opened.place, opened.stream) == ((2, 0), 7)


def test_a_program_by_the_driver(opened, bindings):
    feeds = vectors("x", "y")
    wanted = expected(DIAMOND, feeds, W)
    with diamond(opened, shared_bytes=100_000) as model:
        begin = len(bindings.called)
        for _ in range(3):
            f, d = model.run(None, feeds)
            np.testing.assert_array_equal(f, wanted["f"])
            np.testing.assert_array_equal(d, wanted["d"])
        assert not [name for name in bindings.called[begin:] if "Alloc" in name or "Create" in name]
        assert bindings.shared == dict.fromkeys(("add", "neg", "mul"), 100_000)
        (there,) = model.run_on_device(["d"], feeds)
        assert there.__dlpack_device__() == (2, 0)
        np.testing.assert_array_equal(there.numpy(), wanted["d"])
        with diamond(opened) as other:
            again = expected(DIAMOND, {"x": wanted["d"], "y": feeds["y"]}, W)
            np.testing.assert_array_equal(other.run(["f"], {"x": there, "y": feeds["y"]})[0], again["f"])
            np.testing.assert_array_equal(other.run(["f"], feeds)[0], wanted["f"])


def test_launches_without_a_graph(opened):
    feeds = vectors("x")
    program = program_of([("a", "neg", ("x",))], ["x"], ["a"])
    with GpuExecutable(program, opened, cubins_of(program)) as model:
        model._memory.staged[1][:] = 0
        model._feed(list(feeds.values()))
        opened.launch(model._parts[0].launches[0])
        found = np.empty_like(feeds["x"])
        opened.copy_out(found, model._where[1])
        opened.synchronise()
        np.testing.assert_array_equal(found, expected([("a", "neg", ("x",))], feeds)["a"])


@pytest.mark.parametrize(
    "function, error, kind, words, status",
    [
        ("cuInit", "CUDA_ERROR_NO_DEVICE", NoDevice, "nvidia-smi", 2),
        ("cuInit", "CUDA_ERROR_STUB_LIBRARY", NoDriver, "install a driver", 2),
        ("cuInit", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", NoDriver, "install a driver", 2),
        ("cuStreamCreate", "CUDA_ERROR_OUT_OF_MEMORY", DeviceMemoryFull, "smaller input shapes", 5),
    ],
)
def test_a_device_that_cannot_be_opened(bindings, function, error, kind, words, status):
    bindings.fail[function] = error
    with pytest.raises(kind, match=words) as told:
        CudaDriver(bindings=bindings)
    assert "\n" not in str(told.value)
    assert told.value.exit_status == status
    assert bindings.retained == 0
    assert not bindings.current


@pytest.mark.parametrize(
    "function, error, kind, words",
    [
        ("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", DeviceMemoryFull, "bytes of memory: NVIDIA Stand-in"),
        ("cuMemHostAlloc", "CUDA_ERROR_OUT_OF_MEMORY", DeviceMemoryFull, "kept where it is"),
        ("cuModuleLoadData", "CUDA_ERROR_NO_BINARY_FOR_GPU", WrongArchitecture, "compile the model for this device"),
        ("cuGraphInstantiate", "CUDA_ERROR_INVALID_VALUE", LaunchRefused, "a graph of 6 launches"),
        ("cuGraphAddKernelNode", "CUDA_ERROR_INVALID_VALUE", LaunchRefused, "kernel 'add'"),
    ],
)
def test_a_program_that_cannot_be_loaded_leaves_nothing(opened, bindings, function, error, kind, words):
    bindings.fail[function] = error
    with pytest.raises(kind, match=words) as told:
        diamond(opened)
    assert "\n" not in str(told.value)
    assert not bindings.held - {7}, "the stream alone"
    with diamond(opened) as model:
        model.run(None, vectors("x", "y"))


def test_what_a_closed_driver_gave_is_not_touched(bindings):
    driver = CudaDriver(bindings=bindings)
    model = diamond(driver)
    driver.close()
    with pytest.raises(DeviceLost, match="was closed"):
        model.run(None, vectors("x", "y"))
    model.close()


def test_code_for_another_device(opened, bindings):
    with pytest.raises(WrongArchitecture, match=r"compiled for sm_80, does not run on .* compile the model for sm_90"):
        diamond(opened, architecture="sm_80")
    with pytest.raises(LaunchRefused, match="was not compiled"):
        GpuExecutable(program_of(DIAMOND, ["x", "y"], ["f"], W), opened)


@pytest.mark.parametrize("function", ["cuGraphLaunch", "cuStreamSynchronize", "cuMemcpyDtoHAsync"])
@pytest.mark.parametrize("error", ["CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_ECC_UNCORRECTABLE"])
def test_a_device_that_is_lost(bindings, function, error):
    driver = CudaDriver(bindings=bindings)
    model = diamond(driver)
    bindings.fail[function] = error
    for words in (error, "is lost"):
        with pytest.raises(DeviceLost, match=words):
            model.run(None, vectors("x", "y"))
    model.close()
    driver.close()
    assert bindings.retained == 0
    assert not bindings.current


def test_without_the_bindings(monkeypatch):
    real = builtins.__import__

    def missing(name, *rest):
        if name.startswith("cuda"):
            raise ImportError(f"No module named {name!r}")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(NoDriver, match=r"cuda-bindings, which is not installed .* pip install 'fusewise\[gpu\]'"):
        CudaDriver()


def test_without_a_driver_the_bindings_say_so_themselves(bindings, monkeypatch):
    def absent(flags):
        raise RuntimeError("the library was\nnot found")

    monkeypatch.setattr(Bindings, "cuInit", lambda self, flags: absent(flags))
    with pytest.raises(NoDriver, match=r"no driver of NVIDIA's on this machine: to run on a GPU needs one$"):
        CudaDriver(bindings=bindings)


def test_the_real_bindings_have_all_that_is_called():
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    text = Path(cuda.__file__).read_text()
    functions = set(re.findall(r'"(cu[A-Z]\w+)"', text)) | set(re.findall(r"_cuda\.(cu\w+)\(", text))
    assert len(functions) > 25
    for name in functions:
        assert callable(getattr(driver, name)), name
        assert callable(getattr(Bindings(), name)), name
    rows = {name for name in cuda._KINDS if not hasattr(driver.CUresult, name)}
    assert not rows
    node = driver.CUDA_KERNEL_NODE_PARAMS()
    node.kernelParams = np.zeros(3, np.uint64).ctypes.data
    assert node.kernelParams
    for name in ("gridDimX", "blockDimZ", "sharedMemBytes", "func"):
        assert hasattr(node, name)
    try:
        driver.cuInit(0)
    except RuntimeError:
        with pytest.raises(FusewiseError, match="no driver of NVIDIA's"):
            CudaDriver()


def test_what_was_pinned_is_given_back_with_the_program(opened, bindings):
    """A driver outlives many programs where groups are timed one after the other."""
    for _ in range(3):
        diamond(opened).close()
        assert not bindings.memory and not opened._pinned


def test_kernels_that_are_refused_leave_no_module(opened, bindings):
    program = program_of(DIAMOND, ["x", "y"], ["f", "d"], W)
    for number, cubin in enumerate(cubins_of(program, shared_bytes=100_000)[:2]):
        bindings.fail["cuFuncSetAttribute" if number else "cuModuleGetFunction"] = "CUDA_ERROR_INVALID_VALUE"
        with pytest.raises(LaunchRefused, match="INVALID_VALUE"):
            opened.load(program.kernels[number], cubin)
        assert not [one for one in bindings.held if one != 7] and not opened._modules
    with pytest.raises(LaunchRefused, match="has an edge from 1 to 0"):
        opened.graph([None, None], [(1, 0)])
    assert not [one for one in bindings.held if one != 7]


@pytest.mark.parametrize(
    "found, fits",
    [
        ([(0, 8), (8, 8), (16, 8), (24, 8)], True),
        ([(0, 8), (8, 8), (16, 8)], True),
        ([(0, 8), (8, 8), (16, 8), (24, 8), (32, 8)], False),
        ([(0, 8), (8, 4096), (16, 8), (24, 8)], False),
        ([(0, 8), (8, 8), (4096, 8), (24, 8)], False),
        (None, True),
    ],
    ids=["as stated", "fewer", "more", "wide", "elsewhere", "an old driver"],
)
def test_a_kernel_with_other_parameters_than_its_file_says_is_not_launched(opened, bindings, found, fits):
    """A launch reads as many pointers as the machine code wants: of a hostile file, beyond those that there are."""
    program = program_of([("f", "neg", ("x",))], ["x"], ["f"], {})
    bindings.parameters = found
    if fits:
        opened.unload(opened.load(program.kernels[0], cubins_of(program)[0]))
    else:
        with pytest.raises(InvalidModel, match="does not take the 2 pointers that its file says"):
            opened.load(program.kernels[0], cubins_of(program)[0])


def test_a_run_after_one_whose_launches_could_not_be_pointed_is_right(opened, bindings):
    feeds = vectors("x", "y")
    wanted = expected(DIAMOND, feeds, W)
    with diamond(opened) as model:
        address = opened.allocate(feeds["x"].nbytes)
        opened.copy_in(address, feeds["x"])
        there = DeviceArray(address, feeds["x"].shape, dtype_named("float32"), opened.place, read=lambda: feeds["x"])
        bindings.fail["cuGraphExecKernelNodeSetParams"] = "CUDA_ERROR_INVALID_VALUE"
        with pytest.raises(LaunchRefused):
            model.run(None, {**feeds, "x": there})
        for given in (there, feeds["x"], there):
            f, d = model.run(None, {**feeds, "x": given})
            np.testing.assert_array_equal(f, wanted["f"])
            np.testing.assert_array_equal(d, wanted["d"])
    opened.free(address)
