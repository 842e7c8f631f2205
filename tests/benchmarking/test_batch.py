"""A batch: of zoo models, of files with a named first dimension, and of others not."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusewise import api
from fusewise.benchmarking.batch import batched
from fusewise.errors import UsageError
from fusewise.ops.build import GraphBuilder


def saved(path: Path, *shapes: tuple[int | str, ...]) -> str:
    b = GraphBuilder()
    api.save(b.finish(*(b.op("Relu", b.input(f"x{k}", shape)) for k, shape in enumerate(shapes))), path)
    return str(path)


def test_zoo_models_are_built_with_it() -> None:
    graph, symbols = batched("zoo:squeezenet1_1", 3)
    assert graph.tensor(graph.inputs[0]).dims[0] == 3
    assert symbols == {}


def test_named_dimensions_get_it(tmp_path: Path) -> None:
    graph, symbols = batched(saved(tmp_path / "m.onnx", ("n", 4), ("n", 2)), 8)
    assert symbols == {"n": 8}
    assert api.load(graph, symbols=symbols).tensor("x1").dims == (8, 2)


def test_numbers_do_not(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'x1' has no name"):
        batched(saved(tmp_path / "m.onnx", ("n", 4), (1, 2)), 8)
