"""Write operators that code has no definition for with those that it has one for. Numeric class exact: they mean nothing else.

Those with options that no kernel has come down to kernels that they have (`decompositions.whole_attention`, `.stateful`); the
others that ONNX defines by a function become that function.
"""

from __future__ import annotations

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.ops.definition import definition, is_opaque
from fusewise.ops.expr import index
from fusewise.ops.spec import WHOLE_FAMILIES, NotDefined
from fusewise.ops.table import OPERATORS, spec_of
from fusewise.passes.canonical_ops import LOWEST_OPSET, written_out
from fusewise.passes.decompositions.table import UNDEFINED
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.passes.function_bodies import body_in_place
from fusewise.passes.notation import call_of
from fusewise.trace import Trace

__all__ = ["expand_undefined"]


def expand_undefined(graph: Graph, trace: Trace) -> Graph:
    """Nodes without a definition become nodes that have one.

    y, k, v = Attention(q, k1, v1, m, k0, v0)   ->   k = Concat(k0, k1); v = Concat(v0, v1); y = Attention(q, k, v, m)

    Attention of short floats becomes one of float32 between casts, which `narrow_attention` takes back where it pays.

    Refused: nodes that have a definition, or a kernel of their own; sizes that are not known.
    """
    return sweep(graph, trace, _RULES) if graph.opset >= LOWEST_OPSET else graph


def _expanded(edit: Edit, node: Node) -> Change | None:
    if _is_defined(edit, node):
        return None
    row = UNDEFINED.get(f"{node.domain}.{node.op}" if node.domain else node.op)
    change = None if row is None else written_out(edit, node, row)
    return body_in_place(edit, node) if change is None else change


def _is_defined(edit: Edit, node: Node) -> bool:
    """Has code a way to run the node, or is nothing else known that it would be?"""
    spec = spec_of(node.op, node.domain)
    if spec is None or spec.family in WHOLE_FAMILIES:
        return spec is not None
    if spec.scalar is None and spec.define is None:
        return False
    call = call_of(edit, node)
    if spec.name == "Attention" and call.input(0).dtype.bits < FLOAT32.bits:  # most machines compute it in float32
        return False
    for k, kind in enumerate(call.outputs):
        if kind is None:
            continue
        if not isinstance(kind, TensorType) or not kind.is_static:
            return True
        try:
            definition(spec, call, k, tuple(index(f"i{d}") for d in range(kind.rank)))
        except NotDefined:
            return False
    return True


def _without_definition() -> tuple[str, ...]:
    """Operators that no row defines. Random ones and those of sequences gain nothing from their functions."""
    rows = [spec for spec in OPERATORS if spec.scalar is None and spec.define is None and not is_opaque(spec)]
    return tuple(f"{spec.domain}.{spec.name}" if spec.domain else spec.name for spec in rows)


_RULES = (LocalRule("expand-undefined", tuple(sorted({*UNDEFINED, *_without_definition()})), _expanded),)
