"""Pipelines in files: read back as they were, and refused with the line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.errors import UsageError
from fusewise.passes.published import step_names
from fusewise.select.pipeline import FUSIONS, Pipeline
from fusewise.select.pipeline_file import pipeline_text, read_pipeline, write_pipeline

GOOD = pipeline_text(Pipeline("mine", ("FoldConstant", "FuseOps"), settle=True), {"model": "m.onnx", "cost": 1.5})


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.sampled_from(step_names())),
    st.sampled_from(FUSIONS),
    st.booleans(),
    st.booleans(),
    st.text(st.characters(codec="utf-8")),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, passes: list[str], fusion: str, settle: bool, approximate: bool, name: str
) -> None:
    path = tmp_path_factory.mktemp("pipeline") / "p.toml"
    path.write_text(pipeline_text(Pipeline(name, tuple(passes), fusion, settle, approximate)), encoding="utf-8")
    found = read_pipeline(path)
    assert (found.name, found.passes, found.fusion) == (name, tuple(passes), fusion)
    assert (found.settle, found.approximate) == (settle, approximate)


def test_gradients_are_asked_for_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    for wanted in (True, False):
        path.write_text(pipeline_text(Pipeline("g", ("FirstOrderGradient",), gradients=wanted)), encoding="utf-8")
        assert read_pipeline(path).gradients == wanted
        assert ("gradients" in path.read_text()) == wanted


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("settle = true", "settel = true", r"line 5: there is no key 'settel'; there are format, name"),
        ("settle = true", "settle = 1", r"line 5: settle must be true or false, not 1"),
        ("format = 1", "format = 2", r"line 2: the file is of format 2, this program reads 1"),
        ("format = 1", "", r"has no 'format'; is it a pipeline file\?"),
        ('"FuseOps@1"', '"FuseOps@2"', r"line 9: FuseOps is of version 2 there and of version 1 here"),
        ('"FuseOps@1"', '"FuseOps"', r"line 9: .* is not of the form"),
        ('"FuseOps@1"', "7", r"7 is not of the form"),
        ('"FuseOps@1"', '"FusOps@1"', r"line 9: there is no pass called 'FusOps'; did you mean 'FuseOps'"),
        ('fusion = "as asked"', 'fusion = "well"', r"line 4: fusion is 'well'; it is one of as asked"),
        ("passes = [", "passes = ", r"is not TOML: .*line"),
        ("[found]", "[foud]", r"line 12: there is no key 'foud'"),
    ],
)
def test_refused_with_the_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    path = tmp_path / "p.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(UsageError, match=message):
        read_pipeline(path)


def test_a_file_appears_whole(tmp_path: Path) -> None:
    write_pipeline(tmp_path / "p.toml", read_pipeline_of(tmp_path, GOOD))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g.toml", "p.toml"]
    assert read_pipeline(tmp_path / "p.toml").passes == ("FoldConstant", "FuseOps")


def read_pipeline_of(folder: Path, text: str) -> Pipeline:
    (folder / "g.toml").write_text(text)
    return read_pipeline(folder / "g.toml")


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the pipeline file"):
        read_pipeline(tmp_path / "absent.toml")
