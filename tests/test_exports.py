"""Real exports, end to end: architectures of the `transformers` package, written by both of PyTorch's ONNX exporters,
compile to native code alone and give ONNX Runtime's answers.

Layers have the published widths, networks few of them; `benchmarks/exports.py` runs the published networks whole.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.frontend.exports import BUILDERS, export

from fusewise import api

pytest.importorskip("torch")
pytest.importorskip("transformers")
onnxruntime = pytest.importorskip("onnxruntime")

TOLERANCE = 1e-5
"""Largest difference over largest magnitude, float32 (both sides reassociate)."""


@pytest.mark.slow
@pytest.mark.parametrize("dynamo", [False, True], ids=["tracer", "dynamo"])
@pytest.mark.parametrize("name", BUILDERS)
def test_an_export_gives_the_same_answers_without_host_steps(name: str, dynamo: bool, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    feeds = export(name, dynamo, path, size="shallow")
    model = api.compile(path, cache=False, strict=True)
    feeds = {port.name: feeds[port.name] for port in model.get_inputs()}
    (found,) = model.run(None, feeds)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, feeds)
    error = np.abs(found.astype(np.float64) - expected).max() / np.abs(expected).max()
    print(f"{name} {'dynamo' if dynamo else 'tracer'}: relative error {error:.1e}")
    assert model.summary["host_steps"] == 0
    assert not any(node.op == "Softmax" for node in model.graph.nodes), "every attention was recognised"
    assert found.shape == expected.shape
    assert expected.std() > 0.05 * np.abs(expected).max()  # there is something to compare
    assert error <= TOLERANCE
