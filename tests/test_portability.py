"""Machines side by side: what a file must be, the table, the drawing."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from benchmarks.portability import KIND, drawing, installed, measured, read, table

from fusewise.benchmarking.timing import TimingBudget

ROOT = Path(__file__).parent.parent
SVG = "{http://www.w3.org/2000/svg}"


def result(model: str, ours: float, **others: float) -> dict[str, Any]:
    medians = {"ms": {"fusewise": ours, **others}, "ratios": {name: ms / ours for name, ms in others.items()}}
    fastest = {"ms": {"fusewise": ours / 2, **others}, "ratios": {name: 2 * ms / ours for name, ms in others.items()}}
    return {"model": model, "p50": medians, "min": fastest, "errors": {}, "max_rel_error": 1e-6}


def written(folder: Path, name: str, held: str | None, results: list[dict[str, Any]]) -> Path:
    machine = {"processor": f"A <{name}> & co", "cpu": "znver4", "held": held, "threads": 2}
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"kind": KIND, "machine": machine, "results": results}))
    return path


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    first = [result("gpt2", 10.0, onnxruntime=15.0, openvino=9.0), {"model": "unet", "error": "no room"}]
    second = [result("gpt2", 30.0, onnxruntime=36.0) | {"errors": {"openvino": "no"}}, result("vgg16", 5.0)]
    return [written(tmp_path, "one", None, first), written(tmp_path, "two", "avx2", second)]


def test_a_row_for_each_model_and_a_column_for_each_machine(paths: list[Path]) -> None:
    lines = table([read(path) for path in paths]).splitlines()
    assert lines[0] == "| model | A <one> & co (znver4), 2 threads | A <two> & co (znver4, held to avx2), 2 threads |"
    assert lines[2:] == [
        "| gpt2 | 10.00 ms, onnxruntime 1.50x, openvino 0.90x | 30.00 ms, onnxruntime 1.20x, openvino cannot run it |",
        "| unet | no room |  |",
        "| vgg16 |  | 5.00 ms |",
    ]


def test_fastest_runs_may_be_shown_instead(paths: list[Path]) -> None:
    assert table([read(paths[1])], "min").splitlines()[3] == "| vgg16 | 2.50 ms |"


def test_the_drawing_has_a_bar_for_every_figure(paths: list[Path]) -> None:
    labels = [
        e.get("aria-label", "") for e in ET.fromstring(drawing([read(path) for path in paths])).iter() if is_bar(e)
    ]
    assert len(labels) == 6  # three and two of gpt2, one of vgg16; nothing of what could not be run
    wanted = ("panel: gpt2", "group: 1. A <one> & co\\nznver4", "kind: onnxruntime", "times as long: 1.5")
    assert any(all(part in label for part in wanted) for label in labels)


def is_bar(element: ET.Element) -> bool:
    return element.get("aria-roledescription") == "bar"


def test_the_command_shows_and_draws(paths: list[Path], tmp_path: Path) -> None:
    svg = tmp_path / "both.svg"
    words = [sys.executable, "-m", "benchmarks.portability", "--show", *map(str, paths), "--svg", str(svg)]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[2].startswith("| gpt2 |")
    assert svg.read_text().startswith("<svg")


@pytest.mark.parametrize(
    "text, reason", [("{", "is no JSON"), ("[1]", "was not written by"), ('{"kind": "else"}', "was not written by")]
)
def test_another_file_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=reason):
        read(path)
    with pytest.raises(ValueError, match="cannot be read"):
        read(tmp_path / "missing.json")


def test_a_model_that_nobody_has_is_a_result() -> None:
    assert "has a model called 'nothing'" in measured("nothing", (), 1, TimingBudget(runs=1, seconds=0))["error"]


def test_what_is_installed_is_known() -> None:
    assert "torch" not in installed()
