"""Whole models on the simulated device, against ONNX Runtime; reduced ones too, whose graphs are replayed in other orders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from tests.runtime.gpu.kernels import needs_triton

from fusewise import api
from fusewise.benchmarking.accuracy import relative_error
from fusewise.benchmarking.inputs import random_feeds
from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.program import GpuProgram
from fusewise.ir.graph import Graph
from fusewise.making import GpuMaking, gpu_planned
from fusewise.runtime.gpu.driver import DeviceLost, DeviceMemoryFull
from fusewise.runtime.gpu.executable import GpuExecutable
from fusewise.runtime.gpu.fake import FakeDriver
from fusewise.zoo import bert
from fusewise.zoo.catalogue import build
from fusewise.zoo.scaled import Scale, scaled

pytestmark = [needs_triton, pytest.mark.slow]

FLOAT32 = 1e-5
"""Of the largest answer: sums in another order. Three products in TF32 are as good here, where each is one of float32."""

MOST_RUNS = 30
"""Until so many different orders are drawn as a test asks for."""


@pytest.fixture(scope="module")
def large() -> Iterator[FakeDriver]:
    driver = FakeDriver("sm_90", 1 << 29)
    yield driver
    driver.close()


def program_of(graph: Graph, precision: str = "float32") -> GpuProgram:
    return gpu_planned(graph, GpuMaking(device_named("sm_90"), precision)).program


def compared(device: FakeDriver, graph: Graph, precision: str = "float32", orders: int = 1) -> tuple[GpuProgram, float]:
    """The program of a graph, and how far its answers are from ONNX Runtime's; those of later runs, until launches were made in so
    many orders, have to be the same bits."""
    program, feeds = program_of(graph, precision), random_feeds(graph)
    session = onnxruntime.InferenceSession(api.to_onnx(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, feeds)
    begin = len(device.orders)
    with GpuExecutable(program, device) as model:
        found = model.run(None, feeds)
        for _ in range(MOST_RUNS):
            if len(set(device.orders[begin:])) == orders:
                break
            for value, again in zip(found, model.run(None, feeds), strict=True):
                np.testing.assert_array_equal(value, again)
        assert len(set(device.orders[begin:])) == orders, "there are others"
    return program, max(relative_error(value, right) for value, right in zip(found, wanted, strict=True))


def smaller(name: str, size: int) -> Graph:
    """A model of the zoo for images of another size: all that it computes is as large as that asks for."""
    model = api.to_onnx(api.load(f"zoo:{name}"))
    for axis in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        axis.dim_value = size
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return api.load(model)


def test_resnet18_whole(large: FakeDriver) -> None:
    program, error = compared(large, smaller("resnet18", 32))
    assert program.launches == len(program.steps), "nothing on the host"
    assert error < FLOAT32


def test_tinybert_whole(large: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two layers: those behind them are the second one's kernels again."""
    monkeypatch.setattr(bert, "TOKENS", 32)
    monkeypatch.setattr(bert, "_TINY", replace(bert._TINY, layers=2))
    program, error = compared(large, build("tinybert"))
    assert program.launches == len(program.steps), "nothing on the host"
    assert error < FLOAT32


@pytest.mark.parametrize("name", ["resnet_bottleneck", "bert", "mobilenet", "unet"])
def test_reduced(device: FakeDriver, name: str) -> None:
    program, error = compared(device, scaled(name, Scale(size=16)))
    assert program.launches == len(program.steps)
    assert error < FLOAT32


@pytest.mark.parametrize("name", ["inception", "recurrent"])
def test_the_same_bits_in_any_order(device: FakeDriver, name: str) -> None:
    """Branches that are written into one buffer, and steps that share memory."""
    _, error = compared(device, scaled(name, Scale(size=16)), orders=3)
    assert error < FLOAT32


@pytest.mark.parametrize("precision, bound", [("float16", 2.0**-8), ("bfloat16", 2.0**-5)])
def test_short_floats(device: FakeDriver, precision: str, bound: float) -> None:
    """Weights take half the memory, and answers are as near as some roundings to so many bits leave them."""
    graph = scaled("gpt", Scale(size=16))
    program, error = compared(device, graph, precision)
    assert error < bound
    bytes_of = [sum(b.nbytes for b in one.buffers if b.kind == "constant") for one in (program, program_of(graph))]
    assert bytes_of[0] < 0.7 * bytes_of[1]


def test_what_goes_wrong_is_one_sentence() -> None:
    graph = scaled("recurrent", Scale(size=4))
    program, feeds = program_of(graph), random_feeds(graph)
    small = FakeDriver("sm_90", 1 << 12)
    with pytest.raises(DeviceMemoryFull, match="^[^.]* bytes of memory left[^.]*$"):
        GpuExecutable(program, small)
    assert small.allocations == 0
    with GpuExecutable(program, FakeDriver("sm_90", 1 << 24, lost_after=2)) as model:
        with pytest.raises(DeviceLost, match=r"^a simulated sm_90 [^.]*$"):
            model.run(None, feeds)
        with pytest.raises(DeviceLost):
            model.run(None, feeds)
