"""Which passes have anything to do, and which make work for others."""

from __future__ import annotations

import tomllib

import pytest

from fusewise.ops.build import GraphBuilder
from fusewise.outcomes import auto
from fusewise.passes.published import step_named, step_names
from fusewise.select.enabling import derived, enabling, enabling_toml
from fusewise.select.pipeline import DEFAULT
from fusewise.select.relevance import agreement, candidates, distinct_names, matches, relevance
from fusewise.select.sequence import run_pipeline
from fusewise.selecting import selection
from fusewise.zoo.scaled import SCALED, scaled
from fusewise.zoo.styles import styled


def test_a_matcher_leaves_the_graph_alone_and_counts() -> None:
    graph = scaled("resnet")
    norms = sum(node.op == "BatchNormalization" for node in graph.nodes)
    assert matches(step_named("fold_batch_norm").function, graph) == norms
    assert matches(step_named("FoldConstant").function, graph) == 0


def test_what_others_make_work_for_is_found_too() -> None:
    found = relevance(scaled("resnet"), enabling())
    assert "SimplifyInference" in found.matched
    assert found.enabled["BackwardFoldScaleAxis"] in ("SimplifyInference", "lower_batch_norm")
    assert found.enabled["absorb_bias"] == "BackwardFoldScaleAxis"
    assert "CanonicalizeOps" in found.matched
    assert not {"FirstOrderGradient", "PartitionGraph", "RemoveUnusedFunctions"} & set(found.names)
    assert "BackwardFoldScaleAxis" not in relevance(scaled("resnet"), {}).names
    assert "ConvertLayout" in relevance(styled(scaled("resnet"), "tensorflow"), {}).matched


def test_candidates_are_found_without_running_anything() -> None:
    graph = styled(scaled("resnet"), "tensorflow")
    assert set(candidates(graph, {}, DEFAULT.passes)) < set(candidates(graph, enabling(), DEFAULT.passes))
    assert "convert_layout" in candidates(graph, {}, DEFAULT.passes)
    assert "fold_batch_norm" in candidates(graph, enabling(), DEFAULT.passes)
    assert "recognise_attention" not in candidates(graph, enabling(), ("recognise_attention",))


def test_nothing_is_relevant_where_nothing_is_to_do() -> None:
    b = GraphBuilder()
    x = b.input("x", (4, 4))
    assert relevance(b.finish(b.op("Relu", x)), enabling()).names == ()


def test_every_name_has_a_function_once() -> None:
    names = distinct_names()
    functions = [step_named(name).function for name in names]
    assert len(set(functions)) == len(functions)
    assert {step_named(name).function for name in step_names() if not step_named(name).idle} == set(functions)


@pytest.mark.parametrize("kind, style", [("resnet", "tensorflow"), ("bert", "mxnet"), ("mobilenet", "pytorch")])
def test_the_table_holds_what_running_shows(kind: str, style: str) -> None:
    shown = derived([styled(scaled(kind), style)])
    table = enabling()
    assert shown
    for name, others in shown.items():
        assert set(others) <= set(table[name]), name
    assert {name for row in table.items() for name in (row[0], *row[1])} <= set(distinct_names())


def test_the_table_as_text() -> None:
    table = {"FoldConstant": ("SimplifyExpr", "FuseOps")}
    assert tomllib.loads(enabling_toml(table))["enables"] == {"FoldConstant": ["SimplifyExpr", "FuseOps"]}


STYLED = ("tensorflow", "mxnet", "pytorch")


@pytest.mark.parametrize("kind, style", [(kind, STYLED[k % 3]) for k, kind in enumerate(SCALED)])
def test_the_relevant_passes_leave_the_graph_that_all_leave(kind: str, style: str) -> None:
    graph = styled(scaled(kind, decomposed=style == "pytorch"), style)
    chosen, every = auto(graph), run_pipeline(DEFAULT, graph)
    assert chosen.key == every.key
    assert len(chosen.pipeline.passes) < len(DEFAULT.passes)
    assert len(chosen.runs) <= len(every.runs)


def test_agreement_with_the_table_made_by_hand() -> None:
    found = selection(styled(scaled("resnet"), "tensorflow")).agreement
    assert found is not None
    assert set(found.both) >= {"AlterOpLayout", "FuseOps", "SimplifyInference"}
    assert found.idle == ("ToGraphNormalForm",)
    assert 0 < found.recall <= 1
    assert found.recall == len(found.both) / (len(found.both) + len(found.listed_only) - 1)
    assert found.precision == len(found.both) / (len(found.both) + len(found.found_only))
    assert agreement("VGG", ("FuseOps",)) is None
    assert selection(scaled("vgg")).agreement is None
    forced = selection(scaled("vgg"), family="bert")
    assert forced.classification.family == "BERT"
    assert forced.agreement is not None
