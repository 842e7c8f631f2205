"""The benchmark of reports tells a model that gives none from one that does."""

from __future__ import annotations

from pathlib import Path

from benchmarks.reports import line, reported


def test_a_model_without_a_report(tmp_path: Path) -> None:
    found = reported(str(tmp_path / "gone.onnx"), tmp_path, 60.0)
    assert found["json"]["bytes"] is None and "html" not in found
    assert found["json"]["said"].startswith("status 2: ") and "gone.onnx" in found["json"]["said"]
    assert line(found).count("|") == 7 and "gone.onnx" in line(found)


def test_a_row() -> None:
    parts = {
        "json": {"s": 2.0, "bytes": 1_500_000, "said": ""},
        "html": {"s": 1.0, "bytes": 900_000, "said": "a warning"},
    }
    assert line({"model": "zoo:a", **parts}) == "| a | 2.0 | 1.5 | 1.0 | 0.9 | a warning |"
