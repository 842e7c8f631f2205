"""Bad models and bad inputs: one clear sentence, the right exit status, nothing half-written."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT
VERBS = ("inspect", "compile", "run", "verify")


def refused(fusewise, path, status, pattern, verbs=("inspect", "compile")):
    """Every verb ends with `status` and one sentence that matches; the folder has not changed."""
    before = sorted(Path(path).parent.rglob("*"))
    for verb in verbs:
        ended = fusewise(verb, path)
        assert ended.status == status, (verb, ended)
        assert re.search(pattern, ended.sentence), ended.sentence
        assert ended.out == ""
    cache = Path(os.environ["FUSEWISE_CACHE_DIR"])
    after = [p for p in sorted(Path(path).parent.rglob("*")) if cache not in (p, *p.parents)]
    assert after == before


@pytest.mark.parametrize("contents", [b"hello, this is no model", b"\x00" * 64, b"", b"\xff" * 1000])
def test_not_a_protobuf(fusewise, tmp_path, contents):
    path = tmp_path / "model.onnx"
    path.write_bytes(contents)
    refused(fusewise, path, 3, "not an ONNX model", VERBS)


def test_a_truncated_file(fusewise, tiny, tmp_path):
    whole = tiny.SerializeToString()
    path = tmp_path / "model.onnx"
    for keep in (1, len(whole) // 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:keep])
        refused(fusewise, path, 3, ".", ("compile",))


def test_no_such_file_and_a_folder(fusewise, tmp_path):
    for path, pattern in ((tmp_path / "absent.onnx", "there is no file"), (tmp_path, "cannot read")):
        ended = fusewise("compile", path)
        assert ended.status == 2
        assert re.search(pattern, ended.sentence)


def external(tiny, tmp_path, **entries):
    """`tiny` with its weight in another file; `entries` override location, offset and length."""
    folder = tmp_path / "folder"
    folder.mkdir(exist_ok=True)
    (folder / "weights.bin").write_bytes(np.ones((3, 4), np.float32).tobytes())
    (weight,) = tiny.graph.initializer
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    del weight.external_data[:]
    for key, value in ({"location": "weights.bin", "offset": "0", "length": "48"} | entries).items():
        weight.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(tiny.SerializeToString())
    return path


def test_external_data_as_such_works(fusewise, tiny, tmp_path):
    ended = fusewise("run", external(tiny, tmp_path), "--json")
    assert ended.status == 0, ended.err


@pytest.mark.parametrize(
    "entries",
    [
        {"location": "absent.bin"},
        {"location": ""},
        {"location": "../secret.bin"},
        {"location": "sub/../../secret.bin"},
        {"location": "link.bin"},
        {"offset": "4"},
        {"length": "4096"},
        {"offset": "18446744073709551600", "length": "64"},
        {"offset": "-4"},
        {"length": "1000000000000000000000"},
        {"offset": "nonsense"},
    ],
)
def test_external_data_that_is_missing_short_outside_or_overflows(fusewise, tiny, tmp_path, entries):
    (tmp_path / "secret.bin").write_bytes(bytes(48))
    path = external(tiny, tmp_path, **entries)
    if entries.get("location") == "link.bin":
        (path.parent / "link.bin").symlink_to(tmp_path / "secret.bin")
    refused(fusewise, path, 3, "w|data", ("compile",))


def test_an_absolute_location_of_external_data(fusewise, tiny, tmp_path):
    (tmp_path / "secret.bin").write_bytes(bytes(48))
    refused(fusewise, external(tiny, tmp_path, location=str(tmp_path / "secret.bin")), 3, ".", ("compile",))


def test_an_operator_that_does_not_exist(fusewise, write):
    path = write([helper.make_node("Frobnicate", ["x"], ["y"], name="f")], {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])})
    refused(fusewise, path, 3, "Frobnicate", [verb for verb in VERBS if verb != "inspect"])
    told = fusewise("inspect", path)  # which says what else can be read
    assert told.status == 3 and "Frobnicate" in told.sentence and "Frobnicate" in told.out


def test_a_cycle(fusewise, write):
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    refused(fusewise, write(nodes, {"x": (FLOAT, [2])}, {"b": (FLOAT, [2])}), 3, "cycle|circle|loop")


def test_an_undefined_input_and_an_undefined_output(fusewise, write):
    nodes = [helper.make_node("Add", ["x", "ghost"], ["y"])]
    refused(fusewise, write(nodes, {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}), 3, "ghost")
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    refused(fusewise, write(nodes, {"x": (FLOAT, [2])}, {"z": (FLOAT, [2])}), 3, "z")


def test_types_that_do_not_fit(fusewise, write):
    nodes = [helper.make_node("MatMul", ["x", "x"], ["y"], name="product")]
    refused(fusewise, write(nodes, {"x": (FLOAT, [2, 3])}, {"y": (FLOAT, [2, 3])}), 3, "product")


@pytest.mark.parametrize(
    "name, array, pattern",
    [
        ("wrong", np.zeros((2, 3), np.float32), "wrong.*x"),
        ("x", np.zeros((2, 5), np.float32), "x"),
        ("x", np.zeros((3,), np.float32), "x"),
        ("x", np.zeros((2, 3), np.float64), "float64|double"),
        ("x", np.zeros((2, 3), np.int32), "int32"),
    ],
)
def test_wrong_input_name_shape_or_type_at_run(fusewise, tiny_path, tmp_path, name, array, pattern):
    np.save(tmp_path / "in.npy", array)
    ended = fusewise("run", tiny_path, "--input", f"{name}={tmp_path / 'in.npy'}", "-o", tmp_path / "y.npy")
    assert ended.status == 2, ended
    *told, sentence = ended.err.splitlines()
    assert all("is taken to be" in note for note in told) and len(told) <= 1
    assert re.search(pattern, sentence) and "internal error" not in sentence
    assert not (tmp_path / "y.npy").exists()


@pytest.mark.parametrize("contents", [b"", b"no array", b"\x93NUMPY\x01\x00"])
def test_an_input_file_that_is_no_array(fusewise, tiny_path, tmp_path, contents):
    (tmp_path / "in.npy").write_bytes(contents)
    ended = fusewise("run", tiny_path, "--input", f"x={tmp_path / 'in.npy'}")
    assert ended.status == 2
    assert "in.npy" in ended.sentence


def test_pickled_inputs_are_not_loaded(fusewise, tiny_path, tmp_path):
    np.save(tmp_path / "in.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    ended = fusewise("run", tiny_path, "--input", f"x={tmp_path / 'in.npy'}")
    assert ended.status == 2
    assert "in.npy" in ended.sentence


def test_nan_passes_through(fusewise, tiny_path, tmp_path):
    x = np.ones((2, 3), np.float32)
    x[1, 2] = np.nan
    np.save(tmp_path / "x.npy", x)
    ended = fusewise("run", tiny_path, "--input", f"x={tmp_path / 'x.npy'}", "-o", tmp_path / "y.npy", "--json")
    assert ended.status == 0, ended.err
    y = np.load(tmp_path / "y.npy")
    assert np.array_equal(y[0], np.full(4, 3, np.float32))
    assert np.isnan(y[1]).all()
    assert json.loads(ended.out)["outputs"][0]["not_finite"] == 4


@pytest.mark.parametrize("op", ["Relu", "Softmax", "Transpose"])
def test_zero_sized_dimensions(fusewise, write, op):
    path = write([helper.make_node(op, ["x"], ["y"])], {"x": (FLOAT, [0, 3])}, {"y": (FLOAT, None)})
    ended = fusewise("run", path, "--json")
    assert ended.status == 0, ended.err
    assert json.loads(ended.out)["outputs"][0]["shape"] == ([3, 0] if op == "Transpose" else [0, 3])


def test_a_product_over_nothing_is_zero(fusewise, write, tmp_path):
    path = write(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": (FLOAT, [2, 0])},
        {"y": (FLOAT, [2, 4])},
        {"w": np.ones((0, 4), np.float32)},
    )
    assert fusewise("run", path, "-o", tmp_path / "y.npy").status == 0
    assert np.array_equal(np.load(tmp_path / "y.npy"), np.zeros((2, 4), np.float32))


HUGE = 2**38


@pytest.mark.parametrize(
    "node, weights",
    [
        (helper.make_node("Expand", ["x", "shape"], ["y"]), {"shape": np.array([HUGE, 4])}),
        (helper.make_node("Pad", ["x", "pads"], ["y"]), {"pads": np.array([HUGE, HUGE])}),
        (helper.make_node("Tile", ["x", "repeats"], ["y"]), {"repeats": np.array([HUGE])}),
        (helper.make_node("ConstantOfShape", ["shape"], ["y"]), {"shape": np.array([HUGE, 4])}),
        (helper.make_node("ConstantOfShape", ["shape"], ["y"]), {"shape": np.array([2**31, 2**31, 2**31])}),
    ],
    ids=["expand", "pad", "tile", "constant", "overflow"],
)
def test_a_huge_result_meets_a_limit(fusewise, write, node, weights):
    path = write([node, helper.make_node("Identity", ["x"], ["z"])], {"x": (FLOAT, [4])},
                 {"y": (FLOAT, None), "z": (FLOAT, [4])}, weights)  # fmt: skip
    refused(fusewise, path, 5, "limit|memory|elements", ("compile", "run"))


def test_a_huge_input_shape_meets_a_limit(fusewise, write):
    path = write([helper.make_node("Relu", ["x"], ["y"])], {"x": (FLOAT, ["n", "m"])}, {"y": (FLOAT, ["n", "m"])})
    ended = fusewise("compile", path, "--shape", f"x={HUGE}x{HUGE}")
    assert ended.status == 5
    assert ended.sentence


def run_program(words, folder, **options):
    environment = os.environ | {"FUSEWISE_CACHE_DIR": str(folder), "FUSEWISE_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "fusewise", *map(str, words)],
        capture_output=True, text=True, env=environment, check=False, timeout=120, **options,
    )  # fmt: skip


def test_a_cache_folder_that_cannot_be_made_is_done_without(tiny_path, tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = run_program(["compile", tiny_path, "--json"], tmp_path / "file" / "cache")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kernels"] >= 1
    assert len(done.stderr.splitlines()) == 1
    assert "cache" in done.stderr


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="nothing is read-only for this user")
def test_a_read_only_cache_folder_is_done_without(tiny_path, tmp_path):
    (tmp_path / "cache").mkdir(mode=0o500)
    done = run_program(["compile", tiny_path], tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 1


def limit_file_size() -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))


def test_a_full_disk_under_the_cache_is_done_without(tiny_path, tmp_path):
    (tmp_path / "cache").mkdir()
    done = run_program(["compile", tiny_path], tmp_path / "cache", preexec_fn=limit_file_size)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "cache" in done.stderr
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.stat().st_size < 16] == []


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["compile", "bench"])
def test_interruption_leaves_nothing_behind(tmp_path, verb):
    cache, scratch = tmp_path / "cache", tmp_path / "scratch"
    scratch.mkdir()
    environment = os.environ | {"FUSEWISE_CACHE_DIR": str(cache), "TMPDIR": str(scratch)}
    words = [sys.executable, "-m", "fusewise", verb, "zoo:resnet18", "--no-cache"]
    for delay in (0.6, 1.5, 2.5):
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
            time.sleep(delay)
            p.send_signal(signal.SIGINT)
            out, err = p.communicate(timeout=60)
        # it was done before the signal came, or was just leaving and had said everything
        if p.returncode == 0 or (p.returncode == -signal.SIGINT and out):
            continue
        assert p.returncode == 130, err
        assert out == b""
        assert err == b"fusewise: interrupted\n"
        # ONNX Runtime writes a number of its own when it is imported
        assert [path for path in scratch.iterdir() if path.name != ".ses"] == []


HALF_MADE = """
from fusewise.cli import main

