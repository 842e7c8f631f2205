"""Which inputs of a graph decide by their contents what becomes of it: shapes, axes, pads, lengths.

Where these are known, the operators that read them have shapes and definitions; where not, they and all behind them run on
the host.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from fusewise.frontend.shape_values import is_followed
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.ops.table import spec_of

__all__ = ["deciding_inputs"]


def deciding_inputs(graph: Graph, *, but_for: Collection[str] = ()) -> tuple[str, ...]:
    """The inputs of numbers that operators, `but_for` some by name, want to know the contents of, as they are or through arithmetic
    on small values.

    Floats that arithmetic is done on count where they are single elements: more of them are data.
    """
    direct = {value for node in graph.nodes if node.op not in but_for for value in _decided_by(node)}
    reached = set(direct)
    for node in reversed(graph.nodes):
        if reached.intersection(node.outputs) and (is_followed(node) or node.op in _FOLLOWED):
            reached.update(node.inputs[:1] if node.op == "CastLike" else node.reads)
    return tuple(name for name in graph.inputs if name in reached and _is_small(graph, name, name in direct))


def _is_small(graph: Graph, name: str, is_direct: bool) -> bool:
    kind = graph.types[name]
    if not isinstance(kind, TensorType) or kind.dtype.kind in ("string", "complex"):
        return False
    return is_direct or not kind.dtype.is_float or kind.shape in ((), (1,))


def _decided_by(node: Node) -> Iterator[str]:
    """The operands of a node that it wants to know the contents of."""
    spec = spec_of(node.op, node.domain)
    places = () if node.domain else DECIDED_BY.get(node.op, ())
    for place in (*places, *(spec.shaped_by if spec is not None else ())):
        if place < len(node.inputs) and node.inputs[place]:
            yield node.inputs[place]


_FOLLOWED = frozenset({"If", "Relu"})
"""Operators that contents are followed through beside arithmetic on shapes: known branches are taken, and constants folded."""

_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"

DECIDED_BY: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        **{f"Reduce{name}": (1,) for name in _REDUCTIONS.split()},
        **dict.fromkeys(("AffineGrid", "CumProd", "CumSum", "OneHot", "TopK", "Trilu"), (1,)),
        "Col2Im": (1, 2),
        "DFT": (1, 2),
        "Dropout": (2,),
        "If": (0,),
        "Loop": (0, 1),
        "MaxUnpool": (2,),
        "MelWeightMatrix": (0, 1, 2, 3, 4),
        "Pad": (1, 3),
        "Resize": (1, 2, 3),
        "STFT": (1, 3),
        "Slice": (1, 2, 3, 4),
        "SplitToSequence": (1,),
        "Upsample": (1,),
    }
)
"""Operands that decide beside those that decide shapes alone (`OpSpec.shaped_by`)."""
