"""One compilation for every size: architectures of `transformers`, exported with free dimensions, at ten sizes each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.free.architectures import ARCHITECTURES, TRACED, export, feeds, sizes_of

from fusewise import api, making
from fusewise.fusion.plan import Plan
from fusewise.lower.program import Program

pytest.importorskip("torch")
pytest.importorskip("transformers")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow

TOLERANCE = 1e-5
"""Largest difference over largest magnitude, float32 (both sides reassociate)."""


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the graphs that code was generated for."""
    names: list[str] = []
    inner = making.generated

    def counted(groups: Plan, *arguments: Any) -> Program:
        names.append(groups.partition.graph.name)
        return inner(groups, *arguments)

    monkeypatch.setattr(making, "generated", counted)
    return names


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("free")


DATA_DEPENDENT = frozenset({"vits"})
"""How long a result is depends on data: what has no size before the model runs is computed on the host."""


def test_the_layers_of_what_is_traced_are_written_by_the_newer_exporter_too() -> None:
    assert all(ARCHITECTURES[other].dynamo for other in TRACED.values())


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in DATA_DEPENDENT])
def test_one_compilation_gives_the_same_answers_at_every_size(name: str, folder: Path, compilations: list[str]) -> None:
    row, path = ARCHITECTURES[name], export(name, folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # others spin for a while after each run
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    wanted = [port.name for port in session.get_inputs()]
    model = api.compile(path, cache=False)
    for sizes in sizes_of(row):
        given = {key: value for key, value in feeds(row.inputs, sizes).items() if key in wanted}
        for expected, found in zip(session.run(None, given), model.run(None, given), strict=True):
            assert found.shape == expected.shape, sizes
            error = np.abs(found.astype(np.float64) - expected).max(initial=0) / np.abs(expected).max(initial=1e-30)
            assert error <= TOLERANCE, sizes
    assert len(compilations) == 1
    if model.summary["host_steps"]:
        examples = {key: value.shape for key, value in feeds(row.inputs, row.example).items() if key in wanted}
        static = api.compile(path, shapes=examples, cache=False)
        assert model.summary["host_steps"] <= static.summary["host_steps"]
