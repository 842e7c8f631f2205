"""`inspect` on a small model: what it lists and draws, the keys of its JSON, its exit status."""

from __future__ import annotations

import json

import numpy as np
import onnx

from fusewise.api import save
from fusewise.ops.build import GraphBuilder


def test_inspect_json_has_its_keys(fusewise, tiny_path):
    ended = fusewise("inspect", tiny_path, "--json")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert {"nodes", "parameters", "macs", "mapping_types", "native_nodes", "host_nodes"} <= set(found)
    assert (found["nodes"], found["parameters"], found["macs"]) == (2, 12, 24)
    assert found["mapping_types"]["many_to_many"] == 1
    assert found["mapping_types"]["one_to_one"] == 1
    assert (found["native_nodes"], found["host_nodes"]) == (found["nodes_compiled"], 0)


def test_inspect_for_people(fusewise, tiny_path):
    ended = fusewise("inspect", tiny_path)
    assert ended.status == 0, ended.err
    assert "x: float32[2,3]" in ended.out
    assert "MatMul" in ended.out
    assert ended.err == ""


def test_inspect_lists_groups_and_every_verdict(fusewise, tiny_path):
    ended = fusewise("inspect", tiny_path, "--groups", "--json")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert {
        "nodes",
        "groups",
        "fusion_rate",
        "intermediate_bytes_before",
        "intermediate_bytes_after",
        "verdicts",
    } <= set(found)
    (group,) = found["groups"]
    assert [member["op"] for member in group["members"]] == ["MatMul", "Relu"]
    assert (group["type"], group["bytes_saved"], group["stopped_by"]) == ("many_to_many", 32, [])
    assert group["anchor"] == group["members"][0]["node"]
    (edge,) = found["verdicts"]
    assert (edge["fused"], edge["verdict"], edge["reason"]) == (True, "fuse", "the types fuse without asking")
    assert (found["fusion_rate"], found["intermediate_bytes_before"], found["intermediate_bytes_after"]) == (2, 32, 0)
    shown = fusewise("inspect", tiny_path, "--groups", "--fusion", "none").out
    assert "fusion is off" in shown
    assert "2 as given" in shown
    assert "2 (1.0 times fewer)" in shown
    assert "2 groups (1.0 times fewer; 1.0 in all)" in shown


def test_inspect_of_an_operator_that_is_written_out_as_several(fusewise, tmp_path):
    b = GraphBuilder()
    path = tmp_path / "transform.onnx"
    save(b.finish(b.op("DFT", b.input("x", (1, 400, 1)))), path)
    ended = fusewise("inspect", path)
    assert ended.status == 0, ended.err
    assert "times as many)" in ended.out and "0.0 times fewer" not in ended.out


