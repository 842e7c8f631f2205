"""Which kernels are tried for a task, in order: literal tables by the anchor's family. The last accepts every plain task."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fusewise.codegen.families.attention.linear import LINEAR_ATTENTION
from fusewise.codegen.families.attention.packed import ATTENTION
from fusewise.codegen.families.attention.tiles import TILE_ATTENTION
from fusewise.codegen.families.convolution.direct import DIRECT, DIRECT_PAIRS, OUTER_CONVOLUTION
from fusewise.codegen.families.convolution.integer import INTEGER_CONV, QUAD_CONV
from fusewise.codegen.families.convolution.scaled import SCALED
from fusewise.codegen.families.convolution.tiled import BYTE_TILE_CONV, TILE_CONVOLUTIONS
from fusewise.codegen.families.convolution.transposed import CONV_TRANSPOSE
from fusewise.codegen.families.depthwise import DEPTHWISE
from fusewise.codegen.families.forest import FOREST
from fusewise.codegen.families.generic.any_nest import ANY_NEST
from fusewise.codegen.families.generic.resampling import SEPARABLE_RESAMPLING
from fusewise.codegen.families.generic.transposed_copy import TURNED
from fusewise.codegen.families.normalization.pixels import CHANNEL_NORM
from fusewise.codegen.families.normalization.rows import ROWS, SOFTMAX
from fusewise.codegen.families.pool import POOL
from fusewise.codegen.families.product.byte_tiles import BYTE_TILES
from fusewise.codegen.families.product.dequantized import DEQUANTIZED
from fusewise.codegen.families.product.integer import BYTE_PRODUCT, INTEGER_PRODUCT
from fusewise.codegen.families.product.matrix import PRODUCT
from fusewise.codegen.families.product.matrix_unit import TILE_PRODUCTS
from fusewise.codegen.families.product.outer import OUTER_BYTES, OUTER_FLOATS
from fusewise.codegen.families.product.pairs import PAIRS
from fusewise.codegen.families.product.quantized_rows import QUANTIZED_ROWS
from fusewise.codegen.families.product.short_weights import SHORT_PRODUCTS
from fusewise.codegen.families.recurrent.kernel import RECURRENT
from fusewise.codegen.families.sampled.kernel import SAMPLED
from fusewise.codegen.families.sampled.roi_pool import ROI_POOL
from fusewise.codegen.families.scan import SCAN
from fusewise.codegen.families.scatter import SCATTER
from fusewise.codegen.families.strassen.kernel import SHORT_STRASSEN, STRASSEN, STRASSEN_CONV
from fusewise.codegen.families.top_k import TOP_K
from fusewise.codegen.families.winograd.kernel import WINOGRAD
from fusewise.codegen.kernel import Kernel
from fusewise.lower.task import Task

__all__ = ["CONV", "CONV_INTEGER", "KERNELS", "MATMUL_INTEGER", "PLAIN_KERNELS", "PRODUCTS", "candidates"]

CONV: tuple[Kernel[Any, Any], ...] = (
    *TILE_CONVOLUTIONS,
    WINOGRAD,
    DEPTHWISE,
    OUTER_CONVOLUTION,
    DIRECT_PAIRS,
    SCALED,
    STRASSEN_CONV,
    DIRECT,
)
CONV_INTEGER: tuple[Kernel[Any, Any], ...] = (DEPTHWISE, BYTE_TILE_CONV, QUAD_CONV, INTEGER_CONV)

PRODUCTS: tuple[Kernel[Any, Any], ...] = (
    *(*TILE_PRODUCTS, OUTER_FLOATS, PAIRS, STRASSEN, PRODUCT),
    *SHORT_STRASSEN,
    *SHORT_PRODUCTS,
    *(DEQUANTIZED, QUANTIZED_ROWS),
)
"""None accepts other types than floats, or operands computed otherwise than from weights that are quantised or shorter: those tasks
run from the operator's definition."""

MATMUL_INTEGER: tuple[Kernel[Any, Any], ...] = (BYTE_TILES, OUTER_BYTES, BYTE_PRODUCT, INTEGER_PRODUCT)

KERNELS: Mapping[str, tuple[Kernel[Any, Any], ...]] = MappingProxyType(
    {
        "attention": (*TILE_ATTENTION, *ATTENTION),
        "average_pool": (POOL,),
        "conv": CONV,
        "conv_integer": CONV_INTEGER,
        "conv_transpose": CONV_TRANSPOSE,
        "forest": (FOREST,),
        "gemm": PRODUCTS,
        "group_norm": (CHANNEL_NORM, ROWS),
        "instance_norm": (CHANNEL_NORM, ROWS),
        "layer_norm": (ROWS,),
        "log_softmax": (SOFTMAX, ROWS),
        "linear_attention": LINEAR_ATTENTION,
        "lp_norm": (ROWS,),
        "lp_pool": (POOL,),
        "matmul": PRODUCTS,
        "matmul_integer": MATMUL_INTEGER,
        "max_pool": (POOL,),
        "recurrence": RECURRENT,
        "rms_norm": (ROWS,),
        "roi_pool": (ROI_POOL,),
        "sampled": (SAMPLED,),
        "scan": (SCAN,),
        "scatter": (SCATTER,),
        "softmax": (SOFTMAX, ROWS),
        "top_k": (TOP_K,),
    }
)
"""Kernels for each anchor family, best first."""

PLAIN_KERNELS: tuple[Kernel[Any, Any], ...] = (SEPARABLE_RESAMPLING, TURNED, ANY_NEST)
"""Kernels for tasks without an anchor."""


def candidates(task: Task) -> tuple[Kernel[Any, Any], ...]:
    """The kernels to try for a task, in order."""
    return PLAIN_KERNELS if task.anchor is None else KERNELS.get(task.anchor.family, ())
