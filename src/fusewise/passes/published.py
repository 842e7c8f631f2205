"""The passes of architecture-aware optimisation by their published names, and what each is on this graph.

Twenty-eight passes of TVM's Relay as Verma et al. list them (CF 2022), and BackwardFoldScaleAxis, without which batch normalisation
never reaches the weights. A pass that has nothing to do on any graph here is in the table all the same and says why, so that
published lists run as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fusewise.errors import UsageError
from fusewise.ir.graph import Graph
from fusewise.passes.absorb_padding import absorb_padding
from fusewise.passes.absorb_scale import absorb_scale
from fusewise.passes.bookkeeping import annotate_spans
from fusewise.passes.canonical_casts import canonical_casts
from fusewise.passes.canonical_ops import canonical_ops
from fusewise.passes.catalogue import CATALOGUE
from fusewise.passes.combine_parallel import combine_batch_matmul, combine_conv2d, combine_dense
from fusewise.passes.convert_layout import convert_layout
from fusewise.passes.decompose_norms import simplify_inference
from fusewise.passes.drop_dead import drop_dead
from fusewise.passes.drop_zeros import drop_zeros
from fusewise.passes.dynamic_to_static import dynamic_to_static
from fusewise.passes.fast_math import fast_math
from fusewise.passes.fold_constants import fold_constants
from fusewise.passes.fold_scale_forward import fold_scale_forward
from fusewise.passes.gradient.first_order import first_order_gradient
from fusewise.passes.hints import alter_op_layout, defuse_ops, fuse_ops
from fusewise.passes.merge_equal import merge_equal
from fusewise.passes.mixed_precision import mixed_precision
from fusewise.passes.normal_forms import a_normal_form, graph_normal_form
from fusewise.passes.partition_graph import partition_graph
from fusewise.passes.quantized_to_integer import quantized_to_integer
from fusewise.passes.reassociate import reassociate
from fusewise.passes.recognise_activations import recognise_activations
from fusewise.passes.recognise_attention import recognise_attention
from fusewise.passes.recognise_norms import recognise_norms
from fusewise.passes.runner import Pass, PassStep
from fusewise.passes.simplify_arithmetic import simplify_arithmetic
from fusewise.passes.simplify_movement import simplify_movement
from fusewise.passes.transposed_weights import simplify_fc_transpose
from fusewise.passes.unused_functions import remove_unused_functions
from fusewise.trace import Trace
from fusewise.words import nearest

__all__ = ["ADDED", "PUBLISHED", "step_named", "step_names"]

_MOST_ROUNDS = 8


def _in_turn(*passes: Pass, rounds: int = 1) -> Pass:
    """Passes one after another, again while something changes, but at most `rounds` times."""

    def run(graph: Graph, trace: Trace) -> Graph:
        for _ in range(rounds):
            start = graph
            for step in passes:
                graph = step(graph, trace)
            if graph is start:
                break
        return graph

    return run


_combine_all = _in_turn(combine_conv2d, combine_dense, combine_batch_matmul)
_simplify = _in_turn(simplify_movement, simplify_arithmetic, drop_zeros, reassociate, rounds=_MOST_ROUNDS)
_composites = _in_turn(recognise_norms, recognise_activations, recognise_attention)

PUBLISHED: tuple[PassStep, ...] = (
    PassStep(
        "AlterOpLayout",
        alter_op_layout,
        "lets heavy operators choose their layout and have weights packed for it",
        "exact",
        3,
    ),
    PassStep("AnnotateSpans", annotate_spans, "notes where every node comes from", "exact", 0),
    PassStep("BatchingOps", _combine_all, "combines parallel convolutions, dense and batched products", "exact", None),
    PassStep("CanonicalizeCast", canonical_casts, "gives every reader of a widening cast its own", "exact", 3),
    PassStep(
        "CanonicalizeOps", canonical_ops, "writes special operators with basic ones", "reassociating", 3, version=2
    ),
    PassStep("CombineParallelConv2D", combine_conv2d, "combines convolutions of one image", "exact", 4),
    PassStep(
        "CombineParallelDense", combine_dense, "combines products of one tensor with constant matrices", "exact", 4
    ),
    PassStep(
        "ConvertLayout", convert_layout, "moves transpositions between layouts to where they cancel", "reassociating", 3
    ),
    PassStep("DeadCodeElimination", drop_dead, "removes nodes and outputs that nothing needs", "exact", 1),
    PassStep("DefuseOps", defuse_ops, "takes fused blocks apart", "exact", 3),
    PassStep("DynamicToStatic", dynamic_to_static, "makes computed sizes numbers", "exact", 2),
    PassStep("EliminateCommonSubexpr", merge_equal, "computes and stores once what is there twice", "exact", 3),
    PassStep(
        "FakeQuantizationToInteger",
        quantized_to_integer,
        "computes convolutions between conversions on the integers themselves",
        "reassociating",
        0,
    ),
    PassStep(
        "FastMath", fast_math, "puts a cheaper function in place of the error function", "approximate", 4, asked=True
    ),
    PassStep(
        "FirstOrderGradient",
        first_order_gradient,
        "adds the gradient of every floating output by every floating input",
        "exact",
        0,
        version=2,
        adds_outputs=True,
    ),
    PassStep("FoldConstant", fold_constants, "computes what does not depend on the inputs", "exact", 2),
    PassStep(
        "FoldExplicitPadding", absorb_padding, "takes padding into the convolution or pooling behind it", "exact", 0
    ),
    PassStep(
        "ForwardFoldScaleAxis",
        fold_scale_forward,
        "takes a factor per channel into the weights behind it",
        "reassociating",
        3,
    ),
    PassStep("FuseOps", fuse_ops, "fuses operators by fixed patterns", "exact", 0),
    PassStep(
        "MergeComposite",
        _composites,
        "finds normalisations, activations and attention that were written out",
        "reassociating",
        0,
    ),
    PassStep(
        "PartitionGraph",
        partition_graph,
        "parts the graph into regions for an accelerator, native code and the host",
        "exact",
        0,
        version=2,
    ),
    PassStep(
        "RemoveUnusedFunctions",
        remove_unused_functions,
        "removes functions of the model that nothing calls",
        "exact",
        1,
        version=2,
    ),
    PassStep(
        "SimplifyExpr", _simplify, "removes what changes nothing and merges what stands in a row", "reassociating", 0
    ),
    PassStep(
        "SimplifyFCTranspose", simplify_fc_transpose, "stores the weights of products as they are read", "exact", 4
    ),
    PassStep(
        "SimplifyInference",
        simplify_inference,
        "writes normalisations out and drops what only training needs",
        "reassociating",
        0,
    ),
    PassStep(
        "ToANormalForm",
        a_normal_form,
        "names every intermediate result",
        "exact",
        1,
        "in static single assignment every value has a name of its own: a graph is in this form",
    ),
    PassStep(
        "ToGraphNormalForm",
        graph_normal_form,
        "makes the program a graph",
        "exact",
        1,
        "nodes are joined by the values that they read: a graph is in this form",
    ),
    PassStep(
        "ToMixedPrecision",
        mixed_precision,
        "computes convolutions and products on bfloat16, adding up in float32",
        "approximate",
        0,
        asked=True,
        version=2,
    ),
)
"""The twenty-eight, in alphabetical order."""

ADDED: tuple[PassStep, ...] = (
    PassStep(
        "BackwardFoldScaleAxis",
        absorb_scale,
        "takes a factor per channel into the weights before it",
        "reassociating",
        3,
    ),
    PassStep("CombineParallelBatchMatmul", combine_batch_matmul, "combines products of one tensor", "exact", 4),
)
"""Two that its authors have in the same compiler: the 29th, and the third part of BatchingOps."""


_STEPS: Mapping[str, PassStep] = MappingProxyType(
    {
        **{row.name: row for row in CATALOGUE},
        **{row.name: row for row in (*PUBLISHED, *ADDED)},
    }
)


def step_named(name: str) -> PassStep:
    """The pass called `name`; `UsageError` with the nearest names when there is none."""
    found = _STEPS.get(name)
    if found is None:
        hint = nearest(name, _STEPS, "'fusewise passes --list' names them all", most=2)
        raise UsageError(f"there is no pass called {name!r}; {hint}")
    return found


def step_names() -> Sequence[str]:
    """Every name, the clean-up first."""
    return tuple(_STEPS)
