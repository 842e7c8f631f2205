"""`plan` and `explain` on the command line."""

from __future__ import annotations

import json

MODEL = "zoo:squeezenet1_1"


def test_plan_to_files_and_explain(fusewise, tmp_path):
    outputs = [tmp_path / f"plan{ending}" for ending in (".json", ".onnx", ".html")]
    words = [word for path in outputs for word in ("-o", path)]
    ended = fusewise("plan", MODEL, "--buffer", "128KiB", "--search", "local", "--plans", "50", *words, "--json")
    assert ended.status == 0, ended
    found = json.loads(ended.out)
    for key in (
        "dram_bytes",
        "dram_bytes_full",
        "max_buffer_bytes",
        "groups",
        "excluded",
        "optimal",
        "lower_bound_bytes",
    ):
        assert key in found
    assert all(path.stat().st_size > 1000 for path in outputs)
    shown = fusewise("plan", MODEL, "--buffer", "128KiB", "--search", "local", "--plans", "50")
    assert shown.status == 0 and "largest buffer need" in shown.out and "left out" in shown.out
    told = fusewise("explain", outputs[0], "--group", "1")
    assert told.status == 0 and "weights" in told.out
    assert json.loads(fusewise("explain", outputs[0], "--group", "1", "--json").out)["group"] == 1


def test_refusals(fusewise, tmp_path):
    for words, status, sentence in (
        (("--scheme", "brrr"), 2, "did you mean 'brr'"),
        (("--buffer", "10B"), 6, "smallest buffer that would do"),
        (("-o", tmp_path / "plan.txt"), 2, ".json, .onnx, .html"),
        (("--set", "granularity"), 2, "OPTION=VALUE"),
        (("--hardware", tmp_path / "none.toml"), 2, "cannot be read"),
        (("--asking", "agian"), 2, "asked anew or once, not 'agian'"),
        (("--edits", "1"), 2, "the random search takes no edits"),
    ):
        ended = fusewise("plan", MODEL, "--search", "random", "--plans", "2", *words)
        assert ended.status == status and sentence in ended.sentence, ended
    assert not list(tmp_path.iterdir())


def test_the_published_local_search_and_both_rectify_rates(fusewise):
    words = ("--search", "local", "--edits", "1", "--plans", "60", "--explainer", "spread", "--share", "0.1")
    found = {}
    for asking in ("anew", "once"):
        ended = fusewise("plan", MODEL, "--buffer", "128KiB", *words, "--asking", asking, "--json")
        found[asking] = json.loads(ended.out)
    assert found["anew"]["rectify_rate"] == 1 > found["once"]["rectify_rate"] == found["once"]["rectify_rate_once"]
    assert found["anew"]["rectified"] >= found["anew"]["rectified_once"] > 0
    shown = fusewise("plan", MODEL, "--buffer", "128KiB", *words).out
    assert "by explanations alone (100.0%)" in shown and "by the first one" in shown


def test_a_hardware_file_with_a_wrong_key(fusewise, tmp_path):
    path = tmp_path / "chip.toml"
    path.write_text("buffer_byte = 1000\n")
    ended = fusewise("plan", MODEL, "--hardware", path)
    assert ended.status == 2 and "did you mean 'buffer_bytes'" in ended.sentence


def test_a_sweep_whose_tasks_fail_in_several_ways_has_no_plan(fusewise, tmp_path):
    broken, file = tmp_path / "broken.onnx", tmp_path / "sweep.toml"
    broken.write_bytes(b"no model")
    file.write_text(f'models = ["zoo:nosuch", "{broken}"]\n')
    assert fusewise("plan", "--sweep", file, "-o", tmp_path / "results.jsonl", "--json").status == 6


def test_a_sweep_says_whole_why_there_is_no_plan(fusewise, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    file = tmp_path / "sweep.toml"
    file.write_text('models = ["zoo:nosuch"]\nseeds = [0, 1]\n')
    ended = fusewise("plan", "--sweep", file, "-o", tmp_path / "results.jsonl")
    assert ended.status == 2, "as all tasks failed"
    told = " ".join(ended.out.split())
    assert "no plan of zoo:nosuch, 2 times: the zoo has no model called 'nosuch'" in told and told.endswith("all.")
    assert all(len(line) <= 60 for line in ended.out.splitlines())
