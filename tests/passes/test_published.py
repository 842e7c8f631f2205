"""The published table: its names, what is idle, and that every pass ends where it has nothing left to do."""

from __future__ import annotations

from typing import Any

import pytest

from fusewise.errors import UsageError
from fusewise.ir.verify import verify
from fusewise.passes.catalogue import CATALOGUE
from fusewise.passes.hints import FUSION, LAYOUT, hint
from fusewise.passes.published import ADDED, PUBLISHED, step_named, step_names
from fusewise.trace import SEALED, Trace
from fusewise.zoo.scaled import scaled
from fusewise.zoo.styles import styled

NAMES = """
AlterOpLayout AnnotateSpans BatchingOps CanonicalizeCast CanonicalizeOps CombineParallelConv2D
CombineParallelDense ConvertLayout DeadCodeElimination DefuseOps DynamicToStatic EliminateCommonSubexpr
FakeQuantizationToInteger FastMath FirstOrderGradient FoldConstant FoldExplicitPadding ForwardFoldScaleAxis FuseOps
MergeComposite PartitionGraph RemoveUnusedFunctions SimplifyExpr SimplifyFCTranspose SimplifyInference ToANormalForm
ToGraphNormalForm ToMixedPrecision
"""


def test_the_names() -> None:
    assert [row.name for row in PUBLISHED] == NAMES.split()
    assert len(PUBLISHED) == 28
    assert [row.name for row in ADDED] == ["BackwardFoldScaleAxis", "CombineParallelBatchMatmul"]
    assert set(step_names()) == {row.name for row in (*CATALOGUE, *PUBLISHED, *ADDED)}
    assert all(step_named(name).name == name and step_named(name).summary for name in step_names())
    assert {row.name for row in PUBLISHED if row.asked} == {"FastMath", "ToMixedPrecision"}
    assert all(row.asked == (row.numeric_class == "approximate") for row in PUBLISHED)


@pytest.mark.parametrize("wrong, near", [("fuseops", "FuseOps"), ("FoldConstants", "FoldConstant"), ("zzz", "--list")])
def test_nearest_names(wrong: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"no pass called '{wrong}'.*{near}"):
        step_named(wrong)


@pytest.mark.parametrize("kind, style", [("mobilenet", "tensorflow"), ("bert", "mxnet"), ("ssd", "pytorch")])
def test_every_pass_on_whole_models(kind: str, style: str) -> None:
    graph = styled(scaled(kind, decomposed=style == "pytorch"), style)
    for row in (*PUBLISHED, *ADDED):
        after = row.function(graph, Trace())
        verify(after)
        assert row.function(graph, Trace(limit=0)) is graph, row.name
        assert row.function(after, Trace()) is after or row.name == "MergeComposite", row.name
        assert not row.idle or after is graph


def test_batch_norm_reaches_the_weights_by_way_of_scales(parse: Any, same_answers: Any) -> None:
    graph = parse(
        """
        input x: float32[1,3,5,5]
        constant w: float32[4,3,3,3] = #w
        constant s: float32[4] = #s
        constant v: float32[4] = #positive
        a = Conv(x, w)
        y = BatchNormalization(a, s, s, s, v)
        return y
        """
    )
    after = graph
    for name in ("SimplifyInference", "BackwardFoldScaleAxis", "absorb_bias"):
        after = step_named(name).function(after, Trace())
    assert [node.op for node in after.nodes] == ["Conv"]
    same_answers(graph, after, False)
    without = step_named("absorb_bias").function(step_named("SimplifyInference").function(graph, Trace()), Trace())
    assert [node.op for node in without.nodes] == ["Conv", "Mul", "Add"]


def test_sealed_nodes_are_not_rewritten(parse: Any) -> None:
    graph = parse("input x: float32[2]\na = Identity(x)\nb = Identity(a)\ny = Relu(b)\nreturn y")
    trace = Trace(sealed=frozenset({"n_b"}))
    after = step_named("SimplifyExpr").function(graph, trace)
    assert [node.name for node in after.nodes] == ["n_b", "n_y"]
    assert {event.reason for event in trace if not event.applied} == {SEALED}
    fused = step_named("FuseOps").function(graph, Trace())
    assert hint(fused, FUSION) == "patterns"
    assert not hint(fused, LAYOUT)
