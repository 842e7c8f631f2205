"""`compile -o` and `run` of what it wrote."""

from __future__ import annotations

import json

import numpy as np
import onnx


def test_compile_to_a_file_and_run_it(fusewise, tiny, tmp_path):
    onnx.save(tiny, tmp_path / "tiny.onnx")
    made = fusewise("compile", tmp_path / "tiny.onnx", "-o", tmp_path / "tiny.fw", "--json")
    assert made.status == 0 and json.loads(made.out)["output"].endswith("tiny.fw")
    for model in ("tiny.onnx", "tiny.fw"):
        assert fusewise("run", tmp_path / model, "-o", tmp_path / f"{model}.npz").status == 0
    found, expected = (np.load(tmp_path / f"{model}.npz") for model in ("tiny.fw", "tiny.onnx"))
    assert found.files == expected.files
    for name in expected.files:
        np.testing.assert_array_equal(found[name], expected[name])


def test_refusals(fusewise, tiny, tmp_path):
    onnx.save(tiny, tmp_path / "tiny.onnx")
    ended = fusewise("compile", tmp_path / "tiny.onnx", "-o", tmp_path / "tiny.so")
    assert ended.status == 2 and "must end in .fw" in ended.sentence
    fusewise("compile", tmp_path / "tiny.onnx", "-o", tmp_path / "tiny.fw")
    ended = fusewise("run", tmp_path / "tiny.fw", "--exact")
    assert ended.status == 2 and "--exact" in ended.sentence
    ended = fusewise("inspect", tmp_path / "tiny.fw")
    assert ended.status == 2 and "can only be run" in ended.sentence
    (tmp_path / "tiny.fw").write_bytes((tmp_path / "tiny.fw").read_bytes()[:-1])
    ended = fusewise("run", tmp_path / "tiny.fw")
    assert ended.status == 3 and "damaged" in ended.sentence
