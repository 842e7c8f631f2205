"""`--device` on the command line: what is made for a GPU, what runs on a simulated one, what is refused and how."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.cli.conftest import model_of
from tests.runtime.gpu.kernels import needs_triton
from tests.runtime.gpu.sharing import compile_nothing, share

from fusewise.runtime.gpu import drivers
from fusewise.runtime.gpu.fake import FakeDriver

pytestmark = needs_triton


@pytest.fixture
def rows(tmp_path):
    """A model without products, which the interpreter takes longest for."""
    nodes = [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    ports = [{name: (TensorProto.FLOAT, [2, 3])} for name in "xy"]
    path = tmp_path / "rows.onnx"
    onnx.save(model_of(nodes, *ports, {"w": np.arange(3, dtype=np.float32)}), path)
    return path


@pytest.fixture
def here(device, monkeypatch):
    compile_nothing(monkeypatch)
    return share(monkeypatch, device)


def test_compiled_here_and_run(fusewise, rows, tmp_path, here):
    made = fusewise("compile", rows, "--device", "cuda:sm_90", "-o", tmp_path / "m.fw")
    told = dict(line.split(maxsplit=1) for line in made.out.splitlines() if not line.startswith(("compile", "host")))
    assert made.status == 0 and (told["device"], told["launches"], told["kernels"]) == ("cuda:sm_90", "1", "1")
    said = json.loads(fusewise("compile", rows, "--device", "cuda:sm_90", "--json").out)
    assert (said["device"], said["launches"], said["precision"]) == ("cuda:sm_90", 1, "float32")
    answers = []
    for model, *words in (
        (rows,),
        (rows, "--device", "cuda"),
        (rows, "--device", "cuda:1", "--no-cache", "--exact"),
        (rows, "--device", "cuda:sm_90", "--precision", "tf32"),
        (tmp_path / "m.fw",),
        (tmp_path / "m.fw", "--device", "cuda:1"),
    ):
        ended = fusewise("run", model, *words, "-o", tmp_path / "y.npy")
        assert ended.status == 0, ended.err
        answers.append(np.load(tmp_path / "y.npy"))
    for found in answers[1:]:
        np.testing.assert_array_equal(found, answers[0])
    assert here and all(one.architecture == "sm_90" for one in here)


def test_free_dimensions_have_programs_for_sizes(fusewise, tmp_path, here):
    nodes = [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    ports = [{name: (TensorProto.FLOAT, ["n", 3])} for name in "xy"]
    path, file = tmp_path / "free.onnx", tmp_path / "m.fw"
    onnx.save(model_of(nodes, *ports, {"w": np.arange(3, dtype=np.float32)}), path)
    made = fusewise("compile", path, "--device", "cuda:sm_90", "--symbol", "n=2,4", "-o", file)
    lines = [" ".join(line.split()) for line in made.out.splitlines()]
    assert made.status == 0 and {"free dimensions n", "program for n=2", "program for n=4"} <= set(lines)
    for words, shape in (((), [2, 3]), (("--symbol", "n=4"), [4, 3])):
        assert json.loads(fusewise("run", file, *words, "--json").out)["outputs"][0]["shape"] == shape
    np.save(tmp_path / "x.npy", np.ones((3, 3), np.float32))
    given = ("--input", f"x={tmp_path / 'x.npy'}", "--json")
    ended = fusewise("run", file, *given)
    assert ended.status == 2 and "has programs for n=2; n=4, not for n=3" in ended.sentence
    assert json.loads(fusewise("run", path, "--device", "cuda", *given).out)["outputs"][0]["shape"] == [3, 3]
    words = ("--runs", "1", "--seconds", "0", "--no-weigh", "--vs", "none", "--device", "cuda", "--symbol", "n=1,5")
    timed = json.loads(fusewise("bench", path, *words, "--json").out)
    assert [row["symbols"] for row in timed["sizes"]] == [{"n": 1}, {"n": 5}]
    told = fusewise("verify", path, "--device", "cuda").out
    assert "(inputs: random, odd sizes (n=3), large primes (n=2), empty (n=0)); run on cuda:sm_90" in told


def test_verified(fusewise, rows, here, monkeypatch):
    ended = fusewise("verify", rows, "--device", "cuda")
    assert ended.status == 0 and "answers agree" in ended.out and "run on cuda:sm_90" in ended.out
    monkeypatch.setattr(drivers, "simulated", FakeDriver)
    ended = fusewise("verify", rows, "--device", "cuda:sm_80", "--json")
    assert ended.sentence == "there is no sm_80 here: kernels run in Triton's interpreter, which is slow"
    ended = fusewise("verify", rows, "--device", "cuda:sm_80", "--precision", "tf32", "--json")
    assert ended.sentence.endswith("which is slow and does not round to TF32")
    assert json.loads(ended.out)["tolerances"] == {"y": 4e-3}
    assert json.loads(ended.out)["ran_on"] == "a simulated sm_80: Triton's interpreter, no GPU"


def test_reported(fusewise, rows, here, tmp_path):
    for words in (("compile", rows), ("verify", rows)):
        ended = fusewise(*words, "--device", "cuda", "--report", tmp_path / f"{words[0]}.json")
        assert ended.status == 0, ended.err
        found = json.loads((tmp_path / f"{words[0]}.json").read_text())
        assert (found["verb"], found["device"]["architecture"]) == (words[0], "sm_90") and found["estimates"]["groups"]
    ended = fusewise("report", rows, "--device", "cuda:sm_90", "--no-times", "-o", tmp_path / "r.json")
    assert (
        ended.status == 0 and "--device cuda:sm_90" in json.loads((tmp_path / "r.json").read_text())["made"]["command"]
    )
    ended = fusewise("explain", rows, "--node", "y", "--device", "cuda:sm_90")
    assert ended.status == 0 and "kernel: " in ended.out, ended.err


def test_timed(fusewise, rows, here):
    words = ("--runs", "2", "--seconds", "0", "--no-weigh", "--device", "cuda")
    ended = fusewise("bench", rows, *words, "--vs", "onnxruntime", "--json")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert found["device"] == "cuda" and found["runtimes"]["onnxruntime"]["max_rel_error"] < 1e-5
    shown = fusewise("bench", rows, *words, "--vs", "none", "--profile")
    assert shown.status == 0, shown.err
    assert "float32, cuda, 1 thread" in shown.out and "sm_90: 66900 GFLOP/s; device memory" in " ".join(
        shown.out.split()
    )


@pytest.mark.parametrize(
    "words, sentence",
    [
        ("compile {} --device gpu", "there is no device 'gpu': choose one of cpu, cuda, cuda:sm_80"),
        ("compile {} --device cuda:sm_91", "there is no GPU architecture 'sm_91'"),
        ("compile {} --device cuda", "there is no driver of NVIDIA's"),
        ("compile {} --device cuda:sm_90 --tune 1", "there is no driver of NVIDIA's"),
        ("compile {} --precision tf32", "tf32 is a precision of GPUs"),
        ("run {} --device cuda:sm_90", "there is no driver of NVIDIA's"),
        ("verify {} --precision tf32", "tf32 is a precision of GPUs"),
        ("verify {} --device cuda", "there is no driver of NVIDIA's"),
        ("bench {} --device cuda", "there is no driver of NVIDIA's"),
        ("bench {} --device cuda --trace t.json", "--trace is about code for a CPU"),
        ("bench {} --device cuda --symbol n=1,8", "there is no driver of NVIDIA's"),
    ],
)
def test_refusals(fusewise, rows, tmp_path, monkeypatch, words, sentence):
    share(monkeypatch, None)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    ended = fusewise(*(rows if word == "{}" else word for word in words.split()))
    assert ended.status == 2 and sentence in ended.sentence
    assert [path for path in sorted(tmp_path.iterdir()) if path.name != "cache"] == before, "nothing is half written"


def test_files_and_devices_that_do_not_fit(fusewise, rows, tmp_path, here, monkeypatch):
    for name, device in (("gpu", "cuda:sm_90"), ("cpu", "cpu")):
        assert fusewise("compile", rows, "--device", device, "-o", tmp_path / f"{name}.fw").status == 0
    for name, device, sentence in (
        ("gpu", "cpu", "compiled for cuda:sm_90, not for cpu"),
        ("gpu", "cuda:sm_80", "compiled for cuda:sm_90, not for cuda:sm_80"),
        ("gpu", "cuda:9", "there is no GPU 9"),
        ("cpu", "cuda", "compiled for a CPU, not for cuda"),
    ):
        ended = fusewise("run", tmp_path / f"{name}.fw", "--device", device)
        assert ended.status == 2 and sentence in ended.sentence
    share(monkeypatch, None)
    ended = fusewise("run", tmp_path / "gpu.fw")
    assert ended.status == 2 and "there is no driver" in ended.sentence
    share(monkeypatch, FakeDriver("sm_80"), "sm_80")
    ended = fusewise("run", tmp_path / "gpu.fw")
    assert ended.status == 2 and "which is sm_80: compile the model for cuda:sm_80" in ended.sentence
    (tmp_path / "gpu.fw").write_bytes((tmp_path / "gpu.fw").read_bytes()[:-1])
    ended = fusewise("run", tmp_path / "gpu.fw")
    assert ended.status == 3 and "damaged" in ended.sentence
