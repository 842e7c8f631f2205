"""Real exports: architectures of `transformers` through both of PyTorch's exporters, read, bound and written again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.frontend.exports import BUILDERS, export

from fusewise.frontend.onnx_export import save
from fusewise.frontend.onnx_import import PINNED_OPSET, bind, load

pytest.importorskip("torch")
pytest.importorskip("transformers")


def _run(path: Path, feeds: dict[str, np.ndarray]) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options).run(None, feeds)[0]


@pytest.mark.slow
@pytest.mark.parametrize("dynamo", [False, True], ids=["tracer", "dynamo"])
@pytest.mark.parametrize("name", BUILDERS)
def test_an_export_is_read_typed_and_written_with_the_same_answers(name: str, dynamo: bool, tmp_path: Path) -> None:
    feeds = export(name, dynamo, tmp_path / "theirs.onnx")
    graph = bind(load(tmp_path / "theirs.onnx"))
    assert graph.opset == PINNED_OPSET
    assert all(kind.is_static for kind in graph.types.values())
    save(graph, tmp_path / "ours.onnx")
    onnx.checker.check_model(tmp_path / "ours.onnx", full_check=True)
    feeds = {key: value for key, value in feeds.items() if key in graph.inputs}
    expected, found = _run(tmp_path / "theirs.onnx", feeds), _run(tmp_path / "ours.onnx", feeds)
    assert np.abs(expected).max() > 1e-3  # there is something to compare
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
