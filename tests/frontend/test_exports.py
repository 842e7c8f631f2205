"""Real exports: architectures of `transformers` through both of PyTorch's exporters, read, bound and written again."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest

from fusewise.frontend.onnx_export import save
from fusewise.frontend.onnx_import import PINNED_OPSET, bind, load

pytest.importorskip("torch")
pytest.importorskip("transformers")


def _exports() -> ModuleType:
    spec = importlib.util.spec_from_file_location("exports", Path(__file__).with_name("exports.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["exports"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


EXPORTS = _exports()


def _run(path: Path, feeds: dict[str, np.ndarray]) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options).run(None, feeds)[0]


@pytest.mark.slow
@pytest.mark.parametrize("dynamo", [False, True], ids=["tracer", "dynamo"])
@pytest.mark.parametrize("name", EXPORTS.BUILDERS)
def test_an_export_is_read_typed_and_written_with_the_same_answers(name: str, dynamo: bool, tmp_path: Path) -> None:
    feeds = EXPORTS.export(name, dynamo, tmp_path / "theirs.onnx")
    graph = bind(load(tmp_path / "theirs.onnx"))
    assert graph.opset == PINNED_OPSET
    assert all(kind.is_static for kind in graph.types.values())
    save(graph, tmp_path / "ours.onnx")
    onnx.checker.check_model(tmp_path / "ours.onnx", full_check=True)
    feeds = {key: value for key, value in feeds.items() if key in graph.inputs}
    expected, found = _run(tmp_path / "theirs.onnx", feeds), _run(tmp_path / "ours.onnx", feeds)
    assert np.abs(expected).max() > 1e-3  # there is something to compare
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
