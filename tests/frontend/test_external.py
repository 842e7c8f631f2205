"""External data: read where it lies, and only below the model's folder."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from fusewise.errors import InvalidModel, ResourceLimit
from fusewise.frontend.limits import ModelLimits
from fusewise.frontend.onnx_import import load


def _write(folder: Path, count: int = 1024, **entries: str) -> Path:
    """A model whose weight `w` of `count` floats lies where `entries` say."""
    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[count])
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    kinds = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [count]) for name in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "w"], ["y"])], "g", kinds[:1], kinds[1:], [weight]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with `w.bin`, 1024 floats, and a secret of the same size beside the folder."""
    np.arange(1024, dtype=np.float32).tofile(tmp_path / "secret.bin")
    inside = tmp_path / "model"
    (inside / "below").mkdir(parents=True)
    np.arange(1024, dtype=np.float32).tofile(inside / "w.bin")
    np.arange(1024, dtype=np.float32).tofile(inside / "below" / "w.bin")
    return inside


@pytest.mark.parametrize("location", ["w.bin", "below/w.bin", "./w.bin"])
def test_a_file_below_the_model_is_read(folder: Path, location: str) -> None:
    weight = load(_write(folder, location=location, offset="0", length="4096")).constants["w"].array
    np.testing.assert_array_equal(weight, np.arange(1024, dtype=np.float32))
    assert not weight.flags.writeable


def test_offset_and_length_have_defaults(folder: Path) -> None:
    weight = load(_write(folder, 1000, location="w.bin", offset="96")).constants["w"].array
    np.testing.assert_array_equal(weight, np.arange(24, 1024, dtype=np.float32))


def test_the_working_folder_does_not_matter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write(folder, location="w.bin")
    monkeypatch.chdir(folder)
    assert load(path.name).constants["w"].array[5] == 5
    monkeypatch.chdir(folder.parent)
    assert load(f"{folder.name}/{path.name}").constants["w"].array[5] == 5


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "below/../../secret.bin",
        "/etc/hostname",
        "C:\\secret.bin",
        "..\\secret.bin",
        "\\\\host\\w",
        "",
        "a\0b",
    ],
)
def test_a_path_out_of_the_folder_is_refused(folder: Path, location: str) -> None:
    with pytest.raises(InvalidModel, match="'w'.*points outside the model's folder"):
        load(_write(folder, location=location))


@pytest.mark.skipif(os.name == "nt", reason="links need privileges")
@pytest.mark.parametrize("target", ["../secret.bin", "w.bin"])
def test_a_symbolic_link_is_refused(folder: Path, target: str) -> None:
    (folder / "link.bin").symlink_to(target)
    with pytest.raises(InvalidModel, match=r"'w'.*'link\.bin' cannot be opened.*link"):
        load(_write(folder, location="link.bin"))


@pytest.mark.skipif(os.name == "nt", reason="links need privileges")
def test_a_linked_folder_is_refused(folder: Path) -> None:
    (folder / "way_out").symlink_to("..")
    with pytest.raises(InvalidModel, match="cannot be opened"):
        load(_write(folder, location="way_out/secret.bin"))


def test_a_hard_link_is_refused(folder: Path) -> None:
    (folder / "hard.bin").hardlink_to(folder.parent / "secret.bin")
    with pytest.raises(InvalidModel, match="'w'.*2 hard links"):
        load(_write(folder, location="hard.bin"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_or_a_folder_is_refused_at_once(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for location in ("pipe", "below"):
        with pytest.raises(InvalidModel, match="not an ordinary file"):
            load(_write(folder, location=location))


def test_a_missing_file_is_named(folder: Path) -> None:
    with pytest.raises(InvalidModel, match=r"'w'.*'gone\.bin' is missing"):
        load(_write(folder, location="gone.bin"))


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "4", "length": "4096"},
        {"offset": "4096", "length": "1"},
        {"offset": "5000"},
        {"offset": str(2**64 - 4), "length": "4096"},
        {"offset": "4096", "length": str(2**64 - 4096)},
        {"length": str(2**62)},
    ],
)
def test_a_range_past_the_end_is_refused_however_large(folder: Path, entries: dict[str, str]) -> None:
    with pytest.raises(InvalidModel, match=r"'w'"):
        load(_write(folder, location="w.bin", **entries))


@pytest.mark.parametrize("entries", [{"length": "4092"}, {"offset": "8"}, {"length": "0"}])
def test_a_length_that_does_not_fit_the_shape_is_refused(folder: Path, entries: dict[str, str]) -> None:
    with pytest.raises(InvalidModel, match="'w'.* needs 4,096 bytes but has"):
        load(_write(folder, location="w.bin", **entries))


@pytest.mark.parametrize("text", ["-4", "0x10", "1e3", " 4", "", "٤", "9" * 30])
def test_offsets_are_plain_numbers(folder: Path, text: str) -> None:
    with pytest.raises(InvalidModel, match="plain number"):
        load(_write(folder, location="w.bin", offset=text))


def test_unknown_keys_are_refused_but_those_of_onnxruntime_ignored(folder: Path) -> None:
    with pytest.raises(InvalidModel, match="unknown external data key '__class__'"):
        load(_write(folder, location="w.bin", __class__="x"))
    assert load(_write(folder, location="w.bin", prepacked_0="k|0;4096;0")).constants["w"].array[5] == 5


def test_a_model_without_a_folder_has_no_external_data(folder: Path) -> None:
    path = _write(folder, location="w.bin")
    for source in (path.read_bytes(), onnx.load(path, load_external_data=False)):
        with pytest.raises(InvalidModel, match="load it by its path"):
            load(source)


def test_more_than_two_gib_stay_in_the_file(folder: Path) -> None:
    """A sparse file: 2.5 GiB that take no room, of which nothing but the end is ever read."""
    count = 5 * 2**27
    with (folder / "huge.bin").open("wb") as file:
        file.truncate(4 * count)
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(7).tobytes())
    weight = load(_write(folder, count, location="huge.bin")).constants["w"].array
    assert weight.shape == (count,) and weight[-1] == 7 and weight[0] == 0


def test_the_limit_on_external_data_holds(folder: Path) -> None:
    with pytest.raises(ResourceLimit, match="4,096 bytes"):
        load(_write(folder, location="w.bin"), ModelLimits(external_bytes=4000))
