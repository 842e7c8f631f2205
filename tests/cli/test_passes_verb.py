"""`fusewise passes`, and `compile --passes`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import helper
from tests.runtime.gpu.sharing import share

from fusewise import api
from fusewise.cli.passes import _verdict
from fusewise.zoo.scaled import Scale, scaled


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "resnet.onnx"
    api.save(scaled("resnet", Scale(size=16, width=4)), path)
    return path


def test_what_matters_as_json_and_for_people(fusewise, model, tmp_path):
    ended = fusewise("passes", model, "--json", "-o", tmp_path / "p.toml")
    assert ended.status == 0, ended.err
    told = json.loads(ended.out)
    assert {"family", "confidence", "nearest", "relevant", "order", "unchanged", "pass_ms", "metrics"} <= set(told)
    assert told["family"] == "ResNet"
    assert told["metrics"]["latency_p50_ms"] > 0
    named = fusewise("passes", model).out
    for name in ("Throughput", "Latency", "Compile Time", "Power", "Memory used", "Temperature"):
        assert f"\n{name} " in named
    shown = fusewise("passes", model, "--no-measure")
    assert shown.status == 0
    assert "ResNet (confidence" in shown.out
    assert "fold_batch_norm" in shown.out
    replayed = fusewise("compile", model, "--passes", tmp_path / "p.toml", "--json")
    assert json.loads(replayed.out)["groups"] == json.loads(fusewise("compile", model, "--json").out)["groups"]


def test_the_published_experiment(fusewise, model):
    ended = fusewise("passes", model, "--experiment", "paper", "--no-measure")
    assert ended.status == 0, ended.err
    for word in ("AS-0", "PO-3", "default", "same as", "(FastMath 0.0)"):
        assert word in ended.out
    for name in ("Throughput", "Latency", "Compile Time", "Power", "Memory used", "Temperature"):
        assert name in ended.out
    rows = json.loads(fusewise("passes", model, "--experiment", "paper", "--no-measure", "--json").out)["rows"]
    assert len(rows) == 14
    levels = json.loads(fusewise("passes", model, "--experiment", "levels", "--no-measure", "--json").out)["rows"]
    assert [row["pipeline"] for row in levels] == ["none", *(f"level-{k}" for k in range(5)), "default"]


def test_a_search(fusewise, model, tmp_path):
    ended = fusewise(
        *("passes", model, "--search", 1, "--objective", "estimate", "--no-measure", "--state", tmp_path / "s.json")
    )
    assert ended.status == 0, ended.err
    assert "orders" in ended.out
    assert (tmp_path / "s.json").exists()


@pytest.mark.parametrize(
    "search, told",
    [
        ({"chosen": "default", "speedup": 1.0}, "default"),
        ({"chosen": "searched", "speedup": 1.25}, "searched, 1.250 times better than the default"),
        (
            {"chosen": "default", "speedup": 0.98, "at_least": 0.9, "rounds": 3},
            "default; the best other order has 0.980 times its speed, after 3 rounds in turn",
        ),
        (
            {"chosen": "searched", "speedup": 1.05, "at_least": 1.03, "rounds": 11},
            "searched, 1.050 times the speed of the default, at least 1.030 by 11 rounds in turn",
        ),
    ],
)
def test_what_a_choice_rests_on(search, told):
    assert _verdict(search) == told


def test_what_approximations_do_to_the_answers(fusewise, write, tmp_path):
    weights = np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32)
    path = write(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (1, [1, 512])}, {"y": (1, [1, 512])}, {"w": weights}
    )
    search = ("--search", 1, "--objective", "estimate", "--no-measure", "--approximate")
    ended = fusewise("passes", path, *search, "-o", tmp_path / "order.toml")
    assert ended.status == 0, ended.err
    assert "differ from the default's by at most" in " ".join(ended.out.split())
    assert "difference = 0.0" in (tmp_path / "order.toml").read_text()


def test_batches(fusewise, write, model):
    path = write([helper.make_node("Relu", ["x"], ["y"])], {"x": (1, ["n", 4])}, {"y": (1, ["n", 4])})
    ended = fusewise("passes", path, "--no-measure", "--batches", "1,3", "--json")
    metrics = json.loads(ended.out)["metrics"]
    assert set(metrics["throughput_by_batch"]) == {"1", "3"}
    assert metrics["best_throughput_per_s"] == max(metrics["throughput_by_batch"].values())
    assert "best batch" in fusewise("passes", path, "--no-measure", "--batches", "2").out
    assert "of the form 1,2,4" in fusewise("passes", path, "--no-measure", "--batches", "0").sentence
    assert "it has one batch" in fusewise("passes", model, "--no-measure", "--batches", "2").sentence


def test_lists(fusewise):
    ended = fusewise("passes", "--list")
    assert "FuseOps" in ended.out
    assert "nothing: in static single assignment" in ended.out
    assert len(json.loads(fusewise("passes", "--list", "--json").out)["pipelines"]) == 19


@pytest.mark.parametrize(
    "words, sentence",
    [
        (("--family", "ResNett"), "no family called 'ResNett'; did you mean 'ResNet'"),
        (("--objective", "latancy"), "no objective 'latancy'; did you mean 'latency'"),
        (("--experiment", "mine"), "no experiment 'mine'; there are paper, levels"),
        (("-o", "pipeline.txt"), "must end in .toml"),
        (("--state", "absent/s.json", "--search", "1", "--objective", "estimate"), "cannot write"),
    ],
)
def test_wrong_words(fusewise, model, words, sentence):
    ended = fusewise("passes", model, *words)
    assert ended.status == 2
    assert sentence in ended.sentence
    assert ended.out == ""


def test_wrong_pipelines(fusewise, model, tmp_path):
    assert "give a model" in fusewise("passes").sentence
    path = tmp_path / "p.toml"
    path.write_text('format = 1\npasses = [\n    "FuseOps@1",\n    "FusOps@1",\n]\n')
    ended = fusewise("compile", model, "--passes", path)
    assert ended.status == 2
    assert "line 4: there is no pass called 'FusOps'; did you mean 'FuseOps'" in ended.sentence
    assert "did you mean 'BL" in fusewise("compile", model, "--passes", "BLL").sentence


@pytest.mark.parametrize(
    "words, sentence",
    [
        (("--device", "gpu"), "no device 'gpu'"),
        (("--device", "cuda", "--search", "1"), "--search does not go together with it"),
        (("--device", "cuda", "--no-measure"), "--no-measure does not go together with it"),
        (("--device", "cuda"), "there is no driver"),
        (("--device", "cuda:sm_90"), "there is no driver"),
    ],
)
def test_passes_are_measured_on_a_gpu_that_is_here(fusewise, model, monkeypatch, words, sentence):
    from fusewise.codegen.gpu.device import device_choice
    from fusewise.runtime.gpu import drivers
    from fusewise.runtime.gpu.driver import NoDriver

    def none(device):
        device_choice(device)
        raise NoDriver("there is no driver")

    monkeypatch.setattr(drivers, "opened", none)
    ended = fusewise("passes", model, *words)
    assert ended.status == 2
    assert sentence in ended.sentence


def test_a_report_says_which_gpu_its_figures_are_of(fusewise, model, monkeypatch, device, tmp_path):
    share(monkeypatch, device)
    monkeypatch.setattr("fusewise.selecting.with_figures", lambda found, **how: found)
    monkeypatch.setattr("fusewise.selecting.experiment", lambda *given, **how: [])
    for words in ((), ("--experiment", "levels")):
        ended = fusewise("passes", model, "--device", "cuda", *words, "--report", tmp_path / "r.json")
        assert ended.status == 0, ended.err
        assert json.loads((tmp_path / "r.json").read_text())["device"]["architecture"] == "sm_90"
