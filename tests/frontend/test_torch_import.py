"""PyTorch modules become graphs; what cannot is refused with the reason."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnxruntime
import pytest

from fusewise.errors import UnsupportedModel, UsageError
from fusewise.frontend.onnx_export import to_model
from fusewise.frontend.onnx_import import bind
from fusewise.frontend.torch_import import from_torch

torch = pytest.importorskip("torch")


def _module() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.SiLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(8, 5),
    )


@pytest.mark.slow
def test_a_module_gives_its_own_answers_and_is_left_as_it_was() -> None:
    module = _module()
    x = torch.randn(2, 3, 8, 8)
    graph = from_torch(module, (x,), dynamic_shapes=({0: torch.export.Dim("n", max=64)},))
    assert module.training
    (name,) = graph.inputs
    assert graph.tensor(name).shape is not None and isinstance(graph.tensor(name).shape[0], str)
    batch = np.random.default_rng(0).normal(size=(7, 3, 8, 8)).astype(np.float32)
    bound = bind(graph, {name: batch.shape})
    assert all(kind.is_static for kind in bound.types.values())
    found = onnxruntime.InferenceSession(to_model(bound).SerializeToString()).run(None, {name: batch})[0]
    with torch.no_grad():
        expected = module.eval()(torch.from_numpy(batch)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_ranges_of_dimensions_are_those_of_the_export() -> None:
    class Scores(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x @ y.transpose(1, 2)

    rows = torch.export.Dim("rows", min=3, max=40)
    shapes = ({0: torch.export.Dim("n", max=64), 1: rows}, {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO})
    graph = from_torch(Scores(), (torch.randn(2, 5, 8), torch.randn(2, 7, 8)), dynamic_shapes=shapes)
    bound = bind(graph, free=True)
    first, second, third = bound.symbols
    assert (first.name, first.low, first.high) == ("n", 0, 64) and (second.name, second.low, second.high) == (
        "rows",
        3,
        40,
    )
    assert bound.tensor(bound.outputs[0]).dims == (
        bound.tensor("x").dims[0],
        bound.tensor("x").dims[1],
        bound.tensor("y").dims[1],
    )
    assert third.low == 0


@pytest.mark.slow
def test_a_module_that_cannot_be_exported_is_refused_in_one_sentence() -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x if x.sum().item() > 0 else -x

    with pytest.raises(UnsupportedModel, match="PyTorch cannot export Branching to ONNX: ") as caught:
        from_torch(Branching(), (torch.ones(3),))
    assert "\n" not in str(caught.value)


def test_without_pytorch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"install fusewise\[torch\]"):
        from_torch(object(), ())
