"""`fusewise report`: files in every format, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.reporting.document.test_collect import small

import fusewise as package


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "m.onnx"
    package.save(small(), path)
    return path


def test_a_report_is_written_and_read_back(fusewise: Any, model: Path, tmp_path: Path) -> None:
    written = fusewise("report", model, "-o", tmp_path / "r.json", "--seed", "1")
    assert written.status == 0 and "wrote" in written.err and written.out == ""
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["made"]["command"].startswith(f"fusewise report {model} -o")
    assert document["title"] == str(model) and document["times"]["ms"] > 0
    for name in ("r.html", "r.dot", "r.perfetto.json", "r.model-explorer.json", "r.node-data.json"):
        assert fusewise("report", tmp_path / "r.json", "-o", tmp_path / name).status == 0
        assert (tmp_path / name).stat().st_size > 100
    assert fusewise("report", tmp_path / "r.json", "-o", tmp_path / "page.txt", "--format", "html").status == 0
    assert (tmp_path / "page.txt").read_text().startswith("<!doctype html>")


def test_what_is_not_installed_is_told(
    fusewise: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Charts are left out with a sentence; what pages are made with is asked for before any work."""
    page = tmp_path / "r.html"
    monkeypatch.setitem(sys.modules, "altair", None)
    written = fusewise("report", model, "-o", page, "--no-times")
    assert written.status == 0 and "there are no charts in it: charts are drawn by Altair, which is not" in written.err
    assert "It has no charts" in page.read_text()
    assert "charts" not in fusewise("report", model, "-o", tmp_path / "r.dot", "--no-times").err
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setattr("fusewise.api.report", None)
    refused = fusewise("report", model, "-o", page)
    assert refused.status == 2 and 'is not installed: pip install "fusewise[report]"' in refused.err


@pytest.mark.parametrize(
    "words, status, told",
    [
        (("m.onnx", "-o", "r.txt"), 2, "a report is written as .html, .model-explorer.json"),
        (("m.onnx", "-o", "r.json", "--format", "xml"), 2, "there is no format of reports 'xml'"),
        (("m.onnx", "-o", "none/r.json"), 2, "there is no folder none"),
        (("m.fw", "-o", "r.json"), 2, "give the model it comes from"),
        (("none.json", "-o", "r.html"), 2, "cannot read none.json"),
        (("broken.json", "-o", "r.html"), 3, "broken.json is not a report: "),
        (("plan.json", "-o", "r.html"), 3, "its schema is 'fusewise-plan', not 'fusewise-report'"),
        (
            ("later.json", "-o", "r.html"),
            3,
            "is a report of version 2, and this program reads version 1: make it again",
        ),
        (("later.json", "-o", "r.html", "--exact"), 2, "leave out --exact"),
        (("parts.json", "-o", "r.html"), 3, "parts.json is not a whole report: "),
        (("parts.json", "-o", "r.dot"), 3, "parts.json is not a whole report: "),
    ],
)
def test_what_is_refused_is_said_in_a_sentence_and_nothing_is_written(
    fusewise: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], status: int, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.json").write_text('{"schema": "fusewise-report", ')
    Path("plan.json").write_text('{"schema": "fusewise-plan"}')
    Path("later.json").write_text('{"schema": "fusewise-report", "version": 2}')
    Path("parts.json").write_text('{"schema": "fusewise-report", "version": 1, "title": "t", "graphs": {"native": 1}}')
    there = sorted(Path().iterdir())
    ended = fusewise("report", *words)
    assert ended.status == status and told in ended.err and ended.err.count("\n") == 1
    assert sorted(Path().iterdir()) == there


def test_two_reports_are_compared(fusewise: Any, model: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert fusewise("report", model, "-o", first).status == 0
    assert fusewise("report", model, "-o", second, "--fusion", "none", "--no-times").status == 0
    shown = fusewise("report", first, second)
    assert shown.status == 0 and not shown.err, shown
    for words in ("time of a run, ms", "compile time, ms", "option fusion", "and none", "only in the second"):
        assert words in shown.out
    page, data = tmp_path / "difference.html", tmp_path / "difference.json"
    assert fusewise("report", first, second, "-o", page).out == shown.out and page.read_text().startswith(
        "<!doctype html>"
    )
    assert fusewise("report", first, second, "-o", data).status == 0
    found = json.loads(data.read_text())
    assert {"what": "option fusion", "first": "-", "second": "none"} in found["comparison"]["differences"]
    assert found["made"]["command"] == f"fusewise report {first} {second} -o {data}"
    assert any(row["regrouped"] for row in found["comparison"]["groups"])


def test_reports_that_cannot_be_compared(fusewise: Any, model: Path, tmp_path: Path) -> None:
    first, other = tmp_path / "first.json", tmp_path / "other.json"
    assert fusewise("report", model, "-o", first, "--no-times").status == 0
    assert fusewise("report", "zoo:squeezenet1_1", "-o", other, "--no-times").status == 0
    for words, sentence in (
        ((first, other), "are not the same model; --force compares"),
        ((first, model), "is none"),
        ((first, first, "--exact"), "leave out --exact"),
        ((first,), "say which file to write"),
        ((first, "-o", tmp_path / "x.html", "--force"), "--force compares two reports"),
    ):
        ended = fusewise("report", *words)
        assert ended.status == 2 and sentence in ended.sentence and not ended.out, ended
    assert fusewise("report", first, other, "--force").status == 0
