"""Which operators only rename elements: edges along which elements correspond one to one, and results that are views.

Lowering follows these edges to find where a value lies in another one's index space, and the fusion planner to know that it
can.
"""

from __future__ import annotations

from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.ops.definition import call_of, mappings_of
from fusewise.ops.edges import same_extent
from fusewise.ops.spec import Mapping
from fusewise.ops.table import spec_of

__all__ = ["RESHAPES", "VIEWS", "bijective_operands"]

RESHAPES = frozenset("Reshape Flatten Squeeze Unsqueeze".split())
"""Operators that keep the row-major order of the elements."""

VIEWS = frozenset(
    "Identity Reshape Flatten Squeeze Unsqueeze Transpose Slice Split Expand Gather DepthToSpace SpaceToDepth".split()
)
"""Operators whose result may be strides over their operand's memory."""


def bijective_operands(graph: Graph, node: Node) -> tuple[int, ...]:
    """The operands whose elements correspond one to one to those of the only output, by an index map that can be inverted."""
    if node.domain or len(node.writes) != 1 or not node.outputs[0]:
        return ()
    kind = graph.types[node.outputs[0]]
    if not isinstance(kind, TensorType) or not kind.is_static:
        return ()
    if node.op in RESHAPES or node.op == "Transpose":
        return (0,)
    spec = spec_of(node.op)
    if spec is None:
        return ()
    mappings = mappings_of(spec, call_of(graph, node))
    return tuple(
        k
        for k, value in enumerate(node.inputs)
        if value and mappings[k] == Mapping.ONE_TO_ONE and same_extent(graph.types[value], kind)
    )
