"""The lists and categories of Verma et al. (CF 2022) beside the text that prints them."""

from __future__ import annotations

import pytest

from fusewise.passes.published import PUBLISHED
from fusewise.select.pipeline import CATEGORIES, EXPERIMENTS, FAMILY_SETS, PAPER, pipeline_named

LISTS = """
BL | AlterOpLayout, CanonicalizeCast, CanonicalizeOps, ConvertLayout, DefuseOps, EliminateCommonSubexpr
AS-0 | AlterOpLayout, FuseOps, SimplifyExpr, FoldConstant, DeadCodeElimination, MergeComposite, FastMath, RemoveUnusedFunctions
AS-1 | SimplifyExpr, FuseOps, AlterOpLayout, MergeComposite, FastMath, DeadCodeElimination, FoldConstant, RemoveUnusedFunctions
PO-0 | AlterOpLayout, CombineParallelConv2D, DefuseOps, DynamicToStatic, CanonicalizeOps, CanonicalizeCast
PO-1 | CanonicalizeCast, AlterOpLayout, DefuseOps, CombineParallelConv2D, PartitionGraph, FakeQuantizationToInteger
PO-2 | ToMixedPrecision, CombineParallelConv2D, EliminateCommonSubexpr, SimplifyFCTranspose, CanonicalizeOps, DefuseOps,\
 ToGraphNormalForm
PO-3 | CombineParallelDense, FakeQuantizationToInteger, AlterOpLayout, CombineParallelConv2D, ToGraphNormalForm, CanonicalizeOps
"""

TABLE = """
AlterOpLayout | BL; RN; MN; SSD; BR
AnnotateSpans | AD
BatchingOps | BR
CanonicalizeCast | BL; RN
CanonicalizeOps | BL
CombineParallelConv2D | RN
CombineParallelDense | RN
ConvertLayout | BL
DeadCodeElimination | RN; MN; SSD
DefuseOps | BL
DynamicToStatic | AD
EliminateCommonSubexpr | BL; RN; MN
FakeQuantizationToInteger | AD
FastMath | MN; BR; SSD
FirstOrderGradient | MN
FoldConstant | RN; MN; SSD
FoldExplicitPadding | RN; SSD
ForwardFoldScaleAxis | BR
FuseOps | RN; MN; SSD; BR
MergeComposite | RN; MN; SSD
PartitionGraph | AD
RemoveUnusedFunctions | SSD
SimplifyExpr | RN; MN; SSD
SimplifyFCTranspose | MN; BR
SimplifyInference | RN; MN; SSD
ToANormalForm | AD
ToGraphNormalForm | RN; MN
ToMixedPrecision | AD
"""


def rows(text: str) -> dict[str, str]:
    return dict(line.split(" | ") for line in text.strip().splitlines())


@pytest.mark.parametrize("name, passes", rows(LISTS).items())
def test_the_seven_lists_run_as_printed(name: str, passes: str) -> None:
    assert pipeline_named(name).passes == tuple(passes.split(", "))


def test_the_experiment_has_the_seven_in_the_printed_order() -> None:
    assert [pipeline.name for pipeline in PAPER if pipeline.name in rows(LISTS)] == list(rows(LISTS))
    assert EXPERIMENTS["paper"] is PAPER


def test_the_categories_are_the_printed_column() -> None:
    assert list(CATEGORIES.items()) == list(rows(TABLE).items())
    assert list(CATEGORIES) == [row.name for row in PUBLISHED]


@pytest.mark.parametrize("name", ["RN", "MN", "SSD", "BR", "AD", "BL"])
def test_a_family_has_the_passes_whose_category_names_it(name: str) -> None:
    wanted = {step for step, categories in rows(TABLE).items() if name in categories.split("; ")}
    assert set(pipeline_named(name).passes) == wanted
    assert len(pipeline_named(name).passes) == len(wanted)


def test_each_class_of_the_text_has_its_set() -> None:
    found = {family: pipeline.name for family, pipeline in FAMILY_SETS.items()}
    assert found == {"ResNet": "RN", "MobileNet": "MN", "SSD": "SSD", "BERT": "BR"}
