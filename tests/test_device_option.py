"""The option `device`: what it takes, what goes with it, and a model on a GPU from Python, on a simulated one."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.runtime.gpu.kernels import needs_triton
from tests.runtime.gpu.sharing import compile_nothing, share

import fusewise
from fusewise import api
from fusewise.codegen.gpu.device import DEVICE_TEXTS, DEVICES, DeviceChoice, device_choice
from fusewise.errors import InvalidData, ResourceLimit, UnsupportedModel, UsageError
from fusewise.options import Options, options_from
from fusewise.runtime.gpu import drivers
from fusewise.runtime.gpu.driver import DeviceMemoryFull, NoDevice, NoDriver, NoTriton, WrongArchitecture
from fusewise.runtime.gpu.fake import FakeDriver


@pytest.mark.parametrize("text", [*DEVICE_TEXTS, "cuda:1", "cuda:12"])
def test_devices_are_written_as_they_are_read(text):
    assert device_choice(text).text == text
    assert device_choice(text).is_gpu == (text != "cpu")


def test_the_first_gpu_has_two_names():
    assert device_choice("cuda:0") == device_choice("cuda") == DeviceChoice(is_gpu=True)


@pytest.mark.parametrize(
    "text", ["gpu", "CUDA", "cuda:", "cuda:-1", "cuda:x", "cuda:1.5", "cuda:1000", "cpu:0", "sm_90", ""]
)
def test_devices_that_there_are_not(text):
    with pytest.raises(UsageError, match="there is no device .*cpu, cuda, cuda:sm_80.*, or cuda:1 for GPU number 1"):
        device_choice(text)
    with pytest.raises(UsageError, match="no GPU architecture 'sm_70': choose one of sm_80"):
        device_choice("cuda:sm_70")


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({"device": "tpu"}, "there is no device 'tpu'"),
        ({"device": 1}, "device must be a name, not 1"),
        ({"device": "cuda", "sanitize": True}, "sanitize is for models that run on a CPU"),
        ({"device": "cuda", "grow": True}, "grow is for models that run on a CPU"),
        ({"device": "cuda", "precision": "fp8"}, "there is no precision 'fp8'"),
        ({"device": "cuda", "precision": "tf32", "exact": True}, "tf32 changes answers, which exact does not allow"),
        ({"precision": "tf32"}, "tf32 is a precision of GPUs"),
    ],
)
def test_what_does_not_go_together(settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        options_from(None, settings)


def test_gpus_newer_than_a_row_run_the_code_of_an_older_one(device, monkeypatch):
    for own, row in (("sm_87", "sm_86"), ("sm_90", "sm_90"), ("sm_80", "sm_80")):
        opened = share(monkeypatch, device, own)
        assert drivers.row_of(drivers.opened("cuda:1")).name == row
        drivers.opened(f"cuda:{row}")
        with pytest.raises(WrongArchitecture, match=f"is {own}: compile the model for cuda:{own}"):
            drivers.opened("cuda:sm_100")
        assert opened[-1].is_closed
    share(monkeypatch, device, "sm_75")
    with pytest.raises(UsageError, match="no GPU architecture 'sm_75'"):
        drivers.row_of(drivers.opened("cuda"))
    assert {one.name for one in DEVICES} >= {"sm_80", "sm_90"}


# --- a model --------------------------------------------------------------------------------------------------------------

ROWS, COLUMNS = 3, 16
WEIGHTS = np.random.default_rng(0).standard_normal(COLUMNS).astype(np.float32)
X = np.random.default_rng(1).standard_normal((ROWS, COLUMNS)).astype(np.float32)


def model(rows: int | str = ROWS) -> onnx.ModelProto:
    """y = softmax(x + w), i = w of a row of positions."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "w"], ["s"]),
            helper.make_node("Softmax", ["s"], ["y"]),
            helper.make_node("Gather", ["w", "k"], ["i"], name="pick"),
        ],
        "g",
        [value("x", 1, [rows, COLUMNS]), value("k", 7, [2])],
        [value("y", 1, [rows, COLUMNS]), value("i", 1, [2])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


FEEDS = {"x": X, "k": np.array([1, 5])}


def answers() -> list[np.ndarray]:
    raised = np.exp(X + WEIGHTS - (X + WEIGHTS).max(-1, keepdims=True))
    return [raised / raised.sum(-1, keepdims=True), WEIGHTS[[1, 5]]]


@pytest.fixture
def uncompiled(monkeypatch):
    return compile_nothing(monkeypatch)


@needs_triton
@pytest.mark.parametrize("text", ["cuda", "cuda:1", "cuda:sm_90"])
def test_a_model_on_a_gpu(device, monkeypatch, uncompiled, text):
    opened = share(monkeypatch, device)
    told: list[str] = []
    with fusewise.compile(model(), device=text, cache=False, progress=lambda what, part: told.append(what)) as found:
        assert len(opened) == (0 if "sm" in text else 2), "loaded at once where it is for the GPU that is here"
        y, i = found.run(None, FEEDS)
        np.testing.assert_allclose(y, answers()[0], rtol=1e-5)
        np.testing.assert_array_equal(i, answers()[1])
        assert found.device == found.summary["ran_on"] == "cuda:sm_90"
        assert found.summary["host_steps"] == 0 and found.summary["precision"] == "float32"
        with pytest.raises(InvalidData, match=r"node 'pick' \(Gather\) finds 99"):
            found.run(None, {**FEEDS, "k": np.array([99, 0])})
    assert all(one.is_closed for one in opened)
    assert list(dict.fromkeys(told)) == ["loading", "planning", "compiling", "packing"]


@needs_triton
def test_a_model_that_nobody_has_gives_the_devices_memory_back(device, monkeypatch, uncompiled):
    share(monkeypatch, device)
    before = device.allocations, device.pinned_bytes
    gc.collect()
    gc.disable()
    try:
        found = fusewise.compile(model(), device="cuda", cache=False)
        found.run(None, FEEDS)
        assert device.allocations > before[0] and device.pinned_bytes > before[1]
        del found
        assert (device.allocations, device.pinned_bytes) == before
    finally:
        gc.enable()


@needs_triton
def test_a_model_of_a_file_is_compiled_once_for_an_architecture(device, monkeypatch, uncompiled, tmp_path):
    share(monkeypatch, device)
    path = tmp_path / "m.onnx"
    onnx.save(model("n"), path)
    how = {"cache": tmp_path / "cache", "symbols": {"n": ROWS}}
    for text in ("cuda:sm_90", "cuda:sm_90", "cuda", "cuda:1", "cuda:sm_80"):
        with fusewise.compile(path, device=text, **how) as found:
            assert found.summary["frozen"]["sizes"] == {"n": ROWS}
            if text != "cuda:sm_80":
                np.testing.assert_allclose(found.run(["y"], FEEDS)[0], answers()[0], rtol=1e-5)
            else:
                with pytest.raises(WrongArchitecture, match="code for sm_80 does not run on .*sm_90"):
                    found.run(None, FEEDS)
            assert found.graph.inputs == ("x", "k")
    assert len(uncompiled) == 2
    np.testing.assert_allclose(fusewise.compile(path, **how).run(["y"], FEEDS)[0], answers()[0], rtol=1e-5)


def test_free_dimensions_have_to_have_sizes_where_they_may_not_be_free():
    ports = [helper.make_tensor_value_info(name, 1, ["n", "length"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ports[:1], ports[1:])
    relu = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(UsageError, match="give a size to dimension 1 of input 'x'"):
        fusewise.compile(relu, device="cuda:sm_90", cache=False, free=False)


def test_without_what_it_takes(monkeypatch, tmp_path):
    share(monkeypatch, None)
    with pytest.raises(NoDriver, match="no driver"):
        fusewise.compile(model(), device="cuda", cache=False)
    with pytest.raises(NoDriver, match="to explain a node without a GPU name an architecture"):
        api.explain(model(), node="pick", device="cuda")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NoTriton, match="pip install"):
        fusewise.compile(model(), device="cuda:sm_90", cache=False)


@needs_triton
def test_too_little_memory(monkeypatch, uncompiled):
    driver = FakeDriver("sm_90", 4096)
    share(monkeypatch, driver)
    with pytest.raises(DeviceMemoryFull, match="use smaller input shapes"):
        fusewise.compile(model(300), device="cuda", cache=False)
    with pytest.raises(ResourceLimit, match="more than the 100 allowed"):
        fusewise.compile(model(), device="cuda:sm_90", memory_limit=100, cache=False)
    with pytest.raises(NoDevice, match="no GPU 7"):
        fusewise.compile(model(), device="cuda:7", cache=False)


@needs_triton
def test_strict_and_named_passes(monkeypatch, uncompiled):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])], "g", [value("x", 1, [4])], [value("y", 7, [1, None])]
    )
    host = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(UnsupportedModel):
        fusewise.compile(host, device="cuda:sm_90", strict=True, cache=False)
    with pytest.raises(UsageError, match="passes by name are for models that run on a CPU"):
        fusewise.compile(model(), device="cuda:sm_90", passes="auto", cache=False)
    with pytest.raises(UsageError, match="there is no"):
        fusewise.compile(model(), device="cuda:sm_90", disable=["no-such-thing"], cache=False)


