"""The clean-up passes, in their usual order: what each does, and what it may do to answers."""

from __future__ import annotations

from fusewise.passes.absorb_bias import absorb_bias
from fusewise.passes.absorb_padding import absorb_padding
from fusewise.passes.absorb_scale import absorb_scale
from fusewise.passes.convert_layout import convert_layout
from fusewise.passes.drop_dead import drop_dead
from fusewise.passes.drop_zeros import drop_zeros
from fusewise.passes.einsum_to_matmul import einsum_to_matmul
from fusewise.passes.fold_batch_norm import fold_batch_norm, lower_batch_norm
from fusewise.passes.fold_constants import fold_constants
from fusewise.passes.gradient.operator import write_gradients
from fusewise.passes.merge_equal import merge_equal
from fusewise.passes.quantized_to_integer import quantized_to_integer
from fusewise.passes.recognise_activations import recognise_activations
from fusewise.passes.recognise_attention import recognise_attention
from fusewise.passes.recognise_group_norm import recognise_group_norm
from fusewise.passes.recognise_norms import recognise_norms
from fusewise.passes.rewrite_algebra import rewrite_algebra, rewrite_exactly
from fusewise.passes.runner import Pass, PassStep
from fusewise.passes.simplify_arithmetic import simplify_arithmetic
from fusewise.passes.simplify_movement import simplify_movement

__all__ = ["CATALOGUE", "Pass"]


def row(function: Pass, summary: str, numeric_class: str, late: bool = False) -> PassStep:
    return PassStep(getattr(function, "__name__", ""), function, summary, numeric_class, late=late)


CATALOGUE: tuple[PassStep, ...] = (
    row(write_gradients, "writes out the slopes that nodes Gradient ask for", "exact"),
    row(drop_dead, "removes nodes and outputs that nothing needs", "exact"),
    row(quantized_to_integer, "convolves the integers that a quantised model describes", "reassociating"),
    row(fold_constants, "computes what does not depend on the inputs", "exact"),
    row(einsum_to_matmul, "writes an Einsum that multiplies matrices as that", "reassociating"),
    row(
        simplify_movement, "removes reshapes, slices, casts and copies that do nothing, merges those in a row", "exact"
    ),
    row(merge_equal, "computes and stores once what is there twice", "exact"),
    row(simplify_arithmetic, "removes neutral elements and merges bounds", "exact"),
    row(drop_zeros, "removes sums with zeros, and filter taps that only meet zeros", "reassociating"),
    row(recognise_norms, "finds layer and RMS normalisation that were written out", "reassociating"),
    row(recognise_group_norm, "finds group normalisation that was written out", "reassociating"),
    row(recognise_activations, "finds GELU, Mish, HardSwish and HardSigmoid that were written out", "reassociating"),
    row(absorb_padding, "takes zeros around an image into the convolution's padding", "exact"),
    row(absorb_bias, "takes a constant sum per channel into the bias before it", "reassociating"),
    row(fold_batch_norm, "folds batch normalisation into the weights next to it", "reassociating"),
    row(lower_batch_norm, "writes other batch normalisation as a product and a sum", "reassociating"),
    row(absorb_scale, "takes a constant factor per channel into the weights before it", "reassociating"),
    row(recognise_attention, "finds attention that was written out", "reassociating", late=True),
    row(
        convert_layout,
        "moves transpositions between layouts to where they cancel",
        "reassociating",
        late=True,
    ),
    row(rewrite_exactly, "saves operations by laws of order, logic and whole numbers", "exact", late=True),
    row(rewrite_algebra, "saves operations by laws of arithmetic", "reassociating", late=True),
)
