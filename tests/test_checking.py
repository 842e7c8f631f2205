"""Are the answers of a written graph those of the model? What agrees, what differs, and what is not checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fusewise
from fusewise.checking import answers_checked
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.runtime import host


def scaled(factor: float, op: str = "Mul") -> Graph:
    b = GraphBuilder()
    return b.finish(b.op(op, b.input("x", (4, 6)), b.constant(np.float32(factor))))


def checked(before: Graph, after: Graph):
    return answers_checked(before, before, after, lambda path: fusewise.save(after, path))


def test_the_same_agrees_and_another_differs() -> None:
    same = checked(scaled(2.0), scaled(0.5, "Div"))
    assert same.agrees and same.error <= same.tolerance == 1e-5
    assert same.sentence.startswith("agree in onnxruntime: ")
    other = checked(scaled(2.0), scaled(2.001))
    assert not other.agrees and other.error == pytest.approx(5e-4, rel=0.01)
    assert other.own is not None and other.own < 1e-6
    assert "differ in onnxruntime" in other.sentence and "at most 1e-05" in other.sentence


def test_what_roundings_decide_is_no_difference() -> None:
    """The sine of large numbers: the last bit of an input decides about all of an answer."""

    def sine(*factors: float) -> Graph:
        b = GraphBuilder()
        x = b.input("x", (64,))
        for factor in factors:
            x = b.op("Mul", x, b.constant(np.float32(factor)))
        return b.finish(b.op("Sin", x))

    found = checked(sine(1e7), sine(3e3, 1e7 / 3e3))
    assert found.error > found.tolerance and found.own is not None
    assert found.agrees == (found.error <= found.own)
    assert checked(sine(1.0), sine(3.0, 1 / 3)).own is None


def test_free_dimensions_are_checked_at_a_stated_size(tmp_path: Path) -> None:
    b = GraphBuilder()
    graph = b.finish(b.op("Relu", b.input("x", ("batch", 4))))
    fusewise.save(graph, tmp_path / "m.onnx")
    free = fusewise.load(tmp_path / "m.onnx", free=True)
    found = answers_checked(str(tmp_path / "m.onnx"), free, free, lambda path: fusewise.save(free, path))
    assert found.agrees and not found.unchecked
    assert found.sizes == {"batch": 1} and "of batch=1" in found.sentence


def test_what_draws_at_random_is_not_checked() -> None:
    b = GraphBuilder()
    graph = b.finish(b.op("RandomNormalLike", b.input("x", (4,))))
    assert checked(graph, graph).unchecked == "RandomNormalLike draws at random"


def test_what_does_not_fit_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "memory_limit", lambda: 100)
    found = checked(scaled(2.0), scaled(2.0))
    assert "running it twice would take" in found.unchecked and found.sentence.startswith("not checked: ")
    assert found.summary["agrees"] is None
