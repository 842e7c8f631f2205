"""Compiled files: the same answers without compiling, and a clear refusal of everything that is not whole or not for here."""

from __future__ import annotations

import errno
import json
import platform
import subprocess
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import fusewise
from fusewise.compiled import Model
from fusewise.errors import InvalidModel, ResourceLimit, UnsupportedModel, UsageError
from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.runtime import compile as compiling
from fusewise.runtime import container

MAGIC = b"fusewise artefact\n"


def network() -> Graph:
    """A Winograd convolution, a product, a host step on text, and an index."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("network")
    x = b.input("x", (1, 16, 20, 20))
    row = b.input("row", (3,), INT64)
    weight = b.constant(rng.standard_normal((16, 16, 3, 3)).astype(np.float32) / 8)
    y = b.op("Relu", b.op("Conv", x, weight, pads=[1, 1, 1, 1]))
    y = b.op("GlobalAveragePool", y)
    y = b.op(
        "MatMul",
        b.op("Reshape", y, b.constant(np.array([1, 16]))),
        b.constant(rng.standard_normal((16, 9), np.float32)),
    )
    z = b.op("Gather", b.constant(rng.standard_normal((7, 9)).astype(np.float32)), row)
    return b.finish(b.op("Add", y, z))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compiled") / "network.fw"
    fusewise.compile(network(), cache=False, threads=3).save(path)
    return path


def rewritten(path: Path, target: Path, change: Any) -> Path:
    """The file with its manifest changed and its checksum put right."""
    data = path.read_bytes()
    start = len(MAGIC) + 8
    length = int.from_bytes(data[len(MAGIC) : start], "little")
    manifest = json.loads(data[start : start + length])
    body = data[-manifest["bytes"] :]
    change(manifest)
    text = json.dumps(manifest).encode()
    head = MAGIC + len(text).to_bytes(8, "little") + text
    head += zlib.crc32(head).to_bytes(4, "little")
    target.write_bytes(head + body)
    return target


def test_the_same_answers_and_nothing_compiled(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fusewise.compile(network(), cache=False, threads=3)
    feeds = model.random_inputs(3)
    monkeypatch.setattr(compiling, "compile_object", lambda *_: pytest.fail("compiled"))
    for threads in (None, 1, 2, 8):
        opened = fusewise.open_compiled(saved, threads=threads)
        assert [port.name for port in opened.get_inputs()] == ["x", "row"]
        assert all(np.array_equal(a, b) for a, b in zip(opened.random_inputs(3).values(), feeds.values(), strict=True))
        for _ in range(3):
            np.testing.assert_array_equal(opened.run(None, feeds)[0], model.run(None, feeds)[0])
    assert opened.summary["groups"] == model.summary["groups"]
    with pytest.raises(UsageError, match="holds no graph"):
        _ = opened.graph


def host_model() -> Any:
    """Text, and a branch that reads a value from outside, too large for both to be run: all on the host."""
    value = helper.make_tensor_value_info
    branch = [
        helper.make_graph([helper.make_node(op, ["x"], ["r"])], op, [], [value("r", TensorProto.FLOAT, [20_000])])
        for op in ("Neg", "Exp")
    ]
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=branch[0], else_branch=branch[1]),
        helper.make_node("Constant", [], ["word"], value=helper.make_tensor("t", TensorProto.STRING, [1], [b"!"])),
        helper.make_node("StringConcat", ["s", "word"], ["t"]),
    ]
    graph = helper.make_graph(
        nodes,
        "host",
        [
            value("c", TensorProto.BOOL, []),
            value("x", TensorProto.FLOAT, [20_000]),
            value("s", TensorProto.STRING, [1]),
        ],
        [value("y", TensorProto.FLOAT, [20_000]), value("t", TensorProto.STRING, [1])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])


def test_host_steps(tmp_path: Path) -> None:
    model = fusewise.compile(host_model(), cache=False)
    assert model.summary["host_steps"] >= 2
    model.save(tmp_path / "host.fw")
    opened = fusewise.open_compiled(tmp_path / "host.fw")
    for choice in (True, False):
        feeds = {"c": np.array(choice), "x": np.arange(20_000, dtype=np.float32), "s": np.array(["a"], object)}
        for a, b in zip(opened.run(None, feeds), model.run(None, feeds), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("share", [0, 0.001, 0.02, 0.3, 0.7, 0.99, 1])
def test_a_file_cut_short(saved: Path, tmp_path: Path, share: float) -> None:
    data = saved.read_bytes()
    short = tmp_path / "short.fw"
    short.write_bytes(data[: min(len(data) - 1, int(len(data) * share))])
    with pytest.raises(InvalidModel, match="damaged|not a compiled model"):
        fusewise.open_compiled(short)


def test_one_changed_byte_anywhere(saved: Path, tmp_path: Path) -> None:
    data = bytearray(saved.read_bytes())
    rng = np.random.default_rng(0)
    head = len(MAGIC) + 8 + int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")
    places = [*range(30), *range(head - 2, head + 40), len(data) - 1, *rng.integers(0, len(data), 60).tolist()]
    for place in places:
        changed = data.copy()
        changed[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "changed.fw").write_bytes(changed)
        with pytest.raises(InvalidModel, match="damaged|not a compiled model"):
            fusewise.open_compiled(tmp_path / "changed.fw")


def elsewhere(manifest: Any, **facts: str) -> None:
    """As if it had been made on another machine."""
    manifest["processor"] = "x86_64; another one"
    manifest["target"].update(facts)


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda m: m.update(version="0.0.1"), "written by version 0.0.1"),
        (lambda m: m.update(format=2), "has format 2, and this version reads format"),
        (lambda m: m.update(format=99), "compile the model again"),
        (lambda m: elsewhere(m, triple="riscv64-unknown-linux"), "compiled for riscv64"),
        (lambda m: elsewhere(m, features="+avx10.9,+quantum"), "lacks avx10.9, quantum"),
    ],
)
def test_another_version_or_processor(saved: Path, tmp_path: Path, change: Any, sentence: str) -> None:
    with pytest.raises(UnsupportedModel, match=sentence):
        fusewise.open_compiled(rewritten(saved, tmp_path / "other.fw", change))


def test_a_file_of_an_earlier_format_with_other_checksums(saved: Path, tmp_path: Path) -> None:
    text = json.dumps({"format": 3, "version": fusewise.__version__}).encode()
    head = MAGIC + len(text).to_bytes(8, "little") + text
    (tmp_path / "old.fw").write_bytes(head + b"checksum of thirty-two bytes...." + saved.read_bytes()[-4096:])
    with pytest.raises(UnsupportedModel, match="has format 3, and this version reads format"):
        fusewise.open_compiled(tmp_path / "old.fw")


@pytest.mark.parametrize("known", ["x86_64; another one", ""])
def test_a_file_of_another_processor_that_has_no_more_than_this_one(saved: Path, tmp_path: Path, known: str) -> None:
    other = rewritten(saved, tmp_path / "other.fw", lambda m: m.update(processor=known))
    feeds = fusewise.open_compiled(saved).random_inputs()
    np.testing.assert_array_equal(
        fusewise.open_compiled(other).run(None, feeds)[0], fusewise.open_compiled(saved).run(None, feeds)[0]
    )


@pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="LLVM links on other systems")
def test_a_file_made_here_is_run_without_llvm(saved: Path) -> None:
    program = f"""
