"""Runs the program in this process and keeps what it said."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fusewise.cli.main import run


@dataclass(frozen=True)
class Ended:
    """How the program ended: exit status, stdout, stderr."""

    status: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The one sentence on stderr; fails when there is anything else."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("fusewise: ")
        assert "internal error" not in lines[0]
        return lines[0].removeprefix("fusewise: ")


@pytest.fixture
def fusewise(capsys, monkeypatch, tmp_path):
    """Call the program with words; its cache is a fresh folder, and lines are as wide as where there is no terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("FUSEWISE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FUSEWISE_THREADS", "1")

    def call(*words: object) -> Ended:
        capsys.readouterr()
        status = run([str(word) for word in words])
        said = capsys.readouterr()
        return Ended(status, said.out, said.err)

    return call


@pytest.fixture
def tiny() -> onnx.ModelProto:
    """y = Relu(x @ w): x [2, 3], w [3, 4] of ones."""
    return model_of(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])],
        {"x": (TensorProto.FLOAT, [2, 3])},
        {"y": (TensorProto.FLOAT, [2, 4])},
        {"w": np.ones((3, 4), np.float32)},
    )


@pytest.fixture
def tiny_path(tiny, tmp_path) -> Path:
    path = tmp_path / "tiny.onnx"
    onnx.save(tiny, path)
    return path


def model_of(nodes, inputs, outputs, weights=None, opset=17) -> onnx.ModelProto:
    """A model from nodes and {name: (type, shape)}."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.fixture
def write(tmp_path):
    """Write a model made of nodes, inputs, outputs and weights; gives its path."""

    def written(nodes, inputs, outputs, weights=None, opset=17) -> Path:
        path = tmp_path / "model.onnx"
        path.write_bytes(model_of(nodes, inputs, outputs, weights, opset).SerializeToString())
        return path

    return written
