"""A pipeline: which passes run, in which order, and how the graph they leave is fused. Published and own ones are in a table.

The published ones are those of Verma et al. (CF 2022). Its seven lists for SSD-ResNet50, the baseline BL, the architecture-aware
AS-0 and AS-1 and the random PO-0 to PO-3, run in the order in which they are printed. The sets RN, MN, SSD, BR and AD come from
the categories of its table of passes, which say nothing of order: they run in the order in which TVM ran these passes, fusion last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fusewise.errors import UsageError
from fusewise.passes.catalogue import CATALOGUE
from fusewise.passes.published import step_named
from fusewise.words import nearest

__all__ = [
    "BY_HINT",
    "CATEGORIES",
    "DEFAULT",
    "EXPERIMENTS",
    "FAMILY_SETS",
    "FUSIONS",
    "LEVELS",
    "PAPER",
    "Pipeline",
    "pipeline_named",
]

BY_HINT = "as asked"
FUSIONS = (BY_HINT, "dnnfusion", "patterns", "none")
"""How the graph is fused: `as asked` by FuseOps and AlterOpLayout among the passes, or by a planner, layouts chosen freely."""


@dataclass(frozen=True)
class Pipeline:
    """Passes by name. `settle` repeats them, late ones last, until nothing changes; without it each runs where it stands.

    `approximate` lets passes run that change answers by more than roundings, `gradients` those that add outputs.
    """

    name: str
    passes: tuple[str, ...]
    fusion: str = BY_HINT
    settle: bool = False
    approximate: bool = False
    about: str = ""
    gradients: bool = False

    def __post_init__(self) -> None:
        for name in self.passes:
            step_named(name)
        if self.fusion not in FUSIONS:
            raise UsageError(f"a pipeline is fused {', '.join(map(repr, FUSIONS))}, not {self.fusion!r}")


_ORDER = (
    "AnnotateSpans RemoveUnusedFunctions ToGraphNormalForm SimplifyInference DynamicToStatic CanonicalizeOps EliminateCommonSubexpr"
    " SimplifyExpr SimplifyFCTranspose ConvertLayout BatchingOps CombineParallelConv2D CombineParallelDense FoldConstant"
    " FoldExplicitPadding ForwardFoldScaleAxis MergeComposite FakeQuantizationToInteger ToMixedPrecision FastMath"
    " DeadCodeElimination FirstOrderGradient CanonicalizeCast AlterOpLayout DefuseOps FuseOps PartitionGraph ToANormalForm"
).split()
"""Where each pass stands when a set says nothing of order: what uncovers work comes first, composites are found before their
functions are approximated, casts are repeated when nothing merges them again, and blocks are closed last."""


CATEGORIES: Mapping[str, str] = MappingProxyType(
    {
        "AlterOpLayout": "BL; RN; MN; SSD; BR",
        "AnnotateSpans": "AD",
        "BatchingOps": "BR",
        "CanonicalizeCast": "BL; RN",
        "CanonicalizeOps": "BL",
        "CombineParallelConv2D": "RN",
        "CombineParallelDense": "RN",
        "ConvertLayout": "BL",
        "DeadCodeElimination": "RN; MN; SSD",
        "DefuseOps": "BL",
        "DynamicToStatic": "AD",
        "EliminateCommonSubexpr": "BL; RN; MN",
        "FakeQuantizationToInteger": "AD",
        "FastMath": "MN; BR; SSD",
        "FirstOrderGradient": "MN",
        "FoldConstant": "RN; MN; SSD",
        "FoldExplicitPadding": "RN; SSD",
        "ForwardFoldScaleAxis": "BR",
        "FuseOps": "RN; MN; SSD; BR",
        "MergeComposite": "RN; MN; SSD",
        "PartitionGraph": "AD",
        "RemoveUnusedFunctions": "SSD",
        "SimplifyExpr": "RN; MN; SSD",
        "SimplifyFCTranspose": "MN; BR",
        "SimplifyInference": "RN; MN; SSD",
        "ToANormalForm": "AD",
        "ToGraphNormalForm": "RN; MN",
        "ToMixedPrecision": "AD",
    }
)
"""For each published pass the architectures that it is relevant to, by hand: the table's column as printed. BL is the baseline,
AD what the user's intentions decide."""


def _set(name: str, about: str) -> Pipeline:
    """The passes of a category."""
    passes = [step for step, categories in CATEGORIES.items() if name in categories.split("; ")]
    return Pipeline(name, tuple(sorted(passes, key=_ORDER.index)), about=about)


