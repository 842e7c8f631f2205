"""The benchmark for GPUs: what is prepared is found again, checked, compared and timed, here on the simulated device."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.gpu import __main__ as command
from benchmarks.gpu import cases, measure, peers
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.runtime.gpu.cuda import CudaDriver
from fusewise.runtime.gpu.driver import Cubin, NoDriver
from fusewise.runtime.gpu.fake import FakeDriver


def small(name: str, batch: int = 1, seed: int = 0) -> Graph:
    """Two products, an activation and a softmax."""
    b, rng = GraphBuilder(name), np.random.default_rng(seed)
    x = b.input("x", (batch, 24))
    first = b.op("Relu", b.op("MatMul", x, b.constant(rng.standard_normal((24, 40), dtype=np.float32))))
    second = b.op("MatMul", first, b.constant(rng.standard_normal((40, 12), dtype=np.float32)))
    return b.finish(b.op("Softmax", second, axis=-1))


@pytest.fixture(autouse=True)
def small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "build", small)
    monkeypatch.setattr(command, "cache_folder", lambda cache: None)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are not compiled: the simulated device runs their sources."""

    def stub(self: object, kernels: list[GpuKernel], device: object, **how: object) -> list[Cubin]:
        return [Cubin(k.symbol, "sm_90a", b"code", 10, 0, 0, 0, 128, len(k.arguments), 2) for k in kernels]

    monkeypatch.setattr("benchmarks.gpu.prepare.TritonCompiler.compile", stub)


def device() -> FakeDriver:
    return FakeDriver("sm_90", 1 << 22)


def prepared(folder: Path, *options: str) -> Path:
    assert command.main(["prepare", str(folder), "--models", "vgg16", *options]) == 0
    return folder


def measured(folder: Path, *options: str) -> tuple[int, dict]:
    out = folder.with_suffix(".json")
    status = command.main(["measure", str(folder), "--json", str(out), "--quick", *options], device)
    return status, json.loads(out.read_text())


@needs_triton
def test_from_preparing_to_a_page(tmp_path: Path, uncompiled: None, capsys: pytest.CaptureFixture[str]) -> None:
    folder = prepared(tmp_path / "carried", "--batches", "1,3", "--precisions", "float32")
    status, found = measured(folder, "--vs", "onnxruntime,torch.compile")
    assert status == 0
    assert list(found["cases"]) == ["vgg16-1-float32", "vgg16-3-float32"]
    for result in found["cases"].values():
        check = result["check"]
        assert check["checked"] == check["steps"] == result["prepared"]["launches"]
        assert check["largest"] < 1e-5 and not check["wrong"]
        assert result["replays"] == {"count": 3, "compared": 3, "differ": 0}
        assert result["replay_us"]["median"] == check["steps"]  # a microsecond for each launch there
        assert [one["us"] for one in result["profile"]] == [1.0] * check["steps"]
        assert result["peers"]["torch.compile"] == {"missing": "the installed torch sees no GPU"}
    capsys.readouterr()
    assert command.main(["table", str(folder.with_suffix(".json"))]) == 0
    page = capsys.readouterr().out
    assert "| vgg16-3-float32 | " in page and "torch.compile missing: the installed torch sees no GPU" in page


@needs_triton
@pytest.mark.slow
def test_what_is_compiled_is_carried(tmp_path: Path) -> None:
    folder = prepared(tmp_path / "carried", "--batches", "1", "--precisions", "float16")
    status, found = measured(folder, "--vs", "")
    check = found["cases"]["vgg16-1-float16"]["check"]
    assert status == 0 and check["checked"] == check["steps"] and not check["wrong"]


@needs_triton
def test_a_step_that_is_wrong_is_named(
    tmp_path: Path, uncompiled: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last kernel writes other numbers than were expected, those before it do not."""
    folder = prepared(tmp_path / "carried", "--batches", "1", "--precisions", "float32")

    def wrong(path: Path, case: str) -> list:
        found = kept(path, case)
        return [*found[:-1], replace(found[-1], values=found[-1].values + 0.5)]

    kept = measure.expected_in
    monkeypatch.setattr(measure, "expected_in", wrong)
    status, found = measured(folder, "--vs", "")
    result = found["cases"]["vgg16-1-float32"]
    assert status == 1
    assert [one["step"] for one in result["check"]["wrong"]] == [result["check"]["steps"] - 1]
    assert command.main(["table", str(folder.with_suffix(".json"))]) == 0
    assert "Wrong in vgg16-1-float32: step" in capsys.readouterr().out


@needs_triton
def test_other_weights_and_lost_devices_are_told(
    tmp_path: Path, uncompiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepared(tmp_path / "carried", "--batches", "1", "--precisions", "float32")
    out = tmp_path / "lost.json"
    words = ["measure", str(folder), "--json", str(out), "--quick", "--vs", ""]
    assert command.main(words, lambda: FakeDriver("sm_90", 1 << 22, lost_after=4)) == 1
    assert json.loads(out.read_text())["cases"]["vgg16-1-float32"]["fault"].startswith("DeviceLost: ")
    monkeypatch.setattr(cases, "build", lambda name, batch: small(name, batch, seed=1))
    status, found = measured(folder, "--vs", "")
    assert status == 1 and "the weights are others here" in found["cases"]["vgg16-1-float32"]["fault"]


@needs_triton
def test_it_ends_by_its_own_clock(tmp_path: Path, uncompiled: None) -> None:
    folder = prepared(tmp_path / "carried", "--batches", "1", "--precisions", "float32,tf32")
    status, found = measured(folder, "--minutes", "0")
    assert status == 0
    assert [one["left_out"] for one in found["cases"].values()] == ["there was no time left"] * 2


def test_a_peer_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a peer raises is a result, as its times are."""
    assert peers.PEERS.keys() == {"onnxruntime", "torch.compile"}
    case = cases.Case("vgg16", 1, "float32")
    graph = case.graph
    with pytest.raises(peers.PeerMissing, match="CUDA provider|not installed"):
        peers.open_onnxruntime(case, graph, {})


def test_no_gpu_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def none() -> CudaDriver:
        raise NoDriver("there is no driver of NVIDIA's on this machine")

    assert command.main(["measure", str(tmp_path)], none) == 0
    assert capsys.readouterr().out == "Not measured: there is no driver of NVIDIA's on this machine.\n"


def test_bad_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").touch()
    assert command.main(["prepare", str(tmp_path)]) == 2
    assert command.main(["prepare", str(tmp_path / "new"), "--models", "none_such"]) == 2
    assert command.main(["prepare", str(tmp_path / "new"), "--precisions", "int3"]) == 2
    assert command.main(["measure", str(tmp_path), "--vs", "nobody"]) == 2
    assert command.main(["measure", str(tmp_path)], device) == 2
    assert command.main(["table", str(tmp_path / "gone.json")]) == 2
    assert all(line.startswith("benchmarks.gpu: ") for line in capsys.readouterr().err.splitlines())
