"""PyTorch modules become graphs; what cannot is refused with the reason."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import onnxruntime
import pytest

import fusewise
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
def test_a_module_that_cannot_be_exported_is_refused_in_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x if x.sum().item() > 0 else -x

    module = torch.nn.Sequential(Branching().eval(), torch.nn.Linear(3, 3)).train(False)
    module[1].train()
    warnings.simplefilter("error")  # pytest puts back what there was
    with pytest.raises(UnsupportedModel) as caught:
        from_torch(module, (torch.ones(3),))
    told, errors = str(caught.value), capfd.readouterr()
    assert told.startswith("PyTorch cannot export Sequential to ONNX: ") and "data-dependent" in told
    assert "(at test_torch_import.py:" in told and "x.sum().item() > 0" in told and "torch.cond" in told
    assert "\n" not in told and "\x1b" not in told and not errors.out and not errors.err
    assert [part.training for part in module.modules()] == [False, False, True]


@pytest.mark.slow
def test_an_operator_without_a_form_in_onnx_is_named_with_the_line() -> None:
    @torch.library.custom_op("fusewise_tests::unheard", mutates_args=())
    def unheard(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    unheard.register_fake(torch.empty_like)

    class Strange(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return unheard(x) + 1

    with pytest.raises(UnsupportedModel) as caught:
        from_torch(Strange(), (torch.ones(3),))
    told = str(caught.value)
    assert (
        "fusewise_tests.unheard.default has no ONNX form (at test_torch_import.py:" in told and "unheard(x) + 1" in told
    )


@pytest.mark.slow
def test_inputs_that_do_not_fit_are_told_of_in_one_sentence() -> None:
    with pytest.raises(UnsupportedModel, match="'input2'; give an example of each input that forward takes"):
        from_torch(torch.nn.Bilinear(3, 3, 3), (torch.ones(3),))


@pytest.mark.slow
def test_a_module_is_compiled_and_called_with_tensors() -> None:
    module, x = _module().eval(), torch.randn(2, 3, 8, 8)
    model = fusewise.compile(module, (x,), threads=1)
    with torch.no_grad():
        expected = module(x)
    torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model(input=x), expected, rtol=1e-5, atol=1e-6)
    assert type(model(x.numpy())) is np.ndarray
    with pytest.raises(UsageError, match="input 'input' is given twice"):
        model(x, input=x)


def test_a_module_without_inputs_and_inputs_without_a_module_are_told_of() -> None:
    with pytest.raises(UsageError, match="not a value of the type Sequential.*example_inputs"):
        fusewise.compile(_module())
    with pytest.raises(UsageError, match="example inputs go with a PyTorch module, not with a value of the type str"):
        fusewise.compile("model.onnx", (torch.ones(3),))


def test_without_pytorch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"install fusewise\[torch\]"):
        from_torch(object(), ())
