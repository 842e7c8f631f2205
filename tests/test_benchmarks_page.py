"""The page of benchmarks says what the files say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.page import drawing, kept, machines_in, page, read, row_of

MACHINE = {
    "processor": "Some <CPU>",
    "cpu": "generic",
    "threads": 2,
    "date": "2026-01-31",
    "versions": {"numpy": "2.0"},
}


def result(model: str, ours: float, **others: float) -> dict[str, Any]:
    runtimes = {
        name: {"p50_ms": ms, "min_ms": ms * 0.5, "p90_ms": ms * (2 if name == "fusewise" else 4)}
        for name, ms in {"fusewise": ours, **others}.items()
    }
    return {"model": f"zoo:{model}", "runtimes": runtimes, "max_rel_error": 1e-6}


def test_a_table_for_each_machine() -> None:
    files = [
        {"machine": MACHINE, "results": [result("a", 1.0, x=2.0, y=8.0), {"model": "zoo:c", "error": "no such"}]},
        {"machine": {**MACHINE, "threads": 1}, "results": [result("a", 2.0, x=2.0)]},
        {"machine": MACHINE, "results": [result("b", 4.0, x=32.0)]},
    ]
    text = page(files)
    assert text.count("\n## ") == 2 and "\n## Some <CPU> (generic), 2 threads\n" in text
    assert "| a | 1.00 | 2.00 (2.00 to 4.00) | 8.00 (8.00 to 16.00) | 1.0e-06 |" in text
    assert "| c | no such |  |  |  |" in text and "Measured 2026-01-31" in text and "numpy 2.0" in text
    assert "| **geometric mean** |  | **4.00** | **8.00** |  |" in text
    assert "Against the fastest other runtime of each model: **4.00**" in text


def test_several_files_of_a_machine_are_runs_of_it() -> None:
    files = [{"machine": MACHINE, "results": [result("a", 1.0, x=ratio)]} for ratio in (1.0, 3.0, 2.0)]
    ((_, (row,)),) = machines_in(files)
    assert row.ratios["x"] == (2.0, 1.0, 3.0, 2.0) and "| 2.00 (1.00 to 3.00) |" in page(files)


def test_what_bench_printed(tmp_path: Path) -> None:
    """Of the machine of another file it is a run of that."""
    path, about = (
        tmp_path / "bench.json",
        {
            "machine": {
                "processor": "Some <CPU>",
                "threads": 2,
                "instruction_set": "generic: 16 vector registers of 128 bits",
            },
            "made": {"fusewise": "0.1.0", "at": "2026-02-03T00:00:00Z"},
        },
    )
    path.write_text(json.dumps({**result("a", 1.0, x=2.0), **about}))
    others = {"machine": MACHINE, "results": [result("a", 1.0, x=4.0)]}
    ((_, (row,)),) = machines_in([read(path), others])
    assert row.ratios["x"] == (3.0, 2.0, 4.0)
    sizes = [{**result("a", 1.0, x=ratio), "symbols": {"n": n}} for n, ratio in ((1, 2.0), (8, 4.0))]
    path.write_text(json.dumps({"model": "m.onnx", "sizes": sizes, **about}))
    text = page([read(path)])
    assert "| m.onnx, n=1 | 1.00 | 2.00" in text and "| m.onnx, n=8 | 1.00 | 4.00" in text
    assert (
        "Measured 2026-02-03" in text and "fusewise 0.1.0" in text and "\n## Some <CPU> (generic), 2 threads\n" in text
    )


def test_what_portability_wrote() -> None:
    row = row_of(
        {
            "model": "m",
            "p50": {"ms": {"fusewise": 2.0, "x": 3.0}},
            "min": {"ms": {"fusewise": 1.0, "x": 1.0}},
            "errors": {"y": "cannot"},
            "max_rel_error": None,
        }
    )
    assert (row.ms, row.ratios, row.errors) == (2.0, {"x": (1.5, 1.0)}, {"y": "cannot"})


@pytest.mark.parametrize("text", ["{", "[]", '{"machine": {}}', '{"results": []}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "f.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"f\.json"):
        read(path)
    with pytest.raises(ValueError, match="cannot be read"):
        read(tmp_path / "gone.json")


def test_what_is_kept_makes_a_page_and_a_drawing() -> None:
    files = kept()
    assert files and all(file["machine"]["date"] for file in files)
    assert json.dumps(files).count("/home") == 0
    picture = drawing(files)
    assert picture.startswith("<svg") and "geometric mean" in picture and "http://www.w3.org" in picture
