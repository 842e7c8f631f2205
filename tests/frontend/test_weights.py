"""Tensors of a model wherever they stand: external data only by way of the model's folder, and files that change meanwhile."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fusewise
from fusewise.errors import FusewiseError, InvalidModel, ResourceLimit
from fusewise.frontend.onnx_import import load
from fusewise.frontend.stored import Stored
from fusewise.frontend.weights import tensors_of

OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
INT = helper.make_tensor_value_info("n", TensorProto.INT64, [1])
OUT = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)


def outside(kind: int = TensorProto.FLOAT, count: int = 1, location: str = "secret.bin") -> TensorProto:
    tensor = TensorProto(name="t", data_type=kind, dims=[count], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def written(nodes: list[onnx.NodeProto], **parts: list) -> onnx.ModelProto:
    functions = parts.pop("functions", [])
    graph = helper.make_graph(nodes, "g", [INT], [OUT], **parts)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=10, functions=functions)


def filled(**attributes: object) -> onnx.NodeProto:
    return helper.make_node("ConstantOfShape", ["n"], ["y"], **attributes)


def with_training() -> onnx.ModelProto:
    model = written([filled()])
    model.training_info.add().initialization.initializer.append(outside())
    return model


def in_body(**parts: list) -> onnx.ModelProto:
    inner = parts.pop("nodes", [helper.make_node("Identity", ["t"], ["c"])])
    body = helper.make_graph(inner, "b", [], [helper.make_tensor_value_info("c", 1, None)], **parts)
    return written(
        [
            helper.make_node("ReduceMax", ["n"], ["m"], keepdims=0),
            helper.make_node("Cast", ["m"], ["b"], to=TensorProto.BOOL),
            helper.make_node("If", ["b"], ["y"], then_branch=body, else_branch=body),
        ]
    )


def in_function(call: str, *inner: onnx.NodeProto) -> onnx.ModelProto:
    function = helper.make_function("own", "F", ["n"], ["y"], list(inner), OPSETS)
    node = helper.make_node("F", ["n"], ["y"], domain="own") if call == "F" else filled()
    return written([node], functions=[function])


def by_default() -> onnx.ModelProto:
    node = filled()
    node.attribute.add(name="value", ref_attr_name="fill", type=onnx.AttributeProto.TENSOR)
    model = in_function("F", node)
    model.functions[0].attribute_proto.append(helper.make_attribute("fill", outside()))
    return model


def sparse(of: str) -> onnx.ModelProto:
    values = outside() if of == "values" else helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0])
    indices = outside(TensorProto.INT64) if of == "indices" else helper.make_tensor("", TensorProto.INT64, [1], [0])
    made = helper.make_sparse_tensor(values, indices, [3])
    return written([helper.make_node("Identity", ["t"], ["y"])], sparse_initializer=[made])


PLACES: dict[str, Callable[[], onnx.ModelProto]] = {
    "initializer": lambda: written([helper.make_node("Identity", ["t"], ["y"])], initializer=[outside()]),
    "attribute": lambda: written([filled(value=outside())]),
    "Constant": lambda: written([helper.make_node("Constant", [], ["y"], value=outside())]),
    "sparse values": lambda: sparse("values"),
    "sparse indices": lambda: sparse("indices"),
    "body's initializer": lambda: in_body(initializer=[outside()]),
    "body's Constant": lambda: in_body(nodes=[helper.make_node("Constant", [], ["c"], value=outside())]),
    "body's attribute": lambda: in_body(nodes=[helper.make_node("ConstantOfShape", ["n"], ["c"], value=outside())]),
    "function": lambda: in_function("F", filled(value=outside())),
    "function's default": by_default,
    "uncalled function": lambda: in_function("", filled(value=outside())),
    "training information": with_training,
}
UNUSED = ("uncalled function", "training information")


def floats(place: str) -> bytes:
    return np.array([0], np.int64).tobytes() if place == "sparse indices" else np.array([7], np.float32).tobytes()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("given", ["path", "bytes", "message"])
def test_no_file_is_read_from_elsewhere(
    place: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    (here / "secret.bin").write_bytes(floats(place))
    monkeypatch.chdir(here)
    model = PLACES[place]()
    path = there / "model.onnx"
    path.write_bytes(model.SerializeToString())
    source = {"path": path, "bytes": model.SerializeToString(), "message": model}[given]
    wanted = "missing in the model's folder" if given == "path" else "has no folder"
    with pytest.raises(InvalidModel, match=wanted):
        fusewise.compile(source, cache=False)


@pytest.mark.parametrize("place", [place for place in PLACES if place not in UNUSED])
def test_beside_the_model_it_is_read(place: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(PLACES[place]().SerializeToString())
    (tmp_path / "secret.bin").write_bytes(floats(place))
    (found,) = fusewise.compile(path, cache=False).run(None, {"n": np.array([1])})
    assert found.reshape(-1)[0] == (1 if place == "sparse indices" else 7)


def test_every_tensor_is_found() -> None:
    for place, make in PLACES.items():
        found = [tensor for tensor in tensors_of(make()) if tensor.data_location == TensorProto.EXTERNAL]
        assert len(found) == (2 if place.startswith("body") else 1), place


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT4, 77])
@pytest.mark.parametrize("dims", [[1], [2**40], [-1], [2**62, 2**62]])
def test_what_does_not_fit_is_refused(kind: int, dims: list[int], tmp_path: Path) -> None:
    tensor = outside(kind)
    del tensor.dims[:]
    tensor.dims.extend(dims)
    path = tmp_path / "model.onnx"
    path.write_bytes(written([filled(value=tensor)]).SerializeToString())
    (tmp_path / "secret.bin").write_bytes(b"abc")
    with pytest.raises(FusewiseError):
        load(path)


@pytest.mark.parametrize("place", ["body's initializer", "body's Constant"])
def test_a_body_holds_no_more_than_a_message_can(place: str, tmp_path: Path) -> None:
    """Told before any of it is read: three times the memory here, and nothing on the disk."""
    model = PLACES[place]()
    for tensor in tensors_of(model):
        tensor.dims[0] = 3 << 28
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with (tmp_path / "secret.bin").open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(ResourceLimit, match="bodies of control flow hold 3,221,225,472 bytes of constants"):
        load(path)


# --- files that change while their graph is held ------------------------------------------------------------------------


CHANGES: dict[str, Callable[[Path], object]] = {
    "cut short": lambda path: os.truncate(path, 100),
    "emptied": lambda path: os.truncate(path, 0),
    "longer": lambda path: os.truncate(path, path.stat().st_size + 1),
    "rewritten": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


def large(tmp_path: Path, *, beside: bool) -> tuple[Path, Path]:
    """A model with a weight of 4 MB, and the file that is in."""
    weight = np.arange(1 << 20, dtype=np.float32)
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1 << 20]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        kinds[:1],
        kinds[1:],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path / "model.onnx"
    model = helper.make_model(graph, opset_imports=OPSETS[:1], ir_version=10)
    onnx.save(model, path, save_as_external_data=beside, location="w.bin", size_threshold=0)
    target = tmp_path / "w.bin" if beside else path
    stamp = target.stat().st_mtime_ns - 10**9
    os.utime(target, ns=(stamp, stamp))
    return path, target


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_is_an_error_and_no_signal(change: str, beside: bool, tmp_path: Path) -> None:
    path, target = large(tmp_path, beside=beside)
    graph, seen = load(path), load(path)
    before = seen.constants["w"].array
    CHANGES[change](target)
    with pytest.raises(InvalidModel, match="was changed while its model was in use; load the model again"):
        fusewise.compile(graph, cache=False)
    np.testing.assert_array_equal(before, np.arange(1 << 20))


def test_a_file_that_is_replaced_or_removed_is_still_the_one_that_was_opened(tmp_path: Path) -> None:
    path, _ = large(tmp_path, beside=False)
    graph, other = load(path), load(path)
    (tmp_path / "new").write_bytes(b"something else")
    (tmp_path / "new").replace(path)
    np.testing.assert_array_equal(graph.constants["w"].array, np.arange(1 << 20))
    path.unlink()
    np.testing.assert_array_equal(other.constants["w"].array, np.arange(1 << 20))


def test_files_are_closed_with_their_graphs(tmp_path: Path) -> None:
    """In a process of its own, where nobody else opens files."""
    path, _ = large(tmp_path, beside=True)
    program = (
        "import os, sys, fusewise\n"
        "count = lambda: len(os.listdir('/proc/self/fd'))\n"
        "fusewise.load(sys.argv[1]); before = count()\n"
        "graphs = [fusewise.load(sys.argv[1]) for _ in range(5)]; held = count(); del graphs\n"
        "import gc; gc.collect(); assert count() == before < held, (before, held, count())\n"
    )
    if Path("/proc/self/fd").exists():
        subprocess.run([sys.executable, "-c", program, str(path)], check=True)


def test_weights_are_read_when_they_are_packed_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each operand, and after the model is compiled only its packed weights are there."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((300, 400), np.float32), rng.standard_normal((400, 200), np.float32)]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["t"]), helper.make_node("MatMul", ["t", "w1"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 300])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 200])],
        [onnx.numpy_helper.from_array(array, f"w{k}") for k, array in enumerate(weights)],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=OPSETS[:1], ir_version=10), path)
    read: list[int] = []
    alive: list[weakref.ref] = []
    reading = Stored.read

    def counted(file: Stored, offset: int, length: int) -> np.ndarray:
        found = reading(file, offset, length)
        if length in [array.nbytes for array in weights]:
            read.append(length)
            alive.append(weakref.ref(found))
        return found

    monkeypatch.setattr(Stored, "read", counted)
    loaded = load(path)
    assert read == []
    model = fusewise.compile(path, cache=False)
    assert sorted(read) == sorted(array.nbytes for array in weights)
    gc.collect()
    assert [reference() for reference in alive] == [None, None]
    x = rng.standard_normal((2, 300), np.float32)
    np.testing.assert_allclose(model.run(None, {"x": x})[0], x @ weights[0] @ weights[1], rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(loaded.constants["w1"].array, weights[1])
    assert loaded.constants["w1"].array is loaded.constants["w1"].array