def test_inspect_lists_operators_that_are_not_known(fusewise, tmp_path):
    """In branches and functions too: the table as far as the model can be read, then the sentence."""
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1, "org.example": 1]>
        g (float[3] x, bool c) => (float[3] y) { a = org.example.twice(x)  b = Gelu(a)
          y = If(c) <then_branch = t () => (float[3] p) { p = com.microsoft.SkipLayerNorm(b) },
                     else_branch = e () => (float[3] q) { r = Relu(b)  q = com.microsoft.SkipLayerNorm(r) }> }
        <domain: "org.example", opset_import: ["": 17, "org.example": 1]>
        twice (x) => (y) { y = org.example.Once(x) }"""
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    ended = fusewise("inspect", path, "--json")
    assert ended.status == 3 and "3 unsupported operators" in ended.sentence
    found = json.loads(ended.out)
    assert found["operators"] == {
        "com.microsoft.SkipLayerNorm": 2,
        **dict.fromkeys(("Gelu", "If", "Relu", "org.example.Once"), 1),
    }
    assert (found["inputs"], found["outputs"], found["opsets"]["ai.onnx"]) == (["x", "c"], ["y"], 17)
    rows = {row["operator"]: row for row in found["unknown_operators"]}
    assert rows["SkipLayerNorm"] == {
        "domain": "com.microsoft",
        "operator": "SkipLayerNorm",
        "opset": 1,
        "nodes": 2,
        "nearest": "SkipLayerNormalization",
        "reason": "",
        "where": ["node 'p' in then_branch of node 'y'", "node 'q' in else_branch of node 'y'"],
    }
    assert rows["Once"]["where"] == ["node 'y' in function 'twice'"]
    assert rows["Gelu"]["reason"] == "it is of opset 20"
    shown = fusewise("inspect", path)
    assert shown.status == 3 and shown.sentence == ended.sentence
    for words in ("com.microsoft.SkipLayerNorm", "SkipLayerNormalization", "in function 'twice'", "it is of opset 20"):
        assert words in shown.out


def test_inspect_draws_the_tree_of_a_group(fusewise, tiny_path):
    ended = fusewise("inspect", tiny_path, "--tree", "0")
    assert ended.status == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0] == "group 0, many-to-many"
    assert lines[1].startswith("Relu ") and lines[2].startswith("└─ MatMul ")
    assert "out0[i0, i1]" in ended.out and "= max(acc[i0, i1], 0.0)" in ended.out
    found = json.loads(fusewise("inspect", tiny_path, "--tree", 0, "--json").out)["tree"]
    assert [row["kind"] for row in found["values"]] == ["input", "constant", "operator", "operator"]
    assert [(work["label"], work["anchor"], work["extents"]) for work in found["code"]] == [
        ("MatMul+Relu", "MatMul", [2, 4])
    ]
    shown = fusewise("inspect", tiny_path, "--tree", "0", "--nest").out
    assert shown.startswith(ended.out)
    (work,) = found["code"]
    assert shown.removeprefix(ended.out) == f"\nkernel {work['way']}\n\n{work['nest']}"
    assert "= accumulate fma " in work["nest"] and "store results of #" in work["nest"]
    drawn = fusewise("inspect", tiny_path, "--tree", "0", "--dot")
    assert (drawn.status, drawn.out.splitlines()[0]) == (0, "digraph group_0 {")
    for words, sentence in (
        (("--tree", "1"), "there is no group 1; groups are 0 to 0"),
        (("--tree", "nobody"), "no group or node is called 'nobody'"),
        (("--dot",), "--dot prints the tree of a group: give --tree GROUP"),
        (("--tree", "0", "--dot", "--json"), "--dot prints the tree of a group"),
        (("--nest",), "--nest prints the loops of a group's kernels: give --tree GROUP"),
        (("--tree", "0", "--nest", "--dot"), "--nest prints the loops of a group's kernels"),
    ):
        refused = fusewise("inspect", tiny_path, *words)
        assert (refused.status, refused.out) == (2, "")
        assert sentence in refused.sentence


def test_a_tree_without_code_says_so(fusewise, tmp_path):
    b = GraphBuilder()
    h = b.op("MatMul", b.input("x", (4, 6)), b.constant(np.ones((6, 8), np.float32)))
    b.op("NonZero", h, name="nonzero")
    y = b.op("MatMul", b.op("Reshape", h, b.constant([8, 4]), name="flat"), b.constant(np.ones((4, 2), np.float32)))
    save(b.finish(y, "nonzero_out"), tmp_path / "m.onnx")
    assert (
        "no code: results are views"
        in fusewise("inspect", tmp_path / "m.onnx", "--fusion", "none", "--tree", "flat").out
    )
    assert (
        "on the host\n  NonZero nonzero  no element definition"
        in fusewise("inspect", tmp_path / "m.onnx", "--tree", "nonzero").out
    )


def test_inspect_says_why_a_node_is_fused(fusewise, tiny_path):
    name = json.loads(fusewise("inspect", tiny_path, "--groups", "--json").out)["groups"][0]["members"][1]["node"]
    ended = fusewise("inspect", tiny_path, "--why", name)
    assert ended.status == 0, ended.err
    assert "the types fuse without asking" in ended.out
    told = json.loads(fusewise("inspect", tiny_path, "--why", name, "--fusion", "none", "--json").out)["why"]
    assert [(edge["side"], edge["fused"], edge["reason"]) for edge in told["edges"]] == [
        ("before", False, "fusion is off")
    ]
    missing = fusewise("inspect", tiny_path, "--why", "nobody")
    assert missing.status == 2
    assert "no node is called 'nobody'" in missing.err
