"""Whole models in the cache: the same answers, nothing stale, nothing broken, and room for others."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import fusewise
from fusewise.errors import InvalidModel
from fusewise.frontend.onnx_import import external_names
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.options import Options
from fusewise.runtime import compile as compiling
from fusewise.runtime.model_cache import ModelCache, room_of
from fusewise.runtime.model_files import fingerprint, model_files
from fusewise.sources import graph_for


def network(seed: int = 0, size: int = 16) -> Graph:
    b = GraphBuilder("network")
    w = np.random.default_rng(seed).standard_normal((size, size)).astype(np.float32)
    return b.finish(b.op("Relu", b.op("MatMul", b.input("x", (4, size)), b.constant(w)), name="relu"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fusewise.save(network(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "models").glob("*.fw"))


def test_the_second_time_nothing_is_planned_or_compiled(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    first = fusewise.compile(path, cache=cache)
    assert len(entries(cache)) == 1
    with monkeypatch.context() as patch:
        patch.setattr(compiling, "compile_object", lambda *_: pytest.fail("compiled"))
        patch.setattr("fusewise.codegen.assemble.generate", lambda *_, **__: pytest.fail("planned"))
        second = fusewise.compile(str(path), cache=cache)
        feeds = second.random_inputs(1)
        np.testing.assert_array_equal(second.run(None, feeds)[0], first.run(None, feeds)[0])
    assert {k: second.summary[k] for k in ("groups", "kernels", "host")} == {
        k: first.summary[k] for k in ("groups", "kernels", "host")
    }
    assert second.graph == first.graph
    decisions = [[(e.kind, e.what, e.where, e.applied) for e in made.trace.events] for made in (first, second)]
    assert decisions[0] == decisions[1]


def test_contents_and_settings_make_the_difference(path: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    before = fusewise.compile(path, cache=cache)
    stamp = path.stat()
    fusewise.save(network(seed=1), path)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    after = fusewise.compile(path, cache=cache)
    feeds = before.random_inputs()
    assert not np.array_equal(before.run(None, feeds)[0], after.run(None, feeds)[0])
    for settings in ({"exact": True}, {"threads": 1}, {"fusion": "none"}, {"disable": ["scan"]}, {"passes": False}):
        count = len(entries(cache))
        fusewise.compile(path, cache=cache, **settings)
        fusewise.compile(path, cache=cache, **settings)
        # one worker may be what the machine offers anyway
        assert len(entries(cache)) == count + 1 or settings == {"threads": 1}


def test_what_is_not_a_file_of_its_own_is_not_kept(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    graph = network(size=64)
    fusewise.compile(graph, cache=cache)
    fusewise.compile(fusewise.to_onnx(graph), cache=cache)
    fusewise.compile(network(), cache=cache, trace=fusewise.Trace())
    assert entries(cache) == []


def apart(folder: Path, graph: Graph, data: str = "weights.bin") -> Path:
    """A model whose weights lie in a file beside it."""
    path = folder / "apart.onnx"
    (folder / data).unlink(missing_ok=True)
    onnx.save(fusewise.to_onnx(graph), path, save_as_external_data=True, location=data, size_threshold=0)
    return path


def test_external_data_are_part_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    path = apart(tmp_path, network(size=64))
    first = fusewise.compile(path, cache=cache)
    feeds = first.random_inputs(1)
    with monkeypatch.context() as patch:
        patch.setattr("fusewise.codegen.assemble.generate", lambda *_, **__: pytest.fail("planned"))
        second = fusewise.compile(path, cache=cache)
        np.testing.assert_array_equal(second.run(None, feeds)[0], first.run(None, feeds)[0])
    message = path.read_bytes()
    apart(tmp_path, network(seed=1, size=64))
    assert path.read_bytes() == message
    other = fusewise.compile(path, cache=cache)
    assert not np.array_equal(other.run(None, feeds)[0], first.run(None, feeds)[0])
    assert len(entries(cache)) == 2
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(InvalidModel, match=r"'weights\.bin' is missing"):
        fusewise.compile(path, cache=cache)


@pytest.mark.parametrize("name", ["w", "a" * 130, "folder/w\u00e4rme.bin"])
def test_names_of_external_data_are_read_off_the_bytes(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    path = apart(tmp_path, network(), name)
    found = model_files(path)
    assert set(found.external) == external_names(path) == {name} and found.are_all()
    (tmp_path / name).write_bytes(bytes(10))
    assert not found.are_all()


def test_a_name_across_two_stretches_is_read(tmp_path: Path) -> None:
    """Wherever in the file it stands; a message may hold anything else before it."""
    (tmp_path / "w").write_bytes(b"1")
    for before in range(-20, 3):
        (tmp_path / "m").write_bytes(bytes(4 * 1024 * 1024 + before) + b"\x0a\x08location\x12\x01w")
        assert set(model_files(tmp_path / "m").external) == {"w"}, before


def test_files_that_a_model_must_not_name_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "folder" / "pipe")
    names = ["../secret", str(tmp_path / "secret"), "link", "pipe", "none"]
    path = tmp_path / "folder" / "m"
    path.write_bytes(b"".join(b"\x0a\x08location\x12" + bytes([len(n)]) + n.encode() for n in names))
    assert set(model_files(path).external.values()) == {(None, None)}


def test_a_name_that_was_missed_keeps_a_model_from_being_kept(tmp_path: Path) -> None:
    """A message may write its fields in any order."""
    path = apart(tmp_path, network(size=64))
    usual, turned = b"\x0a\x08location\x12\x0bweights.bin", b"\x12\x0bweights.bin\x0a\x08location"
    data = path.read_bytes()
    assert usual in data
    path.write_bytes(data.replace(usual, turned))
    fusewise.compile(path, cache=tmp_path / "cache")
    assert entries(tmp_path / "cache") == []


def test_models_leave_room_on_the_disk(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    assert 0 < room_of(tmp_path / "not" / "there") <= min(16 * 1024**3, free * 0.26)


def test_a_damaged_entry_is_made_again(path: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    fusewise.compile(path, cache=cache)
    (entry,) = entries(cache)
    data = bytearray(entry.read_bytes())
    data[-5] ^= 1
    entry.write_bytes(data)
    model = fusewise.compile(path, cache=cache)
    assert np.isfinite(model.run(None, model.random_inputs())[0]).all()
    assert entries(cache) == [entry] and entry.read_bytes() != bytes(data)


def test_another_key_under_the_same_name_is_a_miss(path: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    fusewise.compile(path, cache=cache)
    store = ModelCache(cache)
    (entry,) = entries(cache)
    entry.rename(store._path("another key"))
    assert store.fetch("another key", fusewise.__version__, None) is None


def test_the_limit_holds(tmp_path: Path) -> None:
    made = fusewise.compile(network(size=256), cache=False)
    store = ModelCache(tmp_path, limit_bytes=900_000)
    for k in range(4):
        store.store(json.dumps(k), made.executable, made.notes, fusewise.__version__)
        os.utime(store._path(json.dumps(k)), (k, k))
    assert 1 <= store.info().files <= 3 and store.info().nbytes <= 900_000
    assert store._path(json.dumps(3)).exists()
    small = ModelCache(tmp_path / "small", limit_bytes=300_000)
    small.store("key", made.executable, made.notes, fusewise.__version__)
    assert small.info().files == 0  # it would take most of the room
    assert store.clear() >= 1 and store.info().files == 0


def test_a_folder_that_others_may_write_to_is_not_used(path: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "models").mkdir(parents=True)
    (cache / "models").chmod(0o777)
    said: list[str] = []
    fusewise.compile(path, cache=cache, warn=said.append)
    assert entries(cache) == [] and any("only you can write" in sentence for sentence in said)


def test_a_fingerprint_tells_contents(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(bytes(5_000_000))
    two.write_bytes(bytes(5_000_000))
    assert fingerprint(one) == fingerprint(two)
    with two.open("r+b") as file:
        file.seek(4_900_000)
        file.write(b"x")
    assert fingerprint(one) != fingerprint(two)


def forged(like: bytes, made: Callable[[bytes], bytes], letters: int = 12) -> bytes:
    """The bytes that `made` gives for some text, of the same CRC-32 as `like`: it is linear in the low bits of 'A'."""
    base = made(b"A" * letters)
    at, zero = base.rindex(b"A" * letters), zlib.crc32(bytes(len(base)))
    basis: dict[int, tuple[int, int]] = {}

    def reduced(value: int, mask: int) -> tuple[int, int]:
        while value and value.bit_length() in basis:
            other, bits = basis[value.bit_length()]
            value, mask = value ^ other, mask ^ bits
        return value, mask

    for k in range(4 * letters):
        flipped = bytearray(len(base))
        flipped[at + k // 4] = 1 << k % 4
        value, mask = reduced(zlib.crc32(flipped) ^ zero, 1 << k)
        if value:
            basis[value.bit_length()] = value, mask
    left, mask = reduced(zlib.crc32(base) ^ zlib.crc32(like), 0)
    assert not left
    return made(bytes(ord("A") ^ (mask >> 4 * k & 15) for k in range(letters)))


def test_a_model_made_to_look_like_another_is_another(tmp_path: Path) -> None:
    """Of one size and one CRC-32: models come from strangers, and what tells them apart must not be forged."""

    def written(seed: int, remark: bytes) -> bytes:
        model = fusewise.to_onnx(network(seed))
        model.doc_string = remark.decode()
        return model.SerializeToString()

    honest = written(0, b"honest model")
    evil = forged(honest, lambda remark: written(1, remark))
    assert len(honest) == len(evil) and zlib.crc32(honest) == zlib.crc32(evil) and honest != evil
    answers = []
    for name, data in (("evil", evil), ("honest", honest)):
        (tmp_path / f"{name}.onnx").write_bytes(data)
        fusewise.compile(tmp_path / f"{name}.onnx", cache=tmp_path / "cache")
        model = fusewise.compile(tmp_path / f"{name}.onnx", cache=tmp_path / "cache")
        answers.append(model.run(None, {"x": np.ones((4, 16), np.float32)})[0])
    assert len(entries(tmp_path / "cache")) == 2
    assert not np.array_equal(*answers)


def test_a_file_that_is_swapped_while_it_is_compiled_is_not_kept(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if it is put back, with its size and times, before it is looked at again."""
    cache = tmp_path / "cache"
    fusewise.save(network(seed=1), tmp_path / "other.onnx")
    honest, evil, stamp = path.read_bytes(), (tmp_path / "other.onnx").read_bytes(), path.stat()
    assert len(honest) == len(evil)

    def swapped(model: Path, options: Options) -> Graph:
        path.write_bytes(evil)
        graph = graph_for(model, options)
        assert all(constant.array.size for constant in graph.constants.values())
        path.write_bytes(honest)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        return graph

    monkeypatch.setattr("fusewise.on_cpu.graph_for", swapped)
    fusewise.compile(path, cache=cache)
    assert entries(cache) == []
