"""Optimising twice changes nothing: on random graphs of what passes and rules look for, and on whole architectures."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.conftest import answers, feeds_of
from tests.passes.random_graphs import random_graph
from tests.zoo.once import ONCE

from fusewise.frontend.onnx_export import to_model
from fusewise.frontend.onnx_import import load
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph
from fusewise.ir.verify import verify
from fusewise.passes.pipeline import CLEAN, MOST_ROUNDS, PORTABLE, Pass, run
from fusewise.trace import Trace
from fusewise.zoo.catalogue import build
from fusewise.zoo.scaled import SCALED, scaled

CHOICES = st.lists(st.integers(0, 10_000), min_size=1, max_size=60)


def settled(graph: Graph, passes: tuple[Pass, ...]) -> Graph:
    """The graph after the passes, which a second run leaves as it is, even the object."""
    trace = Trace()
    after = run(graph, passes, trace)
    verify(after)
    runs = Counter(event.what for event in trace if event.kind == "pass")
    assert max(runs.values()) < MOST_ROUNDS, "it ended because nothing was left to do"
    assert run(after, passes) is after
    return after


@settings(max_examples=60, deadline=None)
@given(CHOICES, st.sampled_from((CLEAN, PORTABLE)))
def test_random_graphs(choices: list[int], passes: Any) -> None:
    settled(random_graph(choices), passes)


@settings(max_examples=25, deadline=None)
@given(CHOICES)
def test_random_graphs_keep_their_answers(choices: list[int]) -> None:
    """To a small part of the largest number on the way: what cancels out leaves roundings of that size."""
    graph = random_graph(choices, mild=True)
    feeds = feeds_of(graph)
    floats = [x for node in graph.nodes for x in node.writes if graph.tensor(x).dtype == FLOAT32]
    way = answers(graph.replace(outputs=tuple(floats)), feeds)
    largest = max(float(np.max(np.abs(a), initial=0.0)) for a in way)
    for a, b in zip(answers(graph, feeds), answers(run(graph), feeds), strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-5 * largest)


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("kind", SCALED)
def test_small_architectures(kind: str, decomposed: bool) -> None:
    graph = scaled(kind, decomposed=decomposed)
    settled(graph, CLEAN)
    written = load(to_model(settled(graph, PORTABLE)))
    assert run(written, PORTABLE) is written, "not when it is read from a file, either"


@pytest.mark.slow
@pytest.mark.parametrize("decomposed, passes", [(False, PORTABLE), (True, CLEAN)], ids=["portable", "decomposed"])
@pytest.mark.parametrize("name", ONCE)
def test_zoo(name: str, decomposed: bool, passes: tuple[Pass, ...]) -> None:
    """What passes recognise they find in decomposed graphs; small architectures are run in all four ways."""
    settled(build(name, decomposed=decomposed), passes)
