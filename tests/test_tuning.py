"""Tuning: what is measured is used and kept, and nothing gets slower by it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fusewise import api, tuning
from fusewise.benchmarking.timing import Timing
from fusewise.choices import kept_choice
from fusewise.errors import ResourceLimit, UsageError
from fusewise.ir.graph import Graph
from fusewise.making import CompilationChoice, Making, program_of
from fusewise.ops.build import GraphBuilder
from fusewise.runtime import measure
from fusewise.runtime.measure import group_key, machine_name
from fusewise.runtime.profile import ProfileDatabase
from fusewise.trace import Trace
from fusewise.tuning import tuned

MAKING = Making(1)


def network() -> Graph:
    """A product that is transposed, which the table of types leaves to cost, and a convolution with several kernels."""
    b, rng = GraphBuilder("net"), np.random.default_rng(0)
    x = b.input("x", (1, 16, 12, 12))
    weight = b.constant(rng.standard_normal((16, 16, 3, 3)).astype(np.float32))
    h = b.op("Relu", b.op("Conv", x, weight, pads=[1, 1, 1, 1]))
    h = b.op("Reshape", h, b.constant([16, 144]))
    h = b.op("Transpose", b.op("MatMul", h, b.constant(rng.standard_normal((144, 64)).astype(np.float32))))
    return b.finish(h)


FEEDS = {"x": np.random.default_rng(1).standard_normal((1, 16, 12, 12)).astype(np.float32)}


@pytest.fixture
def database(tmp_path: Path) -> ProfileDatabase:
    return ProfileDatabase(tmp_path, machine_name())


@pytest.fixture
def racing(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], list[int]]:
    """Let the second of two racers take `factor` of the first one's time; counts the races."""

    def arranged(factor: float) -> list[int]:
        races: list[int] = []

        def race(calls: Sequence[Callable[[], object]], *rest: Any) -> tuple[Timing, ...]:
            for call in calls:
                call()
            races.append(len(calls))
            return Timing((10.0, 12.0)), Timing((10.0 * factor, 12.0 * factor))

        monkeypatch.setattr(tuning, "race", race)
        return races

    return arranged


