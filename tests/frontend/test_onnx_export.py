"""Graphs out: what is written reads back equal, runs elsewhere, and appears whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from fusewise.errors import ResourceLimit, UsageError
from fusewise.frontend.onnx_export import ORIGIN_KEY, save, to_model
from fusewise.frontend.onnx_import import load
from fusewise.ir.dtypes import dtype_named
from fusewise.ir.graph import Constant, Graph
from fusewise.ops.build import GraphBuilder


def _network() -> Graph:
    b = GraphBuilder("network")
    x = b.input("x", ("N", 3, 16, 16))
    rng = np.random.default_rng(0)
    y = b.op("Conv", x, b.constant(rng.normal(size=(8, 3, 3, 3)).astype(np.float32)), pads=[1, 1, 1, 1], name="conv")
    y = b.op("Relu", y, name="activation")
    y = b.op("Flatten", b.op("GlobalAveragePool", y))
    return b.finish(b.op("MatMul", y, b.constant(rng.normal(size=(8, 500)).astype(np.float32))))


def _equal(a: Graph, b: Graph) -> bool:
    fields = "inputs outputs nodes types constants name opset opsets metadata".split()
    return all(getattr(a, name) == getattr(b, name) for name in fields)


@pytest.mark.parametrize("external", [None, "weights.bin"])
def test_a_saved_graph_reads_back_equal(tmp_path: Path, external: str | None) -> None:
    graph = load(to_model(_network()))
    save(graph, tmp_path / "m.onnx", external)
    assert _equal(load(tmp_path / "m.onnx"), graph)
    onnx.checker.check_model(tmp_path / "m.onnx", full_check=True)
    feeds = {"x": np.ones((2, 3, 16, 16), np.float32)}
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    expected = onnxruntime.InferenceSession(to_model(graph).SerializeToString()).run(None, feeds)
    np.testing.assert_array_equal(session.run(None, feeds)[0], expected[0])
    assert {path.name for path in tmp_path.iterdir()} == {"m.onnx"} | ({external} if external else set())


def test_saving_over_the_file_a_graph_is_mapped_from_is_safe(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    save(_network(), path, "m.bin")
    graph = load(path)
    before = {name: constant.array.copy() for name, constant in graph.constants.items()}
    for _ in range(2):
        save(graph, path, "m.bin")
        graph = load(path)
    assert all(np.array_equal(graph.constants[name].array, array) for name, array in before.items())


def test_names_and_origins_are_kept() -> None:
    graph = _network()
    nodes = tuple(
        node if node.op != "Conv" else node.__class__(**{**_fields(node), "origin": ("conv", "bn", 'wei"rd</script>')})
        for node in graph.nodes
    )
    model = to_model(graph.replace(nodes=nodes))
    assert [node.name for node in model.graph.node][:2] == ["conv", "activation"]
    assert [entry.key for entry in model.graph.node[0].metadata_props] == [ORIGIN_KEY]
    assert not model.graph.node[1].metadata_props
    assert load(model).nodes[0].origin == ("conv", "bn", 'wei"rd</script>')


def _fields(node: object) -> dict[str, object]:
    return {name: getattr(node, name) for name in node.__dataclass_fields__}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "dtype", "int4 uint4 int2 uint2 float4_e2m1fn float8_e5m2 bfloat16 float16 bool string".split()
)
def test_constants_of_every_width_survive(tmp_path: Path, dtype: str) -> None:
    kind = dtype_named(dtype)
    values = [["a", "ü", ""]] * 500 if dtype == "string" else np.resize([0, 1, 1], (500, 3))
    array = np.array(values, dtype=object) if dtype == "string" else np.asarray(values).astype(kind.numpy)
    constant = Constant(array)
    graph = Graph((), ("c",), (), {"c": constant.type}, {"c": constant}, opset=25)
    save(graph, tmp_path / "inline.onnx")
    save(graph, tmp_path / "beside.onnx", "data")
    for name in ("inline.onnx", "beside.onnx"):
        found = load(tmp_path / name).constants["c"]
        assert found == constant and found.array.dtype == array.dtype


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    save(_network(), tmp_path / "m.onnx", "m.bin")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(os, "fsync", full)
    for external in (None, "m.bin", "other.bin"):
        with pytest.raises(ResourceLimit, match="No space left on device; nothing was left behind"):
            save(_network(), tmp_path / "m.onnx", external)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["../w.bin", "/w.bin", "", "m.onnx", "a/b"])
def test_weights_are_written_beside_the_model_only(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="plain file name"):
        save(_network(), tmp_path / "m.onnx", name)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        save(_network(), tmp_path / "no" / "m.onnx")


def test_large_weights_go_to_a_second_file_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusewise.frontend.onnx_export._EXTERNAL_ABOVE", 10_000)
    save(_network(), tmp_path / "m.onnx")
    assert {path.name for path in tmp_path.iterdir()} == {"m.onnx", "m.onnx.data"}


def test_two_gib_do_not_fit_one_message() -> None:
    huge = np.broadcast_to(np.zeros(1, np.float32), (2**29,))
    graph = Graph((), ("c",), (), {"c": Constant(huge).type}, {"c": Constant(huge)})
    with pytest.raises(ResourceLimit, match="save to a file"):
        to_model(graph)
