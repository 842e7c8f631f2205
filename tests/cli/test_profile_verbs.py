"""`fusewise profile`: info, measure, clear, export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.gpu.kernels import needs_triton

from fusewise.runtime.measure import machine_name
from fusewise.runtime.profile import ProfileDatabase


@pytest.fixture
def filled(fusewise: Any, tmp_path: Path) -> ProfileDatabase:
    database = ProfileDatabase(tmp_path / "cache", machine_name())
    database.record("a", [2.0, 1.0, 3.0], "Conv+Relu")
    database.fail("b", "TopK runs on the host", "TopK")
    return database


def test_info(fusewise: Any, filled: ProfileDatabase) -> None:
    ended = fusewise("profile", "info")
    assert ended.status == 0
    assert str(filled.info().path) in ended.out
    found = json.loads(fusewise("profile", "info", "--json").out)
    assert list(found) == ["path", "entries", "failed", "bytes", "machine"]
    assert (found["entries"], found["failed"], found["machine"]) == (2, 1, machine_name())


def test_info_of_nothing(fusewise: Any) -> None:
    found = json.loads(fusewise("profile", "info", "--json").out)
    assert (found["entries"], found["failed"]) == (0, 0)


def test_export_in_lines_and_as_one_array(fusewise: Any, filled: ProfileDatabase, tmp_path: Path) -> None:
    expected = [
        {"key": "a", "what": "Conv+Relu", "median_ns": 2.0, "spread_ns": 1.0, "count": 3, "failure": ""},
        {
            "key": "b",
            "what": "TopK",
            "median_ns": None,
            "spread_ns": None,
            "count": 0,
            "failure": "TopK runs on the host",
        },
    ]
    assert [json.loads(line) for line in fusewise("profile", "export").out.splitlines()] == expected
    assert json.loads(fusewise("profile", "export", "--json").out) == expected
    path = tmp_path / "out.jsonl"
    ended = fusewise("profile", "export", "-o", path)
    assert (ended.status, ended.out) == (0, "")
    assert [json.loads(line) for line in path.read_text().splitlines()] == expected


def test_export_to_where_nothing_can_be_written(fusewise: Any, filled: ProfileDatabase, tmp_path: Path) -> None:
    ended = fusewise("profile", "export", "-o", tmp_path / "missing" / "out.jsonl")
    assert ended.status == 2
    assert "missing" in ended.sentence


def test_clear(fusewise: Any, filled: ProfileDatabase) -> None:
    assert json.loads(fusewise("profile", "clear", "--json").out)["removed"] == 2
    assert "removed 0 measurements" in fusewise("profile", "clear").out
    assert filled.entries() == []


def test_a_damaged_file_is_a_warning(fusewise: Any, filled: ProfileDatabase) -> None:
    path = filled.info().path
    assert path is not None
    filled.close()
    path.write_bytes(b"nothing of ours" * 50)
    ended = fusewise("profile", "info", "--json")
    assert ended.status == 0
    assert json.loads(ended.out)["entries"] == 0
    assert "left alone" in ended.sentence


def test_tuning_fills_the_database_and_is_remembered(fusewise: Any, tiny_path: Path) -> None:
    found = json.loads(fusewise("compile", tiny_path, "--tune", "4", "--json").out)
    assert found["tuning"]["kept"] in ("default", "tuned")
    assert json.loads(fusewise("profile", "info", "--json").out)["entries"] > 0
    assert json.loads(fusewise("compile", tiny_path, "--json").out)["tuning"] == found["tuning"]
    assert "tuned" in fusewise("compile", tiny_path).out
    assert fusewise("run", tiny_path, "--tune", "0.1").status == 0
    assert fusewise("bench", tiny_path, "--tune", "0.1", "--vs", "none", "--no-weigh", "--seconds", "0").status == 0


@pytest.mark.parametrize(
    "words, sentence",
    [
        (("--tune", "-1"), "--tune"),
        (("--tune", "soon"), "--tune"),
        (("--tune", "nan"), "--tune"),
        (("--tune", "inf"), "seconds to tune"),
        (("--tune", "1", "--no-cache"), "switched off"),
    ],
)
def test_seconds_that_are_none(fusewise: Any, tiny_path: Path, words: tuple[str, ...], sentence: str) -> None:
    ended = fusewise("compile", tiny_path, *words)
    assert ended.status == 2
    assert sentence in ended.err


def test_a_compiled_file_cannot_be_tuned(fusewise: Any, tiny_path: Path, tmp_path: Path) -> None:
    assert fusewise("compile", tiny_path, "-o", tmp_path / "m.fw").status == 0
    ended = fusewise("run", tmp_path / "m.fw", "--tune", "1")
    assert ended.status == 2
    assert "--tune has no meaning" in ended.sentence


def test_groups_are_measured_and_then_known(fusewise: Any, tiny_path: Path) -> None:
    first, second = (json.loads(fusewise("profile", "measure", tiny_path, "--json").out) for _ in range(2))
    (row,), (again,) = first["groups"], second["groups"]
    assert (row["operators"], row["known"], row["failure"], again["known"]) == ("MatMul+Relu", False, "", True)
    assert again["us"] == row["us"] > 0
    shown = fusewise("profile", "measure", tiny_path)
    assert "MatMul+Relu" in shown.out and "before" in shown.out


@needs_triton
def test_groups_on_a_gpu(fusewise: Any, tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fusewise import choices
    from fusewise.runtime.gpu import drivers, measure, timing
    from fusewise.runtime.gpu.fake import FakeDriver

    ended = fusewise("profile", "measure", tiny_path, "--device", "gpu")
    assert (ended.status, "no device 'gpu'" in ended.sentence) == (2, True)
    monkeypatch.setattr(measure, "chain_times", lambda driver, launches, *_: timing.chain_times(driver, launches, 2, 2))
    monkeypatch.setattr(drivers, "opened", lambda device: FakeDriver("sm_80", 1 << 24, takes=lambda kernel: 6.0))
    ended = fusewise("profile", "measure", tiny_path, "--device", "cuda", "--json")
    assert ended.status == 0, ended.err
    (row,) = json.loads(ended.out)["groups"]
    assert (row["us"], row["known"]) == (pytest.approx(6.0), False)
    asked: list[str] = []
    monkeypatch.setattr(choices, "gpu_costs", lambda folder, making, device: asked.append(device))
    for device in ("cuda", "cuda:sm_80"):
        ended = fusewise("compile", tiny_path, "--device", device)
        assert ended.status == 0, ended.err
    assert asked == ["a simulated sm_80"], "costs are those of the GPU that is here, and of none for an architecture"
