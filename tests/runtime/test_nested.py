"""Graphs that are run while a program runs: by their nodes, then natively, with the same answers and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusewise.errors import InvalidData
from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Constant, Graph, Node
from fusewise.lower.program import HostStep, Program
from fusewise.ops.build import GraphBuilder
from fusewise.runtime import nested
from fusewise.runtime.executable import build
from fusewise.runtime.hoststep import host_call
from fusewise.runtime.nested import Manner, Nested


def made(graph: Graph) -> Nested:
    program = Program((), (), (), (), (), 0, 0)

    def member(node: Node) -> Any:
        reads = tuple((name, None, None) for name in dict.fromkeys(node.reads))
        (one,) = host_call(HostStep((node,), graph.opset, reads, ()), program, {}, 1, build).members
        return one

    return Nested(graph, member, Manner(build))


def shifted() -> Graph:
    """y = Slice(2 x, starts, ends), x of any shape."""
    b = GraphBuilder()
    x, starts, ends = b.input("x", ("N", 3)), b.input("starts", (1,), INT64), b.input("ends", (1,), INT64)
    return b.finish(b.op("Slice", b.op("Mul", x, b.constant(np.array(2, np.float32))), starts, ends))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Everything is worth compiling; what was compiled is listed, for all sizes as `free`."""
    monkeypatch.setattr(nested, "_WORTH_SECONDS", 0.0)
    monkeypatch.setattr(nested, "_TRIAL", 0)
    found: list[Any] = []
    build, build_free = nested.compiled, nested.compiled_free

    def traced(graph: Graph, given: Any, contents: Any, manner: Manner) -> Any:
        found.append({name: array.shape for name, array in given.items()})
        return build(graph, given, contents, manner)

    def traced_free(graph: Graph, given: Any, contents: Any, elements: Any, manner: Manner) -> Any:
        found.append("free")
        return build_free(graph, given, contents, elements, manner)

    monkeypatch.setattr(nested, "compiled", traced)
    monkeypatch.setattr(nested, "compiled_free", traced_free)
    return found


