"""Optimising as a whole: what is given out when answers differ or timing says otherwise, and what the trace holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fusewise import api, optimizing
from fusewise.benchmarking.ranking import DuelResult
from fusewise.errors import UnsupportedModel, UsageError
from fusewise.ir.graph import Graph
from fusewise.ir.key import structural_key
from fusewise.ops.build import GraphBuilder
from fusewise.optimizing import SearchOptions, optimize_graph, optimized
from fusewise.rewrite.cost import Cost
from fusewise.rewrite.rule import Rule, RuleSample, rule
from fusewise.rewrite.search.found import Found
from fusewise.rewrite.search.relaxed import search
from fusewise.rewrite.search.split import Division, SearchTask
from fusewise.trace import Trace


def branches() -> Graph:
    """A 1x1 and a 3x3 convolution of one image, added."""
    rng, build = np.random.default_rng(0), GraphBuilder("branches")
    x = build.input("x", (1, 16, 14, 14))
    small = build.constant(rng.standard_normal((16, 16, 1, 1)).astype(np.float32))
    large = build.constant(rng.standard_normal((16, 16, 3, 3)).astype(np.float32))
    return build.finish(build.op("Add", build.op("Conv", x, small), build.op("Conv", x, large, pads=(1, 1, 1, 1))))


def test_steps_leave_events_and_the_graph_is_better() -> None:
    graph, trace = branches(), Trace()
    found = optimized(graph, trace=trace, search="relaxed", machine="gpu", alpha=1.6)
    assert [node.op for node in found.graph.nodes] == ["Conv"]
    events = [event.what for event in trace if event.reason == "substitution"]
    assert events == [step.rule for step in found.steps] == ["enlarge-kernel", "sum-of-convolutions-of-one-image"]
    assert api.optimize(graph, search="relaxed", machine="gpu", alpha=1.6).nodes == found.graph.nodes


@pytest.mark.parametrize("how", ["relaxed", "backtracking"])
def test_three_modules_of_a_residual_network_end_as_published(how: str) -> None:
    """In a whole network what one kernel grows by is little: the default alpha is enough for the published example."""
    found = optimized(api.load("zoo:resnet18"), search=how, machine="cudnn-h100", check=False)
    rules = ("enlarge-kernel", "merge-parallel-convolutions", "second-part-into-convolution-of-rectified-first")
    assert sorted(step.rule for step in found.steps) == sorted(3 * rules)
    assert max(step.cost_after / step.cost_before for step in found.steps) > 1
    assert found.cost_after < found.cost_before


def test_a_graph_with_other_answers_is_given_up() -> None:
    wrong = rule(
        "wrong",
        lambda g, a, b: a + b,
        lambda g, a, b: a,
        "recognising",
        "exact",
        samples=(RuleSample({"a": (2,), "b": (2,)}),),
    )
    graph = branches()
    found = optimize_graph(graph, (), SearchOptions(search="relaxed", machine="gpu"), Trace(), rules=[wrong])
    assert found.graph is graph
    assert (found.steps, found.cost_after) == ((), found.cost_before)
    assert "answers differ" in found.notes[0]


def timing(monkeypatch: pytest.MonkeyPatch, at_least: float) -> list[str]:
    """Nothing is timed: of several graphs the last is the fastest, and a duel ends as told. The runtimes asked are listed."""
    asked: list[str] = []

    def settled(before: Graph, after: Graph, runtime: str, threads: int) -> DuelResult:
        asked.append(runtime)
        return DuelResult(runtime, at_least + 0.1, at_least, 11)

    monkeypatch.setattr(optimizing, "settled", settled)
    monkeypatch.setattr(optimizing, "fastest_first", lambda graphs, runtime, threads: list(range(len(graphs)))[::-1])
    monkeypatch.setattr(
        optimizing, "in_fusewise", lambda *_: lambda kernel, graph: 1.0 if kernel.node.op == "Conv" else 0.1
    )
    return asked


def test_the_input_stays_unless_another_is_faster_beyond_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = branches()
    asked = timing(monkeypatch, at_least=1.0)
    found = optimized(graph, passes=False, search="relaxed", cost="measured", alpha=1.6)
    assert found.graph is graph
    assert found.notes == ("the model as it was loaded is kept: no graph is faster in fusewise beyond doubt",)
    assert (found.cost_before, found.steps) == (found.cost_after, ())
    assert found.summary["timed"] == {"runtime": "fusewise", "speedup": 1.1, "at_least": 1.0, "rounds": 11}
    timing(monkeypatch, at_least=1.001)
    found = optimized(graph, passes=False, search="relaxed", cost="measured", alpha=1.6)
    assert found.steps
    assert len(found.graph.nodes) < len(graph.nodes)
    assert asked == ["fusewise"]


def test_the_graph_as_it_was_loaded_may_win_over_what_passes_make_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    build = GraphBuilder("copies")
    x = build.input("x", (4, 4))
    graph = build.finish(build.op("Relu", build.op("Identity", x)))
    timing(monkeypatch, at_least=0.99)
    found = optimized(graph, search="relaxed", cost="measured")
    assert found.graph is graph
    assert found.cost_before == found.cost_after
    timing(monkeypatch, at_least=1.01)
    assert len(optimized(graph, search="relaxed", cost="measured").graph.nodes) == 1


@pytest.mark.parametrize(
    "settings, runtime",
    [
        ({"cost": "measured"}, "fusewise"),
        ({"cost": "0.5*kernels + measured"}, "fusewise"),
        ({"cost": "measured", "faster_in": "openvino"}, "openvino"),
        ({"cost": "measured", "faster_in": "none"}, None),
        ({"cost": "time", "machine": "cpu"}, "onnxruntime"),
        ({"cost": "time", "machine": "gpu"}, None),
        ({"cost": "time", "machine": "gpu", "faster_in": "fusewise"}, "fusewise"),
        ({"cost": "flops"}, None),
    ],
)
def test_where_graphs_are_timed(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], runtime: str | None) -> None:
    pytest.importorskip("onnxruntime")
    asked = timing(monkeypatch, at_least=1.01)
    build = GraphBuilder("copies")
    graph = build.finish(build.op("Relu", build.op("Identity", build.input("x", (4, 4)))))
    found = optimized(graph, search="greedy", **settings)  # type: ignore[arg-type]
    assert asked == ([] if runtime is None else [runtime])
    assert (found.timed is None) == (runtime is None)


def test_a_runtime_nobody_asked_for_may_refuse_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    timing(monkeypatch, at_least=1.01)

    def settled(before: Graph, after: Graph, runtime: str, threads: int) -> DuelResult:
        if runtime != "fusewise":
            raise UnsupportedModel(f"{runtime} does not run this model: no")
        return DuelResult(runtime, 2.0, 1.5, 11)

    monkeypatch.setattr(optimizing, "settled", settled)
    build = GraphBuilder("copies")
    graph = build.finish(build.op("Relu", build.op("Identity", build.input("x", (4, 4)))))
    found = optimized(graph, search="greedy")
    assert found.timed == DuelResult("fusewise", 2.0, 1.5, 11)
    assert found.notes == ("onnxruntime does not run this model: no; timed in fusewise instead",)
    with pytest.raises(UnsupportedModel):
        optimized(graph, search="greedy", faster_in="onnxruntime")


def test_what_cannot_be_measured_is_estimated_with_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizing, "in_fusewise", lambda *_: lambda kernel, graph: None)
    trace, graph = Trace(), branches()
    found = optimized(graph, passes=False, trace=trace, cost="measured")
    assert found.cost_before == pytest.approx(optimized(graph, passes=False, cost="time").cost_before)
    assert {(event.kind, event.what, event.applied) for event in trace} == {("measure", "Conv", False)}


def test_unknown_options_are_named() -> None:
    with pytest.raises(UsageError, match="the options of a search are search, alpha, budget"):
        optimized(branches(), speed=3)
    with pytest.raises(UsageError, match="no runtime 'abacus'; there are auto, none, fusewise"):
        optimized(branches(), faster_in="abacus")
    with pytest.raises(UsageError, match="pieces of -1"):
        optimized(branches(), pieces=-1)


@pytest.mark.parametrize("scipy, size", [(True, 40), (False, 0)])
def test_medium_graphs_are_searched_in_pieces_where_scipy_is(
    monkeypatch: pytest.MonkeyPatch, scipy: bool, size: int
) -> None:
    build = GraphBuilder("row")
    x = build.input("x", (4, 4))
    for _ in range(61):
        x = build.op("Sigmoid", x)
    cut: list[int] = []
    monkeypatch.setattr(optimizing, "find_spec", lambda name: scipy or None)

    def in_pieces(task: SearchTask, rules: Sequence[Rule], cost: Cost, division: Division, **_: object) -> Found:
        cut.append(division.largest)
        return search(task.graph, rules, cost)

    monkeypatch.setattr(optimizing, "search_in_pieces", in_pieces)
    row = build.finish(x)
    optimized(row, passes=False, search="greedy", machine="gpu")
    assert cut == ([size] if size else [])
    optimized(row, passes=False, search="backtracking", machine="gpu")
    assert cut == ([size] if size else []), "as it was published: as a whole"


@pytest.mark.parametrize("how", ["relaxed", "backtracking"])
def test_workers_do_not_change_the_result(how: str) -> None:
    """Pieces searched by two processes, and the same pieces one after another."""
    pytest.importorskip("scipy")
    rng, build = np.random.default_rng(0), GraphBuilder("cells")
    x = build.input("x", (1, 8, 6, 6))
    for _ in range(3):
        parts = []
        for kernel in (1, 1, 3):
            weights = build.constant(rng.standard_normal((8, 8, kernel, kernel)).astype(np.float32) / 8)
            parts.append(build.op("Relu", build.op("Conv", x, weights, pads=(kernel // 2,) * 4)))
        x = build.op("Add", build.op("Add", parts[0], parts[1]), parts[2])
    graph = build.finish(x)
    settings = {"passes": False, "search": how, "machine": "gpu", "alpha": 1.1, "pieces": 9, "budget": 60}
    alone, together = (optimized(graph, workers=workers, **settings) for workers in (1, 2))  # type: ignore[arg-type]
    assert alone.steps
    assert (alone.steps, alone.cost_after, alone.explored) == (together.steps, together.cost_after, together.explored)
    assert structural_key(alone.graph) == structural_key(together.graph)
