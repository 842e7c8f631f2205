"""Decisions in a file and on stderr, and what a compilation freezes."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

DECISION = {"serial", "kind", "what", "where", "reason", "before", "after", "applied"}


@pytest.mark.parametrize("verb", ["compile", "verify", "optimize"])
def test_decisions_are_written_in_order(fusewise, tiny_path, tmp_path, verb):
    path = tmp_path / "decisions.jsonl"
    ended = fusewise(verb, tiny_path, "--decisions", path)
    assert ended.status == 0, ended.err
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows and all(set(row) == DECISION for row in rows)
    assert [row["serial"] for row in rows] == sorted(row["serial"] for row in rows)
    assert ended.sentence == f"wrote {path} ({len(rows)} decisions)"
    if verb != "optimize":
        assert any(row["kind"] == "kernel" and row["applied"] for row in rows)
    assert fusewise(verb, tiny_path, "--decisions", tmp_path / "decisions.txt").status == 2


def test_no_file_of_decisions_where_the_work_fails(fusewise, tmp_path):
    assert fusewise("compile", tmp_path / "no.onnx", "--decisions", tmp_path / "d.jsonl").status == 2
    assert not (tmp_path / "d.jsonl").exists()


def test_verbose_tells_decisions_and_times_as_they_come(fusewise, tiny_path):
    ended = fusewise("compile", tiny_path, "-v")
    lines = ended.err.splitlines()
    assert all(line.startswith("fusewise: ") for line in lines)
    kernel = next(k for k, line in enumerate(lines) if line.startswith("fusewise: kernel "))
    assert lines.index(next(line for line in lines if line.startswith("fusewise: rewriting: "))) < kernel
    assert any(line.startswith("fusewise: compiling: ") for line in lines[kernel:])
    assert lines[-1].startswith("fusewise: packing: ") and lines[-1].endswith(" ms")
    assert fusewise("compile", tiny_path).err == ""


@pytest.fixture
def open_path(write):
    """y = x * scale + shift, of free dimensions; `scale` has a default, and `shift` is given."""
    path = write(
        [helper.make_node("Mul", ["x", "scale"], ["p"]), helper.make_node("Add", ["p", "shift"], ["y"])],
        {
            "x": (TensorProto.FLOAT, ["batch", "width"]),
            "shift": (TensorProto.FLOAT, []),
            "scale": (TensorProto.FLOAT, []),
        },
        {"y": (TensorProto.FLOAT, ["batch", "width"])},
        {"scale": np.float32(2)},
    )
    assert onnx.load(path).ir_version >= 4
    return path


def test_compile_says_what_it_froze(fusewise, open_path, tmp_path):
    words = ("compile", open_path, "--symbol", "width=7", "--value", "shift=1.5")
    for _ in range(2):  # the second time from the cache
        found = json.loads(fusewise(*words, "--json").out)["frozen"]
        assert found == {"sizes": {"width": 7}, "values": ["shift"], "defaults": ["scale"]}
    shown = fusewise(*words, "-o", tmp_path / "m.fw").out
    assert "free dimensions  batch\n" in shown and "frozen sizes     width=7\n" in shown
    assert "frozen inputs    shift (constants" in shown and "folded inputs    scale (the model has a value" in shown
    assert "frozen" not in fusewise("compile", open_path).out


def test_a_note_of_defaults_is_not_written_to_files(fusewise, open_path, tmp_path):
    assert fusewise("optimize", open_path, "-o", tmp_path / "out.onnx").status == 0
    assert not onnx.load(tmp_path / "out.onnx").metadata_props


def test_shapes_freeze_what_has_no_name(fusewise, write):
    path = write(
        [helper.make_node("Relu", ["x"], ["y"])],
        {"x": (TensorProto.FLOAT, [None, 4])},
        {"y": (TensorProto.FLOAT, [None, 4])},
    )
    found = json.loads(fusewise("compile", path, "--shape", "x=3x4", "--json").out)["frozen"]
    assert found["sizes"] == {"x axis 0": 3}


def test_a_node_is_explained(fusewise, write, tmp_path):
    path = write(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
            helper.make_node("Identity", ["p"], ["q"], name="copy"),
            helper.make_node("Add", ["q", "b"], ["s"], name="bias"),
            helper.make_node("Relu", ["s"], ["y"], name="bound"),
        ],
        {"x": (TensorProto.FLOAT, [2, 3])},
        {"y": (TensorProto.FLOAT, [2, 4])},
        {"w": np.ones((3, 4), np.float32), "b": np.ones(4, np.float32)},
    )
    found = json.loads(fusewise("explain", path, "--node", "bias", "--json").out)
    assert (found["node"], found["op"]) == ("bias", "Add")
    rows = [(row["kind"], row["what"], row["applied"]) for row in found["decisions"]]
    assert ("fuse", "fuse", True) in rows or any(kind == "rewrite" for kind, _, _ in rows)
    assert [row["serial"] for row in found["decisions"]] == sorted(row["serial"] for row in found["decisions"])
    assert found["became"] and all(row["runs"] == "kernel" for row in found["became"])
    (kernel,) = [row for row in found["decisions"] if row["kind"] == "kernel"]
    (part,) = found["became"]
    assert part["node"] == (kernel["about"] or "bias") and part["node"] in kernel["where"]
    assert part["how"].startswith(kernel["what"])
    other = fusewise(
        "compile", path, "--disable", f"{kernel['what']}@{part['node']}", "--decisions", tmp_path / "o.jsonl"
    )
    refused = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert (other.status, "changes nothing" in other.err) == (0, False)
    assert [row["where"] for row in refused if row["reason"] == "disabled by name"] == [kernel["where"]]
    gone = json.loads(fusewise("explain", path, "--node", "copy", "--json").out)
    assert "drop-identity" in [row["what"] for row in gone["decisions"]]
    shown = fusewise("explain", path, "--node", "q", "--decisions", tmp_path / "d.jsonl")
    assert shown.out.startswith("node  copy (Identity)") and "a copy" in shown.out
    assert (tmp_path / "d.jsonl").read_text().count("\n") > len(gone["decisions"])
    off = json.loads(fusewise("explain", path, "--node", "bound", "--fusion", "none", "--json").out)
    assert not [row for row in off["decisions"] if row["kind"] == "fuse" and row["applied"]]
    for words, told in (
        ((path,), "say which node to explain with --node"),
        (("decisions.jsonl", "--node", "bias"), "holds decisions or results"),
        ((path, "--node", "bais"), "no node is called 'bais'; did you mean 'bias'"),
        ((path, "--group", "1"), "say which node to explain with --node"),
        ((tmp_path / "plan.json", "--node", "bias"), "say which group to explain with --group"),
    ):
        refused = fusewise("explain", *words)
        assert (refused.status, refused.out) == (2, "")
        assert told in refused.sentence
