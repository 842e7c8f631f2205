"""`--report`: every verb writes what it did as data and as a page, says and does what it says and does without, and writes nothing
where it cannot write all."""

from __future__ import annotations

import json

import pytest

from fusewise.benchmarking.verification import Verification
from fusewise.cli.show import with_size
from fusewise.trace import Event

VERBS = {
    "compile": (),
    "verify": (),
    "bench": ("--vs", "none", "--runs", "2", "--seconds", "0", "--no-weigh"),
    "optimize": ("--search", "greedy", "--faster-in", "none"),
    "passes": ("--no-measure",),
    "plan": ("--search", "exact"),
}
PARTS = {"verify": "verification", "bench": "bench", "optimize": "search", "passes": "passes", "plan": "plan"}
MODEL = "zoo:squeezenet1_1"


@pytest.mark.parametrize("verb", VERBS)
def test_a_report_is_data_of_what_the_verb_did(fusewise, tiny_path, tmp_path, verb):
    model = MODEL if verb == "plan" else tiny_path
    path = tmp_path / "report.json"
    ended = fusewise(verb, model, *VERBS[verb], "--report", path, "--json")
    assert ended.status == 0, ended
    told, document = json.loads(ended.out), json.loads(path.read_text())
    assert [line for line in ended.err.splitlines() if str(path) in line] == [f"fusewise: wrote {with_size(path)}"]
    assert (document["schema"], document["verb"], document["title"]) == ("fusewise-report", verb, str(model))
    assert document["made"]["command"].startswith(f"fusewise {verb} ") and document["model"]["name"] == str(model)
    assert document["graphs"]["written"]["nodes"] and document["stages"][0]["id"] == "written"
    if verb in PARTS:
        assert document[PARTS[verb]]
    if verb == "plan":
        assert document["plan"]["summary"]["dram_bytes"] == told["dram_bytes"]
        assert len(document["groups"]) == told["groups"]
        nodes = document["graphs"]["native"]["nodes"]
        assert all(nodes[k]["group"] == group["id"] for group in document["groups"] for k in group["nodes"])
        boxes = document["graphs"]["native"]["outline"]
        assert [box["group"] for box in boxes if box["kind"] == "group"] == [
            group["id"] for group in document["groups"]
        ]
        drawn = [inner["node"] for box in boxes for inner in box.get("children", [box])]
        assert sorted(drawn) == [node["id"] for node in nodes]
    if verb == "optimize":
        assert document["search"]["cost_after"] == told["cost_after"]
        assert len(document["graphs"]["clean"]["nodes"]) == told["nodes"]
    if verb == "bench":
        assert document["bench"]["sizes"][0]["runtimes"][0]["p50_ms"] == told["runtimes"]["fusewise"]["p50_ms"]
        assert document["times"]["ms"] > 0
    if verb == "compile":
        assert len(document["groups"]) == told["groups"] and len(document["kernels"]) == told["kernels"]


def test_the_verb_says_what_it_says_without(fusewise, tiny_path, tmp_path):
    without = fusewise("verify", tiny_path)
    ended = fusewise("verify", tiny_path, "--report", tmp_path / "page.html")
    assert (ended.status, ended.out) == (without.status, without.out)
    assert ended.err.count("\n") == without.err.count("\n") + 1
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_lists_beside_one_another_have_a_report(fusewise, tiny_path, tmp_path):
    path = tmp_path / "lists.json"
    ended = fusewise("passes", tiny_path, "--experiment", "levels", "--no-measure", "--report", path)
    assert ended.status == 0, ended
    assert len(json.loads(path.read_text())["passes"]["experiment"]["rows"]) > 2


def test_answers_that_differ_are_reported(fusewise, tiny_path, tmp_path, monkeypatch):
    from fusewise import api

    wrong = Verification(
        False, "onnxruntime", {"y": 0.5}, {"y": 1e-5}, 7, blame="it", blamed=Event(3, "rewrite", "r", ("n",))
    )
    monkeypatch.setattr(api, "verify", lambda *words, **options: wrong)
    path = tmp_path / "report.json"
    ended = fusewise("verify", tiny_path, "--report", path)
    found = json.loads(path.read_text())["verification"]
    assert ended.status == 4 and "'y' differs" in ended.err
    assert not found["agrees"] and found["blamed"]["option"] == "--disable r@n"


@pytest.mark.parametrize("verb", VERBS)
def test_a_file_that_cannot_be_is_told_before_any_work(fusewise, tiny_path, tmp_path, verb):
    for name, sentence in (("report.txt", ".html or .json"), ("none/report.html", "no folder")):
        ended = fusewise(verb, tiny_path, *VERBS[verb], "--report", tmp_path / name)
        assert ended.status == 2 and sentence in ended.sentence and not ended.out, ended
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("report")] == []


def test_a_sweep_has_no_report(fusewise, tmp_path):
    ended = fusewise("plan", "--sweep", tmp_path / "sweep.toml", "--report", tmp_path / "report.html")
    assert ended.status == 2 and "one plan" in ended.sentence