class Resource:
    def __init__(self):
        raise KeyboardInterrupt

    def __del__(self):
        raise AttributeError("never finished")

main._program = lambda: lambda *words, **options: Resource()
main.main()
"""


def test_an_interruption_is_one_sentence_whatever_was_half_made():
    done = subprocess.run([sys.executable, "-c", HALF_MADE], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "fusewise: interrupted\n")


def test_an_unknown_zoo_name_is_told_the_nearest(fusewise, tmp_path):
    for words in (("compile", "zoo:resnet5"), ("zoo", "build", "resnet5", "-o", tmp_path / "m.onnx")):
        ended = fusewise(*words)
        assert ended.status == 2
        assert "resnet50" in ended.sentence
    assert not (tmp_path / "m.onnx").exists()


def test_output_into_a_file_that_cannot_be_written_leaves_no_draft(fusewise, tiny_path, tmp_path):
    (tmp_path / "y.npy").mkdir()
    ended = fusewise("run", tiny_path, "-o", tmp_path / "y.npy")
    assert ended.status == 2
    assert "y.npy" in ended.sentence
    assert not list(tmp_path.glob(".y.npy*"))


def test_names_with_markup_are_printed_as_they_are(fusewise, tmp_path):
    name = "[bold]x[/bold]</script>\u202e"
    graph = helper.make_graph(
        [helper.make_node("Relu", [name], ["y"], name=name)], name,
        [helper.make_tensor_value_info(name, FLOAT, [2])], [helper.make_tensor_value_info("y", FLOAT, [2])],
        [numpy_helper.from_array(np.zeros(1, np.float32), "unused")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    ended = fusewise("inspect", tmp_path / "m.onnx", "--json")
    assert ended.status == 0, ended.err
    assert name in json.loads(ended.out)["inputs"]
    assert fusewise("inspect", tmp_path / "m.onnx").status == 0
