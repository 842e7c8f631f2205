"""The verb `optimize`: the file it writes, its record, its picture, its errors."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ET

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.frontend.domains.test_four_bits import of_table

KEYS = {"cost_before", "cost_after", "speedup", "graphs_explored", "duplicates", "seconds", "substitutions"}


@pytest.fixture
def module(write):
    """A 1x1 beside a 3x3 convolution with an add, as in a residual network."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w3"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["x", "w1"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    weights = {
        "w3": rng.standard_normal((32, 32, 3, 3)).astype(np.float32),
        "w1": rng.standard_normal((32, 32, 1, 1)).astype(np.float32),
    }
    shape = (TensorProto.FLOAT, [1, 32, 14, 14])
    return write(nodes, {"x": shape}, {"y": shape}, weights)


def answers(path, x):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def test_the_module_becomes_one_convolution(fusewise, module, tmp_path):
    output, plot = tmp_path / "out.onnx", tmp_path / "way.svg"
    words = ("--search", "relaxed", "--machine", "gpu", "--alpha", "1.6", "-o", output, "--plot", plot, "--json")
    ended = fusewise("optimize", module, *words)
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert set(found) >= KEYS
    assert found["speedup"] == pytest.approx(found["cost_before"] / found["cost_after"])
    assert found["speedup"] > 1
    first = found["substitutions"][0]
    assert set(first) == {"serial", "rule", "where", "cost_before", "cost_after"}
    assert (first["serial"], first["rule"]) == (1, "enlarge-kernel")
    assert first["cost_after"] > first["cost_before"]
    assert [node.op_type for node in onnx.load(output).graph.node] == ["Conv", "Relu"]
    x = np.random.default_rng(1).standard_normal((1, 32, 14, 14)).astype(np.float32)
    before, after = answers(module, x), answers(output, x)
    assert np.abs(before - after).max() <= 1e-5 * np.abs(before).max()
    points = [e for e in ET.parse(plot).iter() if e.get("aria-roledescription") == "circle"]
    assert len(points) == 1 + len(found["substitutions"])


def test_greedy_does_not_go_up(fusewise, module):
    ended = fusewise("optimize", module, "--search", "greedy", "--machine", "gpu", "--alpha", "1.6", "--json")
    steps = json.loads(ended.out)["substitutions"]
    assert all(step["cost_after"] < step["cost_before"] for step in steps)
    assert "enlarge-kernel" not in [step["rule"] for step in steps]


def test_backtracking_finds_the_same(fusewise, module):
    words = ("--search", "backtracking", "--machine", "gpu", "--alpha", "1.6", "--json")
    found = json.loads(fusewise("optimize", module, *words).out)
    assert (found["search"], found["nodes"], found["ended"]) == ("backtracking", 2, "searched")
    assert found["substitutions"][0]["rule"] == "enlarge-kernel"


def test_saturation_finds_the_same(fusewise, module):
    pytest.importorskip("egglog")
    ended = fusewise("optimize", module, "--search", "saturate", "--machine", "gpu", "--json")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert (found["search"], found["nodes"]) == ("saturate", 2)
    assert found["speedup"] > 1


def test_without_a_search_only_passes_run(fusewise, module, tmp_path):
    ended = fusewise("optimize", module, "-o", tmp_path / "out.onnx", "--json")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert (found["search"], found["graphs_explored"], found["substitutions"]) == ("none", 0, [])
    assert (tmp_path / "out.onnx").exists()


def test_the_graph_runs_in_onnx_runtime_with_a_mask_that_is_broadcast(fusewise, write, tmp_path):
    """Attention written out stays so: ONNX Runtime's own takes no such mask."""
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Mul", ["s", "scale"], ["t"]),
        helper.make_node("Add", ["t", "mask"], ["m"]),
        helper.make_node("Softmax", ["m"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    shapes = {"q": [1, 2, 8, 4], "k": [1, 2, 4, 8], "v": [1, 2, 8, 4], "mask": [1, 1, 1, 8]}
    inputs = {name: (TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    outputs = {"y": (TensorProto.FLOAT, [1, 2, 8, 4])}
    path = write(nodes, inputs, outputs, {"scale": np.array(0.5, np.float32)})
    output = tmp_path / "out.onnx"
    assert fusewise("optimize", path, "--search", "relaxed", "--budget", 5, "-o", output).status == 0
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    found = [
        onnxruntime.InferenceSession(str(p), providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        for p in (path, output)
    ]
    assert np.abs(found[0] - found[1]).max() <= 1e-5 * np.abs(found[0]).max()


def test_for_people(fusewise, module):
    ended = fusewise("optimize", module, "--search", "relaxed", "--machine", "gpu", "--alpha", "1.6")
    assert ended.status == 0, ended.err
    assert "enlarge-kernel" in ended.out
    assert "times less" in ended.out
    assert ended.err == ""


def test_exact_searches_exact_rules_only(fusewise, module):
    words = ("--search", "relaxed", "--machine", "gpu", "--alpha", "1.6", "--exact", "--json")
    assert json.loads(fusewise("optimize", module, *words).out)["substitutions"] == []


def test_a_rule_can_be_switched_off(fusewise, module):
    words = ("--search", "relaxed", "--machine", "gpu", "--alpha", "1.6", "--disable", "enlarge-kernel", "--json")
    steps = json.loads(fusewise("optimize", module, *words).out)["substitutions"]
    assert "enlarge-kernel" not in [step["rule"] for step in steps]


@pytest.mark.parametrize("search", ["relaxed", "backtracking"])
@pytest.mark.parametrize("cost", ["measured", "onnxruntime", "time + 0.5*onnxruntime"])
def test_measured_costs(fusewise, module, tmp_path, search, cost):
    if "onnxruntime" in cost:
        pytest.importorskip("onnxruntime")
    words = ("--search", search, "--cost", cost, "--budget", 4, "--json", "-o", tmp_path / "out.onnx")
    ended = fusewise("optimize", module, *words)
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert found["cost_before"] > 0
    assert 1 <= found["graphs_explored"] <= 4
    x = np.random.default_rng(1).standard_normal((1, 32, 14, 14)).astype(np.float32)
    before, after = answers(module, x), answers(tmp_path / "out.onnx", x)
    assert np.abs(before - after).max() <= 1e-5 * np.abs(before).max()


@pytest.mark.parametrize(
    "words, named",
    [
        (("--alpha", "0.9"), "alpha is 0.9"),
        (("--alpha", "nan"), "alpha is nan"),
        (("--budget", "0"), "budget is 0"),
        (("--cost", "time +"), "'time +'"),
        (("--cost", "joy"), "'joy'"),
        (("--search", "luck"), "'luck'"),
        (("--machine", "abacus"), "'abacus'"),
        (("--seconds", "0"), "0 seconds"),
        (("--workers", "0"), "0 workers"),
        (("--workers", "2", "--cost", "onnxruntime"), "one worker"),
        (("-o", "out.txt"), "'out.txt'"),
        (("--plot", "way.png"), "'way.png'"),
    ],
)
def test_wrong_words_are_named(fusewise, module, words, named):
    ended = (
        fusewise("optimize", module, "--search", "relaxed", *words)
        if "--search" not in words
        else fusewise("optimize", module, *words)
    )
    assert ended.status == 2
    assert named in ended.sentence


def test_rules_from_a_file_are_verified_and_used(fusewise, write, tmp_path):
    """x * a + x * b in one file of rules becomes x * (a + b); what is broken beside it is named."""

    def field(number, value):
        if not isinstance(value, bytes):
            return bytes([number << 3, value])
        return bytes([number << 3 | 2, len(value) & 127 | 128, len(value) >> 7]) + value

    def operand(k):
        number = bytes([1 << 3, 256 + k]) + b"\xff" * 8 + b"\x01" if k < 0 else field(1, k)
        return field(2, number + field(2, 0))

    def op(kind, *inputs):
        return field(1, kind) + b"".join(map(operand, inputs))

    before = (op(17, -1, -2), op(17, -1, -3), op(16, 0, 1))
    after = (op(16, -2, -3), op(17, -1, 0))
    ends = field(1, 2) + field(2, 1) + field(3, 0) + field(4, 0)
    sound = b"".join([*(field(1, x) for x in before), *(field(2, x) for x in after), field(3, ends)])
    rules = tmp_path / "more.pb"
    rules.write_bytes(field(1, b"\xff") + field(1, sound))
    nodes = [
        helper.make_node("Mul", ["x", "a"], ["p"]),
        helper.make_node("Mul", ["x", "b"], ["q"]),
        helper.make_node("Add", ["p", "q"], ["y"]),
    ]
    kind = (TensorProto.FLOAT, [64, 64])
    path = write(nodes, dict.fromkeys("xab", kind), {"y": kind}, {})
    words = ("--search", "greedy", "--cost", "flops", "--no-passes", "--rules", rules, "--json")
    ended = fusewise("optimize", path, *words)
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert [step["rule"] for step in found["substitutions"]] == ["more-1"]
    assert [refused["rule"] for refused in found["rules_refused"]] == ["more-0"]
    assert fusewise("optimize", path, "--rules", tmp_path / "none.pb").status == 2


def test_an_old_model_with_regions_stays_loadable(fusewise, write, tmp_path):
    """It is brought up to the newest operators inside, and written for runtimes that do not have all of those."""
    onnxruntime = pytest.importorskip("onnxruntime")
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("RoiAlign", ["r", "boxes", "which"], ["y"], output_height=2, output_width=2, sampling_ratio=2),
    ]
    inputs = {"x": (TensorProto.FLOAT, [1, 2, 8, 8]), "boxes": (TensorProto.FLOAT, [1, 4])}
    path = write(nodes, inputs, {"y": (TensorProto.FLOAT, [1, 2, 2, 2])}, {"which": np.zeros(1, np.int64)})
    output = tmp_path / "out.onnx"
    ended = fusewise("optimize", path, "-o", output)
    assert ended.status == 0, ended.err
    assert onnx.load(output).opset_import[0].version == 21
    feeds = {
        "x": np.random.default_rng(0).standard_normal((1, 2, 8, 8)).astype(np.float32),
        "boxes": np.array([[1, 1, 6, 5]], np.float32),
    }
    session = onnxruntime.InferenceSession(str(output), providers=["CPUExecutionProvider"])
    assert session.run(None, feeds)[0].shape == (1, 2, 2, 2)


def test_a_file_for_onnx_runtime_alone(fusewise, write, tmp_path):
    x, y = (TensorProto.FLOAT, [2, 8]), (TensorProto.FLOAT, [2, 2])
    nodes = [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("MatMul", ["x", "t"], ["y"])]
    path, output = write(nodes, {"x": x}, {"y": y}, {}), tmp_path / "out.onnx"
    ended = fusewise("optimize", path, "--target", "onnxruntime", "-o", output)
    assert ended.status == 0, ended.err
    assert [(node.domain, node.op_type) for node in onnx.load(output).graph.node] == [("com.microsoft", "FusedMatMul")]
    refused = fusewise("optimize", path, "--target", "other", "-o", output)
    assert refused.status == 2 and "there are onnx, onnxruntime" in refused.err


def test_packed_weights_for_onnx_runtime_alone(fusewise, tmp_path):
    path, output = tmp_path / "packed.onnx", tmp_path / "out.onnx"
    onnx.save(of_table(1, 264, 64, 32).model(), path)
    told = fusewise("optimize", path, "-o", output)
    assert told.status == 0, told.err
    assert "MatMulBnb4 (1) would save time or memory there; --target onnxruntime" in " ".join(told.out.split())
    ended = fusewise("optimize", path, "--target", "onnxruntime", "-o", output)
    assert ended.status == 0 and "--target" not in ended.out, ended.err
    assert [node.op_type for node in onnx.load(output).graph.node] == ["MatMulBnb4"]


def test_what_is_written_is_said(fusewise, module, tmp_path):
    output = tmp_path / "out.onnx"
    ended = fusewise("optimize", module, "--search", "relaxed", "--machine", "gpu", "--alpha", "1.6", "-o", output)
    assert ended.status == 0, ended.err
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["operator", "before", "after"] in lines
    assert ["Conv", "2", "1"] in lines and ["Add", "1", "0"] in lines and ["all", "4", "2"] in lines
    assert f"{output} (" in ended.out and ", 2 nodes)" in ended.out
    assert ended.out.splitlines()[-1].startswith("answers  agree in onnxruntime: 'y' differs by ")
    found = json.loads(fusewise("optimize", module, "-o", output, "--no-check", "--json").out)
    assert found["check"] is None and found["operators"]["before"]["Conv"] == 2
    assert "none: -o FILE.onnx writes the graph" in fusewise("optimize", module).out


def test_the_model_is_not_overwritten_unless_asked(fusewise, module, tmp_path):
    before, link = module.read_bytes(), tmp_path / "link.onnx"
    link.hardlink_to(module)
    for output in (module, link):
        refused = fusewise("optimize", module, "-o", output)
        assert refused.status == 2
        assert "is the model itself; write to another file, or overwrite it with --force" in refused.sentence
    assert module.read_bytes() == before
    assert fusewise("optimize", module, "-o", module, "--force").status == 0
    assert module.read_bytes() != before


def test_other_answers_are_not_written(fusewise, module, tmp_path, monkeypatch):
    from fusewise import optimizing
    from fusewise.ops.build import GraphBuilder

    b = GraphBuilder()
    kernel = b.constant(np.ones((32, 32, 1, 1), np.float32))
    b.op("Conv", b.input("x", (1, 32, 14, 14)), kernel, name="other")
    wrong = b.finish(b.op("Relu", "other_out"))
    usual = optimizing.optimized
    monkeypatch.setattr(
        optimizing, "optimized", lambda *words, **how: dataclasses.replace(usual(*words, **how), graph=wrong)
    )
    ended = fusewise("optimize", module, "-o", tmp_path / "out.onnx")
    assert ended.status == 4 and ended.out == ""
    assert "nothing was written: the answers differ in onnxruntime: 'y' differs by " in ended.sentence
    assert not (tmp_path / "out.onnx").exists()
    assert fusewise("optimize", module, "-o", tmp_path / "out.onnx", "--no-check").status == 0


def test_a_search_that_finds_nothing_says_so(fusewise, tiny_path):
    ended = fusewise("optimize", tiny_path, "--search", "greedy", "--faster-in", "none")
    assert "no substitution that makes the model cheaper" in ended.out
    assert "as before" in ended.out