def _listed(name: str, passes: str, about: str) -> Pipeline:
    return Pipeline(name, tuple(passes.split()), about=about)


RN, MN, SSD = _set("RN", "for ResNets"), _set("MN", "for MobileNets"), _set("SSD", "for single-shot detectors")
BR, AD = _set("BR", "for BERT"), _set("AD", "as the user intends")

BL = _listed(
    "BL",
    "AlterOpLayout CanonicalizeCast CanonicalizeOps ConvertLayout DefuseOps EliminateCommonSubexpr",
    "the paper's baseline: what its compiler declares as level 3",
)

AS = (
    _listed(
        "AS-0",
        "AlterOpLayout FuseOps SimplifyExpr FoldConstant DeadCodeElimination MergeComposite FastMath RemoveUnusedFunctions",
        "eight passes of SSD",
    ),
    _listed(
        "AS-1",
        "SimplifyExpr FuseOps AlterOpLayout MergeComposite FastMath DeadCodeElimination FoldConstant RemoveUnusedFunctions",
        "the same in another order",
    ),
)

PO = (
    _listed(
        "PO-0",
        "AlterOpLayout CombineParallelConv2D DefuseOps DynamicToStatic CanonicalizeOps CanonicalizeCast",
        "drawn from all passes",
    ),
    _listed(
        "PO-1",
        "CanonicalizeCast AlterOpLayout DefuseOps CombineParallelConv2D PartitionGraph FakeQuantizationToInteger",
        "drawn from all passes",
    ),
    _listed(
        "PO-2",
        "ToMixedPrecision CombineParallelConv2D EliminateCommonSubexpr SimplifyFCTranspose CanonicalizeOps DefuseOps"
        " ToGraphNormalForm",
        "drawn from all passes",
    ),
    _listed(
        "PO-3",
        "CombineParallelDense FakeQuantizationToInteger AlterOpLayout CombineParallelConv2D ToGraphNormalForm CanonicalizeOps",
        "drawn from all passes",
    ),
)

NONE = Pipeline("none", (), about="the graph as it was loaded, a kernel for each operator")

_RELAY = (
    "RemoveUnusedFunctions SimplifyInference DynamicToStatic EliminateCommonSubexpr SimplifyExpr CombineParallelConv2D"
    " CombineParallelDense CombineParallelBatchMatmul FoldConstant ForwardFoldScaleAxis BackwardFoldScaleAxis CanonicalizeCast"
    " CanonicalizeOps AlterOpLayout FastMath FoldConstant FuseOps"
).split()
"""The order in which TVM ran its passes in early 2022; each takes part from its declared level on, FuseOps from level 1."""

LEVELS: tuple[Pipeline, ...] = tuple(
    Pipeline(
        f"level-{level}",
        tuple(name for name in _RELAY if (step_named(name).level or int(name == "FuseOps")) <= level),
        about=f"the published passes of level {level} and below, in TVM's order",
    )
    for level in range(5)
)
"""What `--experiment levels` compares."""

DEFAULT = Pipeline(
    "default",
    tuple(row.name for row in CATALOGUE),
    fusion="dnnfusion",
    settle=True,
    about="this program's clean-up, repeated until nothing changes, and DNNFusion",
)

PAPER: tuple[Pipeline, ...] = (NONE, BL, *AS, *PO, RN, MN, SSD, BR, AD, DEFAULT)
"""What `--experiment paper` compares."""

EXPERIMENTS: Mapping[str, tuple[Pipeline, ...]] = MappingProxyType({"paper": PAPER, "levels": (NONE, *LEVELS, DEFAULT)})
"""Lists of passes to compare, by the name of the comparison."""

FAMILY_SETS: Mapping[str, Pipeline] = MappingProxyType({"ResNet": RN, "MobileNet": MN, "SSD": SSD, "BERT": BR})
"""Which passes matter for which family, as the paper classifies them by hand."""


def pipeline_named(name: str) -> Pipeline:
    """The pipeline called `name`, in any case; `UsageError` with the nearest names when there is none."""
    known = {pipeline.name.lower(): pipeline for pipeline in (*PAPER, *LEVELS)}
    found = known.get(name.lower())
    if found is None:
        names = [pipeline.name for pipeline in known.values()]
        raise UsageError(f"there is no pipeline called {name!r}; {nearest(name, names, most=2)}")
    return found
