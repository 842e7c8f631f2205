"""The verb `gradient`, pipelines of `optimize`, regions and normal forms of `inspect`: what they write, say and refuse."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper


def _answers(path, x):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})


def test_gradient_is_written_and_right(fusewise, tiny_path, tmp_path):
    output = tmp_path / "g.onnx"
    ended = fusewise("gradient", tiny_path, "-o", output, "--weights", "--json")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert found["gradients"] == {"gradient_of_y_by_x": "float32[2,3]", "gradient_of_y_by_w": "float32[3,4]"}
    x = np.array([[1, 2, 3], [-4, 1, 1]], np.float32)
    y, by_x, by_w = _answers(output, x)
    np.testing.assert_array_equal(y, [[6.0] * 4, [0.0] * 4])
    np.testing.assert_array_equal(by_x, [[4.0] * 3, [0.0] * 3])
    np.testing.assert_array_equal(by_w, np.repeat([[1.0], [2.0], [3.0]], 4, 1))
    ran = fusewise("verify", output)
    assert ran.status == 0, ran.err


@pytest.mark.parametrize(
    "words, status, sentence",
    [
        (("--by", "nothing"), 2, "there is no floating value 'nothing'"),
        (("--of", "x"), 2, "there is no floating output 'x'; it is float32[2,3]"),
        (("-o", "g.txt"), 2, "'g.txt' should end in .onnx"),
    ],
)
def test_wrong_words(fusewise, tiny_path, words, status, sentence):
    ended = fusewise("gradient", tiny_path, *words)
    assert ended.status == status
    assert ended.sentence.startswith(sentence)


def test_an_operator_without_a_rule_is_named(fusewise, write):
    square = (TensorProto.FLOAT, [2, 2])
    path = write([helper.make_node("Det", ["x"], ["y"], "odd")], {"x": square}, {"y": (TensorProto.FLOAT, [])})
    ended = fusewise("gradient", path)
    assert ended.status == 3
    assert ended.sentence.startswith("node 'odd': there is no gradient of operator Det;")


def test_passes_by_name_and_regions_as_functions(fusewise, tiny_path, tmp_path):
    output = tmp_path / "parted.onnx"
    ended = fusewise(
        "optimize", tiny_path, "--pipeline", "FirstOrderGradient,PartitionGraph,ToANormalForm", "-o", output, "--json"
    )
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert [(run["pass"], run["changed"]) for run in found["passes"]] == [
        ("FirstOrderGradient", True),
        ("PartitionGraph", True),
        ("ToANormalForm", False),
    ]
    assert found["passes"][2]["why"].startswith("A-normal form already: ")
    model = onnx.load(output)
    assert [f.name for f in model.functions] == [row["region"] for row in found["regions"]["regions"]]
    x = np.array([[1, 2, 3], [-4, 1, 1]], np.float32)
    _, by_x = _answers(output, x)
    np.testing.assert_array_equal(by_x, [[4.0] * 3, [0.0] * 3])
    shown = fusewise("optimize", output, "--pipeline", "RemoveUnusedFunctions")
    assert shown.status == 0, shown.err
    assert "native_0" in shown.out
    assert "RemoveUnusedFunctions" in shown.out


def test_no_such_pipeline(fusewise, tiny_path):
    ended = fusewise("optimize", tiny_path, "--pipeline", "FuseOps,Fuze")
    assert ended.status == 2
    assert ended.sentence.startswith("there is no pass called 'Fuze'")


def test_inspect_shows_regions_and_forms(fusewise, tiny_path):
    ended = fusewise("inspect", tiny_path, "--regions", "native,host", "--json")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert found["back_ends"] == {"native": 1}
    assert found["regions"][0]["operators"] == {"MatMul": 1, "Relu": 1}
    assert "native_0" in fusewise("inspect", tiny_path, "--regions", "native").out
    assert fusewise("inspect", tiny_path, "--form", "a-normal").out == "let p = MatMul(x, w)\nlet y = Relu(p)\nin y\n"
    assert fusewise("inspect", tiny_path, "--form", "graph-normal").out == "y = Relu(MatMul(x, w))\nreturn y\n"
    assert (
        fusewise("inspect", tiny_path, "--form", "x").sentence
        == "there is no form 'x'; there are a-normal, graph-normal"
    )
    assert fusewise("inspect", tiny_path, "--regions", "x").sentence.startswith("there is no back end 'x'")
