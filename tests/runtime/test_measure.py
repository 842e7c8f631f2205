"""Timing a group by itself: what is compiled, what a key depends on, and what cannot be measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Graph
from fusewise.ir.verify import verify
from fusewise.ops.build import GraphBuilder
from fusewise.runtime import measure
from fusewise.runtime.measure import (
    CannotMeasure,
    group_graph,
    group_key,
    measure_group,
    measured,
    measurement,
    profiled,
)
from fusewise.runtime.profile import ProfileDatabase


def chain(width: int = 32, *, name: str = "x", seed: int = 0) -> Graph:
    """relu(x @ w) + x, and its exponential."""
    b = GraphBuilder()
    x = b.input(name, (4, width))
    w = b.constant(np.random.default_rng(seed).standard_normal((width, width)).astype(np.float32), "w")
    y = b.op("Add", b.op("Relu", b.op("MatMul", x, w)), x)
    return b.finish(y, b.op("Exp", y))


@pytest.fixture
def database(tmp_path: Path) -> ProfileDatabase:
    return ProfileDatabase(tmp_path, "a machine")


def test_a_group_is_a_graph_with_what_it_reads_and_writes() -> None:
    graph = chain()
    small = group_graph(graph, (1, 2))
    verify(small)
    assert [node.op for node in small.nodes] == ["Relu", "Add"]
    assert small.inputs == (graph.nodes[0].outputs[0], "x")
    assert small.outputs == (graph.nodes[2].outputs[0],)
    assert not small.constants
    assert set(group_graph(graph, (0,)).constants) == {"w"}


def test_keys_know_structure_and_shapes_but_neither_names_nor_weights() -> None:
    key = group_key(chain(), (0, 1), 1)
    assert key == group_key(chain(name="other", seed=5), (0, 1), 1)
    different = [
        group_key(chain(48), (0, 1), 1),
        group_key(chain(), (0, 1), 2),
        group_key(chain(), (0,), 1),
        group_key(chain(), (0, 1, 2), 1),
    ]
    assert len({key, *different}) == 5


def test_keys_know_machine_and_program(monkeypatch: pytest.MonkeyPatch) -> None:
    key = group_key(chain(), (0,), 1)
    monkeypatch.setattr(measure, "machine_name", lambda: "another machine")
    elsewhere = group_key(chain(), (0,), 1)
    monkeypatch.setattr(measure, "source_digest", lambda: "another version")
    assert len({key, elsewhere, group_key(chain(), (0,), 1)}) == 3


def test_a_group_is_run_and_timed() -> None:
    samples = measure_group(chain(), (0, 1, 2), 1)
    assert 7 <= len(samples) <= 99
    assert all(sample > 0 for sample in samples)


def test_a_measurement_is_taken_once_and_kept(database: ProfileDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, calls = chain(), []

    def counted(*arguments: Any, **settings: Any) -> list[float]:
        calls.append(arguments)
        return [3.0, 1.0, 2.0]

    monkeypatch.setattr(measure, "measure_group", counted)
    assert profiled(database, 1)(graph, (0, 1)) is None
    assert measured(database, 1)(graph, (0, 1)) == 2.0
    assert measured(database, 1)(chain(seed=9), (0, 1)) == 2.0
    assert profiled(database, 1)(graph, (0, 1)) == 2.0
    assert len(calls) == 1
    assert [entry.what for entry in database.entries()] == ["MatMul+Relu"]


def test_an_interruption_keeps_what_was_measured(database: ProfileDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = chain()
    assert measured(database, 1)(graph, (3,)) is not None

    def interrupted(*arguments: Any, **settings: Any) -> list[float]:
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "measure_group", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measured(database, 1)(graph, (1,))
    assert [entry.what for entry in database.entries()] == ["Exp"]


def test_what_runs_on_the_host_has_no_duration(database: ProfileDatabase) -> None:
    b = GraphBuilder()
    pool = {"ngram_counts": (0,), "ngram_indexes": (0, 1), "pool_int64s": (1, 2)}
    lengths = {"min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0}
    y = b.op("TfIdfVectorizer", b.input("x", (5, 7), INT64), mode="TF", **lengths, **pool)
    graph = b.finish(y)
    with pytest.raises(CannotMeasure, match="TfIdfVectorizer runs on the host"):
        measure_group(graph, (0,), 1)
    assert measured(database, 1)(graph, (0,)) is None
    entry = measurement(database, graph, (0,), 1)
    assert (entry.failure, entry.median_ns, entry.count) == ("TfIdfVectorizer runs on the host", None, 0)


def test_what_has_no_known_shape_has_no_duration() -> None:
    b = GraphBuilder()
    graph = b.finish(b.op("Relu", b.input("x", ("n", 3))))
    with pytest.raises(CannotMeasure, match="shape of 'x' is not known"):
        measure_group(graph, (0,), 1)


def test_a_kernel_that_fails_to_compile_is_a_reason(monkeypatch: pytest.MonkeyPatch, database: ProfileDatabase) -> None:
    from fusewise.errors import ResourceLimit

    def refused(*arguments: Any, **settings: Any) -> None:
        raise ResourceLimit("the model's intermediate results need too much memory")

    monkeypatch.setattr(measure, "build", refused)
    assert measured(database, 1)(chain(), (1,)) is None
    assert [entry.failure for entry in database.entries()] == ["the model's intermediate results need too much memory"]


def test_places_to_read_are_within_and_divisors_are_not_zero() -> None:
    b = GraphBuilder()
    table, index = b.input("table", (1, 4)), b.input("index", (3,), INT64)
    rows = b.op("Gather", table, index)
    quotient = b.op("Div", b.input("a", (3,), INT64), b.input("c", (3,), INT64))
    graph = b.finish(rows, quotient)
    assert measure_group(graph, (0,), 1)
    assert measure_group(graph, (1,), 1)
