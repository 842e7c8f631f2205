"""Errors of the kinds that users can act on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fusewise
from fusewise.errors import ResourceLimit, within_memory
from fusewise.ops.build import GraphBuilder


def test_full_memory_is_a_limit() -> None:
    @within_memory("it is tried")
    def tried(error: Exception) -> None:
        raise error

    for _ in range(2):  # as often as one likes
        with pytest.raises(ResourceLimit, match=r"^memory is full while it is tried \(8 EiB of it\): use smaller"):
            tried(MemoryError("8 EiB\nof it"))
    with pytest.raises(KeyError):
        tried(KeyError())


def graph() -> Any:
    b = GraphBuilder("g")
    return b.finish(b.op("Relu", b.input("x", (4,))))


VERBS: list[tuple[str, Callable[[], Any]]] = [
    ("fusewise.frontend.bind.bind", lambda: fusewise.load(graph())),
    ("fusewise.passes.pipeline.run", lambda: fusewise.optimize(graph())),
    ("fusewise.frontend.onnx_export.to_model", lambda: fusewise.to_onnx(graph())),
    ("fusewise.runtime.executable.build", lambda: fusewise.compile(graph(), cache=False)),
    ("fusewise.inspecting.plan", lambda: fusewise.inspect(graph())),
]


@pytest.mark.parametrize("place, verb", VERBS, ids=[place for place, _ in VERBS])
def test_wherever_memory_is_full(place: str, verb: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise MemoryError("no room")

    verb()  # what is imported while memory is full would be full from then on
    monkeypatch.setattr(place, full)
    with pytest.raises(ResourceLimit, match=r"memory is full while .* \(no room\)"):
        verb()


def test_while_a_model_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fusewise.compile(graph(), cache=False)

    def full(*_: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(type(model.executable._lane), "computed", full)
        with pytest.raises(ResourceLimit, match="memory is full while the model runs: use smaller"):
            model.run(None, {"x": np.ones(4, np.float32)})
    assert model.run(None, {"x": np.ones(4, np.float32)})[0].shape == (4,)
