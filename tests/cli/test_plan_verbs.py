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
        (("--buffer", "10"), 6, "smallest buffer that would do"),
        (("-o", tmp_path / "plan.txt"), 2, ".json, .onnx, .html"),
        (("--set", "granularity"), 2, "OPTION=VALUE"),
        (("--hardware", tmp_path / "none.toml"), 2, "cannot be read"),
    ):
        ended = fusewise("plan", MODEL, "--search", "random", "--plans", "2", *words)
        assert ended.status == status and sentence in ended.sentence, ended
    assert not list(tmp_path.iterdir())


def test_a_hardware_file_with_a_wrong_key(fusewise, tmp_path):
    path = tmp_path / "chip.toml"
    path.write_text("buffer_byte = 1000\n")
    ended = fusewise("plan", MODEL, "--hardware", path)
    assert ended.status == 2 and "did you mean 'buffer_bytes'" in ended.sentence
