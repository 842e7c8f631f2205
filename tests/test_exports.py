"""Real exports, end to end: architectures of the `transformers` package, written by both of PyTorch's ONNX exporters.

They are read, bound and written again, compile to native code alone, and give ONNX Runtime's answers.
Layers have the published widths, networks few of them; `benchmarks/exports.py` runs the published networks whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.frontend.exports import BUILDERS, export

from fusewise import api
from fusewise.frontend.onnx_export import save
from fusewise.frontend.onnx_import import PINNED_OPSET, bind, load

pytest.importorskip("torch")
pytest.importorskip("transformers")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow

TOLERANCE = 1e-5
"""Largest difference over largest magnitude, float32 (both sides reassociate)."""


@dataclass(frozen=True)
class Exported:
    """A file, inputs by name, and ONNX Runtime's answer to them."""

    path: Path
    feeds: dict[str, np.ndarray]
    expected: np.ndarray


def answer(path: Path, feeds: dict[str, np.ndarray]) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {port.name: feeds[port.name] for port in session.get_inputs()})[0]


@pytest.fixture(
    scope="module",
    params=[(name, dynamo) for name in BUILDERS for dynamo in (False, True)],
    ids=lambda param: f"{param[0]}-{'dynamo' if param[1] else 'tracer'}",
)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    """An architecture as one of the exporters writes it: once for all tests, since that takes as long as they do."""
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    feeds = export(*request.param, path, size="shallow")
    yield Exported(path, feeds, answer(path, feeds))
    for file in path.parent.iterdir():
        file.unlink()


def test_an_export_is_read_typed_and_written_with_the_same_answers(exported: Exported, tmp_path: Path) -> None:
    graph = bind(load(exported.path))
    assert graph.opset == PINNED_OPSET
    assert all(kind.is_static for kind in graph.types.values())
    save(graph, tmp_path / "ours.onnx")
    onnx.checker.check_model(tmp_path / "ours.onnx", full_check=True)
    found, expected = answer(tmp_path / "ours.onnx", exported.feeds), exported.expected
    assert np.abs(expected).max() > 1e-3  # there is something to compare
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_an_export_gives_the_same_answers_without_host_steps(exported: Exported) -> None:
    model = api.compile(exported.path, cache=False, strict=True)
    (found,) = model.run(None, {port.name: exported.feeds[port.name] for port in model.get_inputs()})
    expected = exported.expected
    error = np.abs(found.astype(np.float64) - expected).max() / np.abs(expected).max()
    print(f"relative error {error:.1e}")
    assert model.summary["host_steps"] == 0
    assert not any(node.op == "Softmax" for node in model.graph.nodes), "every attention was recognised"
    assert found.shape == expected.shape
    assert expected.std() > 0.05 * np.abs(expected).max()  # there is something to compare
    assert error <= TOLERANCE
