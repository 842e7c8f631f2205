"""Runtimes on a GPU, by stand-ins: who is chosen, what is asked of them, and sentences where they cannot."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from fusewise.benchmarking import gpu_peers
from fusewise.benchmarking.contest import ContestRules, contest
from fusewise.benchmarking.peers import PEERS, Peer, Subject, opener_of, peers_named
from fusewise.benchmarking.timing import TimingBudget
from fusewise.errors import UsageError
from fusewise.frontend.onnx_export import save
from fusewise.ops.build import GraphBuilder

CUDA, TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"
FEEDS = {"x": np.linspace(-2, 2, 24, dtype=np.float32).reshape(3, 8)}


@pytest.fixture
def subject(tmp_path):
    b = GraphBuilder("tiny")
    save(b.finish(b.op("Relu", b.input("x", (3, 8)), name="y")), tmp_path / "tiny.onnx")
    return Subject(tmp_path / "tiny.onnx", ("x",), None, {"device": "cuda:1"})


@pytest.fixture
def runtime(monkeypatch):
    """ONNX Runtime as one with its providers for GPUs, whose sessions run on the CPU. `asked` has the providers of each session;
    with `graphs` off it captures none, with `falls_back` it leaves the GPU alone."""
    onnxruntime = pytest.importorskip("onnxruntime")
    told = SimpleNamespace(asked=[], graphs=True, falls_back=False)

    def session(path, settings, providers, enable_fallback):
        told.asked.append(providers[:-1])
        name, options = providers[0]
        if not told.graphs and options.get("enable_cuda_graph") == "1":
            raise RuntimeError("not all nodes have been partitioned to the CUDA EP")
        assert enable_fallback == 0
        found = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
        took = "CPUExecutionProvider" if told.falls_back else name
        monkeypatch.setattr(found, "get_providers", lambda: [took, "CPUExecutionProvider"])
        return found

    parts = {name: getattr(onnxruntime, name) for name in ("SessionOptions", "GraphOptimizationLevel", "OrtValue")}
    module = SimpleNamespace(
        __spec__=onnxruntime.__spec__,
        InferenceSession=session,
        get_available_providers=lambda: [TENSORRT, CUDA, "CPUExecutionProvider"],
        **parts,
    )
    monkeypatch.setitem(sys.modules, "onnxruntime", module)
    monkeypatch.setattr(gpu_peers, "_CUDA_KIND", "cpu")
    monkeypatch.setattr(gpu_peers, "_number", lambda subject: 0)
    return told


def test_runtimes_of_gpus_are_for_models_on_one():
    pytest.importorskip("onnxruntime")
    with pytest.raises(
        UsageError, match="onnxruntime-cuda runs on a GPU, and the model on the CPU: give --device cuda"
    ):
        peers_named(("onnxruntime-cuda",))
    with pytest.raises(
        UsageError, match="onnxruntime-cuda cannot be compared with: .*no CUDA.*pip install onnxruntime-gpu"
    ):
        peers_named(("onnxruntime-cuda",), "cuda")
    with pytest.raises(UsageError, match="tensorrt cannot be compared with: .*no TensorrtExecutionProvider"):
        peers_named(("tensorrt",), "cuda:1")
    assert [peer.name for peer in peers_named(("onnxruntime",), "cuda")] == ["onnxruntime"], "on the CPU, by its name"


def test_what_is_not_installed_is_named_as_it_is_installed(monkeypatch):
    monkeypatch.setattr(Peer, "missing", ("onnxruntime",))
    with pytest.raises(UsageError, match="tensorrt is not installed; install it with: pip install onnxruntime-gpu"):
        peers_named(("tensorrt",), "cuda")


def test_every_row_has_openers_that_are_there():
    for peer in PEERS:
        assert peer.opener or peer.gpu_opener
        for device in ("cpu", "cuda"):
            if device == "cuda" or peer.opener:
                assert callable(opener_of(peer, device))
    names = {peer.name: opener_of(peer, "cuda").__name__ for peer in PEERS}
    assert names["torch.compile"] == "open_torch_compile_on_gpu"
    assert names["openvino"] == "open_openvino"


@pytest.mark.parametrize("name, provider", [("onnxruntime-cuda", CUDA), ("tensorrt", TENSORRT)])
def test_onnxruntime_is_bound_once_and_answers_anew(name, provider, runtime, subject):
    (peer,) = peers_named((name,), "cuda")
    session = opener_of(peer, "cuda")(subject, 1)
    for factor in (1, -3):
        given = {"x": FEEDS["x"] * np.float32(factor)}
        (found,) = session.run(given)
        assert np.array_equal(found, np.maximum(given["x"], 0))
    ((asked, options), *_) = runtime.asked[0]
    assert asked == provider
    assert options["enable_cuda_graph" if provider == CUDA else "trt_cuda_graph_enable"] == "1"


def test_tf32_and_graphs_are_as_asked(runtime, subject):
    gpu_peers.open_onnxruntime_cuda(subject, 1)
    gpu_peers.open_onnxruntime_cuda(Subject(subject.path, ("x",), None, {"precision": "tf32"}), 1)
    assert [asked[0][1]["use_tf32"] for asked in runtime.asked] == ["0", "1"]
    with pytest.raises(NotImplementedError, match="not in float16"):
        gpu_peers.open_onnxruntime_cuda(Subject(subject.path, ("x",), None, {"precision": "float16"}), 1)
    gpu_peers.open_tensorrt(Subject(subject.path, ("x",), None, {"precision": "float16"}), 1)
    assert runtime.asked[-1][0][1]["trt_fp16_enable"] == "1"
    runtime.graphs = False
    session = gpu_peers.open_onnxruntime_cuda(subject, 1)
    assert "enable_cuda_graph" not in runtime.asked[-1][0][1], "a model that cannot be captured runs without a graph"
    assert np.array_equal(session.run(FEEDS)[0], np.maximum(FEEDS["x"], 0))


def test_the_cpu_in_place_of_a_gpu_is_not_measured(runtime, subject):
    runtime.falls_back = True
    ours, (theirs,) = PEERS[0], peers_named(("onnxruntime-cuda",), "cuda")
    with pytest.raises(UsageError, match="lacks libraries or a GPU for it and would run on CPUExecutionProvider"):
        contest(theirs, [ours], subject, FEEDS, ContestRules(1, TimingBudget(runs=1, seconds=0.0), weigh=False))


def test_gpus_are_numbered():
    options = ["cuda", "cuda:2", "cuda:sm_90"]
    assert [gpu_peers._number(Subject("", (), None, {"device": each})) for each in options] == [0, 2, 0]


@pytest.mark.slow
def test_torch_on_a_device(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")

    class Doubled(torch.nn.Module):
        def forward(self, x, times):
            return x * times, x + 1

    program = torch.export.export(Doubled(), (torch.zeros(3, 8), torch.tensor(2.0)))
    torch.export.save(program, tmp_path / "doubled.pt2")
    modes = []
    monkeypatch.setattr(torch, "compile", lambda module, mode: modes.append(mode) or module)
    monkeypatch.setattr(gpu_peers, "_CUDA_KIND", "cpu")
    feeds = {**FEEDS, "times": np.array(2.0, np.float32)}
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.get_num_threads()
    try:
        for open_it in (gpu_peers.open_torch_on_gpu, gpu_peers.open_torch_compile_on_gpu):
            subject = Subject(tmp_path / "none.onnx", ("x", "times"), tmp_path / "doubled.pt2", {"device": "cuda"})
            found = open_it(subject, 1).run(feeds)
            assert np.array_equal(found[0], FEEDS["x"] * 2) and np.array_equal(found[1], FEEDS["x"] + 1)
            assert not torch.backends.cudnn.allow_tf32 and torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
        torch.set_num_threads(before[2])
    assert modes == ["max-autotune"]
    with pytest.raises(UsageError, match="torch.compile cannot be compared with: PyTorch .* finds no GPU"):
        peers_named(("torch.compile",), "cuda")


def test_the_usual_runtime_is_that_of_the_device(request):
    from fusewise.benchmarking.peers import usual_peers

    assert usual_peers() == (("onnxruntime",), "")
    pytest.importorskip("onnxruntime")
    names, reason = usual_peers("cuda")
    assert names == () and "onnxruntime-gpu" in reason
    request.getfixturevalue("runtime")
    assert usual_peers("cuda") == (("onnxruntime-cuda",), "")
