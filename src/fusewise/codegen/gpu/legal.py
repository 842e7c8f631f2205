"""A graph that is right for any machine as kernels for GPUs like it: `codegen.legalize` for another sort of machine.

Models in float16 are float32 to the clean-up, which then finds in them what it finds in others; behind it their products are of
float16 again, which tensor cores multiply as they are. Weights that a model stores in 16 bits are read as such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fusewise.errors import UsageError
from fusewise.ir.dtypes import BFLOAT16, FLOAT16
from fusewise.ir.graph import Graph
from fusewise.ir.types import TensorType
from fusewise.passes.before_split import before_split
from fusewise.passes.combine_parallel import combine_products
from fusewise.passes.compute_wider import halves_in_float32
from fusewise.passes.mixed_precision import PRODUCTS, mixed_half, mixed_precision
from fusewise.passes.narrow_attention import attention_of
from fusewise.passes.pipeline import CLEAN, DEFINED, Pass, run
from fusewise.passes.short_weights import short_weights
from fusewise.passes.unroll_recurrences import unroll_recurrences
from fusewise.trace import Trace
from fusewise.words import no_such

__all__ = ["GPU_PRECISIONS", "check_gpu_precision", "clean_for_gpu", "computes_in_halves", "for_gpu", "gpu_passes"]

_NARROW_ATTENTION = attention_of((FLOAT16, BFLOAT16), 1)

GPU_PRECISIONS: Mapping[str, tuple[Pass, ...]] = MappingProxyType(
    {
        "float32": (short_weights,),
        "tf32": (short_weights,),
        "float16": (unroll_recurrences, mixed_half, _NARROW_ATTENTION),
        "bfloat16": (unroll_recurrences, mixed_precision, _NARROW_ATTENTION),
    }
)
"""What brings a graph of float32 to a precision: products take 16 bits and add up in float32. Whether products of float32 are
computed in TF32 is for their kernels. Recurrences are written out for products of 16 bits, which their own kernel has not."""


def gpu_passes(passes: bool | Sequence[Pass] = True) -> tuple[Pass, ...]:
    """These passes, the usual ones for True and none for False."""
    return CLEAN if passes is True else tuple(passes or ())


def computes_in_halves(graph: Graph) -> bool:
    """Are there products of float16?"""
    return any(
        isinstance(kind := graph.types.get(node.outputs[0]), TensorType) and kind.dtype == FLOAT16
        for node in graph.nodes
        if node.op in PRODUCTS and not node.domain
    )


def clean_for_gpu(
    graph: Graph, precision: str, trace: Trace, passes: bool | Sequence[Pass] = True, *, exact: bool = False
) -> tuple[Graph, str]:
    """A graph after `passes`, the usual ones for True, and the precision that it is for: float16 where that is what the model
    computes in, and it was not asked for another than float32."""
    halves = passes is True and not exact and computes_in_halves(graph)
    steps = (halves_in_float32, *gpu_passes(True)) if halves else gpu_passes(passes)
    return run(graph, steps, trace, exact=exact), "float16" if halves and precision == "float32" else precision


def check_gpu_precision(precision: str, exact: bool) -> None:
    """Raises `UsageError` for a precision that there is not, and for one that changes answers under `exact`."""
    if precision not in GPU_PRECISIONS:
        raise no_such("precision", precision, GPU_PRECISIONS)
    if exact and precision != "float32":
        raise UsageError(f"{precision} changes answers, which exact does not allow; leave one of the two out")


def for_gpu(graph: Graph, precision: str, trace: Trace, *, exact: bool = False) -> Graph:
    """A clean graph as kernels for GPUs like it, in `precision`, one of `GPU_PRECISIONS`.

    What has no kernel of its own but can be written with products is, and products of one tensor become one. Raises what
    `check_gpu_precision` raises.
    """
    check_gpu_precision(precision, exact)
    fewer = (combine_products, before_split)
    chosen = (*fewer, *DEFINED, short_weights) if exact else (*fewer, *DEFINED, *GPU_PRECISIONS[precision])
    return run(graph, chosen, trace)
