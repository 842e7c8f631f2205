"""The benchmark of files: names are unique, tools write what rows say, and what they write runs and agrees."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from benchmarks.files.measure import agrees, build, line, measure, summary
from benchmarks.files.row import File, Port, feeds_of
from benchmarks.files.table import FILES, chosen

TOOLS = {
    "sklearn_normalized": ("sklearn", "skl2onnx"),
    "lightgbm_classifier": ("lightgbm", "onnxmltools"),
    "vit_optimized": ("onnxruntime.transformers", "torch", "transformers"),
}


def test_files_have_names_of_their_own_and_are_many() -> None:
    assert [name for name, count in Counter(file.name for file in FILES).items() if count > 1] == []
    assert len(FILES) >= 60
    assert {file.family for file in chosen(["sklearn", "merged"])} == {"sklearn", "merged"}
    with pytest.raises(ValueError, match="no file or family 'sklearnn'"):
        chosen(["sklearnn"])


def test_feeds_have_the_sizes_and_contents_that_a_row_says() -> None:
    file = File("f", "g", lambda folder: None, {"past_sequence_length": 4, "sequence_length": 3}, {"flag": "zeros"})
    ports = [
        Port("input_ids", "tensor(int64)", ("batch_size", "sequence_length")),
        Port("position_ids", "tensor(int64)", ("batch_size", "sequence_length")),
        Port("attention_mask", "tensor(int64)", ("batch_size", "past_sequence_length + sequence_length")),
        Port("flag", "tensor(bool)", (1,)),
        Port("past", "tensor(float16)", ("batch_size", 2, "past_sequence_length", None)),
    ]
    feeds = feeds_of(file, tuple(ports))
    assert feeds["position_ids"].tolist() == [[4, 5, 6]]
    assert feeds["attention_mask"].tolist() == [[1] * 7]
    assert not feeds["flag"].any()
    assert (feeds["past"].shape, feeds["past"].dtype) == ((1, 2, 4, 1), np.float16)
    assert all(np.array_equal(value, feeds_of(file, tuple(ports))[name]) for name, value in feeds.items())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * ("torch" in TOOLS[name])) for name in TOOLS]
)
def test_a_file_is_written_read_and_agrees(name: str, tmp_path: Path) -> None:
    for module in TOOLS[name]:
        pytest.importorskip(module)
    assert build(name, tmp_path) == ""
    result = measure(name, tmp_path, threads=2, seconds=0.01, free=False)
    assert agrees(result), line(result)
    assert result["host"] == {}
    assert "1 of 1 files run; 0 refused" in summary([result])


def test_a_tool_that_fails_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: Path) -> None:
        raise KeyError("rope_type")

    monkeypatch.setattr("benchmarks.files.table.FILES", (File("broken", "tool", fails),))
    assert build("broken", tmp_path) == "KeyError: 'rope_type'"
    assert not (tmp_path / "broken").exists()
    assert "1 that their tool does not write" in summary([{"file": "broken", "unbuilt": "KeyError"}])