@pytest.fixture
def fixed_at_once(at_once: list[Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The same where nothing can be had for all sizes."""
    monkeypatch.setattr(nested, "compiled_free", lambda *_: None)
    return at_once


def bounds(start: int, end: int) -> list[np.ndarray]:
    return [np.array([start]), np.array([end])]


def test_one_code_is_for_all_sizes(at_once: list[Any]) -> None:
    graph = made(shifted())
    for rows, start, end in (
        (4, 2, 3),
        (6, 3, 5),
        (40, 2, 17),
        (0, 2, 3),
        (5, 0, 4),
        (7, 1, 1),
        (1, 0, 9),
        (13, 0, 13),
    ):
        x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        (y,) = graph.run([x, *bounds(start, end)])
        np.testing.assert_array_equal(y, 2 * x[start:end])
    assert at_once == ["free"]


def test_sizes_that_are_one_at_first(at_once: list[Any]) -> None:
    """What is 1 is not free, so nothing is, and is later."""
    graph = made(shifted())
    for rows in (1, 1, 6, 3, 1, 17):
        x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        (y,) = graph.run([x, *bounds(0, 1)])
        np.testing.assert_array_equal(y, 2 * x[:1])
    assert at_once == [{"x": (1, 3), "starts": (1,), "ends": (1,)}, "free"]


def test_code_that_is_slower_than_nodes_is_dropped(at_once: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As all is that is compiled before anything was run by nodes."""
    monkeypatch.setattr(nested, "_TRIAL", 5)
    graph = made(shifted())
    for rows in range(3, 20):
        x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        (y,) = graph.run([x, *bounds(2, 17)])
        np.testing.assert_array_equal(y, 2 * x[2:17])
    assert at_once[0] == "free" and "free" not in at_once[1:]
    assert not any(free.codes for free in graph._free.values())


def test_code_for_certain_sizes_that_is_slower_is_dropped(
    fixed_at_once: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nested, "_TRIAL", 5)
    graph = made(shifted())
    x = np.arange(60, dtype=np.float32).reshape(20, 3)
    kept = []
    for _ in range(10):
        (y,) = graph.run([x, *bounds(2, 17)])
        np.testing.assert_array_equal(y, 2 * x[2:17])
        kept.append(len(graph.codes))
    assert (max(kept), kept[-1], len(fixed_at_once)) == (1, 0, 1)


def test_bounds_that_count_from_the_end(at_once: list[Any]) -> None:
    graph = made(shifted())
    for rows, start, end in ((4, -3, -1), (9, -3, -1), (2, -3, -1), (30, -3, -1)):
        x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        (y,) = graph.run([x, *bounds(start, end)])
        np.testing.assert_array_equal(y, 2 * x[start:end])
    assert at_once == ["free"]


def test_what_comes_back_is_compiled_for(fixed_at_once: list[Any]) -> None:
    graph = made(shifted())
    for rows in (4, 6, 4, 6, 4):
        x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        (y,) = graph.run([x, *bounds(1, 3)])
        np.testing.assert_array_equal(y, 2 * x[1:3])
    assert sorted(one["x"] for one in fixed_at_once) == [(4, 3), (6, 3)]


def test_other_contents_are_other_code(fixed_at_once: list[Any]) -> None:
    graph, x = made(shifted()), np.arange(12, dtype=np.float32).reshape(4, 3)
    for start in (0, 1, 0, 1):
        (y,) = graph.run([x, *bounds(start, 4)])
        np.testing.assert_array_equal(y, 2 * x[start:])
    assert len(fixed_at_once) == 2


def test_contents_without_end_are_data(fixed_at_once: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested, "_DIFFERENT", 3)
    graph, x = made(shifted()), np.arange(90, dtype=np.float32).reshape(30, 3)
    for start in range(20):
        (y,) = graph.run([x, *bounds(start, 30)])
        np.testing.assert_array_equal(y, 2 * x[start:])
    assert len(graph.codes) <= 4


def test_shapes_without_end_are_left_to_numpy(fixed_at_once: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested, "_MOST_BUILT", 3)
    monkeypatch.setattr(nested, "_REMEMBERED", 4)
    graph = made(shifted())
    for rows in range(2, 9):
        for _ in range(2):
            x = np.ones((rows, 3), np.float32)
            np.testing.assert_array_equal(graph.run([x, *bounds(0, 2)])[0], 2 * x[:2])
    assert graph.builds == 3
    assert len(graph._cases) <= 8


def test_little_is_never_compiled() -> None:
    graph, x = made(shifted()), np.ones((2, 3), np.float32)
    for _ in range(5):
        graph.run([x, *bounds(0, 2)])
    assert not graph.builds


def test_errors_are_the_nodes_either_way(at_once: list[Any]) -> None:
    b = GraphBuilder()
    x, places = b.input("x", ("N",)), b.input("places", ("K",), INT64)
    graph = made(b.finish(b.op("Gather", x, places)))
    x, right, wrong = np.ones(3, np.float32), np.array([2]), np.array([3])
    for given in (right, right, wrong, right):
        if given is wrong:
            with pytest.raises(InvalidData, match="finds 3"):
                graph.run([x, given])
        else:
            assert graph.run([x, given])[0] == 1
    with pytest.raises(InvalidData, match="finds 3"):
        graph.run([np.ones(2, np.float32), wrong])
    assert len(at_once) == 1


def test_what_cannot_be_compiled_is_run_by_its_nodes(at_once: list[Any]) -> None:
    b = GraphBuilder()
    graph = made(b.finish(b.op("NonZero", b.input("x", ("N",)))))
    for _ in range(3):
        (y,) = graph.run([np.array([0, 1, 2], np.float32)])
        np.testing.assert_array_equal(y, [[1, 2]])
    assert at_once == ["free", {"x": (3,)}]


def test_values_without_a_native_form() -> None:
    b = GraphBuilder()
    graph = made(b.finish(b.op("Identity", b.input("x", ("N",)))))
    words = np.array(["a"], object)
    assert graph.run([words])[0] is words
    assert graph.run([[words]])[0] == [words]
    assert graph.run([None])[0] is None
    assert not graph.builds


def test_constants_and_inputs_that_are_outputs(at_once: list[Any]) -> None:
    b = GraphBuilder()
    x = b.input("x", ("N",))
    graph = b.finish(b.op("Neg", x), x, b.constant(np.array([5.0], np.float32)))
    run, x = made(graph), np.array([1, 2], np.float32)
    for _ in range(3):
        found = run.run([x])
        for one, right in zip(found, (-x, x, [5]), strict=True):
            np.testing.assert_array_equal(one, right)
    assert isinstance(graph.constants[graph.outputs[2]], Constant)