import sys
from fusewise.compiled import open_compiled
model = open_compiled({str(saved)!r})
model.run(None, model.random_inputs())
print(sorted(name for name in sys.modules if name.split(".")[0] in ("llvmlite", "onnx")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_manifest_that_makes_no_sense(saved: Path, tmp_path: Path) -> None:
    changes = (
        lambda m: m["program"].pop("steps"),
        lambda m: m["program"].pop("arena_bytes"),
        lambda m: m["program"].update(arena_bytes="many"),
        lambda m: m.pop("program"),
        lambda m: m.pop("bytes"),
        lambda m: m.pop("version"),
        lambda m: m.update(checksums=None),
        lambda m: m.update(constants=[]),
        lambda m: m.pop("notes"),
        lambda m: m.pop("processor"),
        lambda m: m["target"].pop("cpu"),
        lambda m: m["notes"].pop("summary"),
        lambda m: m["notes"].update(bounds={"row": "many"}),
        lambda m: m["kernels"].__setitem__(0, "nowhere"),
        lambda m: m["kernels"].__setitem__(0, m["kernels"][1]),
        lambda m: m["kernels"].pop(),
        lambda m: m["sections"].pop(),
        lambda m: m["sections"][1].__setitem__(0, 0),  # over the first
        lambda m: m["sections"][1].__setitem__(0, 64.0),
        lambda m: m["sections"][-1].__setitem__(1, m["bytes"]),
        lambda m: m["sections"][0].__setitem__(1, -1),
        lambda m: m["program"]["steps"][0].update(kernel=99),
        lambda m: m["program"]["steps"][0]["arguments"][0].__setitem__(1, 1 << 40),
        lambda m: m["program"]["buffers"][0].__setitem__(1, 8),
        lambda m: m["program"].update(arena_bytes=m["program"]["arena_bytes"] // 2),
        lambda m: m["program"].update(objects=[1]),
        lambda m: m["program"].update(accounts=4),
    )
    for change in changes:
        with pytest.raises(InvalidModel, match="not a compiled model"):
            fusewise.open_compiled(rewritten(saved, tmp_path / "odd.fw", change))


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        fusewise.open_compiled(tmp_path / "none.fw")
    with pytest.raises(UsageError, match="directory"):
        fusewise.open_compiled(tmp_path)
    with pytest.raises(UsageError, match="can only be run"):
        fusewise.load(tmp_path / "none.fw")
    with pytest.raises(UsageError, match="can only be run"):
        fusewise.compile(tmp_path / "none.fw")


def test_a_full_disk_leaves_nothing(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    model: Model = fusewise.open_compiled(saved)
    monkeypatch.setattr(container, "_pieces", full)
    monkeypatch.setattr(container, "_checksums", lambda *_: [])
    with pytest.raises(ResourceLimit, match="nothing was left behind"):
        model.save(tmp_path / "network.fw")
    assert not list(tmp_path.iterdir())


def test_an_opened_model_can_be_saved_again(saved: Path, tmp_path: Path) -> None:
    opened = fusewise.open_compiled(saved)
    opened.save(tmp_path / "again.fw")
    feeds = opened.random_inputs()
    np.testing.assert_array_equal(
        fusewise.open_compiled(tmp_path / "again.fw").run(None, feeds)[0], opened.run(None, feeds)[0]
    )


def test_a_disk_that_fails_while_weights_are_read(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(container.os, "preadv", failing)
    with pytest.raises(UsageError, match=r"cannot read .*network.fw: Input/output error"):
        fusewise.open_compiled(saved)


def misled() -> ModelProto:
    """y = 2 * x[c] of the rows chosen, which the model states to be one."""
    value, kinds = helper.make_tensor_value_info, TensorProto
    two = numpy_helper.from_array(np.array(2, np.float32), "two")
    return helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Compress", ["x", "c"], ["z"], axis=0),
                helper.make_node("Mul", ["z", "two"], ["y"]),
            ],
            "misled",
            [value("x", kinds.FLOAT, [4, 3]), value("c", kinds.BOOL, [4])],
            [value("y", kinds.FLOAT, [1, 3])],
            [two],
            value_info=[value("z", kinds.FLOAT, [1, 3])],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


def test_a_stated_shape_that_does_not_hold_is_left_aside_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "misled.onnx").write_bytes(misled().SerializeToString())
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    chosen = np.array([False, True, True, False])
    for _ in range(2):  # compiled, and from the cache
        model = fusewise.compile(tmp_path / "misled.onnx", cache=tmp_path)
        with pytest.warns(RuntimeWarning, match=r"gives the shape \[2, 3\], where the model states \[1, 3\]"):
            (y,) = model.run(None, {"x": x, "c": chosen})
        np.testing.assert_array_equal(y, 2 * x[1:3])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for some in ([True] * 4, [False] * 4):
                (y,) = model.run(None, {"x": x, "c": np.array(some)})
                np.testing.assert_array_equal(y, 2 * x[some])


def test_a_compiled_file_has_no_model_to_leave_it_aside(tmp_path: Path) -> None:
    fusewise.compile(misled(), cache=False).save(tmp_path / "misled.fw")
    opened = fusewise.open_compiled(tmp_path / "misled.fw")
    with pytest.raises(fusewise.FusewiseError, match="where the model states"):
        opened.run(None, {"x": np.ones((4, 3), np.float32), "c": np.ones(4, bool)})


def merged(both: bool = False) -> ModelProto:
    """A decoder's two ways in one: past and x are of one length by their name, but only one of them is read."""
    kinds, value = TensorProto, helper.make_tensor_value_info
    length = [value("z", kinds.FLOAT, ["length", 3])]
    ways = [
        helper.make_graph([helper.make_node(op, [name], ["z"])], op, [], length)
        for op, name in (("Exp", "past"), ("Neg", "x"))
    ]
    nodes = [helper.make_node("If", ["flag"], ["y"], name="way", then_branch=ways[0], else_branch=ways[1])]
    inputs = [value("x", kinds.FLOAT, ["length", 3]), value("past", kinds.FLOAT, ["length", 3])]
    outputs = [value("y", kinds.FLOAT, ["length", 3])]
    if both:
        nodes.append(helper.make_node("Add", ["x", "past"], ["sum"]))
        outputs.append(value("sum", kinds.FLOAT, ["length", 3]))
    graph = helper.make_graph(nodes, "merged", [*inputs, value("flag", kinds.BOOL, [])], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_dimensions_of_one_name_that_differ_are_taken_as_given_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "merged.onnx").write_bytes(merged().SerializeToString())
    x, past = np.ones((4, 3), np.float32), np.ones((1, 3), np.float32)
    for _ in range(2):  # compiled, and from the cache
        model = fusewise.compile(tmp_path / "merged.onnx", cache=tmp_path)
        with pytest.warns(
            RuntimeWarning, match=r"'length' is 4 in axis 0 of input 'x' and 1 in axis 0 of input 'past': each is"
        ):
            found = model.run(None, {"x": x, "past": past, "flag": np.array(False)})
        assert np.array_equal(found[0], -x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert np.allclose(model.run(None, {"x": x, "past": past, "flag": np.array(True)})[0], np.exp(past))


def test_dimensions_of_one_name_that_must_be_equal_are_told_of() -> None:
    model = fusewise.compile(merged(both=True), cache=False)
    feeds = {"x": np.ones((4, 3), np.float32), "past": np.ones((3, 3), np.float32), "flag": np.array(False)}
    sentence = "'length' is 4 in axis 0 of input 'x' and 3 in axis 0 of input 'past'"
    with pytest.warns(RuntimeWarning, match=sentence), pytest.raises(UsageError, match=sentence):
        model.run(None, feeds)