def slow_first_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every other way to run a task take half the time of the first."""
    real = tuning._by_task

    def by_task(made: Any, timings: Any) -> dict[str, float]:
        first.append(made)
        return dict.fromkeys(real(made, timings), 100.0 if made is first[0] else 50.0)

    first: list[Any] = []
    monkeypatch.setattr(tuning, "_by_task", by_task)


def test_the_faster_program_is_chosen_and_used_from_then_on(
    tmp_path: Path, racing: Callable[[float], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    races = racing(0.5)
    slow_first_ways(monkeypatch)
    graph = network()
    plain = api.compile(graph, threads=1, cache=False)
    made = api.compile(graph, threads=1, cache=tmp_path, tune=30.0)
    again = api.compile(graph, threads=1, cache=tmp_path)
    assert races
    assert made.summary["tuning"]["kept"] == "tuned"
    assert made.summary["tuning"] == again.summary["tuning"]
    assert made.executable.contents.symbols == again.executable.contents.symbols != plain.executable.contents.symbols
    for model in (made, again):
        np.testing.assert_allclose(model.run(None, FEEDS)[0], plain.run(None, FEEDS)[0], rtol=1e-4, atol=1e-4)


def test_what_is_not_faster_is_not_chosen(
    database: ProfileDatabase, racing: Callable[[float], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    racing(0.99)
    slow_first_ways(monkeypatch)
    graph = network()
    found = tuned(graph, MAKING, database, 30.0, FEEDS)
    assert found.is_default
    assert found.described["kept"] == "default"
    assert kept_choice(database, graph, MAKING) == found
    assert kept_choice(database, graph, Making(2)) is None


def test_measured_groups_count_in_every_later_compilation(tmp_path: Path) -> None:
    graph = network()
    product = next(n for n, node in enumerate(graph.nodes) if node.op == "MatMul")
    assert api.compile(graph, threads=1, cache=False).summary["groups"] == 2
    database = ProfileDatabase(tmp_path, machine_name())
    for nodes in ((product, product + 1), (product,), (product + 1,)):
        database.record(group_key(graph, nodes, 1), [10.0 ** len(nodes)])
    assert api.compile(graph, threads=1, cache=tmp_path).summary["groups"] == 3
    assert api.compile(graph, threads=2, cache=tmp_path).summary["groups"] == 2, "measured with other threads"


def test_an_interruption_keeps_what_was_measured_and_the_default(
    database: ProfileDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, calls, real = network(), [], measure.measure_group

    def once(*arguments: Any, **settings: Any) -> list[float]:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **settings)

    monkeypatch.setattr(measure, "measure_group", once)
    with pytest.raises(KeyboardInterrupt):
        tuned(graph, MAKING, database, 30.0, FEEDS)
    assert len(database.entries()) == 1
    assert kept_choice(database, graph, MAKING) == CompilationChoice()
    first = database.entries()[0]
    tuned(graph, MAKING, database, 0.05, FEEDS)
    assert first in database.entries()


def test_what_was_measured_is_not_measured_again(
    database: ProfileDatabase, racing: Callable[[float], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    racing(1.0)
    tuned(network(), MAKING, database, 30.0, FEEDS)
    before = database.entries()
    assert any(": direct-convolution" in entry.what for entry in before)
    assert any(": product" in entry.what for entry in before)
    tuned(network(), MAKING, database, 30.0, FEEDS)
    assert database.entries() == before


def test_without_time_nothing_is_measured(database: ProfileDatabase) -> None:
    assert tuned(network(), MAKING, database, 1e-6, FEEDS) == CompilationChoice()
    assert database.entries() == []


def test_a_way_that_cannot_be_compiled_is_a_reason(database: ProfileDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tuning.build

    def build(program: Any, **settings: Any) -> Any:
        built.append(program)
        if len(built) > 1:
            raise ResourceLimit("no room for this kernel")
        return real(program, **settings)

    built: list[Any] = []

    monkeypatch.setattr(tuning, "build", build)
    assert tuned(network(), MAKING, database, 30.0, FEEDS).is_default
    assert "no room for this kernel" in {entry.failure for entry in database.entries()}


def test_decisions_of_tuning_can_be_refused() -> None:
    graph = network()
    choice = CompilationChoice(groups=((0, 1), (2,), (3, 4)))
    assert program_of(graph, MAKING, Trace(), choice).groups == 3
    assert program_of(graph, MAKING, Trace(limit=0), choice).groups == len(graph.nodes)
    assert program_of(graph, MAKING, Trace(), CompilationChoice(groups=((0, 9),))).groups == 2, (
        "of another graph: planned anew"
    )


@pytest.mark.parametrize("contents", [b"nothing of ours" * 50, None], ids=["damaged", "locked"])
def test_a_database_that_cannot_be_used_is_one_warning(tmp_path: Path, contents: bytes | None) -> None:
    database = ProfileDatabase(tmp_path, machine_name())
    database.record("a", [1.0])
    path = database.info().path
    assert path is not None
    database.close()
    if contents is not None:
        path.write_bytes(contents)
    holder = sqlite3.connect(path)
    if contents is None:
        holder.execute("BEGIN EXCLUSIVE")
    said: list[str] = []
    assert api.compile(network(), threads=1, cache=tmp_path, warn=said.append).summary["groups"] == 2
    holder.close()
    assert len(said) == 1
    assert "left alone" in said[0]
    assert len(list(path.parent.glob("profile*.sqlite"))) == 2


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_seconds_that_are_none(seconds: float) -> None:
    with pytest.raises(UsageError, match="seconds to tune"):
        api.compile(network(), tune=seconds)


def test_tuning_needs_a_place_to_keep_what_it_finds() -> None:
    with pytest.raises(UsageError, match="in the cache, which is switched off"):
        api.compile(network(), tune=1.0, cache=False)