@needs_triton
def test_verified_by_the_interpreter_where_there_is_no_gpu(device, monkeypatch, uncompiled):
    share(monkeypatch, None)
    monkeypatch.setattr(drivers, "simulated", FakeDriver)
    with pytest.warns(RuntimeWarning, match="there is no sm_90 here: kernels run in Triton's interpreter"):
        found = fusewise.verify(model(), device="cuda:sm_90", cache=False)
    assert found.agrees and found.sentence.endswith("; run on a simulated sm_90: Triton's interpreter, no GPU")
    assert found.summary["ran_on"].startswith("a simulated") and not uncompiled
    with pytest.raises(NoDriver):
        fusewise.verify(model(), device="cuda", cache=False)
    share(monkeypatch, device)
    assert fusewise.verify(model(), device="cuda", cache=False).sentence.endswith("; run on cuda:sm_90")
    assert uncompiled == [found.builds + 1]


def test_what_another_process_needs():
    from fusewise.options import portable

    assert Options(**portable(Options(device="cuda:1"), {})).device == "cuda:1"
    assert Path(drivers.__file__).name == "drivers.py"


@needs_triton
def test_the_backend_of_onnx_runs_on_gpus(device, monkeypatch, uncompiled):
    from fusewise import onnx_backend

    share(monkeypatch, device)
    assert [onnx_backend.supports_device(text) for text in ("CUDA", "CUDA:1", "CUDA:2", "CUDA:x", "TPU")] == [
        1,
        1,
        0,
        0,
        0,
    ]
    for text in ("CUDA", "CUDA:1"):
        prepared = onnx_backend.prepare(model(), text, cache=False)
        for found, wanted in zip(prepared.run([X, FEEDS["k"]]), answers(), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
    open_one = onnx_backend.prepare(model(None), "CUDA", cache=False)
    np.testing.assert_allclose(open_one.run([X, FEEDS["k"]])[0], answers()[0], rtol=1e-5)
    assert open_one.model_for([X, FEEDS["k"]]).device == "cuda:sm_90"
    share(monkeypatch, None)
    assert not onnx_backend.supports_device("CUDA")
    with pytest.raises(UnsupportedModel, match="CUDA where there is a GPU"):
        onnx_backend.prepare(model(), "CUDA")
