"""Whole models in the cache: the same answers, nothing stale, nothing broken, and room for others."""

from __future__ import annotations

import importlib
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import fusewise
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.runtime import compile as compiling
from fusewise.runtime.model_cache import ModelCache, fingerprint


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
    for settings in ({"exact": True}, {"threads": 1}, {"fusion": "none"}, {"disable": ["chain"]}, {"passes": False}):
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
    onnx.save(fusewise.to_onnx(graph), tmp_path / "apart.onnx", save_as_external_data=True, size_threshold=0)
    fusewise.compile(tmp_path / "apart.onnx", cache=cache)
    assert entries(cache) == []


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
    plan = importlib.import_module("fusewise.api")._bound

    def swapped(model: object, options: object) -> Graph:
        path.write_bytes(evil)
        graph = plan(model, options)
        assert all(constant.array.size for constant in graph.constants.values())
        path.write_bytes(honest)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        return graph

    monkeypatch.setattr("fusewise.api._bound", swapped)
    fusewise.compile(path, cache=cache)
    assert entries(cache) == []
