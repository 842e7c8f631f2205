"""A pipeline: which passes run, in which order, and how the graph they leave is fused. Published and own ones are in a table.

The sets RN, MN, SSD, BR, AD and the baseline BL are those of Verma et al. (CF 2022). They are printed as sets; here they run in
the order in which TVM ran these passes, fusion last. AS-0 and AS-1 are two orders of eight passes of the SSD set; the paper does
not print them, so here fusion comes first in one and last in the other. PO-0 to PO-3 are random draws of six or seven passes; not
printed either, these are `random.Random(k).sample` of the SSD set.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fusewise.errors import UsageError
from fusewise.passes.catalogue import CATALOGUE
from fusewise.passes.published import step_named

__all__ = [
    "BY_HINT",
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

    `approximate` lets passes run that change answers by more than roundings.
    """

    name: str
    passes: tuple[str, ...]
    fusion: str = BY_HINT
    settle: bool = False
    approximate: bool = False
    about: str = ""

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


def _listed(name: str, passes: str, about: str) -> Pipeline:
    return Pipeline(name, tuple(passes.split()), about=about)


def _set(name: str, passes: str, about: str) -> Pipeline:
    return Pipeline(name, tuple(sorted(passes.split(), key=_ORDER.index)), about=about)


BL = _set(
    "BL",
    "AlterOpLayout CanonicalizeCast CanonicalizeOps ConvertLayout DefuseOps EliminateCommonSubexpr",
    "the paper's baseline: what its compiler declares as level 3",
)

RN = _set(
    "RN",
    "AlterOpLayout CanonicalizeCast CombineParallelConv2D CombineParallelDense DeadCodeElimination EliminateCommonSubexpr"
    " FoldConstant FoldExplicitPadding FuseOps MergeComposite SimplifyExpr SimplifyInference ToGraphNormalForm",
    "for ResNets",
)

MN = _set(
    "MN",
    "AlterOpLayout DeadCodeElimination EliminateCommonSubexpr FastMath FirstOrderGradient FoldConstant FuseOps MergeComposite"
    " SimplifyExpr SimplifyFCTranspose SimplifyInference ToGraphNormalForm",
    "for MobileNets",
)

SSD = _set(
    "SSD",
    "AlterOpLayout DeadCodeElimination FastMath FoldConstant FoldExplicitPadding FuseOps MergeComposite RemoveUnusedFunctions"
    " SimplifyExpr SimplifyInference",
    "for single-shot detectors",
)

BR = _set(
    "BR",
    "AlterOpLayout BatchingOps FastMath ForwardFoldScaleAxis FuseOps SimplifyFCTranspose",
    "for BERT",
)

AD = _set(
    "AD",
    "AnnotateSpans DynamicToStatic FakeQuantizationToInteger PartitionGraph ToANormalForm ToMixedPrecision",
    "as the user intends",
)

_AS = "RemoveUnusedFunctions SimplifyExpr FoldConstant MergeComposite FastMath DeadCodeElimination AlterOpLayout"
AS = (
    _listed("AS-0", f"FuseOps {_AS}", "eight passes of SSD, fusion first"),
    _listed("AS-1", f"{_AS} FuseOps", "the same, fusion last"),
)

PO = (
    _listed(
        "PO-0",
        "MergeComposite SimplifyInference AlterOpLayout FastMath FoldExplicitPadding FoldConstant",
        "a random draw",
    ),
    _listed(
        "PO-1",
        "FastMath DeadCodeElimination FoldExplicitPadding AlterOpLayout FoldConstant FuseOps RemoveUnusedFunctions",
        "a random draw",
    ),
    _listed(
        "PO-2",
        "AlterOpLayout DeadCodeElimination SimplifyExpr FastMath RemoveUnusedFunctions MergeComposite",
        "a random draw",
    ),
    _listed(
        "PO-3",
        "FoldConstant SimplifyExpr FastMath RemoveUnusedFunctions FoldExplicitPadding SimplifyInference AlterOpLayout",
        "a random draw",
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
        near = [known[key].name for key in difflib.get_close_matches(name.lower(), known, n=2, cutoff=0.3)]
        hint = (
            f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(p.name for p in known.values())}"
        )
        raise UsageError(f"there is no pipeline called {name!r}; {hint}")
    return found
