"""Pipelines run and say what each pass did."""

from __future__ import annotations

import itertools

import pytest

from fusewise.errors import UsageError
from fusewise.ir.graph import Graph
from fusewise.outcomes import blocks_of
from fusewise.passes.pipeline import run
from fusewise.select.pipeline import AD, BL, DEFAULT, FAMILY_SETS, LEVELS, PAPER, Pipeline, pipeline_named
from fusewise.select.sequence import graph_key, run_pipeline
from fusewise.trace import INTER_BLOCK
from fusewise.zoo.scaled import scaled
from fusewise.zoo.styles import styled


@pytest.fixture(scope="module")
def graph() -> Graph:
    return styled(scaled("ssd"), "tensorflow")


def test_the_published_lists() -> None:
    sizes = {"BL": 6, "RN": 13, "MN": 12, "SSD": 10, "BR": 6, "AD": 6, "AS-0": 8, "AS-1": 8}
    assert {name: len(pipeline_named(name).passes) for name in sizes} == sizes
    assert [len(pipeline_named(f"po-{k}").passes) for k in range(4)] == [6, 6, 7, 6]
    assert sorted(pipeline_named("AS-0").passes) == sorted(pipeline_named("AS-1").passes)
    assert set(pipeline_named("AS-0").passes) < set(pipeline_named("SSD").passes)
    assert set(FAMILY_SETS) == {"ResNet", "MobileNet", "SSD", "BERT"}
    with pytest.raises(UsageError, match="no pipeline called 'rnn'; did you mean 'RN"):
        pipeline_named("rnn")
    with pytest.raises(UsageError, match="did you mean 'FuseOps'"):
        Pipeline("mine", ("FuseOp",))
    with pytest.raises(UsageError, match="is fused 'as asked'.* not 'well'"):
        Pipeline("mine", (), fusion="well")


@pytest.mark.parametrize("pipeline", [*FAMILY_SETS.values(), AD, BL], ids=lambda pipeline: pipeline.name)
def test_sets_run_in_an_order_in_which_blocks_keep_nobody_out(graph: Graph, pipeline: Pipeline) -> None:
    outcome = run_pipeline(pipeline, graph, blocks=blocks_of)
    assert not any(run.held for run in outcome.runs)


def test_optimisation_levels_add_passes() -> None:
    names = [set(level.passes) for level in LEVELS]
    assert all(lower <= higher for lower, higher in itertools.pairwise(names))
    assert names[0] == {"SimplifyInference", "SimplifyExpr"}
    assert "FuseOps" in names[1]
    assert "FoldConstant" in names[2] - names[1]
    assert "CombineParallelDense" in names[4] - names[3]
    plain = scaled("squeezenet")
    keys = [run_pipeline(level, plain).key for level in LEVELS]
    assert keys[1] == keys[2] != keys[0]


def test_default_is_the_clean_up(graph: Graph) -> None:
    outcome = run_pipeline(DEFAULT, graph)
    assert graph_key(outcome.graph) == graph_key(run(graph))
    assert (outcome.fusion, outcome.packed, outcome.disables) == ("dnnfusion", True, ())


@pytest.mark.parametrize("pipeline", PAPER, ids=lambda pipeline: pipeline.name)
def test_what_was_in_vain_can_be_left_out(graph: Graph, pipeline: Pipeline) -> None:
    outcome = run_pipeline(pipeline, graph)
    again = run_pipeline(outcome.effective, graph)
    assert again.key == outcome.key
    assert not again.unchanged
    assert {run.name for run in outcome.runs} == set(pipeline.passes)
    assert set(outcome.unchanged).isdisjoint(outcome.effective.passes)


def test_without_wishes_nothing_is_fused(graph: Graph) -> None:
    outcome = run_pipeline(Pipeline("mine", ("FoldConstant",)), graph)
    assert (outcome.fusion, outcome.packed, outcome.disables) == ("none", False, (INTER_BLOCK,))
    outcome = run_pipeline(Pipeline("mine", ("FuseOps", "AlterOpLayout", "DefuseOps")), graph)
    assert (outcome.fusion, outcome.packed) == ("none", True)


def test_fused_blocks_keep_passes_out_unless_told_otherwise(graph: Graph) -> None:
    early = Pipeline("early", ("FuseOps", "SimplifyInference", "ConvertLayout"))
    closed = run_pipeline(early, graph, blocks=blocks_of)
    opened = run_pipeline(early, graph)
    runs = {run.name: run for run in closed.runs}
    assert runs["SimplifyInference"].held > 0
    assert not opened.runs[1].held
    assert len(closed.graph.nodes) > len(opened.graph.nodes)
    defused = run_pipeline(Pipeline("late", ("FuseOps", "DefuseOps", "SimplifyInference")), graph, blocks=blocks_of)
    assert not defused.runs[2].held


def test_what_cannot_act_says_why(graph: Graph) -> None:
    pipeline = Pipeline("mine", ("FastMath", "ToANormalForm", "FirstOrderGradient", "FoldConstant", "FoldConstant"))
    bound = sum(len(node.writes) for node in graph.nodes)
    whys = [run.why for run in run_pipeline(pipeline, graph).runs]
    assert whys == [
        "approximate; runs only when asked for",
        f"A-normal form already: {len(graph.nodes)} nodes bind {bound} names, each once and before it is read",
        "adds outputs; runs only when gradients are asked for",
        "",
        "nothing changed since it last ran",
    ]
    exact = run_pipeline(Pipeline("mine", ("SimplifyInference",)), graph, exact=True)
    assert exact.runs[0].why == "may change a rounding"
    assert exact.graph is graph


def test_outputs_are_added_where_gradients_are_wanted(graph: Graph) -> None:
    wanted = Pipeline("mine", ("FirstOrderGradient", "RemoveUnusedFunctions", "PartitionGraph"), gradients=True)
    outcome = run_pipeline(wanted, graph)
    assert [run.changed for run in outcome.runs] == [True, False, True]
    slopes = [f"gradient_of_{output}_by_{graph.inputs[0]}" for output in graph.outputs]
    assert outcome.graph.outputs == (*graph.outputs, *slopes)
    assert run_pipeline(wanted, outcome.graph).unchanged == wanted.passes, "a second time changes nothing"


def test_time_is_taken_with_the_clock_that_is_given(graph: Graph) -> None:
    ticks = iter(range(100))
    outcome = run_pipeline(Pipeline("mine", ("FuseOps", "DefuseOps")), graph, clock=lambda: float(next(ticks)))
    assert [run.ms for run in outcome.runs] == [1000.0, 1000.0]
    assert outcome.total_ms == 2000.0
