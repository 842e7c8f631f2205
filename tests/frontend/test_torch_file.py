"""PyTorch modules in files, as they are named on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.torch_net import written

from fusewise.errors import UsageError
from fusewise.frontend.torch_file import graph_in, is_module_name, module_in

torch = pytest.importorskip("torch")


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return written(tmp_path)


def test_functions_classes_and_modules(net: Path) -> None:
    for name, rows in (("make", 2), ("Net", 5), ("net", 5)):
        module, inputs = module_in(f"{net}:{name}")
        assert not module.training and inputs[0].shape == (rows, 6)
    graph = graph_in(f"{net}:make")
    assert graph.tensor(graph.inputs[0]).dims == (2, 6)
    assert is_module_name("a/b.py:net") and not is_module_name("a.onnx") and not is_module_name("zoo:a")


@pytest.mark.parametrize(
    "name, sentence",
    [
        ("mak", "did you mean 'make'"),
        ("number", "neither a torch.nn.Module nor a function that gives one, but int"),
        ("broken", "ends in line 14 with ValueError: no weights here"),
    ],
)
def test_what_is_no_module_is_said(net: Path, name: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        module_in(f"{net}:{name}")


def test_files_that_do_not_run(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("import torch\nthis is no Python\n")
    (tmp_path / "bare.py").write_text("import torch\nnet = torch.nn.Linear(2, 2)\n")
    for name, sentence in (
        ("wrong.py:net", "ends in line 2 with SyntaxError"),
        ("no.py:net", "there is no file"),
        ("bare.py:net", r"has no example inputs: let net be a function that gives \(module, inputs\)"),
    ):
        with pytest.raises(UsageError, match=sentence):
            module_in(f"{tmp_path / name}")
