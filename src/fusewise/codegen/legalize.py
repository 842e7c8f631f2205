"""Target legalisation: a graph that is right for any machine becomes one that this machine runs best.

Passes know no machine. Where what they do pays on some only, or depends on what the kernels here are good at, they take that as an
argument, and it is said here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fusewise.codegen.instructions.table import AMX_BF16, AMX_FP16, AMX_PARTS, DPBF16, VPDPBUSD
from fusewise.codegen.llvm.registers import has_half_conversion
from fusewise.codegen.machine.figures import MeasuredFigures
from fusewise.codegen.target import Target
from fusewise.errors import UsageError
from fusewise.ir.deciding import hint
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.passes.compute_wider import halves_in_float32
from fusewise.passes.narrow_attention import attention_of
from fusewise.passes.pipeline import CLEAN, DEFINED, PRECISIONS, Pass, run
from fusewise.passes.pool_by_rows import pooled_by_rows
from fusewise.passes.quantized_to_integer import quantized_to_integer, to_integer_unless
from fusewise.passes.short_weights import short_weights
from fusewise.trace import Trace
from fusewise.words import no_such

__all__ = [
    "LEAST_CHANNELS",
    "LEAST_EXTENT",
    "check_precision",
    "for_native",
    "legalized",
    "passes_for",
    "pool_by_rows",
    "stand_ins",
]

LEAST_CHANNELS, LEAST_EXTENT = 32, 12
"""Channels, and rows and columns of the result, from which the Winograd convolution of floats is faster than one of integers of
which two products are added up at once; measured."""

LEAST_POOLED_BYTES = 1 << 16
"""Of a map, for averaging it in two steps to be worth it; not measured."""


def legalized(
    graph: Graph,
    target: Target,
    trace: Trace,
    *,
    passes: bool | Sequence[Pass] = True,
    precision: str = "float32",
    exact: bool = False,
) -> Graph:
    """A graph after `passes`, the usual ones for True, as native code for `target` likes it. Raises what `for_native` raises."""
    clean = run(graph, passes_for(target, passes), trace, exact=exact)
    return for_native(clean, precision, trace, exact=exact, target=target)


def for_native(
    graph: Graph, precision: str, trace: Trace, *, exact: bool = False, target: Target | None = None
) -> Graph:
    """A clean graph as native code for `target` likes it, with convolutions and products in `precision`, one of `PRECISIONS`. None
    is no machine in particular.

    Raises `UsageError` for another, and for one that changes answers under `exact`.
    """
    check_precision(precision, exact)
    chosen = DEFINED if exact else (*DEFINED, *PRECISIONS[precision], pool_by_rows)
    graph = run(graph, chosen, trace)
    if target is not None and takes_short_weights(target):
        graph = run(graph, (short_weights,), trace)
    multiplied = [row.left for row in (AMX_BF16, AMX_FP16, DPBF16) if target is not None and row.is_native(target)]
    return graph if exact or not multiplied else run(graph, (attention_of(multiplied, AMX_BF16.rows),), trace)


def check_precision(precision: str, exact: bool) -> None:
    """Raises `UsageError` for a precision that there is not, and for one that changes answers under `exact`."""
    if precision not in PRECISIONS:
        raise no_such("precision", precision, PRECISIONS)
    if exact and PRECISIONS[precision]:
        raise UsageError(f"{precision} changes answers, which exact does not allow; leave one of the two out")


def takes_short_weights(target: Target) -> bool:
    """Do products of float32 lose nothing by weights of 16 bits here? A matrix unit takes float32 in parts, not yet made of these;
    where no instruction widens float16, doing so takes longer than it saves."""
    return has_half_conversion(target) and not AMX_PARTS.is_native(target)


def passes_for(target: Target | None, passes: bool | Sequence[Pass] = True) -> tuple[Pass, ...]:
    """These passes, `CLEAN` for True and none for False, each as `target` likes it best; None is no machine in particular.

    Machines compute in float32, so that for one `CLEAN` begins with float16 becoming that.
    """
    instead = stand_ins(target)
    usual = CLEAN if target is None else (halves_in_float32, *CLEAN)
    asked = usual if passes is True else passes or ()
    return tuple(instead.get(step, step) for step in asked)


def stand_ins(target: Target | None) -> Mapping[Pass, Pass]:
    """Which passes take the place of which on `target`, under the same name.

    Where one instruction adds four products of bytes up, integers beat Winograd's convolution of floats.
    """
    return _ALWAYS if target is not None and VPDPBUSD.is_native(target) else _BESIDE_WINOGRAD


def _suits_winograd(node: Node, weights: TensorType, result: TensorType) -> bool:
    """A large map, a 3x3 filter of unit stride, and channels enough for the transforms to pay."""
    return (
        weights.rank == 4
        and weights.dims[2:] == (3, 3)
        and set(node.attribute("strides", (1,))) | set(node.attribute("dilations", (1,))) == {1}
        and int(node.attribute("group", 1)) == 1
        and min(weights.dims[:2]) >= LEAST_CHANNELS
        and min(map(hint, result.dims[2:])) >= LEAST_EXTENT
    )


def _pays_by_rows(image: TensorType) -> bool:
    """Not a small map, and not one of so many channels that workers share those out."""
    _, channels, height, width = map(hint, image.dims)
    return (
        channels <= MeasuredFigures().sharing.shared_by_rows * height * width
        and hint(image.nbytes) >= LEAST_POOLED_BYTES
    )


pool_by_rows = pooled_by_rows(_pays_by_rows)

_ALWAYS: Mapping[Pass, Pass] = MappingProxyType({})
_BESIDE_WINOGRAD: Mapping[Pass, Pass] = MappingProxyType({quantized_to_integer: to_integer_unless(_suits_winograd)})
