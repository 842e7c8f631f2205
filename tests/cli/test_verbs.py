"""Each verb on a small model: what it prints, the keys of its JSON, its exit status."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest

from fusewise.api import save
from fusewise.benchmarking.machine import this_machine
from fusewise.ir.dtypes import INT64
from fusewise.ops.build import GraphBuilder
from fusewise.version import VERSION


def test_the_exported_form_is_one_name_for_every_verb(fusewise, tmp_path):
    plain = json.loads(fusewise("inspect", "zoo:mobilenet_v3_small", "--json").out)
    ended = fusewise("inspect", "zoo:mobilenet_v3_small", "--exported", "--json")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert found["nodes"] > plain["nodes"] and "HardSwish" not in found["operators"]
    assert found == json.loads(fusewise("inspect", "zoo:mobilenet_v3_small@exported", "--json").out)
    built = json.loads(
        fusewise("zoo", "build", "mobilenet_v3_small", "--exported", "-o", tmp_path / "m.onnx", "--json").out
    )
    assert built["nodes"] == found["nodes"]
    written = fusewise("optimize", "zoo:mobilenet_v3_small", "--exported", "-o", tmp_path / "better.onnx", "--json")
    assert json.loads(written.out)["model"] == "zoo:mobilenet_v3_small@exported"


@pytest.mark.parametrize("verb", ["inspect", "compile", "run", "bench", "verify", "optimize", "plan", "passes"])
def test_the_exported_form_is_one_of_zoo_models(fusewise, tiny_path, verb):
    refused = fusewise(verb, tiny_path, "--exported")
    assert (refused.status, refused.out) == (2, "")
    assert "--exported is a form of zoo models" in refused.sentence
    assert "leave out that or --exported" in fusewise(verb, "zoo:resnet18@mxnet", "--exported").sentence


def test_a_sweep_names_the_form_itself(fusewise, tmp_path):
    refused = fusewise("plan", "--sweep", tmp_path / "sweep.toml", "--exported")
    assert (refused.status, refused.out) == (2, "")
    assert "write zoo:NAME@exported there" in refused.sentence


def test_compile_json_has_its_keys_and_fills_the_cache(fusewise, tiny_path, tmp_path):
    ended = fusewise("compile", tiny_path, "--json")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert {"compile_ms", "groups", "kernels", "arena_bytes", "host_steps"} <= set(found)
    assert found["host_steps"] == 0
    assert found["kernels"] >= 1
    held = json.loads(fusewise("cache", "info", "--json").out)
    assert held["kernels"]["files"] >= 1 and held["models"]["files"] == 1
    assert all(kept["path"].startswith(str(tmp_path / "cache")) for kept in held.values())
    assert fusewise("cache", "clear").status == 0
    assert all(kept["files"] == 0 for kept in json.loads(fusewise("cache", "info", "--json").out).values())


def test_compile_without_a_cache_writes_nothing(fusewise, tiny_path, tmp_path):
    assert fusewise("compile", tiny_path, "--no-cache").status == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.onnx"]


def test_run_on_given_inputs_writes_outputs(fusewise, tiny_path, tmp_path):
    x = np.array([[1, 2, 3], [-4, 0, 1]], np.float32)
    np.save(tmp_path / "x.npy", x)
    ended = fusewise("run", tiny_path, "--input", f"x={tmp_path / 'x.npy'}", "-o", tmp_path / "y.npy", "--json")
    assert ended.status == 0, ended.err
    assert np.array_equal(np.load(tmp_path / "y.npy"), np.maximum(x @ np.ones((3, 4), np.float32), 0))
    (row,) = json.loads(ended.out)["outputs"]
    assert row == {
        "name": "y",
        "dtype": "float32",
        "shape": [2, 4],
        "min": 0.0,
        "max": 6.0,
        "mean": 3.0,
        "not_finite": 0,
    }


@pytest.mark.parametrize("columns", [60, 80])
def test_run_says_a_line_for_each_output(fusewise, tiny_path, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    ended = fusewise("run", tiny_path)
    name, kind = ended.out.split()[:2]
    assert (name, kind) == ("y", "float32[2,4],")
    assert "mean" in ended.out and "not finite" not in ended.out
    assert all(len(line) <= columns for line in ended.out.splitlines())


def test_inspect_counts_the_groups_that_compile_has(fusewise, write):
    """An average over a plane is written as two here, so that groups as planned and as compiled differ."""
    path = write(
        [onnx.helper.make_node("GlobalAveragePool", ["x"], ["y"])],
        {"x": (1, (1, 16, 56, 56))},
        {"y": (1, (1, 16, 1, 1))},
    )
    found = json.loads(fusewise("inspect", path, "--json").out)
    compiled = json.loads(fusewise("compile", path, "--json").out)
    assert (found["groups_for_machine"], found["group_count"]) == (compiled["groups"], 1)
    shown = fusewise("inspect", path).out
    assert ("as compiled" in shown) == (compiled["groups"] != 1)


def test_run_on_random_inputs_is_seeded(fusewise, tiny_path, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert fusewise("run", tiny_path, "--seed", seed, "-o", tmp_path / f"{name}.npz").status == 0
    a, b, c = (np.load(tmp_path / f"{name}.npz")["y"] for name in "abc")
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_verify_agrees(fusewise, tiny_path):
    ended = fusewise("verify", tiny_path, "--json")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert found["agrees"] is True
    assert found["max_rel_error"] <= 1e-6
    assert found["blame"] is None


def test_verify_ends_with_a_sentence(fusewise, tiny_path):
    ended = fusewise("verify", tiny_path, "--inputs", "hostile")
    assert ended.status == 0, ended.err
    verdict = ended.out.splitlines()[-1]
    assert verdict.startswith(f"{tiny_path}: answers agree with onnxruntime's: output 'y' differs by ")
    assert ", at most 1e-05 (inputs: random, zeros," in verdict
    assert "inputs NaN" in ended.out
    found = json.loads(fusewise("verify", tiny_path, "--inputs", "hostile", "--json").out)
    assert found["sentence"].startswith("answers agree")
    assert [case["inputs"] for case in found["cases"]][:2] == ["random", "zeros"]
    assert fusewise("verify", tiny_path, "--inputs", "kind").status == 2


def test_verify_ends_with_4_when_answers_differ(fusewise, tiny_path, monkeypatch):
    from fusewise import api
    from fusewise.benchmarking.verification import Verification

    wrong = Verification(
        agrees=False,
        reference="onnxruntime",
        errors={"y": 0.5},
        tolerances={"y": 1e-5},
        decisions=7,
        blame="rewrite 'rule' at node 'n' (decision 3)",
        confirmed=True,
        builds=5,
    )
    monkeypatch.setattr(api, "verify", lambda *words, **options: wrong)
    ended = fusewise("verify", tiny_path, "--json")
    assert ended.status == 4
    assert "'y' differs" in ended.sentence
    assert "rewrite 'rule' at node 'n'" in ended.sentence
    assert json.loads(ended.out)["blame"] == wrong.blame


@pytest.mark.slow
def test_bench_json_has_its_keys(fusewise, tiny_path):
    ended = fusewise("bench", tiny_path, "--vs", "onnxruntime", "--runs", "5", "--seconds", "0.01", "--json")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    keys = ["model", "threads", "precision", "machine", "made", "runtimes", "best_peer", "ratio", "max_rel_error"]
    assert list(found) == keys
    assert set(found["runtimes"]) == {"fusewise", "onnxruntime"}
    for row in found["runtimes"].values():
        assert {"p50_ms", "p90_ms", "min_ms", "load_ms", "peak_rss_mb"} <= set(row)
        assert 0 < row["min_ms"] <= row["p50_ms"] <= row["p90_ms"]
        assert row["peak_rss_mb"] > 10
    assert found["best_peer"] == "onnxruntime"
    assert found["max_rel_error"] <= 1e-6
    assert (found["threads"], found["precision"]) == (1, "float32")
    assert found["machine"] == this_machine(found["threads"]) and found["made"]["fusewise"] == VERSION


@pytest.mark.parametrize(
    "milliseconds, text", [(0.0076, "0.0076"), (0.0999, "0.0999"), (0.1, "0.10"), (12.3456, "12.35")]
)
def test_bench_shows_digits_that_say_something(milliseconds, text):
    from fusewise.cli.bench import _ms

    assert _ms(milliseconds) == text


def test_bench_without_peers_draws_a_table(fusewise, tiny_path):
    ended = fusewise("bench", tiny_path, "--vs", "none", "--runs", "3", "--seconds", "0", "--no-weigh")
    assert ended.status == 0, ended.err
    assert "fusewise" in ended.out
    assert "p50 ms" in ended.out


def test_zoo_lists_and_builds(fusewise, tmp_path):
    listed = json.loads(fusewise("zoo", "list", "--json").out)
    assert {"resnet50", "bert_base"} <= {row["name"] for row in listed}
    ended = fusewise("zoo", "build", "squeezenet1_1", "-o", tmp_path / "s.onnx", "--json")
    assert ended.status == 0, ended.err
    assert onnx.load(tmp_path / "s.onnx").graph.input[0].type.tensor_type.shape.dim[1].dim_value == 3


def test_shapes_and_symbols_of_a_free_model(fusewise, write, tmp_path):
    from onnx import TensorProto, helper

    path = write(
        [helper.make_node("Relu", ["x"], ["y"])],
        {"x": (TensorProto.FLOAT, ["batch", "width"])},
        {"y": (TensorProto.FLOAT, ["batch", "width"])},
    )
    shape = lambda *words: json.loads(fusewise("run", path, *words, "--json").out)["outputs"][0]["shape"]  # noqa: E731
    assert shape("--shape", "x=3x5") == [3, 5]
    assert shape("--symbol", "width=7") == [1, 7]
    assert shape("--symbol", "width=2..64,9") == [1, 9]
    assert json.loads(fusewise("compile", path, "--json").out)["symbols"] == ["batch", "width"]
    for wrong in ("width=9..3", "width=2..64,1", "height=3", "width=", "width=1,2"):
        assert fusewise("run", path, "--symbol", wrong).status == 2
    compiled, given = tmp_path / "free.fw", tmp_path / "x.npy"
    np.save(given, np.ones((2, 3), np.float32))
    assert fusewise("compile", path, "-o", compiled).status == 0
    told = lambda *words: json.loads(fusewise("run", compiled, *words, "--json").out)["outputs"][0]["shape"]  # noqa: E731
    assert told("--symbol", "width=5", "--symbol", "batch=3") == [3, 5]
    assert told("-i", f"x={given}") == [2, 3]
    assert fusewise("run", compiled, "--symbol", "height=5").status == 2
    found = json.loads(fusewise("inspect", path, "--json").out)
    assert found["symbols"] == {"batch": 1, "width": 128}
    found = json.loads(fusewise("inspect", path, "--symbol", "batch=3,8", "--json").out)
    assert found["symbols"] == {"batch": 3, "width": 128}
    assert found["inputs"] == {"x": "float32[batch,width]"}
    timed = json.loads(
        fusewise("bench", path, "--no-weigh", "--runs", "2", "--seconds", "0", "--symbol", "width=3,5", "--json").out
    )
    assert [row["symbols"] for row in timed["sizes"]] == [{"width": 3}, {"width": 5}]
    assert all(row["max_rel_error"] == 0 for row in timed["sizes"])
    assert (
        "width=5" in fusewise("bench", path, "--no-weigh", "--runs", "2", "--seconds", "0", "--symbol", "width=3,5").out
    )
    special = ("--no-weigh", "--runs", "2", "--seconds", "0", "--symbol", "width=3,5", "--specialize", "1")
    timed = json.loads(fusewise("bench", path, *special, "--json").out)
    assert all(row["max_rel_error"] == 0 for row in timed["sizes"])
    assert fusewise("bench", path, *special, "--exact").status == 2
    for verb in ("compile", "run"):
        assert fusewise(verb, path, "--specialize", "2").status == 0
        assert fusewise(verb, path, "--specialize", "-1").status == 2
    limited = fusewise("run", path, "--symbol", "width=1..4096,4096", "--memory-limit", "4000")
    assert limited.status == 5
    assert "batch=1, width=4096" in limited.sentence


def test_a_disabled_name_is_passed_on(fusewise, tiny_path):
    assert fusewise("compile", tiny_path, "--disable", "winograd-convolution").status == 0
    said = fusewise("compile", tiny_path, "--disable", "product@nobody")
    assert said.status == 0 and "nothing in this model is decided by product@nobody" in said.sentence


@pytest.mark.parametrize("verb", ["compile", "run", "verify", "bench", "optimize"])
def test_an_unknown_name_to_disable_is_told_with_the_nearest(fusewise, tiny_path, verb):
    refused = fusewise(verb, tiny_path, "--disable", "winnograd-convolution@Conv_3")
    assert (refused.status, refused.out) == (2, "")
    assert "'winnograd-convolution'; did you mean 'winograd-convolution'?" in refused.sentence


@pytest.mark.parametrize(
    "words, near",
    [
        (("inspect", "--fusion", "dnnfuson"), "did you mean 'dnnfusion'?"),
        (("compile", "--fusion", "patern"), "did you mean 'patterns'?"),
        (("compile", "--precision", "bfloat61"), "did you mean 'bfloat16'?"),
        (("optimize", "--search", "gready"), "did you mean 'greedy'?"),
        (("optimize", "--search", "greedy", "--machine", "gqu"), "did you mean 'gpu'?"),
        (("optimize", "--search", "greedy", "--faster-in", "onxruntime"), "did you mean 'onnxruntime'?"),
        (("optimize", "--target", "onnxrt"), "did you mean 'onnx'?"),
        (("bench", "--vs", "onnxrutime"), "did you mean 'onnxruntime'?"),
        (("verify", "--inputs", "hostle"), "did you mean 'hostile'?"),
        (("inspect", "--form", "normal"), "did you mean 'a-normal'?"),
        (("inspect", "--regions", "nativ"), "did you mean 'native'?"),
        (("plan", "--search", "exat"), "did you mean 'exact'?"),
        (("plan", "--hardware", "edge-265k"), "did you mean 'edge-256k'?"),
        (("passes", "--experiment", "papers"), "did you mean 'paper'?"),
    ],
)
def test_unknown_names_are_told_with_the_nearest(fusewise, tiny_path, words, near):
    refused = fusewise(words[0], tiny_path, *words[1:])
    assert (refused.status, refused.out) == (2, "")
    assert near in refused.sentence


def test_an_unknown_architecture_is_told_with_the_nearest(fusewise):
    refused = fusewise("inspect", "zoo:rsenet50")
    assert refused.status == 2
    assert "did you mean 'resnet50'?" in refused.sentence


def test_usage_errors_end_with_2(fusewise, tiny_path, tmp_path):
    for words in (
        ("nonsense",),
        ("inspect",),
        ("inspect", tiny_path, "--no-such-option"),
        ("compile", tiny_path, "--threads", "0"),
        ("compile", tiny_path, "--shape", "x"),
        ("compile", tiny_path, "--shape", "x=1x"),
        ("compile", tiny_path, "--symbol", "n=many"),
        ("bench", tiny_path, "--vs", "tensorfoo"),
        ("run", tiny_path, "-o", tmp_path / "y.txt"),
        ("run", tiny_path, "-o", tmp_path / "no" / "such" / "folder" / "y.npy"),
    ):
        ended = fusewise(*words)
        assert ended.status == 2, words
        assert ended.err, words
        assert ended.out == "", words
        assert "Traceback" not in ended.err, words


@pytest.mark.parametrize(
    "words",
    ["compile {} --symbol n=1 --symbol n=2", "bench {} --symbol n=1 --symbol n=1,2", "run {} --shape x=1 --shape x=2"],
)
def test_a_size_is_given_once(fusewise, tiny_path, words):
    ended = fusewise(*words.format(tiny_path).split())
    assert ended.status == 2
    assert "is given twice for" in ended.sentence


def test_an_unexpected_failure_is_one_sentence_and_status_1(fusewise, tiny_path, monkeypatch):
    from fusewise import api

    def broken(*words, **options):
        raise KeyError("a bug\nof ours")

    monkeypatch.setattr(api, "compile", broken)
    ended = fusewise("compile", tiny_path)
    assert ended.status == 1
    assert ended.err.count("\n") == 1
    assert "internal error: KeyError" in ended.err
    assert "Traceback" in fusewise("compile", tiny_path, "--debug").err


@pytest.mark.parametrize("error, status", [(MemoryError(), 5), (KeyboardInterrupt(), 130)])
def test_full_memory_and_interruption_have_their_statuses(fusewise, tiny_path, monkeypatch, error, status):
    from fusewise import api

    def stopped(*words, **options):
        raise error

    monkeypatch.setattr(api, "compile", stopped)
    assert fusewise("compile", tiny_path).status == status


def test_help_and_version_load_nothing_heavy():
    code = (
        "import sys\nfrom fusewise.cli.main import run\n"
        "assert run(['--help']) == 0\n"
        "heavy = {'numpy', 'onnx', 'llvmlite', 'torch', 'rich', 'onnxruntime'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "inspect" in done.stdout


def test_a_reader_that_leaves_early_is_no_error():
    words = [sys.executable, "-m", "fusewise", "zoo", "list", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        said = process.stderr.read()
        process.wait(60)
    assert b"Traceback" not in said


def test_bench_profiles_and_traces(fusewise, tiny_path, tmp_path):
    quick = ("--vs", "none", "--no-weigh", "--runs", "1", "--seconds", "0")
    ended = fusewise("bench", tiny_path, *quick, "--profile", "--trace", tmp_path / "t.json", "--json")
    assert ended.status == 0
    found = json.loads(ended.out)["profile"]
    assert found["machine"]["threads"] == 1
    assert [row["operators"] for row in found["groups"]] == ["MatMul+Relu"]
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X"}
    ended = fusewise("bench", tiny_path, *quick, "--profile")
    assert "MatMul+Relu" in ended.out
    assert "GFLOP/s" in ended.out
    assert "profile" not in json.loads(fusewise("bench", tiny_path, *quick, "--json").out)


def test_a_trace_that_cannot_be_written(fusewise, tiny_path, tmp_path):
    ended = fusewise(
        "bench",
        tiny_path,
        "--vs",
        "none",
        "--no-weigh",
        "--runs",
        "1",
        "--seconds",
        "0",
        "--trace",
        tmp_path / "no" / "t.json",
    )
    assert ended.status == 2
    assert "t.json" in ended.sentence


def test_a_batch_that_a_model_cannot_have(fusewise, tiny_path):
    b = GraphBuilder()
    path = tiny_path.with_name("joined.onnx")
    joined = b.op("Concat", b.input("x", (1, 4)), b.constant(np.ones((1, 3), np.float32)), axis=1, name="joined")
    save(b.finish(joined), path)
    ended = fusewise("bench", path, "--batch", "2")
    assert ended.status == 2
    assert "cannot be run for a batch of 2: node 'joined'" in ended.sentence


@pytest.mark.parametrize("verb", ["compile", "run", "verify"])
def test_verbs_take_a_checked_build(fusewise, tiny_path, verb):
    ended = fusewise(verb, tiny_path, "--sanitize")
    assert ended.status == 0, ended.err
    assert ended.err == ""


def test_an_index_out_of_bounds_is_one_sentence(fusewise, tmp_path):
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gather", ["table", "at"], ["found"], name="look up")],
        "graph",
        [
            onnx.helper.make_tensor_value_info("table", onnx.TensorProto.FLOAT, [4, 2]),
            onnx.helper.make_tensor_value_info("at", onnx.TensorProto.INT64, [3]),
        ],
        [onnx.helper.make_tensor_value_info("found", onnx.TensorProto.FLOAT, [3, 2])],
    )
    onnx.save(onnx.helper.make_model(graph, ir_version=9), tmp_path / "model.onnx")
    np.save(tmp_path / "at.npy", np.array([0, 4, 1]))
    ended = fusewise("run", tmp_path / "model.onnx", "--input", f"at={tmp_path / 'at.npy'}")
    assert ended.status == 2
    assert ended.sentence.startswith(
        "node 'look up' (Gather) finds 4 in its operand 'at', where only -4 to 3 are allowed"
    )


def test_bench_counts_memory_without_and_with_fusion(fusewise, tiny_path):
    words = ("bench", tiny_path, "--vs", "none", "--no-weigh", "--runs", "2", "--seconds", "0", "--memory")
    ended = fusewise(*words, "--json")
    assert ended.status == 0, ended.err
    apart, together = json.loads(ended.out)["memory"]["variants"].values()
    assert (apart["groups"], together["groups"]) == (2, 1)
    assert apart["loads"] > together["loads"] > 0
    shown = fusewise(*words, "--caches", "4K:4,16K:8").out
    assert "modelled caches L1 4 KiB, L2 16 KiB" in shown
    assert "without fusion" in shown and "of peak" in shown
    assert "MatMul+Relu" in shown.partition("the groups that miss most")[2]


def test_caches_that_are_none_are_a_wrong_word(fusewise, tiny_path):
    ended = fusewise("bench", tiny_path, "--vs", "none", "--caches", "small")
    assert ended.status == 2
    assert "is no cache" in ended.sentence


@pytest.fixture
def sliced_path(tmp_path):
    """y = Slice(x, starts, ends), starts and ends inputs."""
    b = GraphBuilder()
    x, starts, ends = b.input("x", (4, 3)), b.input("starts", (1,), INT64), b.input("ends", (1,), INT64)
    path = tmp_path / "sliced.onnx"
    save(b.finish(b.op("Slice", x, starts, ends)), path)
    return path


def test_contents_of_inputs(fusewise, sliced_path):
    values = ("--value", "starts=[1]", "--value", "ends=[3]")
    ended = fusewise("compile", sliced_path, "--no-cache", "--json")
    assert json.loads(ended.out)["host_steps"] == 1
    ended = fusewise("compile", sliced_path, "--no-cache", "--strict", "--json", *values)
    assert (ended.status, json.loads(ended.out)["host_steps"]) == (0, 0), ended.err
    ended = fusewise("run", sliced_path, "--no-cache", "--json", *values)
    assert json.loads(ended.out)["outputs"][0]["shape"] == [2, 3]
    ended = fusewise("verify", sliced_path, "--json", *values)
    assert (ended.status, json.loads(ended.out)["agrees"]) == (0, True), ended.err
    ended = fusewise("inspect", sliced_path, "--json", *values)
    assert json.loads(ended.out)["host_nodes"] == 0


@pytest.mark.parametrize(
    "given", ["starts", "starts=", "starts=[1", "=[1]", 'starts={"a": 1}', "other=[1]", "starts=[0.5]"]
)
def test_contents_that_are_none(fusewise, sliced_path, given):
    ended = fusewise("compile", sliced_path, "--no-cache", "--value", given)
    assert ended.status == 2
    assert "--value" in ended.err or "value" in ended.err


def test_more_threads_than_cores_are_told_of(fusewise, tiny_path, monkeypatch):
    from fusewise.runtime import host

    usual = host.worker_count
    monkeypatch.setattr(
        host, "worker_count", lambda requested=None, *rest: 2 if requested is None else usual(requested)
    )
    ended = fusewise("compile", tiny_path, "--threads", "64", "--no-cache")
    assert ended.status == 0
    assert ended.sentence.startswith("64 threads share 2 cores here: they wait for each other")
    assert fusewise("compile", tiny_path, "--threads", "2", "--no-cache").err == ""
    assert fusewise("compile", tiny_path, "--threads", "257").status == 2


def test_sizes_have_units_everywhere(fusewise, tiny_path):
    for words in (("plan", tiny_path, "--buffer", "256"), ("compile", tiny_path, "--memory-limit", "256")):
        refused = fusewise(*words)
        assert (refused.status, refused.out) == (2, "")
        assert "did you mean 256KiB?" in refused.sentence
    assert fusewise("run", tiny_path, "--memory-limit", "64MiB").status == 0
